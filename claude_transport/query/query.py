"""`Query`: a conversation with Claude over any transport.

It performs what `Conversation` decides. One background task connects, reads, writes and closes, so that it does not matter
which task calls what; callbacks run beside it, so that reading never waits for them; and what is read is stored for whoever
reads it later, so that an `interrupt()` is answered however little the consumer reads.
"""

from __future__ import annotations

import copy
import logging
import uuid as uuids
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import msgspec
from anyio.abc import TaskGroup

from claude_transport.background import BackgroundTask
from claude_transport.errors import (
    ClaudeTransportError,
    ConnectTimeout,
    ControlTimeout,
    NotConnected,
    TransportClosed,
)
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.control import encode_control_request, encode_user_message
from claude_transport.protocol.conversation import Action, Cancel, Conversation, Deliver, Resolve, Settle, Start
from claude_transport.protocol.initialization import InitializationInfo
from claude_transport.protocol.messages import DecodeFailure, Message, OversizedMessage
from claude_transport.query.controls import DEFAULT_CONTROL_TIMEOUT, Controls
from claude_transport.query.endings import cause_of_end, translated
from claude_transport.query.handlers import CanUseToolCallback, HookMatcher, OnCallbackError
from claude_transport.query.outbox import Outbox
from claude_transport.query.questions import OnRequest, Questions
from claude_transport.query.reports import CloseReport, ResumePoint
from claude_transport.query.requests import PendingRequest, Requests
from claude_transport.query.storage import AllMessages, Storage
from claude_transport.query.turns import Turn
from claude_transport.transport import Transport, TransportInfo, TransportLike, read_lines_of

__all__ = ["Query"]

logger = logging.getLogger(__name__)

