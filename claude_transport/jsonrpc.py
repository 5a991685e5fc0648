"""`JSONRPCPeer`: a JSON-RPC 2.0 conversation over any transport, with requests in both directions.

Agents that speak JSON-RPC and stdio MCP servers are driven with it. What a line means is decided in `protocol.jsonrpc`; here are the
tasks, the waits and their bounds. Nothing here knows what the methods are.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claude_transport.errors import (
    Busy,
    ClaudeTransportError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    JSONRPCError,
    NotConnected,
    TransportClosed,
    UsageError,
)
from claude_transport.exchange.arguments import check_callback, check_number, check_seconds
from claude_transport.exchange.ending import TransportEnd
from claude_transport.exchange.failures import (
    CallbackFailures,
    ConversationEnd,
    connect_guarded,
    guarded,
    meant_for_the_program,
    raised_again,
    says_peer_is_gone,
    tells_of_the_end,
    translated,
    without_cancellation,
)
from claude_transport.exchange.incoming import Batches
from claude_transport.exchange.mailbox import Mailbox
from claude_transport.exchange.outgoing import MAX_WAITING_BYTES, Delivery, LineWriter
from claude_transport.exchange.requests import VERDICT_GRACE, PendingRequests
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask, OrderedStarts, start_in
from claude_transport.loops.current import HostLoop, LightEvent, Wakeup
from claude_transport.protocol.jsonrpc import (
    ACP_CANCEL,
    BUSY,
    INTERNAL_ERROR,
    JSONRPC,
    MCP_CANCEL,
    METHOD_NOT_FOUND,
    CancelNotification,
    JSONRPCCounters,
    NoMessage,
    Notification,
    Params,
    Request,
    RequestId,
    RpcAnswer,
    RpcRefusal,
    Withdrawal,
)
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.transport import (
    Client,
    SessionTerms,
    TransportInfo,
    TransportLike,
    attach_to,
    check_transport,
    read_lines_of,
)

logger: logging.Logger = logger_for(__name__)

__all__ = [
    "ACP_CANCEL",
    "MCP_CANCEL",
    "CancelNotification",
    "JSONRPCCounters",
    "JSONRPCError",
    "JSONRPCPeer",
    "Notification",
    "Request",
]

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds for the answer to a request, for connecting, and for closing the transport."""

_OVERHEAD: Final = 1000
"""Bytes that a waiting notification takes beside its line."""

_FAIRNESS: Final = 128
"""Notifications read in a row before other tasks run."""

_GONE: Final = "the peer has ended"

_LAST_WORDS: Final = 1.0
"""Seconds for the answer to the request whose callback ends the conversation."""

OnRequest: TypeAlias = Callable[[Request], Awaitable[Any]]
OnArrival: TypeAlias = Callable[[Request], object]
OnNotification: TypeAlias = Callable[[Notification], object]


T = TypeVar("T")

_calling_back: ContextVar[tuple[JSONRPCPeer, ...]] = ContextVar("_calling_back", default=())


