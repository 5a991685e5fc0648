"""`ReplayBuffer`: numbered frames on their way out, kept until the peer has dealt with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from claude_transport.errors import ProtocolError, ReplayGap

__all__ = ["ReplayBuffer"]


class ReplayBuffer:
    """Frames with the numbers 1, 2, 3, …: first those said on this connection (`flown`), then those still waiting.

    `bound` is in bytes. With `may_outrun` the oldest are forgotten when it is exceeded; without, it is for the sender to look at.
    """

    def __init__(self, *, bound: int, may_outrun: bool) -> None:
        self.last: int = 0  # the highest number given
        self._bound = bound
        self._may_outrun = may_outrun
        self._acknowledged = 0
        self._forgotten = 0  # the highest number that was forgotten without having been acknowledged
        self._gap = False  # something was forgotten that was never said
        self._flown: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._flown_bytes = 0
        self._waiting_bytes = 0

    @property
    def acknowledged(self) -> int:
        """The last number that the peer has dealt with."""
        return self._acknowledged

    @property
    def first(self) -> int:
        """The first number that can still be said."""
        return max(self._acknowledged, self._forgotten) + 1

    @property
    def kept_bytes(self) -> int:
        """Bytes of all frames kept."""
        return self._flown_bytes + self._waiting_bytes

    @property
    def has_room(self) -> bool:
        """True while less is kept than the bound."""
        return self._flown_bytes + self._waiting_bytes < self._bound

    @property
    def is_waiting(self) -> bool:
        """True while there are frames that were not said on this connection."""
        return bool(self._waiting)

    def put_lines(self, lines: Iterable[bytes]) -> None:
        """Number and keep `lines` as data frames."""
        number, waiting, size = self.last, self._waiting, 0
        for line in lines:
            number += 1
            frame = b"D %d %b\n" % (number, line)
            size += len(frame)
            waiting.append(frame)
        self.last = number
        self._waiting_bytes += size
        if self._may_outrun:
            self._forget_the_oldest()

    def put(self, frame: bytes) -> None:
        """Keep a `frame` that was made with the next number."""
        self.last += 1
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        if self._may_outrun:
            self._forget_the_oldest()

    def may_fly(self, window: int) -> bool:
        """Whether the peer's window, in bytes, lets the next frame out; one that is larger than the window flies alone."""
        if not self._waiting:
            return False
        return not self._flown or self._flown_bytes + len(self._waiting[0]) <= window

    def take(self, max_bytes: int, *, window: int) -> list[bytes]:
        """The next frames to say: about `max_bytes`, or one that is larger. Raises `ReplayGap` when what is next was outrun."""
        if self._gap:
            raise ReplayGap(f"number {self._forgotten} was forgotten before it could be said")
        batch: list[bytes] = []
        size, flown_bytes, waiting, flown = 0, self._flown_bytes, self._waiting, self._flown
        while waiting and size < max_bytes:
            length = len(waiting[0])
            if flown and flown_bytes + length > window:
                break
            frame = waiting.popleft()
            flown.append(frame)
            batch.append(frame)
            size += length
            flown_bytes += length
        self._flown_bytes = flown_bytes
        self._waiting_bytes -= size
        return batch

    def acknowledge(self, number: int) -> None:
        """Forget everything up to `number`. Raises `ProtocolError` for what the peer cannot have seen."""
        if number > self.last - len(self._waiting):
            raise ProtocolError(f"the peer acknowledges number {number}, which it was not told", code="link.numbers")
        while self._acknowledged < number:
            self._acknowledged += 1
            if self._acknowledged > self._forgotten:
                self._flown_bytes -= len(self._flown.popleft())

    def rewind(self, *, received: int) -> None:
        """Make ready to say again everything after number `received`, on a new connection.

        Raises:
            ReplayGap: some of that is not kept any more.
            ProtocolError: there never was such a number.
        """
        if received > self.last:
            raise ProtocolError(f"the peer has received number {received}, but only {self.last} were sent", code="link.numbers")
        if received + 1 < self.first:
            raise ReplayGap(f"the peer has received up to number {received}, but can be told again only from {self.first} on")
        while len(self._waiting) < self.last - received:
            frame = self._flown.pop()
            self._waiting.appendleft(frame)
            self._flown_bytes -= len(frame)
            self._waiting_bytes += len(frame)

    def _forget_the_oldest(self) -> None:
        while not self.has_room and len(self._flown) + len(self._waiting) > 1:
            self._forgotten = self.last - len(self._flown) - len(self._waiting) + 1
            if self._flown:
                self._flown_bytes -= len(self._flown.popleft())
            else:
                self._waiting_bytes -= len(self._waiting.popleft())
                self._gap = True