Priority = Literal["now", "next", "later"]

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds the conversation gets to end by itself when it is closed, before the transport is closed under it."""


class Query(Controls):
    """A conversation over `transport`: initialised, with turns, control requests and callbacks.

    Args:
        transport: anything with the six methods of `Transport`; connected if it is not yet, closed with the query.
        can_use_tool: asked before a tool runs that needs permission.
        hooks: event name to matchers with callbacks.
        agents: subagent definitions by name, as for `initialize`.
        initialize: further fields for the `initialize` request; they win over all others.
        on_request: claims requests of the CLI that have no handler here: `await on_request(subtype, fields)` gives the
            response fields, or None for an honest "unsupported".
        on_callback_error: what a callback that raises means: "deny" (default) or "allow".
        initialize_timeout: seconds for the answer to `initialize`.
        max_buffered_bytes: bytes of messages stored for a consumer that does not read (see `Storage` for what happens then).
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        can_use_tool: CanUseToolCallback | None = None,
        hooks: Mapping[str, Sequence[HookMatcher]] | None = None,
        agents: Mapping[str, Any] | None = None,
        initialize: Mapping[str, Any] | None = None,
        on_request: OnRequest | None = None,
        on_callback_error: OnCallbackError = "deny",
        initialize_timeout: float = 60.0,
        max_buffered_bytes: int = 64 * 2**20,
    ) -> None:
        self._transport = transport
        self._conversation = Conversation()
        self._decoder = LineDecoder()
        self._storage = Storage(max_buffered_bytes=max_buffered_bytes)
        self._requests = Requests(self._conversation)
        self._questions = Questions(can_use_tool, hooks, on_request, on_error=on_callback_error)
        self._outbox = Outbox(transport)
        own_fields = {"agents": agents, "hooks": self._questions.hook_config}
        self._initialize_fields = {**{name: value for name, value in own_fields.items() if value is not None}, **(initialize or {})}
        self._initialize_timeout = initialize_timeout
        self._initialization: InitializationInfo | None = None
        self._verbatim = False
        self._supervisor: BackgroundTask | None = None
        self._tasks: TaskGroup | None = None
        self._ready = anyio.Event()
        self._start_error: ClaudeTransportError | None = None
        self._ended = anyio.Event()
        self._error: ClaudeTransportError | None = None
        self._close_requested = anyio.Event()
        self._close_timeout = DEFAULT_CLOSE_TIMEOUT
        self._wait_for_background = False
        self._report = CloseReport()

    # ------------------------------------------------------------------------------------------------------------ the loop

    async def _supervise(self) -> None:
        """The whole life of the query, in one task: connect, converse, close."""
        try:
            if isinstance(self._transport, Transport):
                terms = self._transport.announce(answers=self._questions.kinds)
                self._initialize_fields = {**terms.initialize, **self._initialize_fields}
                self._verbatim = terms.verbatim_prompts
            if not self._transport.is_ready():
                await self._transport.connect()
            await self._converse()
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            self._fail_start(translated(exc, "the transport failed"))
        finally:
            self._end(None)
            await self._close_transport()
            self._fail_start(TransportClosed("the query was closed before it was ready"))

    async def _converse(self) -> None:
        """The reader, the writer and the one who waits to close, side by side."""
        initialize = self._requests.prepare("initialize", self._initialize_fields)
        self._outbox.post(initialize.line)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._read)
            self._tasks.start_soon(self._finish_starting, initialize)
            self._tasks.start_soon(self._close_when_asked)
            await self._outbox.run()

    async def _read(self) -> None:
        error: ClaudeTransportError | None = None
        try:
            async for lines in read_lines_of(self._transport):
                for action in self._conversation.received(self._decoder.messages(lines)):
                    self._perform(action)
                await self._storage.make_room(closing=self._close_requested)
        except Exception as exc:  # noqa: BLE001 - as above
            error = translated(exc, "the transport could not read")
        self._end(error)

    def _perform(self, action: Action) -> None:
        match action:
            case Deliver():
                self._count_failures(action.messages)
                self._storage.put(action.messages, action.turns)
            case Settle():
                self._storage.settle(action, self._error)
            case Resolve():
                self._requests.resolve(action.request_id, action.response)
            case Start():
                if self._tasks is not None:
                    self._tasks.start_soon(self._questions.answer, action.request, self._reply)
            case Cancel():
                self._questions.cancel(action.request_id)

    def _reply(self, request_id: str, line: bytes) -> None:
        if self._conversation.answered(request_id):
            self._outbox.post(line)

    def _end(self, error: ClaudeTransportError | None) -> None:
        """The stream has ended: settle everything that is outstanding, at once, with the cause."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._error = error = cause_of_end(error, last=self._conversation.last_result, counters=self._decoder.counters)
        self._requests.fail_all(error)
        for action in self._conversation.ended():
            self._perform(action)
        self._storage.end(error)

    # ------------------------------------------------------------------------------------------------- starting and closing

    async def start(self) -> None:
        """Connect if needed and initialise; does nothing when that has been done.

        Raises:
            ConfigurationError, CLIConnectionError: there is nothing to talk to.
            ConnectTimeout: no answer to `initialize` in `initialize_timeout` seconds.
            ProcessError, ConnectionLost: the peer ended before it answered.
            CLIJSONDecodeError: the peer ended, and nothing that it said was JSON.
            ResultError: the CLI reported a failed start (recording 16g).
            ControlRequestFailed: the CLI refused the `initialize` fields.
        """
        if self._close_requested.is_set() and self._start_error is None:
            raise TransportClosed("the query is closed")
        if self._supervisor is None:
            self._supervisor = BackgroundTask.spawn(self._supervise, name="claude query")
        try:
            await self._ready.wait()
        except anyio.get_cancelled_exc_class():
            self._supervisor.cancel()
            await self._supervisor.join()
            raise
        if self._start_error is not None:
            await self._supervisor.join()
            raise copy.copy(self._start_error) from self._start_error.__cause__

    async def _finish_starting(self, initialize: PendingRequest) -> None:
        try:
            response = await self._requests.answer_to(initialize, timeout=self._initialize_timeout)
        except ControlTimeout as exc:
            timeout = ConnectTimeout(f"no answer to initialize in {exc.waited:g} s", waited=exc.waited, stderr_tail=self.info.stderr_tail)
            timeout.__cause__ = exc
            self._fail_start(timeout)
        except ClaudeTransportError as exc:
            self._fail_start(exc)
        else:
            self._initialization = InitializationInfo.from_payload(response.payload)
            self._ready.set()

    def _fail_start(self, error: ClaudeTransportError) -> None:
        if not self._ready.is_set():
            self._start_error = error
            self._close_timeout = 0.0
            self._ready.set()
            self._close_requested.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self, *, wait_for_background: bool = False, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> CloseReport:
        """End the conversation and close the transport, from any task; a cancelled close still closes.

        A turn that is running is interrupted, input ends, and the peer gets `timeout` seconds to end by itself. With
        `wait_for_background`, that time begins with waiting for running turns and background agents instead.
        Called from one of the query's own callbacks it only begins to close, since closing waits for callbacks.
        """
        if not self._close_requested.is_set():
            self._close_timeout = timeout
            self._wait_for_background = wait_for_background
        self.abandon()
        if self._supervisor is not None and not self._questions.am_i_answering():
            await self._supervisor.join()
        return self._report

    def abandon(self) -> None:
        """Begin to close without waiting for it: for places that cannot await."""
        self._close_requested.set()
        self._storage.look_again()

    async def _close_when_asked(self) -> None:
        await self._close_requested.wait()
        with anyio.move_on_after(self._close_timeout):
            while self._wait_for_background and not (self._conversation.quiet or self._ended.is_set()):
                await self._storage.change()
            if self._conversation.open_turns:
                self._outbox.post(encode_control_request(self._conversation.request("interrupt"), "interrupt"))
            self._outbox.post_end()
            await self._ended.wait()
        self._report = CloseReport(
            ended_by_itself=self._ended.is_set(),
            lost_turns=self._conversation.open_turns,
            dropped_tasks=self._conversation.background_agents,
        )
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _close_transport(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._transport.close()
        except Exception:
            logger.exception("closing the transport failed")
        info = self.info
        self._report = msgspec.structs.replace(self._report, exit_code=info.exit_code, signal=info.signal, killed=info.killed)

    # ------------------------------------------------------------------------------------------------------------- talking

    async def send(self, content: str | Sequence[Mapping[str, Any]], *, uuid: str | None = None, priority: Priority | None = None) -> Turn:
        """Send a prompt, text or content blocks: a handle on its turn, once the transport has taken it.

        `priority` is "now" (aborts the running turn), "next" (the default) or "later" (never folded into the running turn).

        Raises:
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent.
            UsageError: the uuid was used before; the CLI would drop the message without a word (recording 18u).
        """
        self._refuse_if_over()
        uuid = uuid or str(uuids.uuid4())
        line = encode_user_message(content, uuid=uuid, priority=priority, client_composed=self._verbatim or None)
        self._conversation.send(uuid)
        turn = Turn(uuid, conversation=self._conversation, reading=self._storage)
        self._storage.add_turn(turn)
        try:
            await self._outbox.send(line)
        except ClaudeTransportError:
            self._conversation.withdraw(uuid)
            raise
        return turn

    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Ask the CLI anything: the response fields, {} where it answers with none.

        Raises:
            ControlRequestFailed: it refused; `error_code` says why, when it gave a code.
            ControlTimeout: no answer in `timeout` seconds (`math.inf` waits for ever).
            ConnectionLost, ProcessError, TransportClosed: there is nobody to answer.
        """
        self._refuse_if_over()
        request = self._requests.prepare(subtype, fields)
        self._outbox.post(request.line)
        with self._storage.needing_input():
            return (await self._requests.answer_to(request, timeout=timeout)).payload

    async def end_input(self) -> None:
        """Say that no further prompt will come. The running turn finishes, but nothing can be asked of the host any more."""
        self._refuse_if_over()
        await self._outbox.end()

    def messages(self) -> AsyncIterator[Message]:
        """Every message in order, from the first that nobody has taken yet; also those that belong to no turn.

        It ends with the conversation; when that failed, it raises the cause after the last message.
        """
        return AllMessages(self._storage)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    def _refuse_if_over(self) -> None:
        if self._supervisor is None:
            raise NotConnected("start() has not been called")
        if self._close_requested.is_set():
            raise TransportClosed("the query is closed")
        if self._ended.is_set():
            info = self.info
            raise TransportClosed(
                "the conversation has ended", exit_code=info.exit_code, signal=info.signal, stderr_tail=info.stderr_tail
            ) from self._error

    def _count_failures(self, messages: Sequence[Message]) -> None:
        if isinstance(self._transport, Transport):
            for message in messages:
                if isinstance(message, DecodeFailure | OversizedMessage):
                    self._transport.count_failure(message)

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def initialization(self) -> InitializationInfo:
        """The CLI's answer to `initialize`: commands, models, account, capabilities, …"""
        if self._initialization is None:
            raise NotConnected("the query has not been initialised")
        return self._initialization

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    @property
    def is_quiet(self) -> bool:
        """True when nothing is under way that could still ask the host for something, so that input may end."""
        return self._conversation.quiet

    @property
    def is_running(self) -> bool:
        """True while a turn runs or waits: while there is something an interrupt could stop."""
        return self._conversation.is_running

    @property
    def has_ended(self) -> bool:
        """True once the peer has ended, or the query is closed."""
        return self._ended.is_set() or self._close_requested.is_set()

    @property
    def resume_point(self) -> ResumePoint | None:
        """Session id and last message, to take the conversation up with a new process; None before the first turn."""
        session_id = self._conversation.session_id
        return None if session_id is None else ResumePoint(session_id, self._conversation.last_uuid)

    @property
    def pending_requests(self) -> dict[str, str]:
        """Our requests that wait for an answer: id to subtype."""
        return self._conversation.pending_requests

    @property
    def pending_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests whose callbacks are still at work."""
        return self._questions.open

    @property
    def background_tasks(self) -> dict[str, str]:
        """Background agents at work: task id to description."""
        return self._conversation.background_agents

    @property
    def buffered_bytes(self) -> int:
        """Bytes of messages that were read and not yet taken by anybody."""
        return self._storage.buffered_bytes

    @property
    def dropped_messages(self) -> int:
        """Unread messages that were given up to stay within `max_buffered_bytes`."""
        return self._storage.dropped_messages
