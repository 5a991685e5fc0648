"""`Query`: a conversation with Claude over any transport: start it, talk, look at it, close it.

The loop is here: a batch of lines is decoded once, `protocol.conversation` says what it means, and the query performs it. The parts are
`Connection` (the transport, its lines and requests, start and end), `MessageStorage` (messages on their way to readers), `Questions` and
`McpServers` (callbacks), `StallDetector` (stalls) and `Controls` (typed requests). docs/explanation/engine.md shows them together.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid as uuids
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, cast

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import force_setattr

from claude_transport.client.compatibility import Compatibility
from claude_transport.client.connection import DEFAULT_CLOSE_TIMEOUT, Connection
from claude_transport.client.controls import DEFAULT_CONTROL_TIMEOUT, Controls
from claude_transport.client.mcp import McpServers, check_change
from claude_transport.client.questions import CanUseToolCallback, HookMatcher, OnCallbackError, OnRequest, Questions
from claude_transport.client.reports import CloseReport, Prose, ResumePoint, cause_of_end
from claude_transport.client.shadowing import ShadowedCallbacks, check_session_billing
from claude_transport.client.storage import AllMessages, MessageStorage, Turn
from claude_transport.client.watchdog import DEFAULT_WATCHDOG, StallDetector, Watchdog
from claude_transport.errors import (
    ClaudeTransportError,
    ConfigurationError,
    ConnectTimeout,
    ControlRequestFailed,
    ControlTimeout,
    NotConnected,
    ResultError,
    TransportClosed,
    UsageError,
)
from claude_transport.exchange.arguments import check_number, check_seconds
from claude_transport.exchange.ending import TransportEnd, shorten
from claude_transport.exchange.failures import CallbackFailures, meant_for_the_program, raised_again, tells_of_the_end, translated
from claude_transport.exchange.outgoing import Delivery
from claude_transport.exchange.requests import VERDICT_GRACE, PendingRequest
from claude_transport.launch.rules import check_agent_rules, check_skills
from claude_transport.loggers import logger_for
from claude_transport.loops.alarm import Alarm
from claude_transport.loops.background import OrderedStarts, start_in
from claude_transport.loops.current import LightEvent, clock_here
from claude_transport.protocol.answers import McpServersChange
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.control import ControlResponse, InitializationInfo, encode_user_message
from claude_transport.protocol.conversation import Action, Cancel, Conversation, Deliver, Reject, Resolve, Settle, Start, TurnState
from claude_transport.protocol.diagnosis import error_for
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage
from claude_transport.protocol.messages import AssistantMessage, CompactBoundary, ResultMessage
from claude_transport.text.printable import printable, redacted_head
from claude_transport.transport import Client, TransportInfo, TransportLike, check_transport
from claude_transport.wrappers.redactor import redactor_for

logger: logging.Logger = logger_for(__name__)

Priority = Literal["now", "next", "later"]

_LAST_WORDS = 1.0
"""Seconds for what is still to be written when a callback has ended the conversation: above all its answer."""

_NEEDS_NO_TASK: frozenset[type[Action]] = frozenset({Deliver, Settle, Resolve})
"""What is done where bytes are noticed. The rest starts or cancels tasks."""

_SAID_CHARS = 2**16
"""Characters of a failed result that are searched for secrets. Errors show fewer."""

_UNREADABLE: frozenset[type[Message]] = frozenset({DecodeFailure, OversizedMessage})


class Query(Controls):
    """A conversation with Claude over `transport`: it sends prompts and control requests, and answers the CLI's questions by your
    callbacks. Use it as `async with Query(transport) as query`, or call `start()` and `aclose()`.

    Args:
        transport: any object with the six methods of `Transport`. It is connected if it is not yet, and closed with the query.
        can_use_tool: asked before a tool runs that needs permission. `start()` refuses options that would prevent it from ever being
            called, and gives a warning about options that answer a part of the questions.
        hooks: event name to a list of `HookMatcher`, which hold the callbacks.
        mcp_servers: MCP servers by name, whose tools are called `mcp__<name>__<tool>`. `mcp.server.Server` and `MCPServer` objects
            run in this process, wherever the CLI is. Configurations (stdio, http, sse) are for servers that the CLI runs or reaches.
        agents: subagent definitions by name, as for `initialize`.
        initialize: further fields for the `initialize` request. They win over all others.
        on_request: answers requests of the CLI that have no handler here. `await on_request(subtype, fields)` returns the
            response fields, or None to have the request refused as unsupported.
        on_callback_error: the answer for a callback that raises: "deny" (default) or "allow".
        initialize_timeout: seconds for connecting, again for the answer to `initialize`, and again for MCP servers to be connected.
        close_timeout: seconds for closing in all: end of input, signal, kill. None is 1 second in haste: after an error, a cancellation or
            a deadline. Without haste the peer then gets 5 seconds to save its session, and its transport the time that it has itself.
        transport_close_timeout: seconds for the transport's own `close()`. After that, the query closes without waiting for it.
        max_buffered_bytes: bytes of memory for messages that were read and that your program has not taken (see `buffered_bytes`).
            Above it, reading pauses. While your program waits for an answer or a message that only reading can bring, reading does not
            pause: unread messages are dropped instead.
        watchdog: limits after which a turn without progress is reported as stalled; None for no limits.

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
        close_timeout: float | None = None,
        transport_close_timeout: float = 60.0,
        max_buffered_bytes: int = 64 * 2**20,
        watchdog: Watchdog | None = DEFAULT_WATCHDOG,
    ) -> None:
        check_transport(transport, of="Query")
        check_number("initialize_timeout", initialize_timeout, positive=True)
        check_number("max_buffered_bytes", max_buffered_bytes, positive=True)
        self._make_redactor = functools.partial(redactor_for, transport, confidential=mcp_servers)
        self._failures = CallbackFailures(self._make_redactor)
        self._conversation = Conversation()
        end = TransportEnd(transport, transport_close_timeout=transport_close_timeout, close_timeout=close_timeout)
        self._connection = Connection(transport, self._conversation, end=end)
        tell = functools.partial(_tell_for_mcp, self._connection)
        self._mcp = McpServers(mcp_servers, on_failure=self._failures.note, tell=tell)
        self._questions = Questions(can_use_tool, hooks, on_request, on_error=on_callback_error, mcp=self._mcp, failures=self._failures)
        own = {"agents": agents, "hooks": self._questions.hook_config, "sdkMcpServers": list(self._mcp.names) or None}
        fields = {**{name: value for name, value in own.items() if value is not None}, **(initialize or {})}
        self._fields = _check_fields(fields) if fields else fields
        self._timeout = initialize_timeout
        self._prose: Prose | None = None
        self._storage = MessageStorage(self._connection, max_buffered_bytes=max_buffered_bytes)
        self._compatibility = Compatibility(self._connection, self._conversation)
        self._shadowing = ShadowedCallbacks(
            guarded=can_use_tool is not None, hooks=self._questions.hook_config or (), agents=self._fields.get("agents")
        )
        self._detector = None if watchdog is None else StallDetector(watchdog)
        self._clock: Callable[[], float] = anyio.current_time
        self._decoder = LineDecoder()
        self._initialization: InitializationInfo | None = None
        self._due: Sequence[Action] = ()  # what the last batch asks for, when it was more than messages
        self._failure: ClaudeTransportError | None = None  # of a strict transport's bad line
        self._tasks: TaskGroup | None = None
        self._starts = OrderedStarts()  # questions are taken up in the order in which the CLI asked them
        self._is_ending = False
        self._opened = LightEvent()
        self._opening: PendingRequest[str] | None = None
        self._stalls: Alarm | None = None  # from the first prompt or message to the end

    # Start and close

    async def start(self) -> None:
        """Connect the transport if needed, and initialise the conversation. Does nothing when that has been done. A cancelled start closes
        the query.

        Raises:
            ConfigurationError, CLIConnectionError: the CLI cannot be run or reached, or `can_use_tool` would never be called.
            CLIVersionMismatch: the CLI is too old, or too old for an option, a hook event or a field of `initialize`.
            ConnectTimeout: no connection, or no answer to `initialize`, in `initialize_timeout` seconds.
            ProcessError, ConnectionLost: the peer ended before it answered.
            CLIJSONDecodeError: the peer ended, and nothing that it sent was JSON.
            ResultError: the CLI reported a failed start.
            ControlRequestFailed: the CLI refused the `initialize` fields, or an MCP server could not be connected (`mcp_server_failed`).
            TransportClosed: the query is closed, or was closed meanwhile.
        """
        connection = self._connection
        connection.check_loop()
        if connection.close_requested.is_set() and connection.start_error is None:
            raise TransportClosed("the query is closed")
        task = connection.begin(self._live, name="claude query")
        try:
            if not (connection.ready.is_set() or self._opened.is_set()):
                await self._opened.wait()
            if (request := self._opening) is not None:
                self._opening = None  # a second caller only waits
                await self._initialize(request)
            if not connection.ready.is_set():
                await connection.ready.wait()
            if connection.start_error is not None:
                await task.join()
        except BaseException as exc:  # a cancellation, or a Ctrl-C, which may come in any line: the caller has no query to close
            connection.ask_to_close(timeout=0.0, hurry=True)
            task.cancel()
            if isinstance(exc, anyio.get_cancelled_exc_class()):
                await task.join()
            raise
        if connection.start_error is not None:
            raise raised_again(connection.start_error)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            return self
        except BaseException:
            self.abandon(hurry=True)  # a Ctrl-C may come between the two lines above
            raise

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose(timeout=self._connection.patience, hurry=exc is not None)

    async def aclose(
        self, *, wait_for_background: bool = False, timeout: float = DEFAULT_CLOSE_TIMEOUT, hurry: bool = False
    ) -> CloseReport:
        """End the conversation and close the transport, from any task. Returns how it ended. A second call waits for the first and returns
        the same.

        A running turn is interrupted, the input ends, and the peer gets `timeout` seconds to end by itself, or 60 % of `close_timeout` if
        that is less. With `wait_for_background`, the query first waits, within the same seconds, until running turns and background agents
        are finished, and does not interrupt them before. Otherwise a CLI whose background agents would go on without the hooks of this
        query (2.1.191 and older) is told to end them. Then the transport is closed in any case, and the query waits for callbacks that do
        not stop when they are cancelled.

        With `hurry`, all of it takes `close_timeout` seconds, or 1 by default. `async with` hurries when its block ends by an error or a
        cancellation, and so does a cancelled close. When several tasks close at once, the shortest time counts.

        Called from a callback of the query it only begins to close, because closing waits for callbacks.
        """
        connection = self._connection
        connection.check_loop()
        check_seconds("timeout", timeout)
        self._ask_to_close(timeout=timeout, wait_for_background=wait_for_background, hurry=hurry)
        task = connection.begin(connection.close, name="close claude query")
        if not self._questions.am_i_answering():
            try:
                await task.wait()
            finally:
                if not task.finished:  # this caller was cancelled, so the time that it allowed does not count any more
                    self._ask_to_close(hurry=True)
                await task.join()
        return connection.report()

    def abandon(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT, hurry: bool = False) -> None:
        """Begin to close the query and return at once, without waiting for the end. May be called from any thread, also outside a task.

        `timeout`, in seconds, and `hurry` mean what they mean for `aclose()`. A `timeout` that is no number raises `UsageError`.
        """
        check_seconds("timeout", timeout)
        self._connection.call(functools.partial(self._ask_to_close, timeout=timeout, hurry=hurry))

    def _ask_to_close(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT, wait_for_background: bool = False, hurry: bool = False) -> None:
        self._connection.ask_to_close(timeout=timeout, wait_for_background=wait_for_background, hurry=hurry)
        self._storage.note_change()
        self._storage.look_again()

    # Talk

    async def send(
        self, content: str | Sequence[Mapping[str, Any]], *, uuid: str | uuids.UUID | None = None, priority: Priority | None = None
    ) -> Turn:
        """Send a prompt, text or content blocks. Returns a handle on its turn as soon as the transport has taken the prompt, before the
        answer.

        `uuid` is any text that was not used before; without it one is made up. Empty content runs a turn like any other. To text of nothing
        but blanks, the CLI answers by itself, without the model. `priority` is "now" (aborts the running turn), "next" (the default) or
        "later" (never folded into the running turn). A cancelled call takes the prompt back, unless it is being written already. While the
        query starts, the call waits for that.

        Raises:
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent.
            CLIVersionMismatch: `verbatim_prompts` is on, and this CLI is too old to leave a command or an `@path` in the text alone.
            UsageError: the uuid was used before; the CLI would drop it (docs/reference/protocol.md#repeated-uuids). Or the uuid is empty
                or no text, the content is neither text nor blocks, or the priority is unknown.
        """
        connection, conversation = self._connection, self._conversation
        if not connection.is_open:
            with connection.awaiting_ready():
                await connection.until_ready()
                if connection.terms.before_prompt is None:
                    return await self.send(content, uuid=uuid, priority=priority)
            return await self.send(content, uuid=uuid, priority=priority)  # an interrupt does not wait for a prompt that is held back
        if connection.loop is None or not connection.loop.is_current:
            connection.check_loop()
        if uuid is None or isinstance(uuid, uuids.UUID):
            uuid = str(uuid or uuids.uuid4())
        elif not isinstance(uuid, str) or not uuid:  # an empty one would come back as none, and its turn would never be found
            raise UsageError(f"a uuid is text that is not empty, or a uuid.UUID, not {uuid!r}")
        is_verbatim = connection.terms.verbatim_prompts
        if is_verbatim:
            self._compatibility.check_verbatim_prompt(content)
        line = encode_user_message(content, uuid=uuid, priority=priority, client_composed=is_verbatim or None)
        if connection.terms.before_prompt is not None:
            line = await connection.held_back(line)
        if self._detector is not None and not conversation.is_running:
            self._detector.restart(at=self._clock())
            if self._stalls is None:
                self._look_for_stalls()
        conversation.send(uuid, priority=priority, is_command=isinstance(content, str) and content.startswith("/") and not is_verbatim)
        turn = self._storage.open_turn(uuid, conversation)
        delivery = Delivery(line)
        try:
            if connection.terms.on_prompt is not None:
                connection.terms.on_prompt(uuid)  # here, because another task writes
            await connection.lines.send(delivery)
        except BaseException as exc:
            self._take_back(uuid, delivery, because_of=exc)
            raise
        return turn

    def _take_back(self, uuid: str, delivery: Delivery, *, because_of: BaseException) -> None:
        """Forget the prompt if the CLI can never see it. Raises an error of this library for one of a transport or a wrapper."""
        if self._connection.lines.is_void(delivery):
            self._conversation.withdraw(uuid)
            self._storage.note_change()
        if isinstance(because_of, Exception) and not isinstance(because_of, ClaudeTransportError):
            raise translated(because_of, "the transport could not take the prompt") from because_of

    async def _early_prompts_sent(self) -> None:
        await self._connection.nothing_waits_for_ready()

    async def compact(self, instructions: str = "") -> CompactBoundary:
        """Have the CLI replace the conversation by a summary, in a turn of its own. Returns the message that marks the place, with the
        number of tokens before and, if the CLI sent it, after.

        `instructions` say what the summary is to keep. The call sends the prompt `/compact`, which waits behind all other prompts, and
        returns when its turn has ended. A model writes the summary, which costs money. The messages of the turn are in `messages()` too.
        For a time limit, use a cancel scope: a cancelled call does not stop the turn, and `interrupt()` does.

        Raises:
            ResultError: it failed, or there was nothing to compact; the message is what the CLI said.
            UsageError: `instructions` is no text, or the option `verbatim_prompts` sends slash commands as plain text.
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent, or the conversation ended first.
        """
        if not isinstance(instructions, str):
            raise UsageError(f"instructions is text, not {type(instructions).__name__}")
        await self._connection.until_ready()
        if self._connection.terms.verbatim_prompts:
            raise UsageError("verbatim_prompts sends /compact as plain text to the model: compact in a session without that option")
        turn = await self.send(f"/compact {instructions}".rstrip(), priority="later")
        boundary: CompactBoundary | None = None
        words = ""
        async for message in turn:
            if isinstance(message, CompactBoundary):
                boundary = message
            elif isinstance(message, AssistantMessage):
                words = message.text
        result = (await turn.result()).raise_for_error()
        if boundary is None:
            raise ResultError(f"the conversation was not compacted: {words or result.result or 'the CLI gave no reason'}", result=result)
        return boundary

    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Send the control request `subtype` with these `fields` to the CLI, and wait for its answer. Returns the fields of the answer, {}
        when there are none. For requests that have a method of their own (`set_model()`, …), use that.

        Raises:
            CLIVersionMismatch: this CLI is too old for it.
            ControlRequestFailed: the CLI refused; `error_code` says why, when it gave a code.
            ControlTimeout: no answer in `timeout` seconds (`math.inf` waits for ever).
            NotConnected, TransportClosed, InputClosed: the query was not started or is over, or the input has ended.
            ConnectionLost, ProcessError: the peer ended before it answered.
            UsageError: the fields cannot be written as JSON, or `timeout` is no number of seconds.
        """
        self._connection.check_open()
        check_seconds("timeout", timeout)
        self._compatibility.check_request(subtype, fields)
        try:
            return (await self._ask_raw(subtype, fields, timeout=timeout)).payload
        except ControlRequestFailed as exc:
            explained = self._compatibility.explained(exc, subtype=subtype)
            if explained is exc:
                raise
            raise explained from exc

    async def _ask_raw(self, subtype: str, fields: Mapping[str, Any], *, timeout: float) -> ControlResponse:
        """Send a request and wait for its answer, without looking at the version of the CLI."""
        request = self._connection.prepare(subtype, fields)
        self._connection.requests.post(request)
        self._storage.look_again()
        response = await self._connection.answer_to(request, timeout=timeout)
        self._mcp.follow(subtype, fields)
        return response

    async def end_input(self) -> None:
        """Tell the CLI that no further prompt will come. The running turn finishes, but from then on the CLI can ask this program nothing:
        no permission, no hook, no MCP server of this program. Waits for prompts that a wrapper holds back (`SessionTerms.before_prompt`).

        Raises:
            UsageError: a turn or a background agent still runs, this query has hooks that can refuse something, and this version of the
                CLI would continue without asking them (code `usage.guards_need_input`). Wait until the property `is_quiet` is True, or
                close the query, which interrupts the turn.
            NotConnected, TransportClosed, ConnectionLost: the query was not started, or it is over.
        """
        self._connection.check_open()
        guards = self._questions.guards
        if self._has_guards_that_need_input and not self._conversation.quiet:
            answered = None if self._initialization is None else self._initialization.claude_code_version
            version = answered or self.info.cli_version
            cli = "a CLI of unknown version" if version is None else f"CLI {version}"
            raise UsageError(
                f"the input cannot end while something runs that hooks guard ({', '.join(guards)}): {cli} goes on "
                "unasked when it cannot ask a hook. Wait until is_quiet, or call aclose()",
                code="usage.guards_need_input",
            )
        await self._connection.nothing_is_held_back()
        await self._connection.lines.send(Delivery(None))

    def messages(self) -> AllMessages:
        """Iterate over all messages of the conversation in order, from the first that was not taken yet; also those that belong to no turn.

        Unread messages of a turn are lost when its `Turn` is dropped: to miss nothing, call `messages()` before you send.
        `dropped_messages` counts those that were dropped above `max_buffered_bytes`. Two such iterations at once share the messages between
        them. The iteration ends with the conversation. When the conversation failed, the iteration raises the cause after the last message.
        """
        return AllMessages(self._storage, self._connection)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def changed(self) -> None:
        """Wait until something happens: a message comes, the conversation ends, or a question of the CLI is answered. Returns at once when
        the conversation has ended. For loops that wait until a property, such as `is_quiet`, has a certain value.
        """
        await self._storage.change()

    # Observe: each fact costs next to nothing, and may be read from any thread

    def __repr__(self) -> str:
        counts = {
            "open turns": len(self.open_turns),
            "pending requests": len(self.pending_requests),
            "pending questions": len(self.pending_questions),
            "buffered bytes": self.buffered_bytes,
            "failed callbacks": self.failed_callbacks,
        }
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        return f"<Query over {self.info.kind}: {', '.join([self._connection.phase, *parts])}>"

    @property
    def initialization(self) -> InitializationInfo:
        """The CLI's answer to the request `initialize`: commands, models, account, capabilities, … Raises `NotConnected` before `start()`
        is done.
        """
        if self._initialization is None:
            raise NotConnected("the query has not been initialised")
        return self._initialization

    @property
    def info(self) -> TransportInfo:
        """What the transport knows of its peer and itself, as a `TransportInfo`: versions, exit code, counts of bytes and bad lines."""
        return self._connection.info

    @property
    def is_quiet(self) -> bool:
        """True when no turn runs or waits, no background agent is at work, and no question of the CLI is open: nothing can ask this program
        anything, so that `end_input()` is safe.
        """
        return self._conversation.quiet

    @property
    def is_running(self) -> bool:
        """True while a turn runs, or a prompt waits for its turn: there is something that `interrupt()` could stop."""
        return self._conversation.is_running

    @property
    def has_ended(self) -> bool:
        """True once the peer has ended, or closing of the query has begun: nothing more can be sent."""
        return self._connection.is_over

    @property
    def resume_point(self) -> ResumePoint | None:
        """Where a new process can continue the conversation: the session id, and the uuid of the last message of the main conversation.
        None before the first turn has begun, and after `/clear` until the next turn begins.
        """
        session_id = self._conversation.session_id
        return None if session_id is None else ResumePoint(session_id, self._conversation.last_uuid)

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Uuids of the prompts that wait or run: they have neither a result nor another final state. In the order of sending."""
        return self._conversation.open_turns

    @property
    def late_responses(self) -> int:
        """How many answers of the CLI came for no waiting request, for instance after the request had timed out."""
        return self._conversation.late_responses

    @property
    def pending_requests(self) -> dict[str, str]:
        """Control requests of this program to which the CLI has not answered yet: request id to subtype."""
        return self._connection.pending_requests

    @property
    def pending_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests to this program whose callbacks are still at work."""
        return self._questions.open

    @property
    def failed_callbacks(self) -> int:
        """How many callbacks raised, cancelled themselves, took too long, or returned something that cannot be sent to the CLI.

        Counted are can_use_tool, hooks, on_request and MCP servers of this program. `claude_transport.exchange.failures` logs each of
        them, and the conversation continues.
        """
        return self._failures.failed

    @property
    def late_answers(self) -> int:
        """How many answers of callbacks were not sent, because the CLI had withdrawn its question by then, or a hook had taken too long."""
        return self._failures.late

    @property
    def background_tasks(self) -> dict[str, str]:
        """The background agents that are at work: task id to description. Background shells are not listed."""
        return self._conversation.background_agents

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory for messages that were read and that your program has not taken yet.

        It is an estimate for each message: its line, its Struct, and the objects made of its JSON (counted by the brackets, commas and
        colons of the line). The messages never take more than twice as much. A message that waits both in a turn and for `messages()`
        counts twice.
        """
        return self._storage.buffered_bytes

    @property
    def dropped_messages(self) -> int:
        """How many unread messages were dropped to stay within `max_buffered_bytes`."""
        return self._storage.dropped_messages

    @property
    def _has_guards_that_need_input(self) -> bool:
        """True when the CLI would do what a hook guards when it cannot ask that hook: CLI 2.1.191 and older."""
        blocks_on_failure = self._initialization is not None and self._initialization.hook_on_failure_supported is True
        return bool(self._questions.guards) and not blocks_on_failure

    # The start

    async def _live(self) -> None:
        """Run the conversation from its start to its end. However it ends, nothing is left waiting."""
        connection = self._connection
        try:
            self._attach()
            await connection.connect(timeout=self._timeout)
            await self._converse()
        except Exception as exc:  # noqa: BLE001 - a transport of another library may raise anything; it is translated here
            connection.fail_start(translated(exc, "the transport failed"))
        finally:
            self._end(None)
            connection.stop_writing()
            connection.fail_start(TransportClosed("the query was closed before it was ready"))
            self._opened.set()
            await connection.close()
            if self._mcp.names:
                with anyio.CancelScope(shield=True):
                    await self._mcp.aclose()

    def _attach(self) -> None:
        """Exchange with the transport, before it is connected, what this query answers and what the options ask of it."""
        self._clock = clock_here()
        self._connection.attach(Client(answers=self._questions.kinds, mcp_servers=self._mcp.names))
        terms = self._connection.terms
        if terms.agent != "claude-code":
            said = f"a Query talks to Claude, and this transport starts {terms.agent}: use {terms.session_class}"
            raise ConfigurationError(said, option="transport")
        self._decoder = LineDecoder(strict=terms.strict)
        self._shadowing.check_settings(terms.permissions)
        of_options, own = terms.initialize, self._fields
        self._fields = {**of_options, **own}
        if of_options.get("agents") and own.get("agents"):
            self._fields["agents"] = {**of_options["agents"], **own["agents"]}
        structured_output = terms.structured_output or self._fields.get("jsonSchema") is not None
        self._conversation.expect(session_id=terms.session_id, fork=terms.forks_session, structured_output=structured_output)

    async def _initialize(self, request: PendingRequest[str]) -> None:
        """Wait for the answer to `initialize` and check it. Then the query is ready, or its start has failed."""
        connection = self._connection
        try:
            response = await connection.answer_to(request, timeout=self._timeout)
            initialization = InitializationInfo.from_payload(response.payload)
            terms = connection.terms
            await self._compatibility.check_start(initialization, fields=self._fields, of_options=terms.initialize)
            self._mcp.park(initialization.sdk_mcp_manifests_parked or {})
            await check_session_billing(terms.billing, initialization, ask_settings=self._ask_for_settings)
            self._shadowing.check_mode(initialization.current_permission_mode or await self._mode_of_settings(initialization))
            asked = bool(self._fields.get("hooks"))
            self._questions.check_hooks(initialization, version=self._compatibility.version, asked=asked)
            await self._set_mcp_servers()
        except ControlTimeout as exc:
            what = f"no answer to {exc.subtype} in {exc.waited:g} s"
            message = f"{what}. Allow more time with initialize_timeout, or try `claude-transport doctor`."
            timeout = ConnectTimeout(message, waited=exc.waited, stderr_tail=connection.info.stderr_tail)
            timeout.__cause__ = exc
            connection.fail_start(timeout)
        except ClaudeTransportError as exc:
            connection.fail_start(exc)
        else:
            self._initialization = initialization
            connection.become_ready()

    async def _mode_of_settings(self, initialization: InitializationInfo) -> str | None:
        """Ask a CLI that does not report its permission mode which one its settings chose; None when it cannot matter.

        CLI 2.1.257 and newer report `current_permission_mode`; 2.1.92 and 2.1.191 do not, but answer `get_settings`. Each of them reports
        its `pid`; a peer without one is no CLI, and has no settings.
        """
        if initialization.pid is None or not self._shadowing.mode_is_open:
            return None
        try:
            return self._shadowing.mode_of_settings(await self._ask_for_settings())
        except ControlRequestFailed as exc:
            raise self._shadowing.unknown_mode(str(exc)) from exc

    async def _ask_for_settings(self) -> Mapping[str, Any]:
        return (await self._ask_raw("get_settings", {}, timeout=self._timeout)).payload

    async def _set_mcp_servers(self) -> None:
        """Have the CLI connect to the MCP servers that the query has configurations of, so that the first prompt has their tools.

        The fields of `initialize` could name them, too, but only a CLI that was started with `--await-initialize` heeds them. This way
        works over any transport. The answer comes when every server is connected, or has failed (CLI 2.1.329, real).
        """
        servers = self._mcp.dynamic
        if not servers:
            return
        try:
            response = await self._ask_raw("mcp_set_servers", {"servers": servers}, timeout=self._timeout)
        except ControlRequestFailed as exc:
            message = f"MCP servers could not be set ({', '.join(servers)}): {exc}"
            raise ControlRequestFailed(message, subtype=exc.subtype, request_id=exc.request_id, error_code=exc.error_code) from exc
        check_change(McpServersChange.from_payload(response.payload))

    # The loop

    async def _converse(self) -> None:
        """Write, read and perform, side by side, until the peer has ended and closing was asked for, or the time for closing is over."""
        connection = self._connection
        async with anyio.create_task_group() as self._tasks:
            try:
                connection.begin_writing(functools.partial(start_in, self._tasks), on_unwritten=self._begin_failed_end)
                self._opening = connection.prepare("initialize", self._fields)
                connection.requests.post(self._opening)
                self._opened.set()  # `start()` waits for the answer
                connection.call_on_close(self._begin_end)
                if connection.close_requested.is_set():  # while it was connecting
                    self._begin_end()
                if connection.lines.is_writing:  # a peer that has ended already gets the first line before its end is noticed
                    await connection.lines.begun.wait()
                await self._read()
                connection.call_on_close(None)
                if not connection.close_requested.is_set():
                    await connection.close_requested.wait()
                if self._questions.open or connection.wait_for_background or connection.lines.is_writing:
                    self._cancel_tasks()
            finally:
                await self._close_transport()

    async def _read(self) -> None:
        error: ClaudeTransportError | None = None
        try:
            async with self._connection.batches() as batches:
                while await batches.pour(self._take):
                    self._perform_due()
                    if await self._storage.make_room(closing=self._connection.close_requested):
                        self._restart_detector()
        except Exception as exc:  # noqa: BLE001 - as in `_live()`
            error = translated(exc, "the transport could not read")
        self._end(error)

    def _take(self, lines: Sequence[bytes]) -> bool:
        """Read a batch, and perform what it says if that needs no task. Returns True when there is more to do in the reader's task.

        It may be called outside of any task, where bytes were noticed: it cannot wait, nor start anything.
        """
        try:
            messages = self._decoder.messages(lines)
        except ClaudeTransportError as exc:
            # a strict transport's first bad line ends the conversation, after what came before it
            messages, self._failure = cast("list[Message]", self._decoder.before_failure), exc
        kinds = self._decoder.kinds
        if self._detector is not None:
            self._detector.saw(messages, kinds, at=self._clock())
        if not _UNREADABLE.isdisjoint(kinds):
            self._report_unreadable(messages)
        if ResultMessage in kinds:
            self._keep_secrets(messages)
        actions = self._conversation.received(messages, kinds)
        if len(actions) == 1 and isinstance(only := actions[0], Deliver):  # nearly always
            if self._stalls is None and self._detector is not None:
                self._look_for_stalls()
            return self._storage.put(only.messages, only.turns, lines=lines) or self._failure is not None
        kinds_of_action = set(map(type, actions))
        if not kinds_of_action <= _NEEDS_NO_TASK:
            self._due = actions
            return True
        is_enough = self._failure is not None
        for action in actions:
            if isinstance(action, Deliver):
                self._look_for_stalls()
                is_enough |= self._storage.put(action.messages, action.turns)
            else:
                self._perform(action)
        return is_enough

    def _keep_secrets(self, messages: Sequence[Message]) -> None:
        """Note what failed results say without the secrets of the options: the CLI may repeat what it was given."""
        for message in messages:
            if isinstance(message, ResultMessage) and message.is_error and (text := message.result or "; ".join(message.errors)):
                force_setattr(message, "said", redacted_head(text, self._make_redactor().text, at_most=_SAID_CHARS))

    def _report_unreadable(self, messages: Sequence[Message]) -> None:
        """Keep the first line that held no message, and tell the transport about all of them."""
        on_failure = self._connection.terms.on_failure
        for message in messages:
            if isinstance(message, DecodeFailure | OversizedMessage):
                self._prose = self._prose or Prose.of(message)
                if on_failure is not None:
                    on_failure(message)

    def _perform_due(self) -> None:
        actions, self._due = self._due, ()
        for action in actions:
            self._perform(action)
        if self._failure is not None:
            raise self._failure

    def _perform(self, action: Action) -> None:
        match action:
            case Deliver():
                self._look_for_stalls()
                self._storage.put(action.messages, action.turns)
            case Settle():
                self._storage.settle(action, self._connection.fate.error)
            case Resolve(request_id, response):
                self._connection.requests.settle(request_id, response)
            case Reject(request_id, result):
                self._connection.requests.fail(request_id, error_for(result) or ResultError("the run failed", result=result))
            case Start(request):
                self._connection.lines.check_room()
                question = self._questions.take(request)
                if question is not None and self._tasks is not None:
                    self._starts.start_in(self._tasks, self._questions.answer, question, self._reply, self._end_by_crash)
            case Cancel(request_id):
                self._questions.cancel(request_id)

    def _reply(self, request_id: str, line: bytes) -> bool:
        """Write the answer to a question of the CLI. Returns False when it is not wanted any more."""
        is_wanted = self._conversation.answered(request_id)
        if is_wanted:
            self._connection.say(line)
            self._restart_detector()
        self._storage.note_change()
        return is_wanted

    def _look_for_stalls(self) -> None:
        """Begin to look for stalls, with the first prompt or message: a turn begins with one of them."""
        if self._detector is not None and self._stalls is None and not self._connection.ended.is_set():
            self._stalls = Alarm(self._report_stall)
            self._look_for_stalls_at(self._detector.next_look(at=self._clock()))

    def _look_for_stalls_at(self, when: float) -> None:
        if self._stalls is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is ending, and the conversation with it
                self._stalls.set(when)

    def _restart_detector(self) -> None:
        if self._detector is not None:
            self._detector.restart(at=self._clock())

    def _report_stall(self) -> None:
        """Look whether the turn has stalled, and put a `StallEvent` among the messages then. One that kills ends the conversation."""
        conversation, detector = self._conversation, self._detector
        if detector is None:
            return
        suspended = not conversation.is_running or bool(conversation.open_questions) or self._storage.is_full
        stall = detector.look(at=self._clock(), bytes_read=self._connection.info.bytes_read, suspended=suspended)
        if stall is not None:
            logger.warning("the turn stands still: %s for %.0f s", stall.clock.replace("_", " "), stall.seconds)
            # for the turn that runs; when none does, for the prompt that waits longest
            waiting = conversation.open_turns
            running = tuple(uuid for uuid in waiting if conversation.state_of(uuid) is TurnState.STARTED)
            self._storage.put([stall], running or waiting[:1])
        if stall is None or not stall.killed:
            self._look_for_stalls_at(detector.next_look(at=self._clock()))
            return
        self._connection.cut_off()
        self._end(stall.as_error())
        self._cancel_tasks()

    # The end

    async def _close_transport(self) -> None:
        """End the conversation and close the transport, before callbacks are waited for: one that resists must not keep a process alive."""
        connection = self._connection
        if connection.close_requested.is_set():
            connection.fail_start(TransportClosed("the query was closed before it was ready"))
        connection.cut_off()
        self._end(None)
        connection.stop_writing()
        if connection.was_cut_off and self._has_guards_that_need_input:
            # without its input, the CLI would go on with the turn, or with a background agent
            await connection.write_last(connection.request_line("interrupt", {})[1])
        await connection.close()
        if still := self._questions.open:
            logger.info("closing waits for callbacks that are still at work: %s", printable(", ".join(still)))

    def _begin_end(self) -> None:
        """Let the conversation end by itself, in the time that is left for closing."""
        connection = self._connection
        if self._tasks is not None:
            shorten(self._tasks.cancel_scope, self._clock() + connection.close_timeout)
        if self._is_ending:
            return  # the waiting task looks again, and the shortest time counts
        self._is_ending = True
        if connection.wait_for_background and self._tasks is not None:
            start_in(self._tasks, self._end_when_quiet)
        else:
            self._end_input()

    async def _end_when_quiet(self) -> None:
        connection = self._connection
        while connection.wait_for_background and not (self._conversation.quiet or connection.ended.is_set()):
            await self._storage.change()
        self._end_input()

    def _end_input(self) -> None:
        if self._conversation.open_turns or (self._has_guards_that_need_input and not self._conversation.quiet):
            self._connection.tell("interrupt")  # it ends background agents, too (CLI 2.1.191)
        self._connection.lines.put(Delivery(None))

    async def _end_by_crash(self, name: str, crash: BaseException) -> None:
        """End the conversation, because the callback `name` raised what is no `Exception`. The peer gets its answer before."""
        error = UsageError(
            f"{name} raised {type(crash).__name__}, which is no Exception and so ends the conversation. Catch it in the callback",
            code="usage.callback_failed",
        )
        error.__cause__ = crash
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            await self._connection.lines.flush()
        self._connection.cut_off()
        self._end(error)
        self._cancel_tasks()
        if (exit_of_program := meant_for_the_program(crash)) is not None:
            raise exit_of_program

    def _begin_failed_end(self, error: ClaudeTransportError) -> None:
        if self._tasks is not None:
            start_in(self._tasks, self._end_by_failure, error)

    async def _end_by_failure(self, error: ClaudeTransportError) -> None:
        """End the conversation, because the transport has failed, and the CLI waits for what cannot be written."""
        with anyio.move_on_after(VERDICT_GRACE if tells_of_the_end(error) else 0.0):
            await self._connection.ended.wait()
        self._connection.cut_off()
        self._end(error)
        self._cancel_tasks()

    def _cancel_tasks(self) -> None:
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def _end(self, error: ClaudeTransportError | None) -> None:
        """Settle everything that is outstanding with one cause, because nothing more will be read. Does nothing the second time."""
        if self._connection.ended.is_set():
            return
        if self._stalls is not None:
            self._stalls.cancel()
            self._stalls = None
        for action in self._due:  # read, but the task that would have done it was cancelled in the same moment
            if not isinstance(action, Start):
                self._perform(action)
        self._due = ()
        error = cause_of_end(
            self._connection.fate.cause(error),
            last=self._conversation.last_result,
            counters=self._decoder.counters,
            explain=self._explain_prose,
        )
        self._connection.end(error)
        for action in self._conversation.ended():
            self._perform(action)
        self._storage.end(error)

    def _explain_prose(self) -> ClaudeTransportError | None:
        return None if self._prose is None else self._prose.error(self._connection.info, self._make_redactor())


