"""`Life`: the moments of one conversation that others wait for (ready, asked to close, ended), and why each came."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel

from claude_transport.background import BackgroundTask, HostLoop
from claude_transport.client.reports import guarded, raised_again, refuse_stray, translated
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConnectionLost,
    ConnectTimeout,
    ControlRequestFailed,
    ControlTimeout,
    InputClosed,
    NotConnected,
    ProcessError,
    ProtocolError,
    TransportClosed,
    UsageError,
)
from claude_transport.protocol.control import ControlResponse, encode_control_request
from claude_transport.protocol.conversation import Conversation
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage
from claude_transport.transport import Client, PouredLines, SessionTerms, Transport, TransportInfo, TransportLike, attach_to, read_lines_of

# --- `Connection`: the transport of one conversation: connected once, read by one task, closed once, whatever it does itself.


logger: logging.Logger = logging.getLogger(__name__)

_FAIRNESS = 128
"""Messages read in a row before others get their turn, the one first for whom they are: while they are still in the processor's cache."""

_BATCH_IS_WORTH = 8
"""Messages that a batch counts for, however small it is: a transport that never waits may say one at a time."""

_UNREADABLE: frozenset[type[Message]] = frozenset({DecodeFailure, OversizedMessage})

_READER_CLOSE_TIMEOUT = 1.0
"""Seconds for the reading side of a transport to be closed."""


class Connection:
    """What a conversation needs of its transport, whoever wrote it.

    Args:
        transport: connected if it is not yet, and closed in the end.
        close_timeout: seconds for the transport's own `close()`, before it is given up.
    """

    def __init__(self, transport: TransportLike, *, close_timeout: float) -> None:
        self._transport = transport
        self._close_timeout = close_timeout
        self._connecting: anyio.CancelScope | None = None
        self._given_up = False
        self._closed = False
        self.terms: SessionTerms = SessionTerms()
        """What the transport's options ask of the conversation; known once it was announced."""

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    @property
    def is_strict(self) -> bool:
        """True when a bad line is to end the conversation."""
        return self.terms.strict

    def attach(self, client: Client) -> None:
        """Tell the transport about the query, and learn its terms."""
        self.terms = attach_to(self._transport, client)

    async def connect(self, *, timeout: float) -> None:
        """Connect, if it is not connected yet; every failure that is not the transport's own word is a `CLIConnectionError`."""
        if self._transport.is_ready():
            return
        with anyio.CancelScope(deadline=anyio.current_time() + timeout) as self._connecting:
            if self._given_up:
                self._connecting.cancel()
            try:
                await guarded(self._transport.connect())
            except ClaudeTransportError:
                raise
            except Exception as exc:
                raise CLIConnectionError(f"the transport could not connect: {exc!r}") from exc
        if self._connecting.cancelled_caught:
            if self._given_up:
                raise TransportClosed("the query was closed while it was connecting")
            raise ConnectTimeout(f"not connected in {timeout:g} s", waited=timeout)

    def give_up(self) -> None:
        """Do not connect any more; what is connected stays so."""
        self._given_up = True
        if self._connecting is not None:
            self._connecting.cancel()

    def batches(self) -> Batches:
        """The lines that come, in batches: iterate inside `async with`."""
        return Batches(read_lines_of(self._transport))

    def note_prompt(self, uuid: str) -> None:
        """Tell the transport that whoever runs now sends the prompt `uuid`."""
        if self.terms.on_prompt is not None:
            self.terms.on_prompt(uuid)

    async def find_cli_version(self, *, said: str | None) -> str | None:
        """The version of the CLI, of which it `said` this in its answer to `initialize`; None when nothing tells."""
        if self.terms.find_cli_version is None:
            return said or self.info.cli_version
        return await self.terms.find_cli_version(said=said)

    def count_failures(self, messages: Sequence[Message], kinds: AbstractSet[object]) -> None:
        """Tell the transport of the lines that held no message, for its `info`. `kinds`: the types of the messages."""
        if not _UNREADABLE.isdisjoint(kinds) and self.terms.on_failure is not None:
            for message in messages:
                if isinstance(message, DecodeFailure | OversizedMessage):
                    self.terms.on_failure(message)

    async def close(self) -> None:
        """Close the transport, once, in bounded time; never raises."""
        if self._closed:
            return
        self._closed = True
        try:
            with anyio.move_on_after(self._close_timeout, shield=True) as limit:
                await self._transport.close()
        except (Exception, anyio.get_cancelled_exc_class()) as exc:
            # a cancellation that comes through the shield is the end of the event loop, and nobody's fault
            logger.log(logging.ERROR if isinstance(exc, Exception) else logging.DEBUG, "closing the transport failed", exc_info=True)
        else:
            if limit.cancelled_caught:
                logger.warning("the transport did not close in %g s and was given up", self._close_timeout)