class JSONRPCPeer:
    """One end of a JSON-RPC 2.0 conversation, over any transport. Use it with `async with`; the end of the block closes the transport.

    The peer may ask, too: `await on_request(request)` returns the result, or raises a `JSONRPCError` of its own to refuse. Another
    exception, also the error of a request that it made, is logged and answered with a plain "internal error". Requests are
    taken up in their order. Up to `max_requests` are worked on at the same time; more are refused at once, so that answers and
    cancellations are always read.

    Notifications are read with `notifications()`, or handed to `on_notification` in their order. A plain function is called before what the
    peer said next is looked at, and must not wait; an async function is awaited apart from that, one call after the other.

    While notifications wait for their reader, at most `max_notifications` are kept, and then the peer is not read until there is room.
    While a request waits for its answer, up to 64 MiB are kept instead. Before the first `notifications()`, the oldest are dropped, and
    counted.

    Args:
        transport: connected by this object when it is not yet, and closed by it.
        on_request: called for each request of the peer; without it they are refused as unknown methods.
        on_arrival: a plain function, called with each request before what the peer said next is looked at. It must not wait. `on_request`
            follows in a task of its own, so what the peer said next may be known by then.
        on_notification: called for each notification.
        with_version: write the member `jsonrpc`, which some peers leave out. It is never required of the peer.
        cancel: how the dialect withdraws a request, for example `MCP_CANCEL`. It is sent for a request that is cancelled or late, and
            cancels the callback of a request that the peer withdraws.
        timeout: seconds that a request waits for its answer, unless it says otherwise.
        connect_timeout: seconds for connecting.
        close_timeout: seconds for closing. None is 1 second in haste, after an error or a cancellation, and else those of the transport.
        transport_close_timeout: seconds for the transport's own `close()`. After that, the peer closes without waiting for it.
        max_requests: requests of the peer that are worked on at the same time.
        max_notifications: notifications that wait for their reader.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        on_request: OnRequest | None = None,
        on_arrival: OnArrival | None = None,
        on_notification: OnNotification | None = None,
        with_version: bool = True,
        cancel: CancelNotification | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        connect_timeout: float = DEFAULT_TIMEOUT,
        close_timeout: float | None = None,
        transport_close_timeout: float = DEFAULT_TIMEOUT,
        max_requests: int = 256,
        max_notifications: int = 10_000,
    ) -> None:
        check_transport(transport, of="JSONRPCPeer")
        for name, callback in (("on_request", on_request), ("on_arrival", on_arrival), ("on_notification", on_notification)):
            check_callback(name, callback)
        check_number("timeout", timeout, positive=True)
        check_number("connect_timeout", connect_timeout, positive=True)
        _check_counts(max_requests=max_requests, max_notifications=max_notifications)
        self._transport = transport
        self._on_request, self._on_arrival = on_request or _refuse, on_arrival
        self._on_notification = on_notification
        self._dialect = (with_version, cancel)
        self._machine = JSONRPC(with_version=with_version, cancel=cancel)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._transport_end = TransportEnd(transport, transport_close_timeout=transport_close_timeout, close_timeout=close_timeout)
        self._max_requests = max_requests
        self._terms = SessionTerms()
        self._failures = CallbackFailures(lambda: redactor_knowing([os.environ]))
        self._loop: HostLoop | None = None
        self._task: LoopTask | None = None
        self._tasks: TaskGroup | None = None
        self._reading: TaskGroup | None = None
        self._ready, self._closing = LightEvent(), LightEvent()
        self._fate = ConversationEnd(transport)
        self._start_error: ClaudeTransportError | None = None
        self._lines = LineWriter(transport, end=self._fate)
        self._requests: PendingRequests[int] = PendingRequests(self._lines, end=self._fate, is_control=False)
        self._inbox: _Inbox[Notification] = _Inbox(max_notifications, is_read=on_notification is not None)
        self._outcomes: _Inbox[tuple[Notification, Awaitable[object]]] = _Inbox(max_notifications, is_read=True)
        self._scopes: dict[RequestId, anyio.CancelScope] = {}
        self._starts = OrderedStarts()  # requests are taken up as they came
        self._working = self._working_bytes = 0

    # The start and the end

    async def start(self) -> None:
        """Connect the transport, unless it is connected, and begin to read. `async with` calls it.

        Raises:
            CLIConnectionError: the transport could not connect (`ConnectTimeout`: not in time). It is closed then.
            ConfigurationError: the transport cannot be used in this way.
            UsageError: the peer was started before (`TransportClosed`: closed before).
        """
        if self._closing.is_set():
            raise TransportClosed("the JSON-RPC peer is closed")
        if self._task is not None:
            raise UsageError("this JSON-RPC peer was started before")
        self._loop = HostLoop()
        self._task = LoopTask.spawn(self._live, name="JSON-RPC peer", at_end=self._note_end)
        try:
            await self._ready.wait()
        except BaseException:
            await self.aclose(hurry=True)
            raise
        if self._start_error is not None:
            await self._task.join()
            raise raised_again(self._start_error)

    async def aclose(self, *, hurry: bool = False) -> None:
        """Close the transport. Requests that wait get `TransportClosed`, and callbacks are cancelled.

        Callable from any task, and more than once. Inside a callback it does not wait for the end. It takes `transport_close_timeout`
        seconds at most; with `hurry`, and when it is cancelled, `close_timeout`.
        """
        self._check_loop()
        self.begin_closing(timeout=0.0, hurry=hurry)
        self._closing.set()
        if self._task is None:
            self._task = LoopTask.spawn(self._close_transport, name="close JSON-RPC peer")
        else:
            self._note_end()
            self._task.cancel()
        if self not in _calling_back.get():
            try:
                await self._task.wait()
            finally:
                if not self._task.finished:
                    self.begin_closing(timeout=0.0, hurry=True)
                await self._task.join()

    def begin_closing(self, *, timeout: float, hurry: bool) -> float:
        """Let the time for closing begin, or become shorter. Returns the seconds of it, at most `timeout`, in which the peer may end."""
        return self._transport_end.begin(timeout=timeout, hurry=hurry)

    def patience(self, otherwise: float) -> float:
        """Return the seconds that the peer gets to end by itself when the caller names none: a part of `close_timeout`, or `otherwise`."""
        return self._transport_end.patience(otherwise)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose(hurry=exc is not None)

    async def ended(self) -> ClaudeTransportError | None:
        """Wait until nothing more can come: the peer has ended, or this end is closed. Returns why; None when the peer ended well."""
        self._check_loop()
        await self._fate.ended.wait()
        return self._fate.error

    async def _live(self) -> None:
        """Run the conversation until it is closed. However it ends, nothing is left waiting."""
        try:
            await self._connect()
            self._ready.set()
            await self._converse()
        except Exception as exc:
            if self._ready.is_set():
                raise
            self._start_error = translated(exc, "the transport failed")
        finally:
            self._note_end()
            self._lines.stop()
            self._requests.end()
            for _, outcome in self._outcomes.rest():
                if inspect.iscoroutine(outcome):
                    outcome.close()
            await self._close_transport()

    async def _connect(self) -> None:
        self._terms = self._transport_end.accept(attach_to(self._transport, Client(initializes=False)))
        self._terms.check_prompts_pass(of="JSONRPCPeer")
        with_version, cancel = self._dialect
        self._machine = JSONRPC(with_version=with_version, cancel=cancel, strict=self._terms.strict)
        if self._transport.is_ready():
            return
        with anyio.move_on_after(self._connect_timeout) as limit:
            await connect_guarded(self._transport)
        if limit.cancelled_caught:
            raise ConnectTimeout(f"not connected in {self._connect_timeout:g} s", waited=self._connect_timeout)

    async def _converse(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._lines.begin(functools.partial(start_in, self._tasks), at_once=self._terms.at_once)
            start_in(self._tasks, self._await_callbacks)
            async with anyio.create_task_group() as self._reading:
                self._end(await self._read(self._reading))
            await self._closing.wait()
            self._tasks.cancel_scope.cancel()

    async def _close_transport(self) -> None:
        self._fate.log_untold()
        await self._transport_end.close()

    def _note_end(self) -> None:
        """Note the end by this side, unless the conversation has ended before."""
        self._end(TransportClosed("the JSON-RPC peer is closed"), by_us=True)
        if not self._ready.is_set():
            self._start_error = self._start_error or TransportClosed("the JSON-RPC peer was closed before it was connected")
            self._ready.set()

    def _end(self, error: ClaudeTransportError | None, *, by_us: bool = False) -> None:
        """Note that nothing more is read, because of `error` or after a good end. Settles everything that waits."""
        if self._fate.ended.is_set():
            return
        if not by_us:
            error = self._fate.cause(error)
            self._fate.mark_told(error)
        self._fate.end(error)
        cause = error or ConnectionLost("the peer ended before it answered the request")
        if error is None:
            cause.__cause__ = self._fate.first_failure
        self._requests.fail_all(cause)
        self._lines.fail(error if by_us and error is not None else _GONE)
        self._inbox.end(None if by_us else error)
        self._outcomes.end(None)
        if self._reading is not None:
            self._reading.cancel_scope.cancel()

    def _end_by_crash(self, name: str, crash: BaseException) -> None:
        """End the conversation, because the callback `name` raised what is no `Exception`."""
        error = UsageError(
            f"{name} raised {type(crash).__name__}, which is no Exception and so ends the conversation. Catch it in the callback",
            code="usage.callback_failed",
        )
        error.__cause__ = crash
        self._end(error)
        exit_of_program = meant_for_the_program(crash)
        if exit_of_program is not None and self._tasks is not None:
            start_in(self._tasks, _raise, exit_of_program)

    def _check_loop(self) -> None:
        if self._loop is not None and not self._loop.is_current:
            raise UsageError("this peer runs in another event loop: call it there", code="usage.wrong_loop")

    def _check_open(self) -> None:
        self._check_loop()
        if self._closing.is_set():
            raise TransportClosed("the JSON-RPC peer is closed")
        if self._task is None:
            raise NotConnected("the JSON-RPC peer is not started: use `async with`, or start()")
        if self._fate.ended.is_set():
            raise self._fate.gone(_GONE) from self._fate.error

    # What is known

    @property
    def terms(self) -> SessionTerms:
        """What the transport asks of the layer above it. Empty before `start()`."""
        return self._terms

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport."""
        return self._fate.info

    @property
    def counters(self) -> JSONRPCCounters:
        """How many lines of the peer could not be used, by reason."""
        return self._machine.counters

    @property
    def dropped_notifications(self) -> int:
        """Notifications that were dropped because `notifications()` was not called yet and there was no room for more."""
        return self._inbox.dropped

    @property
    def failed_callbacks(self) -> int:
        """How often `on_request` or `on_notification` has raised an exception, or returned what JSON cannot express. Each is logged."""
        return self._failures.failed

    @property
    def pending_requests(self) -> dict[int, str]:
        """The requests that wait for an answer: id to method."""
        return self._requests.names

    # Asking

    async def request(self, method: str, params: Params | None = None, *, timeout: float | None = None) -> Any:
        """Send a request and wait for its result.

        A request that is cancelled or late is forgotten. The peer is told so, if the dialect has a notification for that.

        Args:
            method: the name of the method.
            params: a mapping or a list; None leaves the member out.
            timeout: seconds for the answer, instead of those of the peer; `math.inf` for no limit.

        Raises:
            JSONRPCError: the peer answered with an error.
            ControlTimeout: it did not answer in time.
            ProtocolError: its answer is malformed.
            ConnectionLost, ProcessError, TransportClosed: it ended before it answered, or had ended.
            UsageError: the params cannot be written as JSON.
        """
        limit = self._timeout if timeout is None else timeout
        check_seconds("timeout", limit)
        self._check_open()
        await anyio.lowlevel.checkpoint_if_cancelled()  # the line of a cancelled caller is not written
        request_id, line = self._machine.request(method, params)
        request = self._requests.add(request_id, method, line)
        try:
            self._requests.post(request)
            self._let_through()
            return await self._requests.answer_to(request, timeout=limit)
        finally:
            self._let_through()
            withdrawal = self._machine.give_up(request_id)
            is_unanswered = request.is_open or request.is_late
            is_unsent = is_unanswered and request.delivery is not None and self._lines.take_back(request.delivery)
            if is_unanswered and not is_unsent and withdrawal is not None and self._lines.has_room:
                self._lines.put(Delivery(withdrawal))

    async def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification. Returns when the transport has taken it, and waits while the peer does not read.

        Raises:
            TransportClosed, ConnectionLost: the peer has ended.
            UsageError: the params cannot be written as JSON.
        """
        self._check_open()
        await self._send(self._machine.notification(method, params))

    async def _send(self, data: bytes) -> None:
        """Write a line. When that fails, raise what reading finds, if it finds more."""
        try:
            await self._lines.send(Delivery(data))
            return
        except ClaudeTransportError as exc:
            failure = exc
        await self._await_verdict(failure)
        raise self._fate.told(self._fate.error or failure)

    async def _await_verdict(self, failure: ClaudeTransportError) -> None:
        """Wait for the end of reading when that may say more than `failure` does."""
        if tells_of_the_end(failure):
            with anyio.move_on_after(VERDICT_GRACE):
                await self._fate.ended.wait()

    def _say(self, line: bytes) -> None:
        """Write an answer for which nothing waits. Raises `ProtocolError` for a peer that goes on asking and does not read the answers."""
        self._lines.check_room()
        self._lines.put(Delivery(line, self._not_said))

    def _not_said(self, error: ClaudeTransportError) -> None:
        if not (says_peer_is_gone(error) or self._fate.ended.is_set()) and self._tasks is not None:
            start_in(self._tasks, self._end_by_failure, error)

    async def _end_by_failure(self, error: ClaudeTransportError) -> None:
        """End the conversation, because the transport has failed, and the peer waits for what cannot be written."""
        await self._await_verdict(error)
        self._end(error)

    def notifications(self) -> AsyncIterator[Notification]:
        """Return an iterator over the notifications of the peer. One task at a time may read; what it leaves, the next one gets.

        It ends when the peer has ended well or this end is closed, and raises why otherwise, after the last notification.

        Raises:
            UsageError: they are handed to `on_notification`.
            Busy: another task reads.
        """
        self._check_loop()
        if self._on_notification is not None:
            raise UsageError("the notifications of this peer are handed to on_notification")
        self._inbox.is_read = True
        return self._inbox

    # Reading

    async def _read(self, answering: TaskGroup) -> ClaudeTransportError | None:
        """Read until the peer ends. Returns why, or None after a good end."""
        arrived: list[Sequence[bytes]] = []

        def take_one(lines: Sequence[bytes]) -> bool:
            arrived.append(lines)
            return True

        try:
            async with Batches(read_lines_of(self._transport)) as batches:
                while await batches.pour(take_one):
                    self._take(arrived.pop(), answering)
                    await self._inbox.room()
                    await self._outcomes.room()
        except ClaudeTransportError as exc:
            return exc
        except Exception as exc:  # noqa: BLE001 - a transport of another library may raise anything
            return translated(exc, "the transport could not read")
        return None

    def _take(self, lines: Sequence[bytes], answering: TaskGroup) -> None:
        for line in lines:
            event = self._machine.receive(line)
            match event:
                case Notification():
                    self._notified(event)
                case RpcAnswer(id=request_id, result=result, error=error):
                    if error is None:
                        self._requests.settle(request_id, result)
                    else:
                        self._requests.fail(request_id, error)
                case Request():
                    self._accept(event, answering)
                case Withdrawal(id=request_id):
                    if (scope := self._scopes.get(request_id)) is not None:
                        scope.cancel()
                case RpcRefusal(reply=reply):
                    self._say(reply)
                case NoMessage(failure=failure) if self._terms.on_failure is not None:
                    self._terms.on_failure(failure)

    def _notified(self, notification: Notification) -> None:
        size = len(notification.raw) + _OVERHEAD
        if self._on_notification is None:
            self._inbox.add(notification, size)
            return
        try:
            outcome = self._on_notification(notification)
        except BaseException as exc:  # noqa: BLE001 - a failure costs that notification only; what is no failure ends the conversation
            self._note_failure(notification, exc)
        else:
            if inspect.isawaitable(outcome):
                self._outcomes.add((notification, outcome), size)

    async def _await_callbacks(self) -> None:
        """Await what `on_notification` returned, one after the other."""
        _calling_back.set((*_calling_back.get(), self))
        async for notification, outcome in self._outcomes:
            try:
                await guarded(outcome)
            except BaseException as exc:
                if without_cancellation(exc) is None:
                    raise
                self._note_failure(notification, exc)

    def _note_failure(self, notification: Notification, exc: BaseException) -> None:
        """Note what `on_notification` raised."""
        self._failures.note(f"on_notification, given {notification.method!r},", exc)
        error = without_cancellation(exc)
        if error is not None and not isinstance(error, Exception):
            self._end_by_crash("on_notification", error)

    def _let_through(self) -> None:
        """Have the peer read on while a request waits for its answer, although the reader of the notifications is behind."""
        for inbox in (self._inbox, self._outcomes):
            inbox.let_through(len(self._requests) > 0)

    def _accept(self, request: Request, answering: TaskGroup) -> None:
        """Work on a request, unless there are too many."""
        size = len(request.raw)
        if self._working >= self._max_requests or (self._working and self._working_bytes + size > MAX_WAITING_BYTES):
            error = JSONRPCError(f"too many open requests: at most {self._max_requests} are worked on", rpc_code=BUSY)
            if (line := self._machine.error(request.id, error)) is not None:
                self._say(line)
            return
        self._working += 1
        self._working_bytes += size
        self._scopes[request.id] = anyio.CancelScope()  # before the task begins, so that it can be withdrawn from now on
        if self._on_arrival is not None:
            try:
                self._on_arrival(request)
            except Exception as exc:  # noqa: BLE001 - it only takes note: the request is worked on all the same
                self._failures.note(f"on_arrival, given {request.method!r},", exc)
        self._starts.start_in(answering, self._answer, request)

    async def _answer(self, request: Request) -> None:
        _calling_back.set((*_calling_back.get(), self))
        scope = self._scopes[request.id]
        line, crash = None, None
        try:
            with scope:
                line, crash = await self._line_for(request)
            if line is None:
                line = self._machine.withdrawn(request.id)
            del self._scopes[request.id]
            if line is not None:
                with anyio.move_on_after(math.inf if crash is None else _LAST_WORDS):
                    await self._send(line)
        except ClaudeTransportError as exc:
            if not says_peer_is_gone(exc):  # else reading ends, too, which is told to those who wait
                self._end(self._fate.first_failure or exc)
        finally:
            self._working -= 1
            self._working_bytes -= len(request.raw)
        if crash is not None:
            self._end_by_crash("on_request", crash)

    async def _line_for(self, request: Request) -> tuple[bytes | None, BaseException | None]:
        """Call `on_request`. Returns the line of the answer, and what it raised that is no `Exception`."""
        name = f"on_request, asked {request.method!r},"
        refusal, crash = JSONRPCError("internal error", rpc_code=INTERNAL_ERROR), None
        try:
            return self._machine.result(request.id, await guarded(self._on_request(request))), None
        except BaseException as exc:
            error = without_cancellation(exc)
            if error is None:
                raise
            if isinstance(error, JSONRPCError) and not error.request_id:
                refusal = error
            else:  # also the error of another request: what a peer said is not passed on by accident
                self._failures.note(name, error)
                crash = None if isinstance(error, Exception) else error
        try:
            return self._machine.error(request.id, refusal), crash
        except UsageError as exc:  # its data cannot be written as JSON
            self._failures.note(name, exc)
            return self._machine.error(request.id, JSONRPCError("internal error", rpc_code=INTERNAL_ERROR)), crash


def _check_counts(**counts: object) -> None:
    for option, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigurationError(f"{option} must be a whole number of at least 1, not {value!r}", option=option)


async def _refuse(request: Request) -> Any:
    """Answer for a peer without `on_request`."""
    raise JSONRPCError("method not found", rpc_code=METHOD_NOT_FOUND)


async def _raise(error: BaseException) -> None:
    raise error


class _Inbox(Mailbox[tuple[T, int]]):
    """What the peer has said and its reader has not taken yet, with the bytes of each. The reader iterates over it.

    Args:
        limit: items that are kept.
        is_read: something reads from the beginning, so that nothing is dropped.
    """

    def __init__(self, limit: int, *, is_read: bool) -> None:
        super().__init__()
        self._limit = limit
        self._room = Wakeup()
        self._reading = False
        self._lets_through = False
        self._unpaced = 0
        self.is_read: bool = is_read
        self.dropped: int = 0

    @staticmethod
    def cost_of(message: tuple[T, int]) -> int:
        """Return the bytes of an item."""
        return message[1]

    @staticmethod
    def most_cost_of(messages: Sequence[tuple[T, int]]) -> int:
        """Return the bytes of these items."""
        return sum(size for _, size in messages)

    def add(self, item: T, size: int) -> None:
        """Keep an item of `size` bytes. Drops the oldest ones when there is no room, and nothing reads."""
        self.append((item, size))
        while not self.is_read and len(self) > 1 and self._is_over_limits():
            self.take()
            self.dropped += 1

    def _is_over_limits(self) -> bool:
        return len(self) > self._limit or self.count() > MAX_WAITING_BYTES

    @property
    def _is_full(self) -> bool:
        if not self.is_read or self.has_ended:
            return False
        return self.count() > MAX_WAITING_BYTES if self._lets_through else self._is_over_limits()

    def let_through(self, anyway: bool) -> None:
        """Say whether more is taken although the reader is behind."""
        self._lets_through = anyway
        self._room.fire()

    async def room(self) -> None:
        """Wait until there is room. The reader, `let_through()` or the end of the conversation ends the wait."""
        while self._is_full:
            await self._room.wait()

    def end(self, error: ClaudeTransportError | None = None) -> None:
        """End the iteration after the last item, with `error` if there is one."""
        super().end(error)
        self._room.fire()

    def rest(self) -> Iterator[T]:
        """Take everything that is left."""
        while (taken := self.take()) is not None:
            yield taken[0]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._reading:
            raise Busy("another task is already reading the notifications of this peer")
        self._reading = True
        try:
            if self._unpaced >= _FAIRNESS or not (self.ready or self.runs):
                self._unpaced = 0
                await anyio.lowlevel.checkpoint()
            self._unpaced += 1
            while (taken := self.take()) is None:
                if self.error is not None:
                    raise raised_again(self.error)
                if self.has_ended:
                    raise StopAsyncIteration
                await self.arrival.wait()
            self._room.fire()
            return taken[0]
        finally:
            self._reading = False
