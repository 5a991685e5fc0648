"""`SessionPool`: Claude sessions that are ready before they are needed, and never more than a given number.

Each session serves one use and is then ended. `/clear` would begin a new conversation in the same process, but the permission mode, the
model and the costs of the last user would stay (CLI 2.1.329, real; `tests/e2e/test_warm_sessions.py`).

What the pools of all agents share is in `agents/warm_pool.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Unpack

import anyio

from claude_transport.agents.warm_pool import DEFAULT_TIMEOUT, PooledSession, PoolLimits, WarmPool, not_made, read_rss_bytes
from claude_transport.client.query import Query, QueryOptions
from claude_transport.client.questions import Allow, CallbackContext, CanUseToolCallback, Deny
from claude_transport.errors import (
    ClaudeTransportError,
    ConfigurationError,
    ControlRequestFailed,
    TransportClosed,
)
from claude_transport.exchange.arguments import check_callback, check_number
from claude_transport.launch.options import ClaudeOptions
from claude_transport.pool.aim import Relocation
from claude_transport.transport import TransportLike, check_transport, check_transport_maker
from claude_transport.transports.subprocess import SubprocessTransport


class SessionPool(WarmPool):
    """Keeps sessions of the CLI started and initialised ahead of use, and bounds their number: `async with pool.acquire() as query`.

    Each session serves one `acquire()` and is then ended. Start the pool with `async with pool`, or with `start()` and `aclose()`.

    Args:
        options: the options of every session. `session_id` is refused, and so are `resume` and `continue_conversation` without
            `fork_session`: all sessions would write to one conversation.
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
        self._recipe = QueryRecipe(options, make_transport=make_transport, arguments=arguments)
        super().__init__(limits, self._recipe, check_interval=check_interval, read_rss=read_rss, clock=clock, sleep=sleep)

    @asynccontextmanager
    async def acquire(
        self,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        can_use_tool: CanUseToolCallback | None = None,
        cwd: str | os.PathLike[str] | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Query]:
        """Hand out a session that was never used, as a started `Query`, and end it when the `async with` block is left.

        Callers are served in the order of asking. Leaving the block interrupts a running turn and does not wait for the end of the process.
        After an error or a cancellation the process ends in haste.

        With `cwd` or `model`, a ready session goes there by control requests. A session that cannot, or that would keep settings of its
        first directory, is ended; a new process with these options takes its place, which takes as long as any start. The directory is
        never trusted for the caller: the CLI moves only to one that is trusted in its configuration, itself or a directory above it.

        Args:
            timeout: seconds to wait for a session. Going elsewhere has a bound of its own.
            can_use_tool: replaces the pool's `can_use_tool` for this use.
            cwd: the absolute path of another working directory, where the CLI runs.
            model: another model.

        Raises:
            ConnectTimeout: no session was free after `timeout` seconds; its `code` is `pool.exhausted`.
            ClaudeTransportError: the start for this call failed, with an error of `Query.start()`.
            NotConnected: the pool was not started.
            TransportClosed: the pool is closed, or was closed during the wait.
            ControlRequestFailed: the session refused the model, for example by a hook of the pool.
            ConfigurationError: `can_use_tool` is given, and the sessions were started without one. Or `cwd` or `model` is not valid.
        """
        check_callback("can_use_tool", can_use_tool)
        aim = self._recipe.aim(cwd, model)
        if can_use_tool is not None and not self._recipe.has_guard:
            message = "the sessions of this pool were not started to ask for permission: give the pool a can_use_tool, too"
            raise ConfigurationError(message, option="can_use_tool")
        session = await self._take(timeout)
        hurry = True
        try:
            assert isinstance(session, PooledQuery)  # noqa: S101 - for the type checkers: the recipe makes no others
            if can_use_tool is not None and session.guard is not None:
                session.guard.callback = can_use_tool
            if aim.is_elsewhere:
                is_there = await aim.reached_by(session.query)
                if not is_there:
                    await self._restart(session, aim)
                self._stock.note_aimed(restarted=not is_there)
            yield session.query
            hurry = False
        finally:
            self._stock.give_back(session, hurry=hurry)

    async def _restart(self, session: PooledQuery, aim: Relocation) -> None:
        try:
            await session.restart(self._recipe.query(aim, guard=session.guard))
        except ClaudeTransportError:
            raise
        except Exception as exc:  # a `make_transport` of the user may raise anything
            raise not_made(exc) from exc


