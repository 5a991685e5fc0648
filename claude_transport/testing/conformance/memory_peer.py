"""`MemoryPeer`: the peer at the other end of a stream in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.testing.conformance.subject import Peer


class MemoryPeer(Peer):
    """A peer that reads its stream all the time, in the task that runs `attend()`."""

    def __init__(self, stream: MemoryStream) -> None:
        super().__init__()
        self._stream = stream
        self._may_read = anyio.Event()
        self._may_read.set()
        self._pause = anyio.CancelScope()

    @classmethod
    @asynccontextmanager
    async def pair(cls, *, capacity: int) -> AsyncIterator[tuple[MemoryStream, MemoryPeer]]:
        """Give a stream for a transport, and the peer at its other end. The connection breaks after the block."""
        ours, theirs = memory_stream_pair(capacity=capacity)
        async with cls(theirs).attended() as peer:
            yield ours, peer

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[MemoryPeer]:
        """Read until the end of the block, then break the connection."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.attend)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()
                self._stream.break_connection()

    async def attend(self) -> None:
        """Read until the input ends."""
        while True:
            await self._may_read.wait()
            try:
                with anyio.CancelScope() as self._pause:
                    self.take(await self._stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.input_over()
                return

    async def send(self, data: bytes) -> None:
        """Send `data`."""
        await self._stream.send(data)

    async def finish(self) -> None:
        """End the sending side, like a program that closes its output; go on reading."""
        await self._stream.send_eof()

    async def fail(self) -> None:
        """Break the connection in both directions."""
        self._stream.break_connection()
        await anyio.lowlevel.checkpoint()

    async def stop_reading(self) -> None:
        """Stop reading."""
        self._may_read = anyio.Event()
        self._pause.cancel()
        await anyio.lowlevel.checkpoint()

    async def resume_reading(self) -> None:
        """Read again."""
        self._may_read.set()
        await anyio.lowlevel.checkpoint()
