"""`peek`: what a line says about itself, whatever the order of its keys, and never an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.protocol.peek import NO_MESSAGE, Peek, peek

RECORDINGS = Path(__file__).parents[1] / "testing" / "recordings"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b'{"type":"result","subtype":"success","uuid":"u","session_id":"s"}',
            Peek(type="result", subtype="success", uuid="u", session_id="s"),
        ),
        (b' { "uuid" : "u" , "result" : "type" , "type" : "result" } ', Peek(type="result", uuid="u")),
        (
            b'{"request":{"tool_name":"Bash","subtype":"can_use_tool"},"request_id":"r","type":"control_request"}',
            Peek(type="control_request", subtype="can_use_tool", request_id="r"),
        ),
        (
            b'{"type":"control_response","response":{"request_id":"r","subtype":"error","error":"no"}}',
            Peek(type="control_response", subtype="error", request_id="r"),
        ),
        (b'{"type":"control_response"}', Peek(type="control_response")),
        (b'{"type":"control_cancel_request","request_id":"r"}', Peek(type="control_cancel_request", request_id="r")),
        (b'{"method":"turn/start","id":7,"params":{}}', Peek(type="turn/start", request_id="7")),
        (b'{"id":7,"result":{}}', Peek(type="answer", request_id="7")),
        (b'{"id":"a","error":{"code":-32600}}', Peek(type="error", request_id="a")),
        (b'{"id":[1],"result":{}}', Peek(type="answer")),
        (b'{"id":' + b"9" * 5000 + b"}", NO_MESSAGE),
        (b'{"type":5,"uuid":[],"session_id":"s"}', Peek(session_id="s")),
        (b'{"type":"","subtype":""}', NO_MESSAGE),
        (b'{"type":"control_request","request":[]}', NO_MESSAGE),
        (b"", NO_MESSAGE),
        (b"null", NO_MESSAGE),
        (b"[1]", NO_MESSAGE),
        (b"noise", NO_MESSAGE),
        (b'{"type":"resu', NO_MESSAGE),
        (b'{"type":"\xff"}', NO_MESSAGE),
        (b'{"type":"user","content":' + b"[" * 100_000, NO_MESSAGE),
    ],
)
def test_a_line_says_what_it_is(line: bytes, expected: Peek) -> None:
    assert peek(line) == expected


def test_every_recorded_line_is_read_as_a_whole_decoder_reads_it() -> None:
    lines = [line for file in sorted(RECORDINGS.rglob("*.ndjson")) for line in file.read_bytes().splitlines()]
    records = [json.loads(line) for line in lines]
    assert len(records) > 100
    for record in records:
        message: dict[str, Any] = record.get("line") if isinstance(record.get("line"), dict) else record
        found = peek(json.dumps(message, indent=1).replace("\n", " ").encode())
        inside = message.get("request") or message.get("response") or {}
        is_control = message.get("type") in ("control_request", "control_response")
        if "type" in message:
            assert found == Peek(
                type=message["type"],
                subtype=(inside if is_control else message).get("subtype"),
                request_id=message.get("request_id") or (inside.get("request_id") if is_control else None),
                uuid=message.get("uuid"),
                session_id=message.get("session_id"),
            )


@given(st.binary(max_size=200))
def test_no_line_raises(line: bytes) -> None:
    assert isinstance(peek(line), Peek)
