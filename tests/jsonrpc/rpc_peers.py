"""The other end of a JSON-RPC conversation, played line by line by the test, over a connection in memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from claude_transport import JSONRPCPeer, StreamTransport
from claude_transport.streams.memory import MemoryConnectable, MemoryStream

PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite


class Other:
    """The other end. `heard` are the messages that were read so far, also those that `hear()` has returned."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.heard: list[dict[str, Any]] = []
        self._unheard: deque[dict[str, Any]] = deque()
        self._rest = b""

    async def say(self, *messages: object) -> None:
        """Send messages, each on its line; bytes are sent as they are."""
        with anyio.fail_after(PATIENCE):
            lines = [message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n" for message in messages]
            await self.stream.send(b"".join(lines))

    async def hear(self) -> dict[str, Any]:
        """Return the next message."""
        with anyio.fail_after(PATIENCE):
            while not self._unheard:
                *lines, self._rest = (self._rest + await self.stream.receive()).split(b"\n")
                messages = [json.loads(line) for line in lines]
                self.heard += messages
                self._unheard += messages
        return self._unheard.popleft()

    async def answer(self, result: object = None, *, request: dict[str, Any] | None = None) -> None:
        """Answer `request`, or else the next one."""
        request = request or await self.hear()
        await self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def hang_up(self) -> None:
        """End the connection well."""
        await self.stream.aclose()


@asynccontextmanager
async def connected(*, capacity: int = 2**20, max_line_bytes: int = 2**20, **options: Any) -> AsyncIterator[tuple[JSONRPCPeer, Other]]:
    """A peer of this library, and the other end of its connection."""
    connectable = MemoryConnectable(capacity=capacity)
    async with JSONRPCPeer(StreamTransport(connectable, max_line_bytes=max_line_bytes), **options) as peer:
        yield peer, Other(await connectable.accept())
