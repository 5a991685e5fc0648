"""`WarmPool`: sessions of an agent that are ready before they are needed, and never more than a given number.

Each agent has a pool of its own above it. `Stock` holds the sessions and decides to start them, hand them out and end them, `PoolLimits`
decides how many there are, and a `Recipe` makes them.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import math
import os
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import anyio
import msgspec

from claude_transport.backoff import Backoff
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectTimeout,
    ControlTimeout,
    NotConnected,
    TransportClosed,
    UsageError,
)
from claude_transport.exchange.arguments import check_number
from claude_transport.exchange.failures import raised_again
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop
from claude_transport.platform.winapi import resident_bytes

logger: logging.Logger = logger_for(__name__)


_HEALTH_TIMEOUT = 5.0
"""Seconds for an idle session to answer a check. The CLI takes 1 to 20 ms (docs/reference/protocol.md#answer-times)."""


_GIVE_UP = 90.0
"""Seconds for a session to end before its place is free again: more than all the bounds of a query's close together."""


_AFTER_FAILURES = Backoff(first=1.0, maximum=60.0, jitter=0.0)
"""Seconds without new warm sessions after several starts in a row have failed. A waiting caller gets one start at any time."""


DEFAULT_TIMEOUT = 60.0
"""Seconds to wait for a session: much longer than a start, for callers that wait for others."""


_DRAIN_TIMEOUT = 10.0
"""Seconds for users to give their sessions back when the pool is closed."""


def read_rss_bytes(pid: int, *, proc: str = "/proc") -> int | None:
    """Return the resident memory of process `pid` in bytes, None when it is gone or the system does not tell (macOS)."""
    try:
        # statm holds pages: size, resident, shared, … (proc_pid_statm(5)); it is read at every hand-out and is cheap
        resident = Path(f"{proc}/{pid}/statm").read_bytes().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError, AttributeError):
        return resident_bytes(pid)


