"""`Engine`: the life of one conversation, in one background task: connect, read, write, answer, close.

It does not matter which task calls what, because only this one touches the transport. Callbacks run beside it, so that reading
never waits for them; and what is read is stored for whoever reads it later.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claude_transport.background import BackgroundTask
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConnectTimeout,
    ControlTimeout,
    InputClosed,
    NotConnected,
    ProcessError,
    ResultError,
    TransportClosed,
)
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.control import encode_control_request
from claude_transport.protocol.conversation import Action, Cancel, Conversation, Deliver, Reject, Resolve, Settle, Start
from claude_transport.protocol.diagnosis import error_for
from claude_transport.protocol.initialization import InitializationInfo
from claude_transport.protocol.messages import DecodeFailure, Message, OversizedMessage
from claude_transport.query.cancellation import guarded
from claude_transport.query.endings import cause_of_end, raised_again, translated
from claude_transport.query.outbox import Outbox
from claude_transport.query.questions import Questions
from claude_transport.query.reports import CloseReport
from claude_transport.query.requests import PendingRequest, Requests
from claude_transport.query.storage import Storage
from claude_transport.transport import Transport, TransportInfo, TransportLike, read_lines_of

__all__ = ["DEFAULT_CLOSE_TIMEOUT", "Engine"]

logger = logging.getLogger(__name__)

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds the conversation gets to end by itself when it is closed, before the transport is closed under it."""

_VERDICT_GRACE = 1.0
"""Seconds that the reader gets to find out why a write failed: how the peer ended is more to the point than a broken pipe."""

_READER_GRACE = 1.0
"""Seconds that a cancelled read gets to end before the transport is closed under it."""

_FAIRNESS = 16
"""Batches read in a row before others get their turn, for transports that never wait."""


