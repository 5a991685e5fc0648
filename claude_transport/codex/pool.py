"""`CodexPool`: sessions of Codex that are ready before they are needed: one process each, for one use.

One process could serve many users with a thread each. But an interrupt does not end a running command of Codex, and a command ends with its
process. So only the end of the process ends everything that a user has begun, and a crash concerns one user.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from claude_transport.agents.warm_pool import DEFAULT_TIMEOUT, PooledSession, PoolLimits, WarmPool, read_rss_bytes
from claude_transport.codex.callbacks import ApprovalDecision, CodexTool, OnApproval
from claude_transport.codex.messages import ApprovalRequest
from claude_transport.codex.options import CodexOptions
from claude_transport.codex.session import CodexSession
from claude_transport.errors import ConfigurationError, JSONRPCError
from claude_transport.exchange.arguments import check_callback, check_number
from claude_transport.transport import TransportLike, check_transport, check_transport_maker
from claude_transport.transports.subprocess import SubprocessTransport


class CodexPool(WarmPool):
    """Keeps sessions of Codex started ahead of use, and bounds their number: `async with pool.acquire() as session`.

    Each session is a process of its own with a thread that nothing has used, serves one `acquire()`, and is then ended. Start the pool with
    `async with pool`, or with `start()` and `aclose()`.

    Args:
        options: how each `codex app-server` is run.
        on_approval: decides for every session whether a command runs or files change; `acquire()` may replace it for one use. Without it
            every question is declined.
        tools: functions of this program that the model may call, in every session.
        thread: further fields of `thread/start`, in wire spelling.
        close_timeout: seconds for closing each session, as for a `CodexSession`.
        warm: sessions to keep ready; 0 for a pool that only bounds their number.
        cap: the most sessions at any time: starting, ready, in use or ending.
        idle_ttl: seconds after which a ready session beyond `warm` is ended, the longest idle first.
        max_age: seconds after which an idle session is ended and replaced. A session in use is never ended for its age.
        max_rss_bytes: resident memory of its process above which an idle session is ended and replaced.
        make_transport: makes the transport of a session from the options. By default a `SubprocessTransport`.
        check_interval: seconds between two checks of the idle sessions.
        read_rss: returns the resident bytes of a process id, or None when unknown. By default from `/proc`.
        clock: returns the time for `idle_ttl` and `max_age`, in seconds.
        sleep: waits the seconds of `check_interval`.

    Raises:
        ConfigurationError: a value is not valid.
    """

    def __init__(
        self,
        options: CodexOptions | None = None,
        *,
        on_approval: OnApproval | None = None,
        tools: Iterable[CodexTool] | None = None,
        thread: Mapping[str, Any] | None = None,
        close_timeout: float | None = None,
        warm: int = 1,
        cap: int = 8,
        idle_ttl: float = 300.0,
        max_age: float = 3600.0,
        max_rss_bytes: int | None = None,
        make_transport: Callable[[CodexOptions], TransportLike] | None = None,
        check_interval: float = 10.0,
        read_rss: Callable[[int], int | None] = read_rss_bytes,
        clock: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        check_number("check_interval", check_interval, positive=True)
        limits = PoolLimits(warm=warm, cap=cap, idle_ttl=idle_ttl, max_age=max_age, max_rss_bytes=max_rss_bytes)
        arguments = {"tools": None if tools is None else tuple(tools), "thread": thread, "close_timeout": close_timeout}
        recipe = CodexRecipe(options, make_transport=make_transport, on_approval=on_approval, arguments=arguments)
        super().__init__(limits, recipe, check_interval=check_interval, read_rss=read_rss, clock=clock, sleep=sleep)

    @asynccontextmanager
    async def acquire(self, *, timeout: float = DEFAULT_TIMEOUT, on_approval: OnApproval | None = None) -> AsyncIterator[CodexSession]:
        """Hand out a session that was never used, with a thread of its own, and end it when the `async with` block is left.

        Callers are served in the order of asking. Leaving the block interrupts a running turn and does not wait for the end of the process.
        After an error or a cancellation the process ends in haste.

        Args:
            timeout: seconds to wait for a session.
            on_approval: replaces the pool's `on_approval` for this use.

        Raises:
            ConnectTimeout: no session was free after `timeout` seconds; its `code` is `pool.exhausted`.
            ClaudeTransportError: the start for this call failed, with an error of `CodexSession.start()`.
            NotConnected: the pool was not started.
            TransportClosed: the pool is closed, or was closed during the wait.
        """
        check_callback("on_approval", on_approval)
        session = await self._take(timeout)
        assert isinstance(session, PooledCodex)  # noqa: S101 - for the type checkers: the recipe makes no others
        hurry = True
        try:
            if on_approval is not None:
                session.approval.callback = on_approval
            yield session.session
            hurry = False
        finally:
            self._stock.give_back(session, hurry=hurry)


class LateApproval:
    """An `on_approval` that is there when the session starts, and calls `callback`, which a user of the session may replace."""

    def __init__(self, callback: OnApproval | None) -> None:
        self.callback = callback

    async def __call__(self, request: ApprovalRequest) -> ApprovalDecision:
        return "decline" if self.callback is None else await self.callback(request)


class PooledCodex(PooledSession):
    """A session of Codex, and what answers its questions for approval."""

    def __init__(self, session: CodexSession, *, approval: LateApproval) -> None:
        self.session: CodexSession = session
        self.approval: LateApproval = approval

    async def start(self) -> None:
        """Start the process and its first thread."""
        await self.session.start()

    async def check(self, *, timeout: float) -> None:
        """Ask for the loaded threads, which needs no network."""
        with contextlib.suppress(JSONRPCError):  # it answered
            await self.session.request("thread/loaded/list", timeout=timeout)

    def abandon(self) -> None:
        """Let its last user get no more approvals. `aclose()` follows at once."""
        self.approval.callback = None

    async def aclose(self, *, hurry: bool) -> None:
        """Interrupt its turns, and end the process."""
        await self.session.aclose(hurry=hurry)

    @property
    def has_ended(self) -> bool:
        """True once Codex has ended, or closing has begun."""
        return self.session.has_ended

    @property
    def pid(self) -> int | None:
        """The id of the process of Codex."""
        return self.session.info.pid


class CodexRecipe:
    """Makes the sessions of a `CodexPool`.

    Raises:
        ConfigurationError: no session would start with these arguments.
    """

    def __init__(
        self,
        options: CodexOptions | None,
        *,
        make_transport: Callable[[CodexOptions], TransportLike] | None,
        on_approval: OnApproval | None,
        arguments: Mapping[str, Any],
    ) -> None:
        self._options = CodexOptions() if options is None else options
        self._make_transport = SubprocessTransport if make_transport is None else make_transport
        self._on_approval = on_approval
        self._arguments = arguments
        check_transport_maker(make_transport)
        check_callback("on_approval", on_approval)
        if not isinstance(self._options, CodexOptions):
            raise ConfigurationError(f"options is a {type(self._options).__name__}: give a CodexOptions", option="options")
        if make_transport is None:
            self.make()  # raises now what the first session would raise; this starts nothing

    def make(self) -> PooledCodex:
        """Return a session that is not started."""
        approval = LateApproval(self._on_approval)
        transport = self._make_transport(self._options)
        check_transport(transport, of="CodexPool", option="make_transport")
        session = CodexSession(transport, on_approval=approval, **self._arguments)
        return PooledCodex(session, approval=approval)