class WarmPool:
    """What the pools of all agents share: sessions that are started ahead of use, and never more than a given number."""

    def __init__(
        self,
        limits: PoolLimits,
        recipe: Recipe,
        *,
        check_interval: float,
        read_rss: Callable[[int], int | None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._stock = Stock(limits, recipe, read_rss=read_rss, clock=clock)
        self._tend = functools.partial(self._stock.tend, sleep=sleep, interval=check_interval)
        self._loop: HostLoop | None = None
        self._tending: LoopTask | None = None
        self._draining: LoopTask | None = None

    def __repr__(self) -> str:
        now = self.snapshot()
        state = "closed" if self._stock.is_over else "not started" if self._tending is None else "open"
        return f"<{type(self).__name__} {state}: {now}>"

    async def start(self) -> None:
        """Begin to keep sessions ready, in this event loop. Does not wait for them (see `warm_up()`). A second call does nothing.

        Raises:
            TransportClosed: the pool is closed.
            UsageError: the pool was started in another event loop.
        """
        self._refuse_elsewhere()
        if self._stock.is_over:
            raise TransportClosed("the pool is closed")
        if self._tending is None:
            self._loop = HostLoop()
            self._tending = self._stock.open(self._tend)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose(hurry=exc is not None)

    async def warm_up(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until `warm` sessions are ready, or until `cap` leaves no place for more. For services that report when they are ready.

        Args:
            timeout: seconds to wait.

        Raises:
            ConnectTimeout: the sessions were not ready after `timeout` seconds; its `code` is `pool.not_warm`.
            ClaudeTransportError: the last start failed with this error, and none is under way.
            NotConnected, TransportClosed: the pool is not started, or closed.
        """
        self._refuse_unless_open()
        with anyio.move_on_after(timeout):
            await self._stock.warmed()
            self._refuse_unless_open()
            if self._stock.is_cold and self._stock.last_failure is not None:
                raise raised_again(self._stock.last_failure)
            return
        raise ConnectTimeout(f"the pool was not warm after {timeout:g} s: {self.snapshot()}", code="pool.not_warm", waited=timeout)

    async def aclose(self, *, drain_timeout: float = _DRAIN_TIMEOUT, hurry: bool = False) -> None:
        """End every session, and hand out no more. Returns when all have ended.

        Callable from any task of the event loop, and more than once. Calls of `acquire()` that wait get `TransportClosed`. When this call
        is cancelled, the pool still closes, in haste.

        Args:
            drain_timeout: seconds for users to leave their `acquire()` blocks; then their sessions are ended, too.
            hurry: do not wait for users, and end every session within `close_timeout` seconds, or 1 by default. `async with` does so when
                its block ends by an error or a cancellation.
        """
        self._refuse_elsewhere()
        check_number("drain_timeout", drain_timeout, positive=False)
        self._stock.refuse_all()
        if self._tending is None:
            return
        self._tending.cancel()
        if self._draining is None:
            self._draining = self._stock.spawn(functools.partial(self._stock.drain, drain_timeout), name="close claude session pool")
        if hurry:
            self._stock.hurry()
        try:
            await self._draining.wait()
        except anyio.get_cancelled_exc_class():
            self._stock.hurry()
            await self._draining.join()
            raise

    def snapshot(self) -> PoolSnapshot:
        """Return the numbers of the pool at this moment: its sessions by state, and what it has done so far. Cheap: it asks no process."""
        return self._stock.snapshot()

    async def _take(self, timeout: float) -> PooledSession:
        self._refuse_unless_open()
        waiter = self._stock.ask()
        try:
            with anyio.move_on_after(timeout):
                await waiter.settled.wait()
        except BaseException:
            self._stock.withdraw(waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        if waiter.session is None:
            self._stock.withdraw(waiter)
            raise ConnectTimeout(f"no session was free after {timeout:g} s: {self.snapshot()}", code="pool.exhausted", waited=timeout)
        return waiter.session

    def _refuse_elsewhere(self) -> None:
        if self._loop is not None and not self._loop.is_current:
            raise UsageError("this pool belongs to another event loop: make one pool for each loop", code="usage.wrong_loop")

    def _refuse_unless_open(self) -> None:
        self._refuse_elsewhere()
        if self._stock.is_over:
            raise TransportClosed("the pool is closed")
        if self._tending is None:
            raise NotConnected("the pool has not been started: use `async with pool`, or start()")


class Retirement(StrEnum):
    """The reasons for which a pool ends a session. They are the keys of `PoolSnapshot.retired`.

    `used`: its one use is over. `died`: its process ended while idle. `silent`: it did not answer a check. `age`: it was idle for longer
    than `max_age`. `memory`, `surplus`: it was beyond `max_rss_bytes`, or `warm` and `idle_ttl`. `closing`: the pool was closed.
    """

    USED = "used"
    """Its one use is over."""
    DIED = "died"
    """Its process ended while it was idle."""
    SILENT = "silent"
    """It did not answer a check."""
    AGE = "age"
    """It was idle for longer than `max_age`."""
    MEMORY = "memory"
    """Its process holds more than `max_rss_bytes`."""
    SURPLUS = "surplus"
    """The pool had more than `warm` sessions, and this one was idle for `idle_ttl` seconds."""
    CLOSING = "closing"
    """The pool was closed."""


_EXPECTED = frozenset({Retirement.USED, Retirement.SURPLUS, Retirement.AGE, Retirement.CLOSING})


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a pool at one moment, from `SessionPool.snapshot()`.

    * Sessions now: `idle` (ready), `starting`, `in_use` (handed out and not given back), `ending` (being closed).
    * `waiting`: calls of `acquire()` that wait for a session.
    * Sessions since the pool was made: `started`, `failed_starts`, `handed_out`. `handed_out_warm` of them were ready when they were
      asked for.
    * For calls with a `cwd` or `model` of their own: `aimed` warm sessions were moved there, and `restarted` ones were replaced by a new
      process.
    * `retired`: how many sessions were ended since then, by reason (`Retirement`).
    """

    idle: int
    starting: int
    in_use: int
    ending: int
    waiting: int
    started: int
    failed_starts: int
    handed_out: int
    handed_out_warm: int
    retired: dict[str, int]
    aimed: int = 0
    restarted: int = 0

    @property
    def live(self) -> int:
        """The number of sessions that count against `cap`: idle, starting, in use and ending.

        Each has a process, or is about to start or end one.
        """
        return self.idle + self.starting + self.in_use + self.ending

    def __str__(self) -> str:
        return f"{self.idle} idle, {self.starting} starting, {self.in_use} in use, {self.ending} ending, {self.waiting} waiting"


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one pool, and the decisions that follow from them. Times are seconds, sizes bytes. Pure: no clock, no task.

    Raises:
        ConfigurationError: a value is not valid.
    """

    warm: int = 1
    cap: int = 8
    idle_ttl: float = 300.0
    max_age: float = 3600.0
    max_rss_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_count("cap", self.cap, least=1)
        _check_count("warm", self.warm, least=0)
        if self.warm > self.cap:
            raise ConfigurationError(f"warm ({self.warm}) is more than cap ({self.cap}), which counts every session", option="warm")
        for option in ("idle_ttl", "max_age"):
            value: object = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
                raise ConfigurationError(f"{option} is {value!r}: use seconds above 0, or math.inf for no limit", option=option)
        if self.max_rss_bytes is not None:
            _check_count("max_rss_bytes", self.max_rss_bytes, least=1)

    def sessions_to_start(self, *, waiting: int, idle: int, starting: int, live: int, may_warm: bool = True) -> int:
        """Return how many more sessions to start: one for each waiting caller and `warm` in reserve, but not more than `cap` in all.

        Args:
            waiting: callers that wait.
            idle: sessions that are ready.
            starting: sessions that are being started.
            live: all sessions that have, or may have, a process.
            may_warm: False to start none in reserve.
        """
        wanted = waiting + (self.warm if may_warm else 0)
        return max(0, min(wanted - idle - starting, self.cap - live))

    def retirement(self, *, has_ended: bool, age: float, rss_bytes: int | None) -> Retirement | None:
        """Return why an idle session must not be handed out, or None when it may. An unknown size (None) is no reason."""
        if has_ended:
            return Retirement.DIED
        if age >= self.max_age:
            return Retirement.AGE
        if self.max_rss_bytes is not None and rss_bytes is not None and rss_bytes > self.max_rss_bytes:
            return Retirement.MEMORY
        return None

    def surplus(self, idle_for: Sequence[float]) -> int:
        """Return how many idle sessions to end: those beyond `warm` that were idle for `idle_ttl`.

        `idle_for` has the seconds that each was idle, the longest first.
        """
        overdue = sum(waited >= self.idle_ttl for waited in idle_for)
        return max(0, min(overdue, len(idle_for) - self.warm))


def _check_count(option: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{option} is {value!r}: use a whole number of at least {least}", option=option)


def not_made(exc: Exception) -> CLIConnectionError:
    """Return the error for a session that could not be made, because a `make_transport` of the user raised `exc`."""
    return CLIConnectionError(f"a session of the pool could not be made: {exc!r}")


class PooledSession(ABC):
    """One session of a pool. `idle_since` is the time of the pool's clock since which it is idle."""

    idle_since: float = 0.0

    @abstractmethod
    async def start(self) -> None:
        """Start it."""

    @abstractmethod
    async def check(self, *, timeout: float) -> None:
        """Return when it has answered a small request. Raises `ControlTimeout` after `timeout` seconds, and another error when it died."""

    @abstractmethod
    def abandon(self) -> None:
        """Let its last user not go on with it. Does not wait."""

    @abstractmethod
    async def aclose(self, *, hurry: bool) -> None:
        """End it, or wait until another call has ended it. With `hurry` the other call becomes faster, too."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """True when it cannot be used any more."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The id of its process on this machine, if it has one."""


class Recipe(Protocol):
    """Makes the sessions of a pool."""

    def make(self) -> PooledSession:
        """Return a session that is not started."""
        ...


class SessionStart:
    """One attempt to start a session: its task, and the session or the error that came of it; neither when it was cancelled."""

    __slots__ = ("error", "session", "task")

    def __init__(self) -> None:
        self.task: LoopTask | None = None
        self.session: PooledSession | None = None
        self.error: ClaudeTransportError | None = None


class Waiter:
    """One call of `acquire()`. It is settled once, with a session or with an error."""

    __slots__ = ("at_once", "error", "session", "settled")

    def __init__(self) -> None:
        self.settled: anyio.Event = anyio.Event()
        self.session: PooledSession | None = None
        self.error: ClaudeTransportError | None = None
        self.at_once: bool = False
        """True when a session was ready."""

    def give(self, session: PooledSession) -> None:
        """Settle it with `session`."""
        self.session = session
        self.settled.set()

    def fail(self, error: ClaudeTransportError) -> None:
        """Settle it with `error`."""
        self.error = error
        self.settled.set()


class Stock:
    """The sessions of one pool in one event loop. The arguments are those of `SessionPool`.

    Every event (a caller asks, gives back or gives up; a session is ready or has ended) ends in `_balance()`. It hands out what is ready
    and starts what is missing, without waiting. So a session is in one place at every moment, and a cancelled caller either has one or not.
    Starting and ending run in tasks of their own, because they outlive the caller that caused them.
    """

    def __init__(self, limits: PoolLimits, recipe: Recipe, *, read_rss: Callable[[int], int | None], clock: Callable[[], float]) -> None:
        self._limits = limits
        self._recipe = recipe
        self._read_rss = read_rss
        self._clock = clock
        self._context: contextvars.Context | None = None
        self._is_in_hurry = False
        self.is_over: bool = False
        """True when nothing is started or handed out any more."""
        self.idle: deque[PooledSession] = deque()
        """Ready sessions, the longest idle first."""
        self.in_use: set[PooledSession] = set()
        self.ending: set[PooledSession] = set()
        self.starts: set[SessionStart] = set()
        self._waiters: deque[Waiter] = deque()
        self._change = anyio.Event()
        self._failures = 0  # in a row
        self.last_failure: ClaudeTransportError | None = None
        """The error of the last start; None when it succeeded."""
        self._warm_again_at = 0.0
        self._counts: Counter[str] = Counter()
        self._retired: Counter[str] = Counter()

    def open(self, tend: Callable[[], Awaitable[object]]) -> LoopTask:
        """Begin to keep sessions warm in this event loop. Return the task that runs `tend`."""
        # sessions start in this context, not in that of the caller that happens to cause them
        self._context = contextvars.copy_context()
        tending = self.spawn(tend, name="claude session pool", at_end=self.refuse_all)
        self._balance()
        return tending

    # Handing out and starting

    def ask(self) -> Waiter:
        """Queue a request for a session. Return its waiter, which is settled already when a session is ready."""
        waiter = Waiter()
        self._waiters.append(waiter)
        self._balance()
        waiter.at_once = waiter.session is not None
        self._counts["warm"] += waiter.at_once
        return waiter

    def give_back(self, session: PooledSession, *, hurry: bool) -> None:
        """End a session whose use is over, in haste after an error."""
        if session in self.in_use:
            self._retire(session, Retirement.USED, hurry=hurry)

    def note_aimed(self, *, restarted: bool) -> None:
        """Count a session that was sent elsewhere, or the new process that took its place."""
        self._counts["restarted" if restarted else "aimed"] += 1

    def withdraw(self, waiter: Waiter) -> None:
        """Remove a waiter whose caller has gone. If it has a session, the session was not used and goes to the next caller."""
        session = waiter.session
        if session is None:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        elif session in self.in_use and self.is_over:
            self._retire(session, Retirement.CLOSING)
        elif session in self.in_use:
            self.in_use.remove(session)
            self.idle.appendleft(session)
            self._counts["handed out"] -= 1
            self._counts["warm"] -= waiter.at_once
            self._balance()

    def _balance(self) -> None:
        """Give ready sessions to the waiting callers in the order of asking, and start what is missing."""
        self._changed()
        if self.is_over:
            return
        while self._waiters:
            session = self._next_fit()
            if session is None:
                break
            self.in_use.add(session)
            self._counts["handed out"] += 1
            self._waiters.popleft().give(session)
        now = self.snapshot()
        may_warm = not self._failures or self._clock() >= self._warm_again_at
        missing = self._limits.sessions_to_start(
            waiting=now.waiting, idle=now.idle, starting=now.starting, live=now.live, may_warm=may_warm
        )
        for _ in range(missing):
            start = SessionStart()
            self.starts.add(start)
            start.task = self.spawn(
                functools.partial(self._start_one, start), name="start of a pooled session", at_end=functools.partial(self._started, start)
            )

    def _next_fit(self) -> PooledSession | None:
        # the longest idle first: all are unused, and so the fewest become too old
        while self.idle:
            session = self.idle.popleft()
            reason = self._reason_to_end(session)
            if reason is None:
                return session
            self._retire(session, reason)
        return None

    async def _start_one(self, start: SessionStart) -> None:
        try:
            session = self._recipe.make()
            await session.start()
        except ClaudeTransportError as exc:
            start.error = exc
        except Exception as exc:  # noqa: BLE001 - a `make_transport` of the user may raise anything
            start.error = not_made(exc)
            start.error.__cause__ = exc
        else:
            start.session = session

    def _started(self, start: SessionStart) -> None:
        self.starts.discard(start)
        session, error = start.session, start.error
        if session is not None:
            self._counts["started"] += 1
            session.idle_since = self._clock()
            if self.is_over:
                self._retire(session, Retirement.CLOSING)
            elif self._reason_to_end(session) is Retirement.MEMORY:
                # an error, because every new session would be too large again
                self._retire(session, Retirement.MEMORY)
                message = "a new session holds more than max_rss_bytes, so none can be handed out: raise max_rss_bytes"
                error = ConfigurationError(message, option="max_rss_bytes")
            else:
                self.idle.append(session)
                self._failures, self.last_failure = 0, None
        if error is not None:
            self._failed(error)
        self._balance()

    def _failed(self, error: ClaudeTransportError) -> None:
        self._counts["failed"] += 1
        self.last_failure = error
        pause = _AFTER_FAILURES.delay(self._failures)
        self._failures += 1
        self._warm_again_at = self._clock() + pause
        if self._waiters:
            self._waiters.popleft().fail(error)
        elif not self.is_over:
            logger.warning("a warm session could not be started, the next try is in %g s: %s", pause, error)

    # Checking and ending

    async def tend(self, *, sleep: Callable[[float], Awaitable[object]], interval: float) -> None:
        """Check the idle sessions every `interval` seconds, until cancelled: their age, size and number, and whether they answer."""
        while True:
            await sleep(interval)
            for session in tuple(self.idle):
                if reason := self._reason_to_end(session):
                    self._end_idle(session, reason)
            now = self._clock()
            for _ in range(self._limits.surplus([now - session.idle_since for session in self.idle])):
                self._end_idle(self.idle[0], Retirement.SURPLUS)
            self._balance()
            async with anyio.create_task_group() as checks:
                for session in tuple(self.idle):
                    checks.start_soon(self._check, session)

    async def _check(self, session: PooledSession) -> None:
        """Send a small request. A session that is handed out meanwhile is left to its caller."""
        try:
            await session.check(timeout=_HEALTH_TIMEOUT)
        except ControlTimeout:
            self._end_idle(session, Retirement.SILENT)
        except ClaudeTransportError:
            self._end_idle(session, Retirement.DIED)
        self._balance()

    def _reason_to_end(self, session: PooledSession) -> Retirement | None:
        has_limit = self._limits.max_rss_bytes is not None
        return self._limits.retirement(
            has_ended=session.has_ended,
            age=self._clock() - session.idle_since,
            rss_bytes=self._rss_of(session) if has_limit else None,
        )

    def _rss_of(self, session: PooledSession) -> int | None:
        pid = session.pid
        try:
            return None if pid is None else self._read_rss(pid)
        except Exception:  # a `read_rss` of the user may raise anything, and an unknown size is no reason to end a session
            logger.exception("the resident memory of process %s could not be read", pid)
            return None

    def _end_idle(self, session: PooledSession, reason: Retirement) -> None:
        if session in self.idle:
            self.idle.remove(session)
            self._retire(session, reason)

    def _retire(self, session: PooledSession, reason: Retirement, *, hurry: bool = False) -> None:
        """End a session in a task of its own. It keeps its place until it has ended."""
        self.in_use.discard(session)
        self.ending.add(session)
        self._retired[reason] += 1
        logger.log(logging.DEBUG if reason in _EXPECTED else logging.INFO, "a session of the pool is ended: %s", reason)
        session.abandon()  # at once, so that its last user cannot go on with it
        self.spawn(
            functools.partial(self._end, session, hurry=hurry or self._is_in_hurry),
            name="end of a pooled session",
            at_end=functools.partial(self._ended, session),
        )

    async def _end(self, session: PooledSession, *, hurry: bool) -> None:
        closing = LoopTask.spawn(functools.partial(session.aclose, hurry=hurry), name="close of a pooled session")
        with anyio.move_on_after(_GIVE_UP):
            await closing.wait()
            return
        logger.warning("a session did not end in %g s: its place is given to another one", _GIVE_UP)

    def _ended(self, session: PooledSession) -> None:
        self.ending.discard(session)
        self._balance()

    # Warming up and closing

    @property
    def is_cold(self) -> bool:
        """True while fewer than `warm` sessions are ready."""
        return len(self.idle) < self._limits.warm

    async def warmed(self) -> None:
        """Wait until `warm` sessions are ready, or no start or end is under way that could lead to that."""
        while not self.is_over and self.is_cold and (self.starts or self.ending):
            await self._change.wait()

    def hurry(self) -> None:
        """Make `drain()` stop waiting for sessions in use, and the sessions end in haste."""
        self._is_in_hurry = True
        for session in self.ending:
            self.spawn(functools.partial(session.aclose, hurry=True), name="faster close of a pooled session")
        self._changed()

    async def drain(self, timeout: float) -> None:
        """End every session. Those in use get `timeout` seconds to be given back."""
        self.refuse_all()
        for start in self.starts:
            if start.task is not None:
                start.task.cancel()
        while self.idle:
            self._retire(self.idle.popleft(), Retirement.CLOSING)
        with anyio.move_on_after(timeout):
            while self.in_use and not self._is_in_hurry:
                await self._change.wait()
        for session in tuple(self.in_use):
            logger.warning("a session was still in use when the pool was closed, and is ended")
            self._retire(session, Retirement.CLOSING)
        while self.starts or self.ending:  # each of them is bounded
            await self._change.wait()

    def refuse_all(self) -> None:
        """Start and hand out nothing any more, and fail the waiting callers.

        This also runs when the event loop ends before the pool was closed. It must start no task then.
        """
        self.is_over = True
        while self._waiters:
            self._waiters.popleft().fail(TransportClosed("the pool was closed"))
        self._changed()

    def snapshot(self) -> PoolSnapshot:
        """Return the state of the pool. Cheap."""
        return PoolSnapshot(
            idle=len(self.idle),
            starting=len(self.starts),
            in_use=len(self.in_use),
            ending=len(self.ending),
            waiting=len(self._waiters),
            started=self._counts["started"],
            failed_starts=self._counts["failed"],
            handed_out=self._counts["handed out"],
            handed_out_warm=self._counts["warm"],
            retired=dict(self._retired),
            aimed=self._counts["aimed"],
            restarted=self._counts["restarted"],
        )

    def spawn(self, func: Callable[[], Awaitable[object]], *, name: str, at_end: Callable[[], object] | None = None) -> LoopTask:
        """Start a task that outlives its caller, in the context in which the pool was opened."""
        spawn = functools.partial(LoopTask.spawn, func, name=name, at_end=at_end)
        return spawn() if self._context is None else self._context.run(spawn)

    def _changed(self) -> None:
        """Wake the tasks that wait for a change of the pool."""
        change, self._change = self._change, anyio.Event()
        change.set()
