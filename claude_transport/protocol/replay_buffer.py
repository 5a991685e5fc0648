"""`ReplayBuffer`: a stream of bytes on its way out, kept until the peer has dealt with it, with the ends behind the last byte."""

from __future__ import annotations

from collections import deque

from claude_transport.errors import ProtocolError, ReplayGap

__all__ = ["ReplayBuffer"]

_CRUMB_BYTES = 1024
"""A piece smaller than this is copied together with others that wait: as an object of its own it could cost many times its size."""

_GATHERED_BYTES = 64 * 2**10
"""Crumbs gathered into one piece: a buffer that grows for ever is moved for ever."""


class ReplayBuffer:
    """Bytes at the positions 0, 1, 2, … and behind them the ends, one position each: what was said on this connection, and what waits.

    `bound` is in bytes. With `may_outrun` the oldest are forgotten when it is exceeded; without, it is for the sender to look at.
    """

    def __init__(self, *, bound: int, may_outrun: bool) -> None:
        self._bound = bound
        self._may_outrun = may_outrun
        self._flown: deque[bytes | memoryview] = deque()  # from `_first` on
        self._waiting: deque[bytes | memoryview] = deque()
        self._crumbs = bytearray()  # the end of what waits, never all of it
        self._ends: list[bytes] = []  # the frames behind the last byte
        self._first = 0  # the first byte that is kept
        self._said = 0  # the position up to which this connection has it
        self._reached = 0  # the highest position that any connection had
        self._size = 0  # bytes put in, in all
        self._acknowledged = 0

    @property
    def size(self) -> int:
        """Bytes that were put in, in all."""
        return self._size

    @property
    def last(self) -> int:
        """The position behind everything, the ends too."""
        return self._size + len(self._ends)

    @property
    def acknowledged(self) -> int:
        """The position up to which the peer has dealt with it."""
        return self._acknowledged

    @property
    def first(self) -> int:
        """The first position that can still be said."""
        return max(self._acknowledged, self._first)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept."""
        return self._size - self._first

    @property
    def has_room(self) -> bool:
        """True while less is kept than the bound."""
        return self._size - self._first < self._bound

    @property
    def is_waiting(self) -> bool:
        """True while there is something that was not said on this connection."""
        return self._said < self.last

    def put(self, data: bytes) -> None:
        """Keep `data` as the next bytes of the stream."""
        if len(data) < _CRUMB_BYTES and self._waiting:
            self._crumbs += data
            if len(self._crumbs) >= _GATHERED_BYTES:
                self._gather()
        elif data:
            self._gather()
            self._waiting.append(data)
        self._size += len(data)
        if self._may_outrun and self.kept_bytes > self._bound:
            self._gather()
            self._trim(self._size - self._bound)

    def put_end(self, frame: bytes) -> None:
        """Keep the `frame` of an end, as the next position. No bytes may follow."""
        self._ends.append(frame)

    def may_fly(self, window: int) -> bool:
        """Whether the peer's window, in bytes, lets something out; the ends need no room in it."""
        if self._said < self._size:
            return self._said < self._acknowledged + window
        return self._said < self.last

    def take(self, max_bytes: int, *, window: int) -> list[bytes | memoryview]:
        """The next pieces to say, of a frame of at most `max_bytes` of data and of the ends. `ReplayGap` when what is next was outrun."""
        if self._said < self._first:
            raise ReplayGap(f"what follows position {self._said} was forgotten before it could be said")
        pieces: list[bytes | memoryview] = []
        size = min(max_bytes, self._size - self._said, self._acknowledged + window - self._said)
        if size > 0:
            pieces.append(b"D %d %d\n" % (self._said, size))
            self._fly(size, pieces)
        if self._size <= self._said < self.last:
            pieces += self._ends[self._said - self._size :]
            self._said = self.last
        self._reached = max(self._reached, self._said)
        return pieces

    def acknowledge(self, position: int) -> None:
        """Forget everything up to `position`. Raises `ProtocolError` for what the peer cannot have seen."""
        if position > self._said:
            raise ProtocolError(f"the peer acknowledges position {position}, which it was not told", code="link.numbers")
        if position > self._acknowledged:
            self._acknowledged = position
            self._trim(min(position, self._size))

    def rewind(self, *, received: int) -> None:
        """Make ready to say again everything after position `received`, on a new connection.

        Raises:
            ReplayGap: some of that is not kept any more.
            ProtocolError: so much was never said.
        """
        if received > self._reached:
            raise ProtocolError(f"the peer has received up to position {received}, but only {self._reached} was said", code="link.numbers")
        if received < self.first:
            raise ReplayGap(f"the peer has received up to position {received}, but can be told again only from {self.first} on")
        self._gather()
        self._waiting = self._flown + self._waiting
        self._flown = deque()
        self._said = self._first
        self._fly(min(received, self._size) - self._first, [])
        self._said = received

    def _gather(self) -> None:
        if self._crumbs:
            self._waiting.append(bytes(self._crumbs))
            self._crumbs = bytearray()

    def _fly(self, size: int, pieces: list[bytes | memoryview]) -> None:
        """Move the next `size` bytes over to what was said; they are added to `pieces`, too."""
        self._said += size
        waiting, flown = self._waiting, self._flown
        while size > 0:
            piece = waiting.popleft()
            if len(piece) > size:
                whole = memoryview(piece)
                piece = whole[:size]
                waiting.appendleft(whole[size:])
            pieces.append(piece)
            size -= len(piece)
            if len(piece) < _CRUMB_BYTES and flown and len(flown[-1]) < _CRUMB_BYTES:
                flown[-1] = b"".join((flown[-1], piece))
            else:
                flown.append(piece)
            if not waiting:
                self._gather()

    def _trim(self, first: int) -> None:
        """Keep nothing in front of position `first`."""
        size = first - self._first
        self._first = max(first, self._first)
        while size > 0:
            pieces = self._flown or self._waiting
            piece = pieces.popleft()
            if len(piece) > size:
                pieces.appendleft(memoryview(piece)[size:])
            size -= len(piece)