class Engine:
    """Performs what `Conversation` decides, over `transport`.

    Args:
        transport: connected if it is not yet, and closed in the end.
        questions: the callbacks.
        initialize: fields of the `initialize` request.
        initialize_timeout: seconds for connecting, and again for the answer to `initialize`.
        transport_close_timeout: seconds for the transport's own `close()`, before it is given up.
        max_buffered_bytes: as `Storage` takes it.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        questions: Questions,
        initialize: Mapping[str, Any],
        initialize_timeout: float,
        transport_close_timeout: float,
        max_buffered_bytes: int,
    ) -> None:
        self._transport = transport
        self._initialize_fields = dict(initialize)
        self._initialize_timeout = initialize_timeout
        self._transport_close_timeout = transport_close_timeout
        self.questions = questions
        questions.mcp.tell = self._tell_for_mcp
        self.conversation = Conversation()
        self.storage = Storage(max_buffered_bytes=max_buffered_bytes)
        self.requests = Requests(self.conversation)
        self.outbox = Outbox(transport)
        self.verbatim = False
        self.initialization: InitializationInfo | None = None
        self._decoder = LineDecoder(strict=bool(getattr(transport, "strict", False)))
        self._supervisor: BackgroundTask | None = None
        self._connecting: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None
        self._ready = anyio.Event()
        self._start_error: ClaudeTransportError | None = None
        self._reading_over = anyio.Event()
        self._ended = anyio.Event()
        self._error: ClaudeTransportError | None = None
        self._close_requested = anyio.Event()
        self._close_timeout = DEFAULT_CLOSE_TIMEOUT
        self._wait_for_background = False
        self._transport_closed = False
        self._ended_by_itself = True
        self._lost_turns: tuple[str, ...] = ()
        self._dropped_tasks: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------------------- its life

    async def _supervise(self) -> None:
        """The whole life, in one task. However it ends, nobody is left waiting."""
        try:
            if isinstance(self._transport, Transport):
                terms = self._transport.announce(answers=self.questions.kinds)
                self._initialize_fields = {**terms.initialize, **self._initialize_fields}
                self.verbatim = terms.verbatim_prompts
            if not self._transport.is_ready():
                await self._connect()
            await self._converse()
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            self._fail_start(translated(exc, "the transport failed"))
        finally:
            self._end(None)
            self.outbox.close(self._gone("the conversation is closed"))
            self._fail_start(TransportClosed("the query was closed before it was ready"))
            await self._close_transport()
            with anyio.CancelScope(shield=True):
                await self.questions.mcp.aclose()

    async def _connect(self) -> None:
        with anyio.CancelScope(deadline=anyio.current_time() + self._initialize_timeout) as self._connecting:
            if self._close_requested.is_set():
                self._connecting.cancel()
            try:
                await guarded(self._transport.connect())
            except ClaudeTransportError:
                raise
            except Exception as exc:
                raise CLIConnectionError(f"the transport could not connect: {exc!r}") from exc
        if self._connecting.cancelled_caught:
            if self._close_requested.is_set():
                raise TransportClosed("the query was closed while it was connecting")
            raise ConnectTimeout(f"not connected in {self._initialize_timeout:g} s", waited=self._initialize_timeout)

    async def _converse(self) -> None:
        """The reader, the writer and the one who waits to close, side by side."""
        initialize = self.requests.prepare("initialize", self._initialize_fields)
        async with anyio.create_task_group() as self._tasks:
            self.post(initialize)
            self._tasks.start_soon(self._read)
            self._tasks.start_soon(self._finish_starting, initialize)
            self._tasks.start_soon(self._close_when_asked)
            try:
                await self.outbox.run()
            finally:
                # before the callbacks are waited for: one that does not want to be cancelled must not keep a process alive
                self._end(None)
                with anyio.move_on_after(_READER_GRACE, shield=True):
                    await self._reading_over.wait()
                await self._close_transport()
                if still := self.questions.open:
                    logger.info("closing waits for callbacks that are still at work: %s", ", ".join(still))

    async def _read(self) -> None:
        error: ClaudeTransportError | None = None
        batches = 0
        try:
            async with _closing(read_lines_of(self._transport)) as source:
                while (lines := await guarded(anext(source, None))) is not None:
                    self._take(lines)
                    await self.storage.make_room(closing=self._close_requested)
                    batches += 1
                    if batches % _FAIRNESS == 0:
                        await anyio.lowlevel.checkpoint()
        except Exception as exc:  # noqa: BLE001 - as above
            error = translated(exc, "the transport could not read")
        finally:
            self._reading_over.set()
        self._end(error)

    def _tell_for_mcp(self, name: str, message: dict[str, Any]) -> None:
        """What an in-process MCP server says on its own; the CLI's acknowledgement is of no interest."""
        self.outbox.post(encode_control_request(self.conversation.request("mcp_message"), "mcp_message", server_name=name, message=message))

    def _take(self, lines: Sequence[bytes]) -> None:
        failure = None
        try:
            messages = self._decoder.messages(lines)
        except ClaudeTransportError as exc:
            # a strict transport's first bad line ends the conversation, after what came before it
            messages, failure = cast("list[Message]", self._decoder.before_failure), exc
        for action in self.conversation.received(messages):
            self._perform(action)
        if failure:
            raise failure

    def _perform(self, action: Action) -> None:
        match action:
            case Deliver():
                self._count_failures(action.messages)
                self.storage.put(action.messages, action.turns)
            case Settle():
                self.storage.settle(action, self._error)
            case Resolve():
                self.requests.resolve(action.request_id, action.response)
            case Reject():
                self.requests.fail(action.request_id, error_for(action.result) or ResultError("the run failed", result=action.result))
            case Start():
                question = self.questions.take(action.request)
                if question is not None and self._tasks is not None:
                    self._tasks.start_soon(self.questions.answer, question, self._reply)
            case Cancel():
                self.questions.cancel(action.request_id)

    def post(self, request: PendingRequest) -> None:
        """Write a prepared request. When that fails it will not be answered, for the cause that reading finds, if it finds one."""

        def fail(error: ClaudeTransportError) -> None:
            if isinstance(error, InputClosed) or self._ended.is_set() or self._tasks is None:
                request.fail(error)
            else:
                self._tasks.start_soon(self._fail_with_cause, request, error)

        self.outbox.post(request.line, on_error=fail)

    async def _fail_with_cause(self, request: PendingRequest, error: ClaudeTransportError) -> None:
        with anyio.move_on_after(_VERDICT_GRACE):
            await request.settled.wait()
        request.fail(error)

    def _reply(self, request_id: str, line: bytes) -> None:
        if self.conversation.answered(request_id):
            self.outbox.post(line)
        self.storage.note_change()

    def _end(self, error: ClaudeTransportError | None) -> None:
        """The stream has ended: settle everything that is outstanding, at once, with the cause."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._error = error = cause_of_end(error, last=self.conversation.last_result, counters=self._decoder.counters)
        self._lost_turns = self.conversation.open_turns
        self._dropped_tasks = self.conversation.background_agents
        self.requests.fail_all(error)
        self.outbox.fail(self._gone("the conversation has ended"))
        for action in self.conversation.ended():
            self._perform(action)
        self.storage.end(error)

    # ------------------------------------------------------------------------------------------------------------- starting

    async def start(self) -> None:
        """As `Query.start()`."""
        if self._close_requested.is_set() and self._start_error is None:
            raise TransportClosed("the query is closed")
        if self._supervisor is None:
            self._supervisor = BackgroundTask.spawn(self._supervise, name="claude query")
        elif self._ready.is_set() and self._start_error is None:
            return
        try:
            await self._ready.wait()
        except anyio.get_cancelled_exc_class():
            self._close_requested.set()
            self._supervisor.cancel()
            await self._supervisor.join()
            raise
        if self._start_error is not None:
            await self._supervisor.join()
            raise raised_again(self._start_error)

    async def _finish_starting(self, initialize: PendingRequest) -> None:
        try:
            with self.storage.needing_input(initialize.is_open):
                response = await self.requests.answer_to(initialize, timeout=self._initialize_timeout)
        except ControlTimeout as exc:
            timeout = ConnectTimeout(f"no answer to initialize in {exc.waited:g} s", waited=exc.waited, stderr_tail=self.info.stderr_tail)
            timeout.__cause__ = exc
            self._fail_start(timeout)
        except ClaudeTransportError as exc:
            self._fail_start(exc)
        else:
            self.initialization = InitializationInfo.from_payload(response.payload)
            self._ready.set()

    def _fail_start(self, error: ClaudeTransportError) -> None:
        if not self._ready.is_set():
            self._start_error = error
            self._close_timeout = 0.0
            self._ready.set()
            self._close_requested.set()

    # -------------------------------------------------------------------------------------------------------------- closing

    async def aclose(self, *, wait_for_background: bool, timeout: float) -> CloseReport:
        """As `Query.aclose()`."""
        self.abandon(timeout=timeout, wait_for_background=wait_for_background)
        if self._supervisor is None:
            self._supervisor = BackgroundTask.spawn(self._close_transport, name="close claude query")
        if not self.questions.am_i_answering():
            await self._supervisor.join()
        info = self.info
        return CloseReport(
            ended_by_itself=self._ended_by_itself,
            lost_turns=self._lost_turns,
            dropped_tasks=self._dropped_tasks,
            exit_code=info.exit_code,
            signal=info.signal,
            killed=info.killed,
        )

    def abandon(self, *, timeout: float, wait_for_background: bool = False) -> None:
        """As `Query.abandon()`. Who asks first decides."""
        if not self._close_requested.is_set():
            self._close_timeout = timeout
            self._wait_for_background = wait_for_background
        self._close_requested.set()
        self.storage.look_again()
        if self._connecting is not None:
            self._connecting.cancel()

    async def _close_when_asked(self) -> None:
        await self._close_requested.wait()
        with anyio.move_on_after(self._close_timeout):
            while self._wait_for_background and not (self.conversation.quiet or self._ended.is_set()):
                await self.storage.change()
            if self.conversation.open_turns:
                self.outbox.post(encode_control_request(self.conversation.request("interrupt"), "interrupt"))
            self.outbox.post_end()
            await self._ended.wait()
        self._ended_by_itself = self._ended.is_set()
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _close_transport(self) -> None:
        if self._transport_closed:
            return
        self._transport_closed = True
        try:
            with anyio.move_on_after(self._transport_close_timeout, shield=True) as limit:
                await self._transport.close()
        except (Exception, anyio.get_cancelled_exc_class()) as exc:
            # a cancellation that comes through the shield is the end of the event loop, and nobody's fault
            logger.log(logging.ERROR if isinstance(exc, Exception) else logging.DEBUG, "closing the transport failed", exc_info=True)
        else:
            if limit.cancelled_caught:
                logger.warning("the transport did not close in %g s and was given up", self._transport_close_timeout)

    # ---------------------------------------------------------------------------------------------------------------- facts

    @property
    def has_ended(self) -> bool:
        """True once the peer has ended, or closing was asked for."""
        return self._ended.is_set() or self._close_requested.is_set()

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    def refuse_if_over(self) -> None:
        """Raise when there is nobody to talk to."""
        if self._supervisor is None and not self._close_requested.is_set():
            raise NotConnected("start() has not been called")
        if self._ended.is_set():
            raise self._gone("the conversation has ended") from self._error
        if self._close_requested.is_set():
            raise TransportClosed("the query is closed")

    def _gone(self, message: str) -> TransportClosed:
        known = self._error if isinstance(self._error, ProcessError) else self.info
        gone = TransportClosed(message, exit_code=known.exit_code, signal=known.signal, stderr_tail=known.stderr_tail)
        gone.__cause__ = self._error
        return gone

    def _count_failures(self, messages: Sequence[Message]) -> None:
        if isinstance(self._transport, Transport):
            for failure in [message for message in messages if isinstance(message, DecodeFailure | OversizedMessage)]:
                self._transport.count_failure(failure)


@contextlib.asynccontextmanager
async def _closing(lines: AsyncIterator[Sequence[bytes]]) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
    """Close the iterator in the end, if it can be closed: a generator that is only dropped is finished by nobody knows whom."""
    try:
        yield lines
    finally:
        aclose = getattr(lines, "aclose", None)
        if aclose is not None:
            try:
                with anyio.move_on_after(1, shield=True):
                    await aclose()
            except Exception:
                # nothing is read from it any more: that it does not end well changes nothing
                logger.debug("closing the reading side of the transport failed", exc_info=True)
