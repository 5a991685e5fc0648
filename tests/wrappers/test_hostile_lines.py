"""What a peer sends in place of a type or an id is one printable line in the log of the wire, and so is the body."""

from __future__ import annotations

import json
import logging

import pytest
from hostile_words import HOSTILE, assert_records_are_safe

from claude_transport.transports.mock import MockTransport
from claude_transport.wrappers.logging import LoggingTransport


@pytest.mark.one_loop
@pytest.mark.parametrize("bodies", [False, True])
@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_line_is_logged_on_one_line(words: str, bodies: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport")
    lines = [
        {"type": words, "subtype": words, "uuid": words, "session_id": words},
        {"type": "control_request", "request_id": words, "request": {"subtype": words}},
        {"type": "user", "message": {"role": "user", "content": words}},
    ]
    async with LoggingTransport(MockTransport(lines), bodies=bodies) as transport:
        await transport.write(json.dumps({"type": "user", "subtype": words}, ensure_ascii="\ud800" in words))
        heard = [line async for batch in transport.read_lines() for line in batch]
    assert len(heard) == len(lines)
    assert_records_are_safe(caplog.records)
    assert len([record for record in caplog.records if "claude_direction" in vars(record)]) == len(lines) + 1
