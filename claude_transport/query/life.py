"""`Life`: the moments of one conversation that others wait for (ready, asked to close, ended), and why each came."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping

import anyio

from claude_transport.background import BackgroundTask, HostLoop
from claude_transport.errors import ClaudeTransportError, NotConnected, ProcessError, TransportClosed, UsageError
from claude_transport.query.connection import Connection
from claude_transport.query.endings import raised_again

__all__ = ["DEFAULT_CLOSE_TIMEOUT", "Life"]

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds the conversation gets to end by itself when it is closed, before the transport is closed under it."""


class Life:
    """Where a conversation is between its start and its end. Each moment comes once, and who brings it first decides why."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.task: BackgroundTask | None = None
        """The one task in which it is lived."""
        self.loop = _loop_here()
        """The event loop of that task, and of everything that waits; where it was made, or else where it is begun."""
        self.ready: anyio.Event = anyio.Event()
        """The start is over: it succeeded, or `start_error` says why not."""
        self._early: set[anyio.Event] = set()
        self.start_error: ClaudeTransportError | None = None
        self.close_requested: anyio.Event = anyio.Event()
        self.close_timeout: float = DEFAULT_CLOSE_TIMEOUT
        self.wait_for_background: bool = False
        self.ended: anyio.Event = anyio.Event()
        """Nothing more will come from the peer."""
        self.error: ClaudeTransportError | None = None
        self.ended_by_itself = True
        """False when the transport is closed under it."""
        self.lost_turns: tuple[str, ...] = ()
        self.dropped_tasks: Mapping[str, str] = {}

    def begin(self, func: Callable[[], Awaitable[object]], *, name: str) -> BackgroundTask:
        """The task that lives it, which is started when there is none yet."""
        if self.task is None:
            self.loop = HostLoop()  # its own, if it has one: `refuse_elsewhere()` comes first
            self.task = BackgroundTask.spawn(func, name=name)
        return self.task

    def fail_start(self, error: ClaudeTransportError) -> None:
        """It did not get ready, and will not; changes nothing once it did."""
        if not self.ready.is_set():
            self.start_error = error
            self.ready.set()
            self.ask_to_close(timeout=0.0)

    def ask_to_close(self, *, timeout: float, wait_for_background: bool = False) -> None:
        """Somebody wants it closed, with so many seconds to end by itself. Who asks later can only make it sooner."""
        is_first = not self.close_requested.is_set()
        self.close_timeout = timeout if is_first else min(timeout, self.close_timeout)
        self.wait_for_background = wait_for_background and (is_first or self.wait_for_background)
        self.close_requested.set()

    def end(self, error: ClaudeTransportError | None, *, lost_turns: tuple[str, ...], dropped_tasks: Mapping[str, str]) -> None:
        """It has ended; None when all was well. The others are what was cut off."""
        self.ended.set()
        self.error = error
        self.lost_turns = lost_turns
        self.dropped_tasks = dropped_tasks

    @property
    def is_over(self) -> bool:
        """True once the peer has ended, or closing was asked for."""
        return self.ended.is_set() or self.close_requested.is_set()

    @property
    def phase(self) -> str:
        """For people: not started, starting, ready, closing, ended, closed, or failed to start."""
        if self.start_error is not None:
            return "failed to start"
        if self.task is None:
            return "closed" if self.close_requested.is_set() else "not started"
        if self.task.finished:
            return "closed"
        if self.ended.is_set():
            return "ended"
        if self.close_requested.is_set():
            return "closing"
        return "ready" if self.ready.is_set() else "starting"

    def call(self, func: Callable[[], object]) -> None:
        """Have `func` called in the event loop it is lived in, at once if that is here: for finalisers, which run in any thread."""
        if self.loop is None or self.loop.is_current:
            func()
        else:
            self.loop.call_soon(func)  # a loop that is over has ended everything in it

    def refuse_elsewhere(self) -> None:
        """Raise in any event loop but the one it is lived in: to wait for something of another loop is to wait for ever, or worse."""
        if self.loop is not None and not self.loop.is_current:
            raise UsageError(
                "this query lives in another event loop: from a thread, call it there, through an anyio.from_thread.BlockingPortal",
                code="usage.wrong_loop",
            )

    def refuse_if_over(self) -> None:
        """Raise when there is nobody to talk to, or not from here."""
        self.refuse_elsewhere()
        if self.task is None and not self.close_requested.is_set():
            raise NotConnected("start() has not been called")
        if self.ended.is_set():
            raise self.gone("the conversation has ended") from self.error
        if self.close_requested.is_set():
            raise TransportClosed("the query is closed")

    async def until_ready(self) -> None:
        """Return when it has started, at once if it has; raise why it did not, or when there is nobody to talk to."""
        self.refuse_if_over()
        if not self.ready.is_set():
            await self.ready.wait()
            if self.start_error is not None:
                raise raised_again(self.start_error)
            self.refuse_if_over()

    @contextlib.contextmanager
    def awaiting_ready(self) -> Iterator[None]:
        """Count the block as something that waits for the start, if it is entered before the start is over."""
        if self.ready.is_set():
            yield
            return
        done = anyio.Event()
        self._early.add(done)
        try:
            yield
        finally:
            self._early.discard(done)
            done.set()

    async def nothing_waits_for_ready(self) -> None:
        """Return when every block of `awaiting_ready()` that is entered by now has been left."""
        for done in tuple(self._early):
            self.refuse_elsewhere()
            await done.wait()

    def gone(self, message: str) -> TransportClosed:
        """`TransportClosed` with what is known of how the peer ended."""
        known = self.error if isinstance(self.error, ProcessError) else self._connection.info
        gone = TransportClosed(message, exit_code=known.exit_code, signal=known.signal, stderr_tail=known.stderr_tail)
        gone.__cause__ = self.error
        return gone


def _loop_here() -> HostLoop | None:
    """The running event loop, if there is one."""
    try:
        return HostLoop()
    except RuntimeError:
        return None
