"""Where a worker puts in its secrets, and where the model or the client would read them and it does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from broker_server import BrokerServer
from programs import ECHO, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.secrets import check_no_secrets, with_secrets
from claude_transport.launch.options import ClaudeOptions
from claude_transport.transports.subprocess import SubprocessTransport

NAMED = "secret:KEY-OF-A"
HIDDEN = "hidden-on-the-worker"
SECRETS = {"KEY-OF-A": HIDDEN}

IN_TEXTS: dict[str, Any] = {
    "append_system_prompt": NAMED,
    "disallowed_tools": [NAMED],
    "fallback_model": NAMED,
    "model": NAMED,
    "output_format": {"type": "json_schema", "schema": {"type": "object", "description": NAMED}},
    "system_prompt": NAMED,
    "title": NAMED,
}
"""Options that the model reads, or that the client reads back: in `system` `init`, in answers, in the list of sessions."""

PLACES: dict[str, Any] = {
    "env": {"TOKEN_OF_A": NAMED, NAMED: "a value", "TEXT": f"about {NAMED}"},
    "mcp_servers": {
        NAMED: {"command": "serve", "args": ["--key", NAMED, f"--key={NAMED}"], "env": {"KEY": NAMED}},
        "far": {"type": "http", "url": "https://mcp.example.com", "headers": {"X-Key": NAMED}},
    },
}

PUT_IN: dict[str, Any] = {
    "env": {"TOKEN_OF_A": HIDDEN, NAMED: "a value", "TEXT": f"about {NAMED}"},
    "mcp_servers": {
        NAMED: {"command": "serve", "args": ["--key", HIDDEN, f"--key={NAMED}"], "env": {"KEY": HIDDEN}},
        "far": {"type": "http", "url": "https://mcp.example.com", "headers": {"X-Key": HIDDEN}},
    },
}
"""The same with the secret: only a whole value is replaced, never a name or a part of a text."""


def test_a_secret_is_put_in_where_a_whole_value_names_it() -> None:
    assert with_secrets(PLACES, SECRETS) == PUT_IN


def test_no_other_option_gets_a_secret() -> None:
    others = set(ClaudeOptions.__struct_fields__) - PLACES.keys()
    texts = dict.fromkeys(others, NAMED)
    nested = {option: {"text": NAMED, "texts": [NAMED, {"text": NAMED}]} for option in others}
    assert (with_secrets(texts, SECRETS), with_secrets(nested, SECRETS)) == (texts, nested)


def test_a_value_that_nests_without_end_is_refused() -> None:
    value: Any = NAMED
    for _ in range(100):
        value = [value]
    with pytest.raises(errors.ConfigurationError, match="mcp_servers has more than 16 levels") as caught:
        with_secrets({"mcp_servers": {"s": value}}, SECRETS)
    assert caught.value.option == "mcp_servers"


@pytest.mark.parametrize("value", ["secret:two words", "secret: KEY", "secret:a/b", f"secret:{'x' * 129}"])
def test_what_only_looks_like_a_name_is_refused_as_the_secret_that_it_may_be(value: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="env holds a secret") as caught:
        check_no_secrets({"env": {"API_KEY": value}})
    assert (caught.value.option, value in str(caught.value)) == ("env", False)
    check_no_secrets(PLACES)


async def test_no_text_of_a_session_and_no_line_of_its_client_gets_a_secret_of_the_worker(broker: BrokerServer) -> None:
    started: list[dict[str, Any]] = []

    def launch(options: ClaudeOptions) -> SubprocessTransport:
        started.append({name: getattr(options, name) for name in (*IN_TEXTS, *PLACES)})
        return SubprocessTransport(command=ECHO)

    choices = [*IN_TEXTS, *PLACES]
    lines: list[dict[str, Any]] = [
        {"type": "user", "message": {"role": "user", "content": NAMED}},
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": NAMED}]}},
        {"type": "control_request", "request_id": "1", "request": {"subtype": "set_model", "model": NAMED}},
        {"type": "control_request", "request_id": "2", "request": {"subtype": "mcp_set_servers", "servers": {"s": {"command": NAMED}}}},
    ]
    worker = FleetWorker(broker.url, launch=launch, choices=choices, secrets=SECRETS)
    async with serving(worker), FleetTransport(broker.url, options={**IN_TEXTS, **PLACES}) as transport:
        for line in lines:
            await transport.write(msgspec.json.encode(line))
        assert await read(transport.read_messages(), len(lines)) == lines
    assert started == [{**IN_TEXTS, "disallowed_tools": (NAMED,), **PUT_IN}]