class Batches:
    """An iteration over batches of lines that ends the transport's own iterator, if that can be ended.

    A generator that is only dropped is finished by nobody knows whom.
    """

    def __init__(self, lines: AsyncIterator[Sequence[bytes]]) -> None:
        self._lines = lines
        self._next: Callable[[], Awaitable[Sequence[bytes]]] = lines.__anext__
        self._read_in_a_row = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        if self._read_in_a_row >= _FAIRNESS:
            self._read_in_a_row = 0
            await anyio.lowlevel.checkpoint()
        try:
            lines = await self._next()
        except anyio.get_cancelled_exc_class() as exc:
            refuse_stray(exc)
            raise
        self._read_in_a_row += _BATCH_IS_WORTH + len(lines)
        return lines

    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        """Hand each batch to `hand_on` until that returns True; False when the transport has ended well.

        Where the transport can, it is called where the bytes are noticed, and not in the caller's task.
        """
        if not isinstance(self._lines, PouredLines):
            async for lines in self:
                if hand_on(lines):
                    return True
            return False
        try:
            return await self._lines.pour(hand_on)
        except anyio.get_cancelled_exc_class() as exc:
            refuse_stray(exc)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        aclose = getattr(self._lines, "aclose", None)
        if aclose is not None:
            try:
                with anyio.move_on_after(_READER_CLOSE_TIMEOUT, shield=True):
                    await aclose()
            except Exception:
                # nothing is read from it any more: that it does not end well changes nothing
                logger.debug("closing the reading side of the transport failed", exc_info=True)


# --- Lines on their way to the transport: in order, several to a write, and none cut in half by somebody's cancellation.


_LAST_WRITE = 1.0

MAX_WAITING_BYTES = 64 * 2**20
"""Bytes of lines that wait for a peer that goes on asking and does not read the answers."""

_LINE_OVERHEAD = 1_000
"""Bytes that a waiting line takes besides its own: a delivery with its event was measured with 700."""

_BATCH_BYTES = 1 << 20
"""Bytes joined into one write at most; many small frames in one write cost a fraction of many writes."""


class Delivery:
    """One line, or with None the end of the input; and what becomes of it. It is settled once."""

    __slots__ = ("begun", "done", "error", "line", "on_error")

    def __init__(self, line: bytes | None, on_error: Callable[[ClaudeTransportError], None] | None = None) -> None:
        self.line: bytes | None = line
        self.on_error: Callable[[ClaudeTransportError], None] | None = on_error
        self.begun: bool = False
        self.done: anyio.Event = anyio.Event()
        self.error: ClaudeTransportError | None = None

    def settle(self, error: ClaudeTransportError | None) -> None:
        """The transport has taken it, or will not."""
        if not self.done.is_set():
            self.error = error
            self.done.set()
            if error is not None and self.on_error is not None:
                self.on_error(error)

    @property
    def may_arrive(self) -> bool:
        """True when the peer may get to see it."""
        return self.begun and self.error is None


