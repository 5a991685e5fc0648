"""The resumable link as a medium of the kit: over connections in memory, to a peer that speaks the server's side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from claude_transport.streams.link import LinkConnectable
from claude_transport.streams.memory import MemoryConnectable, MemoryStream
from claude_transport.testing.conformance.link_peer import LinkPeer
from claude_transport.testing.conformance.medium import LiveMedium
from claude_transport.testing.conformance.subject import Subject
from claude_transport.transports.stream import StreamTransport

__all__ = ["LinkMedium"]

_LINE_LIMIT = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap. The window and the replay buffers are as large."""

_CLOSE_TIMEOUT = 1.0
"""Seconds that a far process which does not want to leave gets."""


class LinkMedium(LiveMedium):
    """`StreamTransport` over a `LinkConnectable`."""

    name = "link"

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport of a new session."""
        door = _Door()
        async with LinkPeer(window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT).listening(door.accept) as peer:
            link = LinkConnectable(door, window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT, close_timeout=_CLOSE_TIMEOUT)
            yield Subject(
                transport=StreamTransport(link, max_line_bytes=_LINE_LIMIT, close_timeout=2 * _CLOSE_TIMEOUT),
                peer=peer,
                refuse=door.refuse,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=2 * _CLOSE_TIMEOUT,
                absorbs=2**20,
            )


class _Door(MemoryConnectable):
    """Connections in memory, when there are any to be had."""

    def __init__(self) -> None:
        super().__init__()
        self._refusing = False

    def refuse(self, refusing: bool) -> None:
        self._refusing = refusing

    async def connect(self) -> MemoryStream:
        if self._refusing:
            raise ConnectionRefusedError("nobody is at home")
        return await super().connect()
