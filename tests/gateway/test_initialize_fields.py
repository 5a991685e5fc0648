"""The gateway's options win over the fields of the client's `initialize`, however that is written."""

from __future__ import annotations

import json

import pytest

from claude_transport.gateway.initialization import ServerFields

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
    (merged,) = ServerFields(OURS).merged([line.encode()])
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
    (merged,) = ServerFields(OURS).merged([line])
    assert merged is line
