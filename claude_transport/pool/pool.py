"""`SessionPool`: sessions that are ready before anybody asks for them, and never more than so many.

How that is done is in `stock`; here is what its users see.

A session serves one use, and is ended. `/clear` would give a new conversation in the same process, but not a new process: the permission
mode, the model and the costs of the last user stay (CLI 2.1.329, real; `tests/e2e/test_warm_sessions.py`).
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
from claude_transport.errors import (
    ConfigurationError,
    ConnectTimeout,
    NotConnected,
    TransportClosed,
    UsageError,
)
from claude_transport.launch.options import ClaudeOptions
from claude_transport.pool.stock import MakeTransport, PooledSession, PoolLimits, PoolSnapshot, Recipe, Stock

# --- How much memory a process holds, where the system says so in a file.


def read_rss_bytes(pid: int) -> int | None:
    """The resident memory of a process in bytes; None when it is gone, or where there is no `/proc` (anywhere but Linux)."""
    try:
        # statm holds pages: size, resident, shared, ... (proc_pid_statm(5)). Read at every hand-out: a file of thirty bytes in memory.
        resident = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError, AttributeError):
        return None


DEFAULT_TIMEOUT = 60.0
"""Seconds that a session is waited for: far more than a start takes, for callers that queue behind others."""

_DRAIN_TIMEOUT = 10.0
"""Seconds that those who use a session get to give it back when the pool is closed."""


class SessionPool:
    """Sessions of one kind, started and initialised ahead: `async with pool.acquire() as query`.

    Args:
        options: of every session. Those that name one conversation (`session_id`; `resume` without `fork_session`) are refused.
        warm: how many are kept ready beyond those that are wanted now; 0 makes it a pool that only bounds.
        cap: how many there are at most, in whatever state: starting, ready, in use, ending.
        idle_ttl: seconds after which what is ready beyond `warm` is ended, the longest wait first.
        max_age: seconds after which a session that waits is ended, and replaced; one in use is never touched.
        max_rss_bytes: resident memory of its process over which a session that waits is ended, and replaced. Where `read_rss` does not
            know, nothing is ended for it.
        make_transport: makes the transport of every session, for other media, launchers and wrappers; a `SubprocessTransport` without it.
        check_interval: seconds between two looks at what waits: is it there, does it answer, is it too old, too large, too many.
        read_rss: bytes of resident memory by process id, or None; from `/proc` without it.
        clock, sleep: seconds, and the wait for them, of `idle_ttl`, `max_age` and `check_interval`; give your own to let none pass.
        arguments: as for `Query`, for every session: `can_use_tool`, `hooks`, `mcp_servers`, ... One object serves all sessions, at the
            same time; `CallbackContext` and a hook's input tell them apart. `can_use_tool` may be replaced for one use, in `acquire()`.

    Raises `ConfigurationError` for values that make no pool, and for options and arguments that no session would start with.
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

    # ------------------------------------------------------------------------------------------------- starting and closing

    async def start(self) -> None:
        """Begin to keep sessions warm, in this event loop; does not wait for them (`warm_up()` does). Does nothing when it has begun."""
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
        """Return when `warm` sessions are ready, or there is no place for more: for services that report when they are.

        Raises what a start failed with, once nothing is being started any more, and `ConnectTimeout` after `timeout` seconds.
        """
        self._refuse_unless_open()
        with anyio.move_on_after(timeout):
            await self._stock.warmed()
            self._refuse_unless_open()
            if self._stock.is_cold and self._stock.last_failure is not None:
                raise raised_again(self._stock.last_failure)
            return
        raise ConnectTimeout(f"the pool was not warm in {timeout:g} s", code="pool.not_warm", waited=timeout)

    async def aclose(self, *, drain_timeout: float = _DRAIN_TIMEOUT) -> None:
        """End every session; nobody gets one any more. Those in use get `drain_timeout` seconds to be given back, and are then ended, too.

        From any task of the loop; a cancelled close still closes, and waits for nobody who uses one.
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

    # -------------------------------------------------------------------------------------------------------- for the users

    @asynccontextmanager
    async def acquire(self, *, timeout: float = DEFAULT_TIMEOUT, can_use_tool: CanUseToolCallback | None = None) -> AsyncIterator[Query]:
        """A session that nobody else has or had, ended when the block is left: at once when one is ready, else in the order of asking.

        `can_use_tool` takes the place of the pool's own for this use. Leaving interrupts what runs, and does not wait for the end.

        Raises:
            ConnectTimeout: none was free in `timeout` seconds; `code` is `pool.exhausted`.
            CLIConnectionError, ConfigurationError, ...: what `Query.start()` raises; the start that was made for this call failed.
            TransportClosed: the pool is closed, or was while this waited.
            ConfigurationError: a `can_use_tool`, and the pool has none: its sessions were not started to ask.
        """
        check_callback("can_use_tool", can_use_tool)
        if can_use_tool is not None and not self._recipe.has_guard:
            message = "this pool's sessions were not started to ask for permission: give the pool a can_use_tool, such as one that denies"
            raise ConfigurationError(message, option="can_use_tool")
        session = await self._take(timeout)
        try:
            if can_use_tool is not None and session.guard is not None:
                session.guard.callback = can_use_tool
            yield session.query
        finally:
            self._stock.give_back(session)

    def snapshot(self) -> PoolSnapshot:
        """What the pool does now, and what has been. Costs next to nothing."""
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
            raise ConnectTimeout(f"no session was free in {timeout:g} s: {self.snapshot()}", code="pool.exhausted", waited=timeout)
        return waiter.session

    def _refuse_elsewhere(self) -> None:
        if self._loop is not None and not self._loop.is_current:
            raise UsageError("this pool lives in another event loop: one pool for each", code="usage.wrong_loop")

    def _refuse_unless_open(self) -> None:
        self._refuse_elsewhere()
        if self._stock.is_over:
            raise TransportClosed("the pool is closed")
        if self._tending is None:
            raise NotConnected("the pool has not been started: use `async with pool`, or start()")
