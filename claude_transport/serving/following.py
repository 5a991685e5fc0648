"""`Follower` waits for new lines of a `LineLog`, at a pace that leaves the event loop to the session. `Observation` is what users iterate.

Neither has a queue: an observer that does not read costs no memory, and is told later how many lines it has missed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import RunVar

from claude_transport.protocol.observation import Excerpt, Form, LineLog, ObservedLine, ScrubbedLog

_EXCERPT_BYTES: Final = 64 * 2**10
"""Bytes of memory for the lines that an observer takes at a time."""

_AT_ONCE_BYTES: Final = 4 * 2**10
"""Bytes of lines that are redacted on the event loop, which takes some milliseconds. A thread redacts more of them."""

PACE: Final = 0.02
"""Seconds between two looks of one observer for new lines, so that fifty of them do not run for each line of a fast session."""

_thread_lock: RunVar[anyio.Lock] = RunVar("the lock of the thread that redacts lines")
"""Held while a thread works. One thread at a time leaves most of the processor to the sessions, and the others find what it has made."""

_reading: Final[WeakKeyDictionary[ScrubbedLog, threading.Lock]] = WeakKeyDictionary()
"""Held while lines of a log are redacted. A thread goes on when asyncio cancels the task that waits for it, and no other may begin then."""

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
        self._source = log
        self._log: LineLog = log.scrubbed() if scrub else log
        self._pace = pace
        self._rests = False
        self.after: int = self._log.start(since)
        """The position of the last line that was read."""

    @property
    def at_end(self) -> bool:
        """True when the session has ended and everything was read."""
        return self._log.ended and not self.has_more

    @property
    def has_more(self) -> bool:
        """True when there may be lines to take at this moment. Those that wait for the end of a word are not among them."""
        return self.after < self._log.last or (isinstance(self._log, ScrubbedLog) and self._log.lags)

    async def take(self) -> Excerpt | None:
        """Return lines that are there at this moment, or None. Redacting bounds the wait. A cancellation loses nothing."""
        if self.after >= self._log.last and isinstance(self._log, ScrubbedLog):
            await _read_on(self._log)
        excerpt = self._log.take(self.after, max_bytes=_EXCERPT_BYTES) if self.after < self._log.last else None
        self.after = self.after if excerpt is None else excerpt.last
        self._rests = not self.has_more
        return excerpt

    async def next(self) -> Excerpt | None:
        """Wait for lines and return them; None at the end of the session, which bounds the wait. A cancellation loses nothing."""
        while not self.at_end:
            if self._rests:
                self._rests = False
                await anyio.sleep(self._pace)  # it has read everything: what follows at once comes together
            if not (self.has_more or self._source.ended):
                await change_of(self._source)
            if (excerpt := await self.take()) is not None:
                return excerpt
        return None


async def _read_on(log: ScrubbedLog) -> None:
    """Redact some of what no observer has seen. The work is bounded by its size."""
    await anyio.lowlevel.checkpoint()
    unread, reading = log.unread(_EXCERPT_BYTES), _reading.setdefault(log, threading.Lock())

    def run() -> None:
        with reading:
            unread.run()

    if unread.size > _AT_ONCE_BYTES or reading.locked():
        await in_thread(run, unless=lambda: unread.size <= _AT_ONCE_BYTES and not reading.locked())
    else:
        run()
    log.share()


async def change_of(log: LineLog) -> None:
    """Wait for the next line of `log`, or its end. The session bounds the wait; cancel it to give up."""
    changed = anyio.Event()
    log.call_at_change(changed.set)
    try:
        await changed.wait()
    finally:
        log.forget_call(changed.set)


async def lines_of(excerpt: Excerpt) -> list[ObservedLine]:
    """Return the lines of an excerpt. The work is bounded by its size. A cancellation loses nothing."""
    return await _made(excerpt, "lines", excerpt.lines)


async def events_of(excerpt: Excerpt) -> list[bytes]:
    """Return the lines of an excerpt as server-sent events, as `lines_of()`."""
    return await _made(excerpt, "events", excerpt.events)


async def _made(excerpt: Excerpt, form: Form, make: Callable[[], _Made]) -> _Made:
    await anyio.lowlevel.checkpoint()
    if excerpt.unmade(form) > _AT_ONCE_BYTES:
        found = await in_thread(make, unless=lambda: excerpt.unmade(form) <= _AT_ONCE_BYTES, then=excerpt.share)
    else:
        found = make()
        excerpt.share()
    return found


async def in_thread(
    work: Callable[[], _Made], *, unless: Callable[[], bool] = lambda: False, then: Callable[[], object] = lambda: None
) -> _Made:
    """Return `work()`, from the one thread that works for observers. It is done here when `unless()` holds as soon as the thread is free.

    `then()` is called before the next work begins. The work bounds the wait. A cancellation does not stop work that has begun.
    """
    try:
        lock = _thread_lock.get()
    except LookupError:
        lock = anyio.Lock()
        _thread_lock.set(lock)
    async with lock:
        found = work() if unless() else await anyio.to_thread.run_sync(work)
        then()
        return found


class Observation(ABC):
    """The lines of a running session: an async iterator of `ObservedLine`s, which ends when the session has ended.

    Iterate it once, in one task. `aclose()`, or the end of an `async with` block, ends it early; the session does not notice.
    """

    position: int = 0
    """The position of the last line that was handed out. Give it as `since` to another observation to go on behind it."""

    scrubbed: bool | None = None
    """Whether secrets are removed from the lines. None before the first line, and when the gateway does not say."""

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
        self.scrubbed: bool | None = scrub
        self._follower: Follower | None = None
        self._excerpt: Excerpt | None = None
        self._lines: deque[ObservedLine] = deque()
        self._closed = False

    async def __anext__(self) -> ObservedLine:
        if self._follower is None:
            self._follower = Follower(self._log, since=self._since, scrub=self.scrubbed is not False)
        while not self._closed:
            if self._lines:
                line = self._lines.popleft()
                self.position: int = line.position
                return line
            self._excerpt = self._excerpt or await self._follower.next()
            if self._excerpt is None:
                break
            self._lines.extend(await lines_of(self._excerpt))
            self._excerpt = None
        await anyio.lowlevel.checkpoint()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the observation. A later step of the iteration ends it, too."""
        self._closed = True
        self._lines.clear()
        await anyio.lowlevel.checkpoint()
