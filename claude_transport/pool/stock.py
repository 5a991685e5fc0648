"""`Stock`: the sessions of a pool, where each of them is, and what is done about it.

Everything that happens (somebody asks, gives back, gives up; a session got ready, or is gone) ends in `_balance()`, which hands out what is
there and starts what is missing. It does not wait, so nothing can come in between: a session is in one place at any moment, and a caller
who is cancelled has it or has it not. Starting and ending are tasks of their own, because they outlive whoever caused them.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

import anyio
import msgspec

from claude_transport.background import BackgroundTask
from claude_transport.backoff import Backoff
from claude_transport.client.query import Query, QueryOptions
from claude_transport.client.questions import Allow, CallbackContext, CanUseToolCallback, Deny
from claude_transport.client.reports import check_callback
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ControlRequestFailed,
    ControlTimeout,
    TransportClosed,
)
from claude_transport.launch.options import ClaudeOptions
from claude_transport.printable import printable
from claude_transport.transport import TransportLike
from claude_transport.transports.subprocess import SubprocessTransport

# --- `PooledSession`: one session of a pool, from its `SessionStart` to its one use; and `LateGuard`, whose callback comes with that use.


class LateGuard:
    """A `can_use_tool` that is there when the session starts, and asks whoever was put in charge since."""

    def __init__(self, callback: CanUseToolCallback) -> None:
        self.callback = callback
        """Who is asked: the pool's own callback, until somebody who took the session brings another one."""

    async def __call__(self, tool_name: str, given: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        return await self.callback(tool_name, given, context)


class PooledSession:
    """One session: its query, and since when it has been waiting (a time of the pool's clock)."""

    __slots__ = ("guard", "idle_since", "query")

    def __init__(self, query: Query, *, guard: LateGuard | None) -> None:
        self.query: Query = query
        self.guard: LateGuard | None = guard
        """None when the pool was made without `can_use_tool`."""
        self.idle_since: float = 0.0


class SessionStart:
    """One attempt to start a session: the task at it, and what came of it: a session, an error, or neither when it was cancelled."""

    __slots__ = ("error", "session", "task")

    def __init__(self) -> None:
        self.task: BackgroundTask | None = None
        self.session: PooledSession | None = None
        self.error: ClaudeTransportError | None = None


# --- `Waiter`: somebody who waits for a session, and what becomes of it.


class Waiter:
    """One call of `acquire()`. It is settled once: with a session, or with the reason why there is none."""

    __slots__ = ("at_once", "error", "session", "settled")

    def __init__(self) -> None:
        self.settled: anyio.Event = anyio.Event()
        self.session: PooledSession | None = None
        self.error: ClaudeTransportError | None = None
        self.at_once: bool = False
        """True when a session was there already."""

    def give(self, session: PooledSession) -> None:
        """This one is yours."""
        self.session = session
        self.settled.set()

    def fail(self, error: ClaudeTransportError) -> None:
        """There will be none."""
        self.error = error
        self.settled.set()


# --- `PoolSnapshot`: what can be seen of a pool at one moment.


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions of a pool do what, and what has been since it began.

    `live` is the sum of `idle`, `starting`, `in_use` and `ending`: no more than `cap`, at every moment. `waiting` are calls of `acquire()`.
    `handed_out` counts what they got, `handed_out_warm` those that did not have to wait. `retired` counts the sessions that were ended, by
    `Retirement`.
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

    @property
    def live(self) -> int:
        """Sessions that have, or may have, a process."""
        return self.idle + self.starting + self.in_use + self.ending

    def __str__(self) -> str:
        return f"{self.idle} idle, {self.starting} starting, {self.in_use} in use, {self.ending} ending, {self.waiting} waiting"


# --- `PoolLimits`: how many sessions, how old and how large: what is to be started, and what has to go. Pure: no clock, no task.


class Retirement(StrEnum):
    """Why a session was ended."""

    USED = "used"
    """It has served its one use."""
    DIED = "died"
    """It had ended by itself while it waited."""
    SILENT = "silent"
    """It is there, but did not answer."""
    AGE = "age"
    """It waited for longer than `max_age`."""
    MEMORY = "memory"
    """Its process holds more than `max_rss_bytes`."""
    SURPLUS = "surplus"
    """It is one more than `warm`, and nobody wanted it for `idle_ttl` seconds."""
    CLOSING = "closing"
    """The pool was closed."""


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one pool; times in seconds, sizes in bytes. Raises `ConfigurationError` for values that make no pool."""

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
        _check_seconds("idle_ttl", self.idle_ttl)
        _check_seconds("max_age", self.max_age)
        if self.max_rss_bytes is not None:
            _check_count("max_rss_bytes", self.max_rss_bytes, least=1)

    def sessions_to_start(self, *, waiting: int, idle: int, starting: int, live: int, may_warm: bool = True) -> int:
        """How many more to start: one for everybody who waits, `warm` for those who will, and never more than `cap` in all.

        `live` counts every session that has, or may have, a process: idle, starting, in use, and ending.
        """
        wanted = waiting + (self.warm if may_warm else 0)
        return max(0, min(wanted - idle - starting, self.cap - live))

    def retirement(self, *, has_ended: bool, age: float, rss_bytes: int | None) -> Retirement | None:
        """Why a session that waits must not be handed out; None when it may. An unknown size is no reason."""
        if has_ended:
            return Retirement.DIED
        if age >= self.max_age:
            return Retirement.AGE
        if self.max_rss_bytes is not None and rss_bytes is not None and rss_bytes > self.max_rss_bytes:
            return Retirement.MEMORY
        return None

    def surplus(self, idle_for: Sequence[float]) -> int:
        """How many of those that wait to let go: of what is more than `warm`, those that waited for `idle_ttl`, longest first.

        `idle_for` is how long each has waited, the longest wait first.
        """
        overdue = sum(waited >= self.idle_ttl for waited in idle_for)
        return max(0, min(overdue, len(idle_for) - self.warm))


def _check_count(option: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{option} is a whole number of at least {least}, not {value!r}", option=option)


def _check_seconds(option: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ConfigurationError(f"{option} is a number of seconds above 0 (math.inf for no limit), not {value!r}", option=option)


# --- `Recipe`: what every session of a pool is made of.


MakeTransport = Callable[[ClaudeOptions], TransportLike]
"""Called for every session: a new transport, not connected."""


class Recipe:
    """Options, a way to make transports of them, and the arguments of the queries.

    Raises `ConfigurationError` for options that can serve one session only, and for arguments that no query would take.
    """

    def __init__(self, options: ClaudeOptions | None, *, make_transport: MakeTransport | None, arguments: QueryOptions) -> None:
        self._options = ClaudeOptions() if options is None else options
        self._make_transport = SubprocessTransport if make_transport is None else make_transport
        self._arguments = arguments
        check_callback("make_transport", make_transport)
        _check_for_many(self._options)
        if make_transport is None:
            self.make()  # what is wrong with the arguments is found now, and not by the first session; nothing is started by it

    @property
    def has_guard(self) -> bool:
        """True when the sessions are started in a way that they ask for permission."""
        return self._arguments.get("can_use_tool") is not None

    def make(self) -> PooledSession:
        """A session, not started."""
        callback = self._arguments.get("can_use_tool")
        check_callback("can_use_tool", callback)
        guard = None if callback is None else LateGuard(callback)
        arguments: QueryOptions = {**self._arguments, "can_use_tool": guard}
        return PooledSession(Query(self._make_transport(self._options), **arguments), guard=guard)


def _check_for_many(options: object) -> None:
    if not isinstance(options, ClaudeOptions):
        raise ConfigurationError(f"options is a ClaudeOptions, not {type(options).__name__}", option="options")
    if options.session_id is not None:
        raise ConfigurationError("session_id names one session, and a pool has many: leave it out", option="session_id")
    for option, is_set in (("resume", options.resume is not None), ("continue_conversation", options.continue_conversation)):
        if is_set and not options.fork_session:
            message = f"{option} lets every session of the pool write on the same conversation: set fork_session, too"
            raise ConfigurationError(message, option=option)


logger: logging.Logger = logging.getLogger(__name__)

_HEALTH_TIMEOUT = 5.0
"""Seconds for an answer of a session that has nothing to do; the CLI takes 1 to 20 ms (docs/reference/protocol.md#answer-times)."""

_GIVE_UP = 90.0
"""Seconds for a session to end, before its place is given to another: more than all the bounds of a query's own closing together."""

_AFTER_FAILURES = Backoff(first=1.0, maximum=60.0, jitter=0.0)
"""How long nothing is started on spare after so many starts in a row failed. Whoever waits for a session gets one start each anyway."""


_EXPECTED = frozenset({Retirement.USED, Retirement.SURPLUS, Retirement.AGE, Retirement.CLOSING})


class Stock:
    """The sessions of one pool in one event loop, from their start to their end; the arguments are those of `SessionPool`."""

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
        """Ready, the longest wait first."""
        self.in_use: set[PooledSession] = set()
        self.ending: set[PooledSession] = set()
        self.starts: set[SessionStart] = set()
        self._waiters: deque[Waiter] = deque()
        self._change = anyio.Event()
        self._failures = 0  # in a row
        self.last_failure: ClaudeTransportError | None = None
        """What the last start failed with; None when it did not."""
        self._warm_again_at = 0.0
        self._counts: Counter[str] = Counter()
        self._retired: Counter[str] = Counter()

    # -------------------------------------------------------------------------------------------------- handing out, starting

    def ask(self) -> Waiter:
        """Somebody wants a session, and has it already when one is ready."""
        waiter = Waiter()
        self._waiters.append(waiter)
        self._balance()
        waiter.at_once = waiter.session is not None
        self._counts["warm"] += waiter.at_once
        return waiter

    def give_back(self, session: PooledSession) -> None:
        """It has served its use."""
        if session in self.in_use:
            self._retire(session, Retirement.USED)
            self._changed()

    def withdraw(self, waiter: Waiter) -> None:
        """Nobody waits any more. A session that was given already was not used, so the next one may have it."""
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
        """Give what is ready to those who wait, in the order of asking, and start what is missing."""
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
        # the longest wait first: nobody has used any of them, and this way the fewest grow too old
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
            await session.query.start()
        except ClaudeTransportError as exc:
            start.error = exc
        except Exception as exc:  # noqa: BLE001 - `make_transport` is somebody else's, and may raise anything
            start.error = CLIConnectionError(f"a session of the pool could not be made: {exc!r}")
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
                # started again and again, it would be too large again and again
                self._retire(session, Retirement.MEMORY)
                message = "a session that was just started holds more than max_rss_bytes: no session ever could be handed out"
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
            logger.warning("a session could not be started on spare; none is for %g s: %s", pause, printable(error))

    # ------------------------------------------------------------------------------------------------------ tending, ending

    async def tend(self, *, sleep: Callable[[float], Awaitable[object]], interval: float) -> None:
        """Look at what waits, every `interval` seconds, for ever: at its age, its size, whether there is too much of it, and whether it
        answers."""
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
        """Ask for something small. Whoever is handed the session meanwhile is not disturbed by it, and is not robbed of it."""
        try:
            await session.query.request("get_binary_version", timeout=_HEALTH_TIMEOUT)
        except ControlRequestFailed:
            pass  # a refusal is a sign of life
        except ControlTimeout:
            self._end_idle(session, Retirement.SILENT)
        except ClaudeTransportError:
            self._end_idle(session, Retirement.DIED)
        self._balance()

    def _reason_to_end(self, session: PooledSession) -> Retirement | None:
        has_limit = self._limits.max_rss_bytes is not None
        return self._limits.retirement(
            has_ended=session.query.has_ended,
            age=self._clock() - session.idle_since,
            rss_bytes=self._rss_of(session) if has_limit else None,
        )

    def _rss_of(self, session: PooledSession) -> int | None:
        pid = session.query.info.pid
        try:
            return None if pid is None else self._read_rss(pid)
        except Exception:  # the reader may be somebody else's: a size that is not known is no reason to lose a session, or the pool
            logger.exception("the resident memory of process %s could not be read", pid)
            return None

    def _end_idle(self, session: PooledSession, reason: Retirement) -> None:
        if session in self.idle:
            self.idle.remove(session)
            self._retire(session, reason)

    def _retire(self, session: PooledSession, reason: Retirement) -> None:
        """End it, in a task of its own; until it has ended it takes one of the places."""
        self.in_use.discard(session)
        self.ending.add(session)
        self._retired[reason] += 1
        logger.log(logging.DEBUG if reason in _EXPECTED else logging.INFO, "a session of the pool is ended: %s", reason)
        session.query.abandon()  # at once, so that whoever had it cannot go on with it
        self.spawn(functools.partial(self._end, session), name="end of a pooled session", at_end=functools.partial(self._ended, session))

    async def _end(self, session: PooledSession) -> None:
        closing = BackgroundTask.spawn(session.query.aclose, name="close of a pooled session")
        with anyio.move_on_after(_GIVE_UP):
            await closing.wait()
            return
        logger.warning("a session did not end in %g s: its place is given to another", _GIVE_UP)

    def _ended(self, session: PooledSession) -> None:
        self.ending.discard(session)
        self._balance()

    # ----------------------------------------------------------------------------------------------------- opening, closing

    def open(self, tend: Callable[[], Awaitable[object]]) -> BackgroundTask:
        """Begin, in this event loop: gives the task that tends it."""
        # every session is started from here, not in the context of whoever happened to cause it
        self._context = contextvars.copy_context()
        tending = self.spawn(tend, name="claude session pool", at_end=self.refuse_all)
        self._balance()
        return tending

    @property
    def is_cold(self) -> bool:
        """True while fewer than `warm` are ready."""
        return len(self.idle) < self._limits.warm

    async def warmed(self) -> None:
        """Return when it is not cold any more, or nothing is under way that would change that."""
        while not self.is_over and self.is_cold and (self.starts or self.ending):
            await self._change.wait()

    def hurry(self) -> None:
        """Drain without waiting for those who use a session."""
        self._is_in_hurry = True
        self._changed()

    async def drain(self, timeout: float) -> None:
        """End everything; what is in use gets `timeout` seconds to be given back."""
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
        """From now on nothing is started or handed out. Also when the event loop ends and nobody has closed the pool: it takes no new
        tasks then, and the sessions' own are being cancelled."""
        self.is_over = True
        while self._waiters:
            self._waiters.popleft().fail(TransportClosed("the pool was closed"))
        self._changed()

    def snapshot(self) -> PoolSnapshot:
        """What the pool does now, and what has been. Costs next to nothing."""
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
        )

    def spawn(self, func: Callable[[], Awaitable[object]], *, name: str, at_end: Callable[[], object] | None = None) -> BackgroundTask:
        """A task that outlives whoever caused it."""
        spawn = functools.partial(BackgroundTask.spawn, func, name=name, at_end=at_end)
        return spawn() if self._context is None else self._context.run(spawn)

    def _changed(self) -> None:
        """Wake those who watch the pool; they look again."""
        change, self._change = self._change, anyio.Event()
        change.set()
