"""`SessionPool`: Claude sessions that are ready before they are needed, and never more than a given number.

Each session serves one use and is then ended. `/clear` would begin a new conversation in the same process, but the permission mode, the
model and the costs of the last user would stay (CLI 2.1.329, real; `tests/e2e/test_warm_sessions.py`).

`stock.py` decides when sessions are started, handed out and ended.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import anyio

from claude_transport.background import BackgroundTask, HostLoop
from claude_transport.client.query import Query, QueryOptions
from claude_transport.client.questions import CanUseToolCallback
from claude_transport.client.reports import check_callback, check_number, raised_again
from claude_transport.errors import ConfigurationError, ConnectTimeout, NotConnected, TransportClosed, UsageError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.pool.stock import MakeTransport, PooledSession, PoolLimits, PoolSnapshot, Recipe, Stock

DEFAULT_TIMEOUT = 60.0
"""Seconds to wait for a session: much longer than a start, for callers that wait for others."""

_DRAIN_TIMEOUT = 10.0
"""Seconds for users to give their sessions back when the pool is closed."""


def read_rss_bytes(pid: int) -> int | None:
    """Return the resident memory of process `pid` in bytes, or None when the process is gone or the system has no `/proc`."""
    try:
        # statm holds pages: size, resident, shared, … (proc_pid_statm(5)); it is read at every hand-out and is cheap
        resident = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError, AttributeError):
        return None


class SessionPool:
    """Starts and initialises sessions ahead of use: `async with pool.acquire() as query`.

    Args:
        options: the options of every session. `session_id`, and `resume` without `fork_session`, name one conversation and are refused.
        warm: sessions to keep ready; 0 for a pool that only bounds their number.
        cap: the most sessions at any time: starting, ready, in use or ending.
        idle_ttl: seconds after which a ready session beyond `warm` is ended, the longest idle first.
        max_age: seconds after which an idle session is ended and replaced. A session in use is never ended for its age.
        max_rss_bytes: resident memory of its process above which an idle session is ended and replaced.
        make_transport: makes the transport of a session from the options, for other media, launchers and wrappers. By default a
            `SubprocessTransport`.
        check_interval: seconds between two checks of the idle sessions.
        read_rss: returns the resident bytes of a process id, or None when unknown. By default from `/proc`.
        clock: returns the time for `idle_ttl` and `max_age`, in seconds.
        sleep: waits the seconds of `check_interval`.
        arguments: of every `Query`: `can_use_tool`, `hooks`, `mcp_servers`, …. One callback serves all sessions at the same time;
            `CallbackContext` and the input of a hook tell them apart. `acquire()` may replace `can_use_tool` for one use.

    Raises:
        ConfigurationError: a value is not valid, or no session would start with these options and arguments.
    """

    def __init__(
        self,
        options: ClaudeOptions | None = None,
        *,
        warm: int = 1,
        cap: int = 8,
        idle_ttl: float = 300.0,
        max_age: float = 3600.0,
        max_rss_bytes: int | None = None,
        make_transport: MakeTransport | None = None,
        check_interval: float = 10.0,
        read_rss: Callable[[int], int | None] = read_rss_bytes,
        clock: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        **arguments: Unpack[QueryOptions],
    ) -> None:
        check_number("check_interval", check_interval, positive=True)
        limits = PoolLimits(warm=warm, cap=cap, idle_ttl=idle_ttl, max_age=max_age, max_rss_bytes=max_rss_bytes)
        self._recipe = Recipe(options, make_transport=make_transport, arguments=arguments)
        self._stock = Stock(limits, self._recipe, read_rss=read_rss, clock=clock)
        self._tend = functools.partial(self._stock.tend, sleep=sleep, interval=check_interval)
        self._loop: HostLoop | None = None
        self._tending: BackgroundTask | None = None
        self._draining: BackgroundTask | None = None

    def __repr__(self) -> str:
        now = self.snapshot()
        state = "closed" if self._stock.is_over else "not started" if self._tending is None else "open"
        return f"<SessionPool {state}: {now}>"

    async def start(self) -> None:
        """Begin to keep sessions warm in this event loop, without waiting for them (see `warm_up()`). Does nothing the second time."""
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
        await self.aclose()

    async def warm_up(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until `warm` sessions are ready, or until `cap` leaves no place for more. For services that report when they are ready.

        Raises:
            ConnectTimeout: the sessions were not ready after `timeout` seconds.
            ClaudeTransportError: the last start failed with this error, and none is under way.
        """
        self._refuse_unless_open()
        with anyio.move_on_after(timeout):
            await self._stock.warmed()
            self._refuse_unless_open()
            if self._stock.is_cold and self._stock.last_failure is not None:
                raise raised_again(self._stock.last_failure)
            return
        raise ConnectTimeout(f"the pool was not warm after {timeout:g} s: {self.snapshot()}", code="pool.not_warm", waited=timeout)

    async def aclose(self, *, drain_timeout: float = _DRAIN_TIMEOUT) -> None:
        """End every session, and hand out no more. Callable from any task of the event loop.

        When the call is cancelled, the pool still closes, without waiting for sessions in use.

        Args:
            drain_timeout: seconds for users to give their sessions back; then these are ended, too.
        """
        self._refuse_elsewhere()
        check_number("drain_timeout", drain_timeout, positive=False)
        self._stock.refuse_all()
        if self._tending is None:
            return
        self._tending.cancel()
        if self._draining is None:
            self._draining = self._stock.spawn(functools.partial(self._stock.drain, drain_timeout), name="close claude session pool")
        try:
            await self._draining.wait()
        except anyio.get_cancelled_exc_class():
            self._stock.hurry()
            await self._draining.join()
            raise

    @asynccontextmanager
    async def acquire(self, *, timeout: float = DEFAULT_TIMEOUT, can_use_tool: CanUseToolCallback | None = None) -> AsyncIterator[Query]:
        """Hand out a session that was never used, and end it when the block is left. Callers are served in the order of asking.

        Leaving the block interrupts a running turn and does not wait for the end of the process.

        Args:
            timeout: seconds to wait for a session.
            can_use_tool: replaces the pool's `can_use_tool` for this use.

        Raises:
            ConnectTimeout: no session was free after `timeout` seconds; its `code` is `pool.exhausted`.
            ClaudeTransportError: the start for this call failed, with an error of `Query.start()`.
            TransportClosed: the pool is closed, or was closed during the wait.
            ConfigurationError: `can_use_tool` is given, and the sessions were started without one.
        """
        check_callback("can_use_tool", can_use_tool)
        if can_use_tool is not None and not self._recipe.has_guard:
            message = "the sessions of this pool were not started to ask for permission: give the pool a can_use_tool, too"
            raise ConfigurationError(message, option="can_use_tool")
        session = await self._take(timeout)
        try:
            if can_use_tool is not None and session.guard is not None:
                session.guard.callback = can_use_tool
            yield session.query
        finally:
            self._stock.give_back(session)

    def snapshot(self) -> PoolSnapshot:
        """Return the state of the pool: its sessions now, and what it has done so far. Cheap."""
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
