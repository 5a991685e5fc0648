"""Server-sent events (WHATWG HTML, 9.2): one event as bytes, and a reader of a stream of them. Bytes only: nothing here waits."""

from __future__ import annotations

from typing import Final

import msgspec

from claude_transport.errors import ProtocolError

CONTENT_TYPE: Final = "text/event-stream; charset=utf-8"

HEARTBEAT: Final = b":\n\n"
"""A comment: it shows that the connection lives, and every reader ignores it."""

DEFAULT_MAX_EVENT_BYTES: Final = 512 * 2**20
"""Bytes of one event. A line of a session may have 256 MiB, and half as much again in JSON."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event. `kind` is `message` unless the sender named another; `id` is the last id that was sent, or empty."""

    data: bytes
    kind: str = "message"
    id: str = ""


def encode_event(data: bytes, *, id: str = "", kind: str = "") -> bytes:  # noqa: A002 - the word of the standard
    """Return one event. `data` must be one line, and `id` and `kind` must hold no line break."""
    head = (f"id: {id}\n" if id else "") + (f"event: {kind}\n" if kind else "")
    return b"%sdata: %s\n\n" % (head.encode(), data)


class EventReader:
    """Reads events from chunks of bytes, cut anywhere. Memory is bounded by `max_bytes` for one event.

    It reads what `encode_event()` writes, and what proxies may make of it: lines that end in CR LF, several `data` lines, comments. A line
    that ends in a lone CR is not understood.
    """

    def __init__(self, *, max_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._framer = _Lines(max_bytes)
        self._data: list[bytes] = []
        self._size = 0
        self._kind = ""
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that `chunk` completes. Raises `ProtocolError` for one that is too large."""
        found: list[ServerSentEvent] = []
        for line in self._framer.feed(chunk):
            if line:
                self._field(line)
            else:
                found += self._event()
        return found

    def _event(self) -> list[ServerSentEvent]:
        data, kind = self._data, self._kind or "message"
        self._data, self._kind, self._size = [], "", 0
        return [ServerSentEvent(b"\n".join(data), kind, self._id)] if data else []

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._max_bytes:
                raise ProtocolError(f"an event has more than {self._max_bytes} bytes")
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")


class _Lines:
    """Divides chunks into lines, with the blank ones, which end an event; `LineFramer` leaves those out."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        *whole, tail = chunk.split(b"\n")
        if whole and self._begun:
            whole[0] = b"".join([*self._begun, whole[0]])
            self._begun, self._size = [], 0
        if tail:
            self._begun.append(tail)
            self._size += len(tail)
        if self._size > self._max_bytes or any(len(line) > self._max_bytes for line in whole):
            raise ProtocolError(f"an event has a line of more than {self._max_bytes} bytes")
        return [line.removesuffix(b"\r") for line in whole]
