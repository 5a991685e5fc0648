"""The gateway's options replace fields of `initialize`, and bound later thinking budgets, in any spelling of the JSON."""

from __future__ import annotations

import json

import pytest
from rehearsal import rehearsal

from claude_transport.agents.claude_fields import ClaudeFields
from claude_transport.launch.options import ClaudeOptions

OURS = {"appendSystemPrompt": "ours"}
THEIRS = {"subtype": "initialize", "appendSystemPrompt": "theirs", "title": "kept"}
WRITTEN = json.dumps({"type": "control_request", "request_id": "1", "request": THEIRS})
HIDDEN = WRITTEN.replace("initialize", "initi\\u0061lize")


@pytest.mark.parametrize(
    "line",
    [
        WRITTEN,
        WRITTEN.replace(": ", ":"),
        WRITTEN.replace(": ", "  :\t "),
        HIDDEN,
        HIDDEN.replace("subtype", "sub\\u0074ype").replace("control_request", "control\\u005frequest"),
        WRITTEN.replace('"subtype"', '"subtype": "interrupt", "subtype"'),
    ],
)
def test_a_field_of_the_gateway_replaces_the_clients(line: str) -> None:
    (merged,) = ClaudeFields(OURS).merged([line.encode()])
    assert json.loads(merged)["request"] == {**THEIRS, **OURS}


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","message":{"role":"user","content":"\\u0022subtype\\u0022: \\u0022initialize\\u0022"}}',
        b'{"type":"user","message":{"role":"user","content":"a \\u00e9"}}',
        b'{"type":"control_request","request":{"subtype":"interrupt","note":"\\u0041"}}',
        b'{"type":"control_request","request":"\\u0041"}',
        b'["\\u0041"]',
        b"\\u0041 no JSON",
        b'{"type":"control_response","request":{"subtype":"initialize"}}',
    ],
)
def test_every_other_line_stays_the_bytes_it_was(line: bytes) -> None:
    (merged,) = ClaudeFields(OURS).merged([line])
    assert merged is line


def asking(tokens: object) -> bytes:
    request = {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": tokens}
    return json.dumps({"type": "control_request", "request_id": "1", "request": request}).encode()


@pytest.mark.parametrize(
    ("wanted", "gets"), [(10**6, 1024), (1025, 1024), (99, 99), (0, 0), (None, 1024), ("1e9", 1024), (1e9, 1024), (True, 1024), ({}, 1024)]
)
def test_a_running_session_cannot_raise_its_thinking_budget_either(wanted: object, gets: int) -> None:
    for line in (asking(wanted), asking(wanted).replace(b"thinking_tokens", b"thinking\\u005ftokens")):
        (merged,) = ClaudeFields({}, max_thinking_tokens=1024).merged([line])
        assert json.loads(merged)["request"]["max_thinking_tokens"] == gets


def test_without_a_budget_of_the_gateway_such_a_request_stays_the_bytes_it_was() -> None:
    line = asking(10**6)
    for fields in ({}, OURS):
        (merged,) = ClaudeFields(fields).merged([line])
        assert merged is line


async def test_the_budget_of_the_gateways_options_holds_on_the_wire() -> None:
    async with rehearsal(options=ClaudeOptions(thinking={"type": "enabled", "budget_tokens": 1024})) as stage:
        client = await stage.link(options={"thinking": {"type": "enabled", "budget_tokens": 10**6}})
        process = await stage.processes.next()
        assert stage.processes.options[0].thinking == {"type": "enabled", "budget_tokens": 1024}
        await client.send_line(asking(10**6))
        assert json.loads(await process.hear())["request"]["max_thinking_tokens"] == 1024
