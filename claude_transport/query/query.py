"""`Query`: a conversation with Claude over any transport."""

from __future__ import annotations

import uuid as uuids
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from claude_transport.errors import NotConnected
from claude_transport.protocol.control import encode_user_message
from claude_transport.protocol.initialization import InitializationInfo
from claude_transport.protocol.messages import Message
from claude_transport.query.arguments import check_number, check_transport
from claude_transport.query.controls import DEFAULT_CONTROL_TIMEOUT, Controls
from claude_transport.query.engine import DEFAULT_CLOSE_TIMEOUT, Engine
from claude_transport.query.handlers import CanUseToolCallback, HookMatcher, OnCallbackError
from claude_transport.query.outbox import Delivery
from claude_transport.query.questions import OnRequest, Questions
from claude_transport.query.reports import CloseReport, ResumePoint
from claude_transport.query.storage import AllMessages
from claude_transport.query.turns import Turn
from claude_transport.transport import TransportInfo, TransportLike

__all__ = ["Query"]

Priority = Literal["now", "next", "later"]


class Query(Controls):
    """A conversation over `transport`: initialised, with turns, control requests and callbacks.

    Args:
        transport: anything with the six methods of `Transport`; connected if it is not yet, closed with the query.
        can_use_tool: asked before a tool runs that needs permission.
        hooks: event name to matchers with callbacks.
        mcp_servers: in-process MCP servers by name: `mcp.server.Server` or `MCPServer` objects. Their tools are called
            `mcp__<name>__<tool>`, and run in this process wherever the CLI is. (Others belong to `ClaudeOptions.mcp_servers`.)
        agents: subagent definitions by name, as for `initialize`.
        initialize: further fields for the `initialize` request; they win over all others.
        on_request: claims requests of the CLI that have no handler here: `await on_request(subtype, fields)` gives the
            response fields, or None for an honest "unsupported".
        on_callback_error: what a callback that raises means: "deny" (default) or "allow".
        initialize_timeout: seconds for connecting, and again for the answer to `initialize`.
        transport_close_timeout: seconds for the transport's own `close()`, before it is given up.
        max_buffered_bytes: bytes of messages stored for a consumer that does not read (see `Storage` for what happens then).

    Raises `ConfigurationError` for arguments that would fail, or do nothing, later.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        can_use_tool: CanUseToolCallback | None = None,
        hooks: Mapping[str, Sequence[HookMatcher]] | None = None,
        mcp_servers: Mapping[str, Any] | None = None,
        agents: Mapping[str, Any] | None = None,
        initialize: Mapping[str, Any] | None = None,
        on_request: OnRequest | None = None,
        on_callback_error: OnCallbackError = "deny",
        initialize_timeout: float = 60.0,
        transport_close_timeout: float = 60.0,
        max_buffered_bytes: int = 64 * 2**20,
    ) -> None:
        check_transport(transport)
        check_number("initialize_timeout", initialize_timeout, positive=True)
        check_number("transport_close_timeout", transport_close_timeout, positive=False)
        check_number("max_buffered_bytes", max_buffered_bytes, positive=True)
        questions = Questions(can_use_tool, hooks, on_request, on_error=on_callback_error, mcp_servers=mcp_servers)
        own_fields = {"agents": agents, "hooks": questions.hook_config, "sdkMcpServers": list(questions.mcp.names) or None}
        self._engine = Engine(
            transport,
            questions=questions,
            initialize={**{name: value for name, value in own_fields.items() if value is not None}, **(initialize or {})},
            initialize_timeout=initialize_timeout,
            transport_close_timeout=transport_close_timeout,
            max_buffered_bytes=max_buffered_bytes,
        )
        self._conversation = self._engine.conversation
        self._storage = self._engine.storage

    # ------------------------------------------------------------------------------------------------- starting and closing

    async def start(self) -> None:
        """Connect if needed and initialise; does nothing when that has been done. A cancelled start closes the query.

        Raises:
            ConfigurationError, CLIConnectionError: there is nothing to talk to.
            ConnectTimeout: no connection, or no answer to `initialize`, in `initialize_timeout` seconds.
            ProcessError, ConnectionLost: the peer ended before it answered.
            CLIJSONDecodeError: the peer ended, and nothing that it said was JSON.
            ResultError: the CLI reported a failed start (recording 16g).
            ControlRequestFailed: the CLI refused the `initialize` fields.
            TransportClosed: the query is closed, or was closed meanwhile.
        """
        await self._engine.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self, *, wait_for_background: bool = False, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> CloseReport:
        """End the conversation and close the transport, from any task; a cancelled close still closes.

        A turn that is running is interrupted, input ends, and the peer gets `timeout` seconds to end by itself. With
        `wait_for_background`, that time begins with waiting for running turns and background agents instead.
        The transport is closed in any case; after that, callbacks that resist their cancellation are waited for.
        Called from one of the query's own callbacks it only begins to close, since closing waits for callbacks.
        """
        return await self._engine.aclose(wait_for_background=wait_for_background, timeout=timeout)

    def abandon(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> None:
        """Begin to close without waiting for it, with the `timeout` of `aclose()`: for places that cannot await."""
        self._engine.abandon(timeout=timeout)

    # ------------------------------------------------------------------------------------------------------------- talking

    async def send(self, content: str | Sequence[Mapping[str, Any]], *, uuid: str | None = None, priority: Priority | None = None) -> Turn:
        """Send a prompt, text or content blocks: a handle on its turn, once the transport has taken it.

        `priority` is "now" (aborts the running turn), "next" (the default) or "later" (never folded into the running turn).
        A cancelled call takes the prompt back, unless it is being written already.

        Raises:
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent.
            UsageError: the uuid was used before; the CLI would drop the message without a word (recording 18u).
        """
        self._engine.refuse_if_over()
        uuid = uuid or str(uuids.uuid4())
        delivery = Delivery(encode_user_message(content, uuid=uuid, priority=priority, client_composed=self._engine.verbatim or None))
        self._conversation.send(uuid)
        turn = Turn(uuid, conversation=self._conversation, reading=self._storage)
        self._storage.add_turn(turn)
        try:
            await self._engine.outbox.send(delivery)
        except BaseException:
            if not delivery.may_arrive:
                self._conversation.withdraw(uuid)
                self._storage.note_change()
            raise
        return turn

    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Ask the CLI anything: the response fields, {} where it answers with none.

        Raises:
            ControlRequestFailed: it refused; `error_code` says why, when it gave a code.
            ControlTimeout: no answer in `timeout` seconds (`math.inf` waits for ever).
            ConnectionLost, ProcessError, TransportClosed, InputClosed: there is nobody to answer, or no way to ask.
            UsageError: the fields cannot be written as JSON.
        """
        self._engine.refuse_if_over()
        request = self._engine.requests.prepare(subtype, fields)
        self._engine.post(request)
        with self._storage.needing_input(request.is_open):
            return (await self._engine.requests.answer_to(request, timeout=timeout)).payload

    async def end_input(self) -> None:
        """Say that no further prompt will come. The running turn finishes, but nothing can be asked of the host any more."""
        self._engine.refuse_if_over()
        await self._engine.outbox.end()

    def messages(self) -> AllMessages:
        """Every message in order, from the first that nobody has taken yet; also those that belong to no turn.

        What was not taken of a turn goes with its handle: ask for all messages before sending, to miss nothing. Two such
        iterations at once share the messages between them. It ends with the conversation; when that failed, it raises the
        cause after the last message.
        """
        return AllMessages(self._storage)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def changed(self) -> None:
        """Return at the next sign of life: a message, the end, an answered question. For loops that watch the facts below."""
        await self._storage.change()

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def initialization(self) -> InitializationInfo:
        """The CLI's answer to `initialize`: commands, models, account, capabilities, …"""
        if self._engine.initialization is None:
            raise NotConnected("the query has not been initialised")
        return self._engine.initialization

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        return self._engine.info

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
        return self._engine.has_ended

    @property
    def resume_point(self) -> ResumePoint | None:
        """Session id and last message, to take the conversation up with a new process; None before the first turn."""
        session_id = self._conversation.session_id
        return None if session_id is None else ResumePoint(session_id, self._conversation.last_uuid)

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Uuids of the prompts that have neither a result nor another end, in the order of sending."""
        return self._conversation.open_turns

    @property
    def late_responses(self) -> int:
        """Answers that came for requests nobody waited for any more."""
        return self._conversation.late_responses

    @property
    def pending_requests(self) -> dict[str, str]:
        """Our requests that wait for an answer: id to subtype."""
        return self._conversation.pending_requests

    @property
    def pending_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests whose callbacks are still at work."""
        return self._engine.questions.open

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
