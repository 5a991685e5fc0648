"""`Follower` waits for new lines of a `LineLog`, at a pace that leaves the event loop to the session. `Observation` is what users iterate.

Neither has a queue: an observer that does not read costs no memory, and is told later how many lines it has missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from claude_transport.protocol.observation import Excerpt, LineLog, ObservedLine

EXCERPT_BYTES: Final = 64 * 2**10
"""Bytes of lines that an observer takes at a time. A thread redacts longer ones."""

PACE: Final = 0.02
"""Seconds between two looks of one observer for new lines, so that fifty of them do not run for each line of a fast session."""

_Made = TypeVar("_Made")


class Follower:
    """Reads one `LineLog` from a position on, and follows it until its end.

    Args:
        log: the lines.
        since: the position of the last line that is known; None begins with the oldest line that is kept.
        scrub: redact the lines.
        pace: seconds between two looks for new lines.

    Raises:
        ReplayGap: the lines behind `since` are not kept.
    """

    def __init__(self, log: LineLog, *, since: int | None, scrub: bool, pace: float = PACE) -> None:
        self._log = log
        self._scrub = scrub
        self._pace = pace
        self._rests = False
        self.after: int = log.start(since)
        """The position of the last line that was read."""

    @property
    def at_end(self) -> bool:
        """True when the session has ended and everything was read."""
        return self._log.ended and self.after >= self._log.last

    def take(self) -> Excerpt | None:
        """Return the lines that are there at this moment, or None when there are none."""
        if self.after >= self._log.last:
            return None
        excerpt = self._log.take(self.after, scrub=self._scrub, max_bytes=EXCERPT_BYTES)
        self.after = excerpt.last
        self._rests = excerpt.size < EXCERPT_BYTES
        return excerpt

    async def next(self) -> Excerpt | None:
        """Wait for lines and return them; None at the end of the session, which bounds the wait. A cancellation loses nothing."""
        if self._rests:
            self._rests = False
            await anyio.sleep(self._pace)  # it has read everything: what follows at once comes together
        while self.after >= self._log.last and not self._log.ended:
            await change_of(self._log)
        return self.take()


async def change_of(log: LineLog) -> None:
    """Wait for the next line of `log`, or its end. The session bounds the wait; cancel it to give up."""
    changed = anyio.Event()
    log.call_at_change(changed.set)
    try:
        await changed.wait()
    finally:
        log.forget_call(changed.set)


async def made(excerpt: Excerpt, make: Callable[[], _Made]) -> _Made:
    """Return `make()`, from a thread when the excerpt is long: the event loop belongs to the session."""
    if excerpt.size > EXCERPT_BYTES:
        return await anyio.to_thread.run_sync(make)
    await anyio.lowlevel.checkpoint()
    return make()


class Observation(ABC):
    """The lines of a running session: an async iterator of `ObservedLine`s, which ends when the session has ended.

    Iterate it once, in one task. `aclose()`, or the end of an `async with` block, ends it early; the session does not notice.
    """

    position: int = 0
    """The position of the last line that was handed out. Give it as `since` to another observation to go on behind it."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> ObservedLine:
        """Wait for the next line. The session bounds the wait; cancel it to give up, which loses nothing."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the observation. A later step of the iteration ends it, too."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()


class LocalObservation(Observation):
    """Follows the `LineLog` of a session in this process, on its event loop."""

    def __init__(self, log: LineLog, *, since: int | None, scrub: bool) -> None:
        self._log = log
        self._since = since
        self._scrub = scrub
        self._follower: Follower | None = None
        self._excerpt: Excerpt | None = None
        self._lines: deque[ObservedLine] = deque()
        self._closed = False

    async def __anext__(self) -> ObservedLine:
        if self._follower is None:
            self._follower = Follower(self._log, since=self._since, scrub=self._scrub)
        while not self._closed:
            if self._lines:
                line = self._lines.popleft()
                self.position: int = line.position
                return line
            self._excerpt = self._excerpt or await self._follower.next()
            if self._excerpt is None:
                break
            self._lines.extend(await made(self._excerpt, self._excerpt.lines))
            self._excerpt = None
        await anyio.lowlevel.checkpoint()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the observation. A later step of the iteration ends it, too."""
        self._closed = True
        self._lines.clear()
        await anyio.lowlevel.checkpoint()
