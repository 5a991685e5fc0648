"""Byte streams in memory: two connected ends that behave as a real connection does.

They have back pressure and half-close, and can break. Tests and the simulated peers use them; no operating system is involved.
"""

from __future__ import annotations

import math
from collections import deque

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import UsageError

DEFAULT_CAPACITY = 65536
"""Bytes that each direction holds: as many as a pipe on Linux."""


def memory_stream_pair(*, capacity: int = DEFAULT_CAPACITY) -> tuple[MemoryStream, MemoryStream]:
    """Return two connected streams: what one sends, the other receives. Each direction holds up to `capacity` bytes.

    With `capacity=0` a send completes only when the peer has received all of it. Raises `UsageError` for a negative `capacity`.
    """
    if capacity < 0:
        raise UsageError(f"capacity is a number of bytes, or 0 for lockstep, not {capacity}")
    here, there = _Pipe(capacity), _Pipe(capacity)
    return MemoryStream(here, there), MemoryStream(there, here)


class MemoryStream(ByteStream):
    """One end of a `memory_stream_pair()`. Not for use from several threads.

    A cancelled `receive()` loses nothing; a cancelled `send()` may have sent a part. One task at a time may send and one may
    receive (`anyio.BusyResourceError`).
    """

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False
        self._sending = anyio.ResourceGuard("writing to")
        self._receiving = anyio.ResourceGuard("reading from")

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte, and return at most `max_bytes`.

        Raises:
            anyio.EndOfStream: the peer has ended its side, and all of it was received.
            anyio.BrokenResourceError: the peer broke the connection, and all it had sent was received.
            anyio.ClosedResourceError: this end is closed.
        """
        if max_bytes < 1:
            raise UsageError(f"max_bytes must be at least 1, not {max_bytes}")
        pipe = self._incoming
        with self._receiving:
            await anyio.lowlevel.checkpoint()
            while True:
                # no await between taking and returning: a cancellation finds the bytes either here or with the caller
                if self._closed:
                    raise anyio.ClosedResourceError
                if data := pipe.take(max_bytes):
                    return data
                if pipe.broken:
                    raise anyio.BrokenResourceError
                if pipe.ended:
                    raise anyio.EndOfStream
                await pipe.changed.wait()

    async def send(self, item: bytes) -> None:
        """Send all of `item`. Waits while the buffer is full; in lockstep, until the peer has received the last byte.

        Raises:
            anyio.BrokenResourceError: the peer has closed its end or broken the connection.
            anyio.ClosedResourceError: this end is closed, or `send_eof()` was called.
        """
        pipe = self._outgoing
        with self._sending:
            await anyio.lowlevel.checkpoint()
            rest = memoryview(bytes(item))
            try:
                while True:
                    self._refuse_if_unwritable()
                    rest = pipe.put(rest)
                    if not rest and not (pipe.lockstep and pipe.size):
                        return
                    await pipe.changed.wait()
            except BaseException:
                if pipe.lockstep:
                    pipe.withdraw()  # in lockstep, bytes that were not received count as not sent
                raise

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will be sent; receiving goes on."""
        if not self._closed:
            self._outgoing.ended = True
            self._outgoing.notify()
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close this end: the peer receives what was sent and then the end, and cannot send any more."""
        self._close(broken=False)
        await anyio.lowlevel.checkpoint()

    def break_connection(self) -> None:
        """Close this end as a crash would: the peer receives what was sent, and then `BrokenResourceError` instead of the end."""
        self._close(broken=True)

    def _close(self, *, broken: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._incoming.deaf = True
        self._incoming.withdraw()
        self._outgoing.broken = broken and not self._outgoing.ended
        self._outgoing.ended = True
        self._incoming.notify()
        self._outgoing.notify()

    def _refuse_if_unwritable(self) -> None:
        if self._closed or self._outgoing.ended:
            raise anyio.ClosedResourceError
        if self._outgoing.deaf:
            raise anyio.BrokenResourceError


class MemoryConnectable(ByteStreamConnectable):
    """Opens memory streams: each `connect()` makes a pair, returns one end, and keeps the other for `accept()`."""

    def __init__(self, *, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = capacity
        self._waiting: deque[MemoryStream] = deque()
        self._arrived = anyio.Event()

    async def connect(self) -> MemoryStream:
        """Return one end of a new pair."""
        await anyio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair(capacity=self._capacity)
        self._waiting.append(theirs)
        arrived, self._arrived = self._arrived, anyio.Event()
        arrived.set()
        return ours

    async def accept(self) -> MemoryStream:
        """Wait for a connection, without a time limit, and return the other end of the oldest one that was not accepted yet."""
        await anyio.lowlevel.checkpoint()
        while not self._waiting:
            await self._arrived.wait()
        return self._waiting.popleft()


class _Pipe:
    """One direction of a pair. To wait for a change, await `changed` and look at the state again."""

    def __init__(self, capacity: int) -> None:
        self.room: float = math.inf if capacity == 0 else capacity  # in lockstep there is room for a whole send
        self.lockstep: bool = capacity == 0
        self.chunks: deque[memoryview] = deque()
        self.size: int = 0
        self.ended = False  # the sender called `send_eof()` or closed
        self.broken = False  # the sender broke the connection
        self.deaf = False  # the receiver is closed
        self.changed: anyio.Event = anyio.Event()

    def notify(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def put(self, data: memoryview) -> memoryview:
        """Take as much of `data` as there is room for, and return the rest."""
        taken = data if self.size + len(data) <= self.room else data[: int(self.room) - self.size]
        if taken:
            self.chunks.append(taken)
            self.size += len(taken)
            self.notify()
        return data[len(taken) :]

    def take(self, max_bytes: int) -> bytes:
        """Return at most `max_bytes`, joined; b"" when there are none."""
        pieces: list[memoryview] = []
        wanted = max_bytes
        while self.chunks and wanted:
            piece = self.chunks.popleft()
            if len(piece) > wanted:
                self.chunks.appendleft(piece[wanted:])
                piece = piece[:wanted]
            pieces.append(piece)
            wanted -= len(piece)
        if pieces:
            self.size -= max_bytes - wanted
            self.notify()
        return b"".join(pieces)

    def withdraw(self) -> None:
        """Drop the bytes that were not taken."""
        self.chunks.clear()
        self.size = 0