def _tell_for_mcp(connection: Connection, name: str, message: dict[str, Any]) -> None:
    """Send the CLI a message of an MCP server of this program, without waiting for the acknowledgement."""
    connection.tell("mcp_message", server_name=name, message=message)


class QueryOptions(TypedDict, total=False):
    """The keyword arguments of `Query` as a type; each has the meaning and the default that it has there.

    For functions that pass them on, `**query_options: Unpack[QueryOptions]`: type checkers then know every name, and report a misspelt one.
    """

    can_use_tool: CanUseToolCallback | None
    hooks: Mapping[str, Sequence[HookMatcher]] | None
    mcp_servers: Mapping[str, Any] | None
    agents: Mapping[str, Any] | None
    initialize: Mapping[str, Any] | None
    on_request: OnRequest | None
    on_callback_error: OnCallbackError
    initialize_timeout: float
    close_timeout: float | None
    transport_close_timeout: float
    max_buffered_bytes: int
    watchdog: Watchdog | None


def _check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Check `skills` and `agents` in the fields of `initialize`, and return `fields`.

    Raises `ConfigurationError` for names that the CLI would read as rules for other skills or tools.
    """
    check_skills(fields.get("skills"))
    agents = fields.get("agents")
    if isinstance(agents, Mapping):
        check_agent_rules(agents)
    return fields
