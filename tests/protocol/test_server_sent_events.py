"""Server-sent events: what is written can be read, however it was cut on its way, and a hostile stream stays bounded."""

from __future__ import annotations

import pytest

from claude_transport.errors import ProtocolError
from claude_transport.protocol.server_sent_events import HEARTBEAT, EventReader, ServerSentEvent, encode_event

STREAM = encode_event(b'{"n":1}', id="1") + HEARTBEAT + encode_event("ä\u2028".encode(), id="2") + encode_event(b"{}", kind="end")
EVENTS = [ServerSentEvent(b'{"n":1}', id="1"), ServerSentEvent("ä\u2028".encode(), id="2"), ServerSentEvent(b"{}", "end", "2")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_however_they_were_cut(size: int) -> None:
    reader = EventReader()
    found = [event for start in range(0, len(STREAM), size) for event in reader.feed(STREAM[start : start + size])]
    assert found == EVENTS


def test_what_a_proxy_may_make_of_them_is_read() -> None:
    found = EventReader().feed(b": hello\r\nid:7\r\nretry: 10\r\ndata: one\r\ndata:two\r\n\r\nevent: x\n\n")
    assert found == [ServerSentEvent(b"one\ntwo", id="7")]


def test_an_event_of_empty_lines_is_refused() -> None:
    reader = EventReader(max_bytes=1000)
    with pytest.raises(ProtocolError, match="1000"):
        for _ in range(2000):
            reader.feed(b"data:\n")


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 2000, b"data: " + b"x" * 2000 + b"\n\n", b"data: xxxxxxxxxx\n" * 200])
def test_an_event_without_end_is_refused(stream: bytes) -> None:
    reader = EventReader(max_bytes=1000)
    with pytest.raises(ProtocolError, match="1000"):
        for start in range(0, len(stream), 100):
            reader.feed(stream[start : start + 100])
