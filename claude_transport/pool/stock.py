"""`Stock`: the sessions of a pool, where each of them is, and what is done about it.

Everything that happens (somebody asks, gives back, gives up; a session got ready, or is gone) ends in `_balance()`, which hands out what is
there and starts what is missing. It does not wait, so nothing can come in between: a session is in one place at any moment, and a caller
who is cancelled has it or has it not. Starting and ending are tasks of their own, because they outlive whoever caused them.
"""

from __future__ import annotations

import contextvars
import functools
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable

import anyio

from claude_transport.background import BackgroundTask
from claude_transport.backoff import Backoff
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ControlRequestFailed,
    ControlTimeout,
    TransportClosed,
)
from claude_transport.pool.limits import PoolLimits, Retirement
from claude_transport.pool.recipe import Recipe
from claude_transport.pool.session import PooledSession, SessionStart
from claude_transport.pool.snapshot import PoolSnapshot
from claude_transport.pool.waiter import Waiter
from claude_transport.printable import printable

__all__ = ["Stock"]

logger: logging.Logger = logging.getLogger(__name__)

_HEALTH_TIMEOUT = 5.0
"""Seconds for an answer of a session that has nothing to do; the CLI takes 1 to 20 ms (docs/reference/protocol.md#answer-times)."""

_GIVE_UP = 90.0
"""Seconds for a session to end, before its place is given to another: more than all the bounds of a query's own closing together."""

_AFTER_FAILURES = Backoff(first=1.0, maximum=60.0, jitter=0.0)
"""How long nothing is started on spare after so many starts in a row failed. Whoever waits for a session gets one start each anyway."""


_EXPECTED = frozenset({Retirement.used, Retirement.surplus, Retirement.age, Retirement.closing})


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
            self._retire(session, Retirement.used)
            self._changed()

    def withdraw(self, waiter: Waiter) -> None:
        """Nobody waits any more. A session that was given already was not used, so the next one may have it."""
        session = waiter.session
        if session is None:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        elif session in self.in_use and self.is_over:
            self._retire(session, Retirement.closing)
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
                self._retire(session, Retirement.closing)
            elif self._reason_to_end(session) is Retirement.memory:
                # started again and again, it would be too large again and again
                self._retire(session, Retirement.memory)
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
                self._end_idle(self.idle[0], Retirement.surplus)
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
            self._end_idle(session, Retirement.silent)
        except ClaudeTransportError:
            self._end_idle(session, Retirement.died)
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
            self._retire(self.idle.popleft(), Retirement.closing)
        with anyio.move_on_after(timeout):
            while self.in_use and not self._is_in_hurry:
                await self._change.wait()
        for session in tuple(self.in_use):
            logger.warning("a session was still in use when the pool was closed, and is ended")
            self._retire(session, Retirement.closing)
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
