"""`MemoryPeer`: the peer at the other end of a stream in memory; and `ReadingPeer`, the part that it shares with sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream

from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.testing.conformance.subject import Peer


class ReadingPeer(Peer):
    """A peer that reads a stream all the time, except between `stop_reading()` and `resume_reading()`."""

    def __init__(self) -> None:
        super().__init__()
        self._may_read = anyio.Event()
        self._may_read.set()
        self._pause = anyio.CancelScope()

    async def read_all(self, stream: ByteReceiveStream) -> None:
        """Read until the stream ends. Raises what `stream.receive()` raises."""
        while True:
            await self._may_read.wait()
            with anyio.CancelScope() as self._pause:
                self.take(await stream.receive())

    async def stop_reading(self) -> None:
        """Stop reading."""
        self._may_read = anyio.Event()
        self._pause.cancel()
        await anyio.lowlevel.checkpoint()

    async def resume_reading(self) -> None:
        """Read again."""
        self._may_read.set()
        await anyio.lowlevel.checkpoint()


class MemoryPeer(ReadingPeer):
    """A peer at one end of a pair of streams. `attend()` must run in a task."""

    def __init__(self, stream: MemoryStream) -> None:
        super().__init__()
        self._stream = stream

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
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.read_all(self._stream)
        self.input_over()

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