MakeTransport = Callable[[ClaudeOptions], TransportLike]
"""Makes the transport of one session, not connected."""


class LateGuard:
    """A `can_use_tool` that is there when the session starts, and calls `callback`, which a user of the session may replace."""

    def __init__(self, callback: CanUseToolCallback) -> None:
        self.callback = callback

    async def __call__(self, tool_name: str, given: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        return await self.callback(tool_name, given, context)


class PooledQuery(PooledSession):
    """A session of Claude: its query, and its guard, which is None when the pool was made without `can_use_tool`."""

    def __init__(self, query: Query, *, guard: LateGuard | None) -> None:
        self.query: Query = query
        self.guard: LateGuard | None = guard
        self._is_over = False

    async def start(self) -> None:
        """Start the query."""
        await self.query.start()

    async def restart(self, query: Query) -> None:
        """End the process, and start `query` in its place: at no time are there two.

        Raises:
            TransportClosed: the session was ended meanwhile, so `query` is not started.
            ClaudeTransportError: the start failed.
        """
        await self.query.aclose()
        if self._is_over:
            raise TransportClosed("the pool was closed")
        self.query = query
        await query.start()

    async def check(self, *, timeout: float) -> None:
        """Ask for the version of the CLI."""
        with contextlib.suppress(ControlRequestFailed):  # it answered
            await self.query.request("get_binary_version", timeout=timeout)

    def abandon(self) -> None:
        """Begin to close the query."""
        self._is_over = True
        self.query.abandon()

    async def aclose(self, *, hurry: bool) -> None:
        """Close the query."""
        await self.query.aclose(hurry=hurry)

    @property
    def has_ended(self) -> bool:
        """True once the CLI has ended, or closing has begun."""
        return self.query.has_ended

    @property
    def pid(self) -> int | None:
        """The id of the CLI's process."""
        return self.query.info.pid


class QueryRecipe:
    """Makes sessions of Claude: the options, the transports, and the arguments of the queries.

    Raises:
        ConfigurationError: the options can serve one session only, or no query would accept the arguments.
    """

    def __init__(self, options: ClaudeOptions | None, *, make_transport: MakeTransport | None, arguments: QueryOptions) -> None:
        self._options = ClaudeOptions() if options is None else options
        self._make_transport = SubprocessTransport if make_transport is None else make_transport
        self._arguments = arguments
        if "transport" in arguments:
            raise ConfigurationError(
                "SessionPool takes no transport: each session has one of its own, from make_transport=lambda options: …", option="transport"
            )
        check_transport_maker(make_transport)
        _check_for_many(self._options)
        if make_transport is None:
            self.make()  # raises now what the first session would raise; this starts nothing

    @property
    def has_guard(self) -> bool:
        """True when the sessions are started with a `can_use_tool`."""
        return self._arguments.get("can_use_tool") is not None

    def make(self) -> PooledQuery:
        """Return a session that is not started."""
        callback = self._arguments.get("can_use_tool")
        check_callback("can_use_tool", callback)
        guard = None if callback is None else LateGuard(callback)
        return PooledQuery(self.query(Relocation(None, None), guard=guard), guard=guard)

    def query(self, aim: Relocation, *, guard: LateGuard | None) -> Query:
        """Return a query that is not started, whose process starts in the directory and with the model of `aim`."""
        arguments: QueryOptions = {**self._arguments, "can_use_tool": guard}
        transport = self._make_transport(aim.options_for(self._options))
        check_transport(transport, of="SessionPool", option="make_transport")
        return Query(transport, **arguments)

    def aim(self, cwd: object, model: object) -> Relocation:
        """Return where one use of a session has to go. Raises `ConfigurationError` for what is no path or no model."""
        return Relocation.at(cwd, model, options=self._options)


def _check_for_many(options: object) -> None:
    if not isinstance(options, ClaudeOptions):
        raise ConfigurationError(f"options is a {type(options).__name__}: give a ClaudeOptions", option="options")
    if options.session_id is not None:
        raise ConfigurationError("session_id names one session, and a pool has many: leave it out", option="session_id")
    for option, is_set in (("resume", options.resume is not None), ("continue_conversation", options.continue_conversation)):
        if is_set and not options.fork_session:
            message = f"{option} lets every session of the pool write to the same conversation: set fork_session, too"
            raise ConfigurationError(message, option=option)
