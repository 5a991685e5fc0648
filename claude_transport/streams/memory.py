"""Byte streams in memory: two connected ends, with the back pressure, the half-close and the accidents of real ones."""

from __future__ import annotations

import math
from collections import deque

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.errors import UsageError

DEFAULT_CAPACITY = 65536
"""Bytes on their way in each direction: what a pipe holds on Linux."""


class _Pipe:
    """One direction. Whoever waits on it waits for `changed`, and looks again."""

    def __init__(self, capacity: int) -> None:
        self.room: float = math.inf if capacity == 0 else capacity  # lockstep lets a sender in whole, and keeps it until all is taken
        self.lockstep: bool = capacity == 0
        self.chunks: deque[memoryview] = deque()
        self.size: int = 0
        self.ended = False  # the sender has said that nothing more comes
        self.broken = False  # the sender is gone without having said so
        self.deaf = False  # the receiver is gone
        self.changed: anyio.Event = anyio.Event()

    def notify(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def put(self, data: memoryview) -> memoryview:
        """Take as much of `data` as there is room for; what is left over."""
        taken = data if self.size + len(data) <= self.room else data[: int(self.room) - self.size]
        if taken:
            self.chunks.append(taken)
            self.size += len(taken)
            self.notify()
        return data[len(taken) :]

    def take(self, max_bytes: int) -> bytes:
        """At most `max_bytes` of what is there, joined; b"" when nothing is."""
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
        """Forget what nobody has taken."""
        self.chunks.clear()
        self.size = 0


class MemoryStream(ByteStream):
    """One end of a `memory_stream_pair()`. A cancelled `receive()` takes nothing along; a cancelled `send()` may leave a part behind.

    One task at a time may send and one may receive (`anyio.BusyResourceError`). Not for use from several threads.
    """

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False
        self._sending = anyio.ResourceGuard("writing to")
        self._receiving = anyio.ResourceGuard("reading from")

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What the peer sent, at most `max_bytes`; waits for at least one byte.

        Raises:
            anyio.EndOfStream: the peer has ended its side, and all of it was received.
            anyio.BrokenResourceError: the peer broke the connection, and what it had sent was received.
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
        """Hand over all of `item`; waits while the buffer is full, in lockstep until the peer has received the last byte.

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
                    pipe.withdraw()  # what was not received has never left this end
                raise

    async def send_eof(self) -> None:
        """Say that nothing more will be sent; receiving goes on."""
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


def memory_stream_pair(*, capacity: int = DEFAULT_CAPACITY) -> tuple[MemoryStream, MemoryStream]:
    """Two connected streams: what one sends, the other receives. Each direction holds up to `capacity` bytes.

    `capacity=0` is lockstep: a send completes only when the peer has received all of it. Raises `UsageError` for a negative one.
    """
    if capacity < 0:
        raise UsageError(f"capacity is a number of bytes, or 0 for lockstep, not {capacity}")
    here, there = _Pipe(capacity), _Pipe(capacity)
    return MemoryStream(here, there), MemoryStream(there, here)


class MemoryConnectable:
    """An opener for `StreamTransport`: each `connect()` makes a new pair, keeps one end, and leaves the other to `accept()`."""

    def __init__(self, *, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = capacity
        self._waiting: deque[MemoryStream] = deque()
        self._arrived = anyio.Event()

    async def connect(self) -> MemoryStream:
        """A new, open stream."""
        await anyio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair(capacity=self._capacity)
        self._waiting.append(theirs)
        arrived, self._arrived = self._arrived, anyio.Event()
        arrived.set()
        return ours

    async def accept(self) -> MemoryStream:
        """The other end of the oldest connection that nobody has accepted; waits for one, however long that takes."""
        await anyio.lowlevel.checkpoint()
        while not self._waiting:
            await self._arrived.wait()
        return self._waiting.popleft()