class Outbox:
    """The writing side of a conversation. One task, `run()`, does all the writing.

    A transport is poisoned when a write is cancelled in the middle of a line, so nobody but `run()` is ever inside one:
    a cancelled caller of `send()` takes its line back if writing has not begun, and else leaves it to be finished.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        # a transport written for the official SDK expects text, and one message to a write: it may well frame each of them
        self._is_ours = isinstance(transport, Transport)
        self._queue: deque[Delivery] = deque()
        self._in_flight: list[Delivery] = []
        self._waiting_bytes = 0
        self._arrival = anyio.Event()
        self._input_ended = False
        self._failure: ClaudeTransportError | None = None
        self._over = False

    def post(self, line: bytes, *, on_error: Callable[[ClaudeTransportError], None] | None = None) -> None:
        """Put a line in the queue without waiting for it; `on_error` is told when it cannot be written."""
        self._put(Delivery(line, on_error))

    def check_room(self) -> None:
        """Refuse another question of a peer that does not read the answers.

        Raises:
            ProtocolError: more than `MAX_WAITING_BYTES` wait to be written.
        """
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise ProtocolError(
                f"the CLI goes on asking and does not read the answers: {self._waiting_bytes} bytes wait for it, and at most "
                f"{MAX_WAITING_BYTES} may"
            )

    async def send(self, delivery: Delivery) -> None:
        """Return when the transport has taken the line; raise what kept it from being taken."""
        await self._wait(self._put(delivery))

    async def end(self) -> None:
        """End the input after everything that is in the queue."""
        await self._wait(self._put(Delivery(None)))

    def post_end(self) -> None:
        """End the input after everything that is in the queue, without waiting for it."""
        self._put(Delivery(None))

    def fail(self, error: ClaudeTransportError) -> None:
        """No line can be written any more: settle all that are in the queue or being written, and all that come.

        The input can still be ended: a peer that does not take a line may yet understand that there will be no more.
        """
        if self._failure is None:
            self._failure = error
        waiting, self._queue = self._queue, deque()
        self._waiting_bytes = 0
        for delivery in (*self._in_flight, *waiting):
            if delivery.line is None and not delivery.begun and not self._over:
                self._queue.append(delivery)  # it was announced to everybody who came after, so nobody would ask for it again
                continue
            # an end that the transport is already at asks for no more than that nobody reads any more, and so it is
            is_ending = delivery.line is None and delivery.begun
            delivery.settle(None if is_ending else self._failure)

    def close(self, error: ClaudeTransportError) -> None:
        """Nothing is written any more, not even the end of the input: settle everything."""
        self._over = True
        self.fail(error)

    async def flush(self) -> None:
        """Return when everything that was put in the queue so far is settled."""
        for delivery in (*self._in_flight, *self._queue):
            await delivery.done.wait()

    async def write_last(self, line: bytes) -> None:
        """Write one more line after everything has been settled, if the transport still takes it, within `_LAST_WRITE` seconds."""
        with anyio.move_on_after(_LAST_WRITE, shield=True):
            try:
                await guarded(self._transport.write(line if self._is_ours else line.decode()))  # type: ignore[arg-type]
            except Exception:
                # the transport is closed next, and there was no promise that it still takes anything
                logger.debug("the last line could not be written", exc_info=True)

    def _put(self, delivery: Delivery) -> Delivery:
        if delivery.line is not None and self._input_ended:
            delivery.settle(InputClosed("end_input() was called: nothing more can be sent"))
        elif delivery.line is None and self._input_ended:
            delivery.settle(None)
        elif self._failure is not None and (delivery.line is not None or self._over):
            delivery.settle(self._failure)
        else:
            self._input_ended = delivery.line is None
            self._queue.append(delivery)
            self._waiting_bytes += _cost_of(delivery)
            self._arrival.set()
        return delivery

    async def _wait(self, delivery: Delivery) -> None:
        try:
            await delivery.done.wait()
        except anyio.get_cancelled_exc_class():
            # the end of the input stays in the queue: it was announced to everybody who came after
            if not delivery.begun and delivery.line is not None and delivery in self._queue:
                self._queue.remove(delivery)
                self._waiting_bytes -= _cost_of(delivery)
            raise
        if delivery.error is not None:
            raise raised_again(delivery.error)

    async def run(self) -> None:
        """Write what is in the queue, for ever. The first line is written without a checkpoint before it."""
        try:
            while True:
                while self._queue:
                    await self._write_next()
                self._arrival = anyio.Event()
                await self._arrival.wait()
        finally:
            self.close(TransportClosed("the conversation is closed"))

    async def _write_next(self) -> None:
        self._in_flight = self._next_deliveries()
        try:
            if self._in_flight[0].line is None:
                await guarded(self._transport.end_input())
            else:
                data = b"".join(delivery.line for delivery in self._in_flight if delivery.line is not None)
                await guarded(self._transport.write(data if self._is_ours else data.decode()))  # type: ignore[arg-type]
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            self.fail(translated(exc, "the transport could not write"))
        else:
            for delivery in self._in_flight:
                delivery.settle(None)
        self._in_flight = []

    def _next_deliveries(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        size = 0
        while self._queue and size < _BATCH_BYTES and (not deliveries or (self._is_ours and self._queue[0].line is not None)):
            delivery = self._queue.popleft()
            self._waiting_bytes -= _cost_of(delivery)
            delivery.begun = True
            deliveries.append(delivery)
            if delivery.line is None:
                break
            size += len(delivery.line)
        return deliveries


def _cost_of(delivery: Delivery) -> int:
    return 0 if delivery.line is None else len(delivery.line) + _LINE_OVERHEAD


# --- Control requests that wait for an answer, and the answers that come, in any order.


_VERDICT_GRACE = 1.0
"""Seconds that the reader gets to find out why a write failed: how the peer ended is more to the point than a broken pipe."""


class PendingRequest:
    """One request, from before it is written until somebody has its answer or has given up. It is settled once."""

    def __init__(self, request_id: str, subtype: str, line: bytes) -> None:
        self.request_id = request_id
        self.subtype = subtype
        self.line = line
        self.response: ControlResponse | None = None
        self.error: ClaudeTransportError | None = None
        self._unwritten: ClaudeTransportError | None = None
        self._news = anyio.Event()

    def is_open(self) -> bool:
        """True until it has an answer, or will have none."""
        return self.response is None and self.error is None

    def resolve(self, response: ControlResponse) -> None:
        """The peer has answered."""
        if self.is_open():
            self.response = response
            self._news.set()

    def fail(self, error: ClaudeTransportError) -> None:
        """There will be no answer."""
        if self.is_open():
            self.error = error
            self._news.set()

    def doubt(self, error: ClaudeTransportError) -> None:
        """Its line could not be written; why, may yet be found out."""
        self._unwritten = error
        self._news.set()

    async def settled(self) -> None:
        """Return when there is an answer, or will be none."""
        await self._news.wait()
        if self.is_open() and self._unwritten is not None:
            self._news = anyio.Event()
            with anyio.move_on_after(_VERDICT_GRACE):
                await self._news.wait()
            self.fail(self._unwritten)


class Requests:
    """Keeps the requests of one conversation that wait for an answer. Giving up, for whatever reason, leaves no entry behind."""

    def __init__(self, conversation: Conversation, outbox: Outbox, connection: Connection) -> None:
        self._conversation = conversation
        self._outbox = outbox
        self._connection = connection
        self._pending: dict[str, PendingRequest] = {}
        self._over = False

    @property
    def pending(self) -> dict[str, str]:
        """Everything that is remembered of requests without an answer, by the conversation too: id to subtype."""
        return {**self._conversation.pending_requests, **{request.request_id: request.subtype for request in self._pending.values()}}

    def prepare(self, subtype: str, fields: Mapping[str, Any]) -> PendingRequest:
        """Register a request, before its line is written; `UsageError` when the fields are no JSON."""
        request_id, line = self._encoded(subtype, fields)
        request = self._pending[request_id] = PendingRequest(request_id, subtype, line)
        return request

    def post(self, request: PendingRequest) -> None:
        """Write a prepared request. When that fails it will not be answered, for the cause that reading finds, if it finds one."""

        def fail(error: ClaudeTransportError) -> None:
            if isinstance(error, InputClosed) or self._over:
                request.fail(error)
            else:
                request.doubt(error)

        self._outbox.post(request.line, on_error=fail)

    def tell(self, subtype: str, **fields: Any) -> None:
        """Ask for something whose answer is of no interest."""
        self._outbox.post(self.line(subtype, **fields))

    def line(self, subtype: str, **fields: Any) -> bytes:
        """Return the line of a request whose answer is of no interest."""
        return self._encoded(subtype, fields)[1]

    def _encoded(self, subtype: str, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        request_id = self._conversation.request(subtype)
        try:
            return request_id, encode_control_request(request_id, subtype, **fields)
        except BaseException:
            self._conversation.abandoned(request_id)
            raise

    async def answer_to(self, request: PendingRequest, *, timeout: float) -> ControlResponse:
        """The successful answer.

        Raises:
            ControlRequestFailed: the peer refused.
            ControlTimeout: it did not answer in `timeout` seconds.
            ClaudeTransportError: the cause for which it never will.
        """
        try:
            with anyio.move_on_after(timeout):
                await request.settled()
        finally:
            self._pending.pop(request.request_id, None)
            self._conversation.abandoned(request.request_id)
        if request.error is not None:
            raise raised_again(request.error)
        names = {"subtype": request.subtype, "request_id": request.request_id}
        response = request.response
        if response is None:
            tail = self._connection.info.stderr_tail
            raise ControlTimeout(f"no answer to {request.subtype} in {timeout:g} s", waited=timeout, stderr_tail=tail, **names)
        if not response.ok:
            raise ControlRequestFailed(response.error or f"{request.subtype} was refused", error_code=response.error_code, **names)
        return response

    def resolve(self, request_id: str, response: ControlResponse) -> None:
        """Hand an answer to whoever waits for it."""
        request = self._pending.get(request_id)
        if request is not None:
            request.resolve(response)

    def fail(self, request_id: str, error: ClaudeTransportError) -> None:
        """This one will not be answered."""
        request = self._pending.get(request_id)
        if request is not None:
            request.fail(error)

    def fail_all(self, error: ClaudeTransportError | None) -> None:
        """There will be no more answers; None for an end without a failure. What has been answered stays answered."""
        self._over = True
        cause = error or ConnectionLost("the conversation ended before the request was answered")
        for request in self._pending.values():
            request.fail(cause)


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
