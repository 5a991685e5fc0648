"""`QueryOptions`: the keyword arguments of `Query`, as a type, for functions that hand them on."""

from __future__ import annotations

import functools
import logging
import uuid as uuids
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, cast

import anyio
from anyio.abc import TaskGroup

from claude_transport.background import BackgroundTask
from claude_transport.client.compatibility import Compatibility
from claude_transport.client.connection import DEFAULT_CLOSE_TIMEOUT, Connection, Delivery, Life, Outbox, PendingRequest, Requests
from claude_transport.client.controls import DEFAULT_CONTROL_TIMEOUT, Controls, said
from claude_transport.client.mcp import check_change
from claude_transport.client.questions import CanUseToolCallback, HookMatcher, OnCallbackError, OnRequest, Questions
from claude_transport.client.reports import (
    CloseReport,
    ResumePoint,
    cause_of_end,
    check_fields,
    check_number,
    check_seconds,
    check_transport,
    meant_for_the_program,
    raised_again,
    translated,
)
from claude_transport.client.shadowing import Shadowing, check_account
from claude_transport.client.storage import AllMessages, Storage, Turn
from claude_transport.client.watchdog import DEFAULT_WATCHDOG, Watch, Watchdog
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
from claude_transport.launch.payloads import ANNOUNCED
from claude_transport.printable import printable
from claude_transport.protocol.answers import McpServersChange
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.control import InitializationInfo, encode_user_message
from claude_transport.protocol.conversation import Action, Cancel, Conversation, Deliver, Reject, Resolve, Settle, Start
from claude_transport.protocol.diagnosis import error_for
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import AssistantMessage, CompactBoundary
from claude_transport.transport import Client, TransportInfo, TransportLike
from claude_transport.wrappers.redactor import redactor_for

# --- `Closing`: how a conversation is closed: asked to end, given its time, and reported on.


class Closing:
    """The closing of one conversation, from any task."""

    def __init__(
        self,
        life: Life,
        connection: Connection,
        conversation: Conversation,
        storage: Storage,
        *,
        requests: Requests,
        outbox: Outbox,
        questions: Questions,
    ) -> None:
        self._life = life
        self._connection = connection
        self._conversation = conversation
        self._storage = storage
        self._requests = requests
        self._outbox = outbox
        self._questions = questions

    def ask(self, *, timeout: float, wait_for_background: bool = False) -> None:
        """As `Query.aclose()`, without waiting. Of several who ask, the least patient decides."""
        self._life.ask_to_close(timeout=timeout, wait_for_background=wait_for_background)
        self._storage.note_change()
        self._storage.look_again()
        self._connection.give_up()

    def abandon(self, *, timeout: float) -> None:
        """As `Query.abandon()`: from any thread, and from finalisers, which run in whichever thread it pleases."""
        check_seconds("timeout", timeout)
        self._life.call(functools.partial(self.ask, timeout=timeout))

    async def finish(self, *, timeout: float, wait_for_background: bool) -> CloseReport:
        """As `Query.aclose()`."""
        self._life.refuse_elsewhere()
        check_seconds("timeout", timeout)
        self.ask(timeout=timeout, wait_for_background=wait_for_background)
        task = self._life.begin(self._connection.close, name="close claude query")
        if not self._questions.am_i_answering():
            try:
                await task.wait()
            finally:
                if not task.finished:  # whoever was patient waits no more
                    self.ask(timeout=DEFAULT_CLOSE_TIMEOUT)
                await task.join()
        info = self._connection.info
        return CloseReport(
            ended_by_itself=self._life.ended_by_itself,
            lost_turns=self._life.lost_turns,
            dropped_tasks=dict(self._life.dropped_tasks),
            exit_code=info.exit_code,
            signal=info.signal,
            killed=info.killed,
        )

    async def ending_when_asked(self) -> None:
        """Wait until closing is asked for, then let the conversation end by itself; return when it has, or its time is over."""
        life = self._life
        await life.close_requested.wait()
        with anyio.move_on_after(life.close_timeout) as limit:
            while life.wait_for_background and not (self._conversation.quiet or life.ended.is_set()):
                await self._change(limit)
            if self._conversation.open_turns:
                self._requests.tell("interrupt")
            self._outbox.post_end()
            while not life.ended.is_set():
                await self._change(limit)
        life.ended_by_itself = life.ended.is_set()

    async def _change(self, limit: anyio.CancelScope) -> None:
        """Wait until something changes, and then no longer than whoever asked meanwhile wants to."""
        await self._storage.change()
        limit.deadline = min(limit.deadline, anyio.current_time() + self._life.close_timeout)


# --- `Starting`: how a conversation begins: the `initialize` request, its answer, and what those who wait for it are told.


_OPTIONS = {"managedSettings": "managed_settings", "mcpServers": "mcp_servers"}


class Starting:
    """The beginning of one conversation.

    Args:
        fields: of the `initialize` request; they win over those that the transport's options ask for.
        timeout: seconds for connecting, again for the answer to `initialize`, and again for MCP servers to be connected.
    """

    def __init__(
        self,
        life: Life,
        connection: Connection,
        conversation: Conversation,
        requests: Requests,
        storage: Storage,
        questions: Questions,
        *,
        fields: Mapping[str, Any],
        timeout: float,
    ) -> None:
        self._life = life
        self._connection = connection
        self._requests = requests
        self._storage = storage
        self._questions = questions
        self._shadowing = Shadowing(
            guarded="can_use_tool" in questions.kinds, hooks=questions.hook_config or (), agents=fields.get("agents")
        )
        self._fields = dict(fields)
        self.compatibility: Compatibility = Compatibility(connection, conversation)
        self.timeout = timeout
        self.initialization: InitializationInfo | None = None
        """The answer, once there is one."""

    async def start(self, live: Callable[[], Awaitable[object]]) -> None:
        """Begin to `live` in a task of its own, and return when it is ready; as `Query.start()`."""
        life = self._life
        life.refuse_elsewhere()
        if life.close_requested.is_set() and life.start_error is None:
            raise TransportClosed("the query is closed")
        task = life.begin(live, name="claude query")
        try:
            await self._begun(task)
        except Exception:
            raise
        except BaseException as exc:  # a cancellation, or a Ctrl-C, which may come in any line: the caller has no query to close
            life.close_requested.set()
            task.cancel()
            if isinstance(exc, anyio.get_cancelled_exc_class()):
                await task.join()
            raise

    async def _begun(self, task: BackgroundTask) -> None:
        """Return when the query is ready; raise what its start has failed with."""
        life = self._life
        if life.ready.is_set() and life.start_error is None:
            return
        await life.ready.wait()
        if life.start_error is not None:
            await task.join()
            raise raised_again(life.start_error)

    def announce(self) -> None:
        """Tell the transport what will be answered, before it is connected.

        Raises:
            ConfigurationError: it is too late for that, or what was asked for leaves nothing to answer.
        """
        self._connection.attach(Client(answers=self._questions.kinds))
        self._shadowing.check_settings(self._connection.terms.permissions)

    def brief(self, conversation: Conversation) -> None:
        """Tell `conversation` what the options of the transport and the fields of `initialize` ask of it."""
        terms = self._connection.terms
        structured_output = terms.structured_output or self._all_fields.get("jsonSchema") is not None
        conversation.expect(session_id=terms.session_id, fork=terms.forks_session, structured_output=structured_output)

    @property
    def cli_name(self) -> str:
        """The CLI and its version, for people."""
        answered = None if self.initialization is None else self.initialization.claude_code_version
        version = answered or self._connection.info.cli_version
        return "a CLI of unknown version" if version is None else f"CLI {version}"

    @property
    def blocks_on_failure(self) -> bool:
        """True when the CLI itself stops what a hook guards when it cannot ask that hook."""
        return self.initialization is not None and self.initialization.hook_on_failure_supported is True

    @property
    def _all_fields(self) -> dict[str, Any]:
        of_options, own = self._connection.terms.initialize, self._fields
        fields = {**of_options, **own}
        if of_options.get("agents") and own.get("agents"):
            fields["agents"] = {**of_options["agents"], **own["agents"]}
        return fields

    def prepare(self) -> PendingRequest:
        """The `initialize` request, with the terms of the transport; `UsageError` when its fields are no JSON."""
        return self._requests.prepare("initialize", self._all_fields)

    async def finish(self, initialize: PendingRequest) -> None:
        """Wait for the answer, and tell everybody who waits for it."""
        try:
            with self._storage.needing_input(initialize.is_open):
                response = await self._requests.answer_to(initialize, timeout=self.timeout)
            initialization = InitializationInfo.from_payload(response.payload)
            self._check_applied(initialization)
            await self.compatibility.check_start(initialization, fields=self._all_fields)
            parked = (initialization.sdk_mcp_manifests_parked or {}).items()
            self._questions.mcp.parked = frozenset(name for name, state in parked if state == "parked")
            check_account(self._connection.terms.billing, initialization.account)
            self._shadowing.check_mode(initialization.current_permission_mode or await self._configured_mode(initialization))
            asked = bool(self._all_fields.get("hooks"))
            self._questions.check_hooks(initialization, version=self.compatibility.version, asked=asked)
            await self._set_servers()
        except ControlTimeout as exc:
            message = f"no answer to {exc.subtype} in {exc.waited:g} s"
            timeout = ConnectTimeout(message, waited=exc.waited, stderr_tail=self._connection.info.stderr_tail)
            timeout.__cause__ = exc
            self._life.fail_start(timeout)
        except ClaudeTransportError as exc:
            self._life.fail_start(exc)
        else:
            self.initialization = initialization
            self._life.ready.set()

    def _check_applied(self, initialization: InitializationInfo) -> None:
        """Refuse a CLI that does not confirm what its transport's options sent by `initialize`: rules and servers would be missing.

        A peer that reports no `pid` is no CLI, and confirms nothing.

        Raises:
            ConfigurationError: names the field and the remedy.
        """
        if initialization.pid is None:
            return
        for field, (_, confirmation) in ANNOUNCED.items():
            if self._connection.terms.initialize.get(field) and getattr(initialization, confirmation) is not True:
                version = initialization.claude_code_version or "of unknown version"
                message = f"claude {version} does not apply {field} of initialize ({confirmation} is not true); use a newer CLI, or argv"
                raise ConfigurationError(message, option=_OPTIONS.get(field, field))

    async def _configured_mode(self, initialization: InitializationInfo) -> str | None:
        """Ask a CLI that does not report its permission mode which one its settings chose; None when it cannot matter.

        CLI 2.1.257 and newer report `current_permission_mode`; 2.1.92 and 2.1.191 do not, but answer `get_settings`. Each of them reports
        its `pid`; a peer without one is no CLI, and has no settings.

        Raises:
            ConfigurationError: the CLI does not tell, so that `can_use_tool` might never be called.
        """
        if initialization.pid is None or not self._shadowing.mode_is_open:
            return None
        request = self._requests.prepare("get_settings", {})
        self._requests.post(request)
        with self._storage.needing_input(request.is_open):
            try:
                response = await self._requests.answer_to(request, timeout=self.timeout)
            except ControlRequestFailed as exc:
                raise _unknown_mode(str(exc)) from exc
        effective = response.payload.get("effective")
        if not isinstance(effective, Mapping):
            raise _unknown_mode("its settings have no effective values")
        permissions = effective.get("permissions")
        mode = permissions.get("defaultMode") if isinstance(permissions, Mapping) else None
        return mode if isinstance(mode, str) else None

    async def _set_servers(self) -> None:
        """Have the CLI connect to the MCP servers that the query was given configurations of, so that the first prompt has their tools.

        The fields of `initialize` could name them, too, but are heeded only by a CLI that was started with `--await-initialize`; this way
        works over any transport. The answer comes when every server is connected, or has failed (CLI 2.1.329, real).
        """
        servers = self._questions.mcp.dynamic
        if not servers:
            return
        request = self._requests.prepare("mcp_set_servers", {"servers": servers})
        self._requests.post(request)
        with self._storage.needing_input(request.is_open):
            try:
                response = await self._requests.answer_to(request, timeout=self.timeout)
            except ControlRequestFailed as exc:
                message = f"MCP servers could not be set ({', '.join(servers)}): {exc}"
                raise ControlRequestFailed(message, subtype=exc.subtype, request_id=exc.request_id, error_code=exc.error_code) from exc
        check_change(McpServersChange.from_payload(response.payload))


def _unknown_mode(why: str) -> ConfigurationError:
    message = (
        f"can_use_tool might never be called: the CLI does not tell which permission mode its settings chose ({why}); set permission_mode"
    )
    return ConfigurationError(message, option="permission_mode")


# --- `Facts`: what can be seen of a conversation at any time, from anywhere.


class Facts:
    """The facts of a `Query`: looking at them costs next to nothing and changes nothing."""

    _conversation: Conversation
    _connection: Connection
    _life: Life
    _start: Starting
    _storage: Storage
    _questions: Questions
    _requests: Requests

    def __repr__(self) -> str:
        counts = {
            "open turns": len(self.open_turns),
            "pending requests": len(self.pending_requests),
            "pending questions": len(self.pending_questions),
            "buffered bytes": self.buffered_bytes,
            "failed callbacks": self.failed_callbacks,
        }
        said = [f"{count} {what}" for what, count in counts.items() if count]
        return f"<Query over {self.info.kind}: {', '.join([self._life.phase, *said])}>"

    @property
    def initialization(self) -> InitializationInfo:
        """The CLI's answer to `initialize`: commands, models, account, capabilities, …"""
        if self._start.initialization is None:
            raise NotConnected("the query has not been initialised")
        return self._start.initialization

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        return self._connection.info

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
        return self._life.is_over

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
        return self._requests.pending

    @property
    def pending_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests whose callbacks are still at work."""
        return self._questions.open

    @property
    def failed_callbacks(self) -> int:
        """Callbacks (can_use_tool, hooks, on_request, MCP servers of this program) that raised, cancelled themselves, or gave no answer
        that the CLI could be told. Each is logged by `claude_transport.client.reports`; the conversation goes on."""
        return self._questions.failures.failed

    @property
    def late_answers(self) -> int:
        """Answers of callbacks that were dropped: the CLI had withdrawn its question by then, or a hook had overrun its time."""
        return self._questions.failures.late

    @property
    def background_tasks(self) -> dict[str, str]:
        """Background agents at work: task id to description."""
        return self._conversation.background_agents

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that messages take which were read and not yet taken.

        It is an estimate: the line of each message, its Struct, and the objects that were made of its JSON, which are counted by the
        brackets, commas and colons of the line. What they really take is never more than twice as much. A message that waits both in
        a turn and for `messages()` counts twice.
        """
        return self._storage.buffered_bytes

    @property
    def dropped_messages(self) -> int:
        """Unread messages that were given up to stay within `max_buffered_bytes`."""
        return self._storage.dropped_messages


# --- `Talking`: what is said to Claude in a conversation, and what comes back.


Priority = Literal["now", "next", "later"]


class Talking(Controls):
    """The voice of a `Query`: prompts, requests, and every message that comes. All of it from any task."""

    _conversation: Conversation
    _compatibility: Compatibility
    _connection: Connection
    _life: Life
    _outbox: Outbox
    _questions: Questions
    _requests: Requests
    _start: Starting
    _storage: Storage
    _watch: Watch

    async def send(
        self, content: str | Sequence[Mapping[str, Any]], *, uuid: str | uuids.UUID | None = None, priority: Priority | None = None
    ) -> Turn:
        """Send a prompt, text or content blocks: a handle on its turn, once the transport has taken it.

        Any text that was not used before will do for `uuid`, and without one it is made up. Empty content runs a turn like any other;
        text of nothing but blanks is answered by the CLI itself (2.1.329, real).
        `priority` is "now" (aborts the running turn), "next" (the default) or "later" (never folded into the running turn).
        A cancelled call takes the prompt back, unless it is being written already. While the query starts, it waits for that.

        Raises:
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent.
            CLIVersionMismatch: `verbatim_prompts` is on, and this CLI is too old to leave a command or an `@path` in the text alone.
            UsageError: the uuid was used before; the CLI would drop it (docs/reference/protocol.md#repeated-uuids). Or it is empty or no
                text, the content is neither text nor blocks, or the priority is none.
        """
        with self._life.awaiting_ready():
            await self._life.until_ready()
            return await self._send(content, _checked(uuid), priority)

    async def _send(self, content: str | Sequence[Mapping[str, Any]], uuid: str, priority: Priority | None) -> Turn:
        is_verbatim = self._connection.terms.verbatim_prompts
        self._compatibility.check_prompt(content, verbatim=is_verbatim)
        delivery = Delivery(encode_user_message(content, uuid=uuid, priority=priority, client_composed=is_verbatim or None))
        if not self._conversation.is_running:
            self._watch.restart()
        is_command = isinstance(content, str) and content.startswith("/") and not is_verbatim
        self._conversation.send(uuid, priority=priority, is_command=is_command)
        turn = Turn(uuid, conversation=self._conversation, reading=self._storage)
        self._storage.add_turn(turn)
        try:
            self._connection.note_prompt(uuid)  # here, because the outbox is written out by another task
            await self._outbox.send(delivery)
        except BaseException:
            if not delivery.may_arrive:
                self._conversation.withdraw(uuid)
                self._storage.note_change()
            raise
        return turn

    async def _early_prompts_sent(self) -> None:
        await self._life.nothing_waits_for_ready()

    async def compact(self, instructions: str = "") -> CompactBoundary:
        """Replace the conversation by a summary, in a turn of its own: the boundary, with the tokens before (and after, where told).

        `instructions` say what the summary is to keep. It sends `/compact`, after what is running and waiting, and returns when that turn
        has ended; a model writes the summary, which is paid. What the turn says is in `messages()` too. For a bound, use a cancel scope:
        a cancelled call leaves the turn to the CLI, and `interrupt()` stops it.

        Raises:
            ResultError: it failed, or there was nothing to compact; the message is what the CLI said.
            UsageError: `instructions` is no text, or the option `verbatim_prompts` sends slash commands as plain text.
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent, or the conversation ended first.
        """
        if not isinstance(instructions, str):
            raise UsageError(f"instructions is text, not {type(instructions).__name__}")
        await self._life.until_ready()
        if self._connection.terms.verbatim_prompts:
            raise UsageError("verbatim_prompts sends /compact as plain text to the model: compact in a session without that option")
        turn = await self.send(f"/compact {instructions}".rstrip(), priority="later")
        boundary: CompactBoundary | None = None
        said = ""
        async for message in turn:
            if isinstance(message, CompactBoundary):
                boundary = message
            elif isinstance(message, AssistantMessage):
                said = message.text
        result = (await turn.result()).raise_for_error()
        if boundary is None:
            raise ResultError(f"the conversation was not compacted: {said or result.result or 'the CLI gave no reason'}", result=result)
        return boundary

    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Ask the CLI anything: the response fields, {} where it answers with none.

        Raises:
            CLIVersionMismatch: this CLI is too old for it.
            ControlRequestFailed: it refused; `error_code` says why, when it gave a code.
            ControlTimeout: no answer in `timeout` seconds (`math.inf` waits for ever).
            ConnectionLost, ProcessError, TransportClosed, InputClosed: there is nobody to answer, or no way to ask.
            UsageError: the fields cannot be written as JSON, or `timeout` is no number of seconds.
        """
        self._life.refuse_if_over()
        check_seconds("timeout", timeout)
        self._compatibility.check_request(subtype, fields)
        request = self._requests.prepare(subtype, fields)
        self._requests.post(request)
        with self._storage.needing_input(request.is_open):
            try:
                return (await self._requests.answer_to(request, timeout=timeout)).payload
            except ControlRequestFailed as exc:
                explained = self._compatibility.explained(exc, subtype=subtype)
                if explained is exc:
                    raise
                raise explained from exc

    async def end_input(self) -> None:
        """Say that no further prompt will come. The running turn finishes, but the CLI can ask nothing of this program any more.

        Raises:
            UsageError: something runs that hooks of this query guard, and the CLI lets things go on when it cannot ask a hook (code
                `usage.guards_need_input`). Wait until `is_quiet`, or close the query, which interrupts the turn.
        """
        self._life.refuse_if_over()
        guards = self._questions.guards
        if guards and not self._start.blocks_on_failure and not self._conversation.quiet:
            raise UsageError(
                f"the input cannot end while something runs that hooks guard ({', '.join(guards)}): {self._start.cli_name} goes on "
                "unasked when it cannot ask a hook. Wait until is_quiet, or call aclose()",
                code="usage.guards_need_input",
            )
        await self._outbox.end()

    def messages(self) -> AllMessages:
        """Every message in order, from the first that nobody has taken yet; also those that belong to no turn.

        What was not taken of a turn goes with its handle: ask for all messages before sending, to miss nothing. What is given up over
        `max_buffered_bytes` is counted in `dropped_messages`. Two such iterations at once share the messages between them. It ends with
        the conversation; when that failed, it raises the cause after the last message.
        """
        return AllMessages(self._storage)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def changed(self) -> None:
        """Return at the next sign of life: a message, the end, an answered question. For loops that watch the query's facts."""
        await self._storage.change()


def _checked(uuid: object) -> str:
    """A uuid as it goes over the wire and comes back; an empty one would come back as none, and its turn would never be found."""
    if uuid is None or isinstance(uuid, uuids.UUID):
        return str(uuid or uuids.uuid4())
    if not isinstance(uuid, str) or not uuid:
        raise UsageError(f"a uuid is text that is not empty, or a uuid.UUID, not {uuid!r}")
    return uuid


# --- `Query`: a conversation with Claude over any transport.


logger: logging.Logger = logging.getLogger(__name__)

_LAST_WORDS = 1.0
"""Seconds for what is still to be written when a callback has ended the conversation: its answer above all."""

_READER_GRACE = 1.0
"""Seconds that a cancelled read gets to end before the transport is closed under it."""


class Query(Facts, Talking):
    """A conversation over `transport`: initialised, with turns, control requests and callbacks.

    Args:
        transport: anything with the six methods of `Transport`; connected if it is not yet, closed with the query.
        can_use_tool: asked before a tool runs that needs permission. Options that would keep it from ever being called are refused by
            `start()`; what they keep from it in part is logged as a warning.
        hooks: event name to matchers with callbacks.
        mcp_servers: MCP servers by name, whose tools are called `mcp__<name>__<tool>`: `mcp.server.Server` or `MCPServer` objects,
            which run in this process wherever the CLI is, and configurations (stdio, http, sse) of what the CLI runs or reaches itself.
        agents: subagent definitions by name, as for `initialize`.
        initialize: further fields for the `initialize` request; they win over all others.
        on_request: claims requests of the CLI that have no handler here: `await on_request(subtype, fields)` gives the
            response fields, or None for an honest "unsupported".
        on_callback_error: what a callback that raises means: "deny" (default) or "allow".
        initialize_timeout: seconds for connecting, again for the answer to `initialize`, and again for MCP servers to be connected.
        transport_close_timeout: seconds for the transport's own `close()`, before it is given up.
        max_buffered_bytes: bytes of memory for messages that were read and not yet taken (see `buffered_bytes`). Over it, reading
            pauses; while something waits for what only reading can bring, unread messages are given up instead.
        watchdog: after how long a turn that stands still is called stalled; None for never.

    Raises `ConfigurationError` for arguments that would fail, or do nothing, later.
    """

    _due: Sequence[Action] = ()  # what the last batch asks for, when it was more than messages
    _failure: ClaudeTransportError | None = None  # of a strict transport's bad line

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
        watchdog: Watchdog | None = DEFAULT_WATCHDOG,
    ) -> None:
        check_transport(transport)
        check_number("initialize_timeout", initialize_timeout, positive=True)
        check_number("transport_close_timeout", transport_close_timeout, positive=False)
        check_number("max_buffered_bytes", max_buffered_bytes, positive=True)
        redactor = functools.partial(redactor_for, transport, confidential=mcp_servers)
        self._questions = Questions(
            can_use_tool, hooks, on_request, on_error=on_callback_error, mcp_servers=mcp_servers, make_redactor=redactor
        )
        self._questions.mcp.tell = self._tell_for_mcp
        self._conversation = Conversation()
        self._connection = Connection(transport, close_timeout=transport_close_timeout)
        self._decoder = LineDecoder()
        self._storage = Storage(max_buffered_bytes=max_buffered_bytes)
        self._outbox = Outbox(transport)
        self._requests = Requests(self._conversation, self._outbox, self._connection)
        self._life = Life(self._connection)
        self._storage.check_reader, self._storage.call_in_loop = self._life.refuse_elsewhere, self._life.call
        self._watch = Watch(watchdog, self._conversation, self._connection, self._storage)
        own = {"agents": agents, "hooks": self._questions.hook_config, "sdkMcpServers": list(self._questions.mcp.names) or None}
        fields = check_fields({**said(own), **(initialize or {})})
        parts = (self._life, self._connection, self._conversation, self._requests, self._storage, self._questions)
        self._start = Starting(*parts, fields=fields, timeout=initialize_timeout)
        self._compatibility = self._start.compatibility
        self._close = Closing(
            self._life,
            self._connection,
            self._conversation,
            self._storage,
            requests=self._requests,
            outbox=self._outbox,
            questions=self._questions,
        )
        self._tasks: TaskGroup | None = None
        self._reading_over = anyio.Event()

    # ------------------------------------------------------------------------------------------------- starting and closing

    async def start(self) -> None:
        """Connect if needed and initialise; does nothing when that has been done. A cancelled start closes the query.

        Raises:
            ConfigurationError, CLIConnectionError: there is nothing to talk to, or `can_use_tool` would never be called (see `shadowing`).
            CLIVersionMismatch: the CLI is too old, or too old for an option, a hook event or a field of `initialize`.
            ConnectTimeout: no connection, or no answer to `initialize`, in `initialize_timeout` seconds.
            ProcessError, ConnectionLost: the peer ended before it answered.
            CLIJSONDecodeError: the peer ended, and nothing that it said was JSON.
            ResultError: the CLI reported a failed start (recording 16g).
            ControlRequestFailed: the CLI refused the `initialize` fields, or an MCP server could not be connected (`mcp_server_failed`).
            TransportClosed: the query is closed, or was closed meanwhile.
        """
        await self._start.start(self._live)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            return self
        except BaseException:
            self.abandon()  # a Ctrl-C may come between the two lines above
            raise

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self, *, wait_for_background: bool = False, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> CloseReport:
        """End the conversation and close the transport, from any task; a cancelled close still closes, in 5 s at most of the peer's time.

        A turn that is running is interrupted, input ends, and the peer gets `timeout` seconds to end by itself. With
        `wait_for_background`, that time begins with waiting for running turns and background agents instead.
        The transport is closed in any case; after that, callbacks that resist their cancellation are waited for. Of several who close
        at once, the least patient decides.
        Called from one of the query's own callbacks it only begins to close, since closing waits for callbacks.
        """
        return await self._close.finish(timeout=timeout, wait_for_background=wait_for_background)

    def abandon(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> None:
        """Begin to close without waiting for it, with the `timeout` of `aclose()`: for places that cannot await, in any thread."""
        self._close.abandon(timeout=timeout)

    # ------------------------------------------------------------------------------------------------------------ the loop

    async def _converse(self) -> None:
        """The reader, the writer and the one who waits to close, side by side."""
        initialize = self._start.prepare()
        async with anyio.create_task_group() as self._tasks:
            self._requests.post(initialize)
            self._tasks.start_soon(self._read)
            self._tasks.start_soon(self._start.finish, initialize)
            self._tasks.start_soon(self._close_when_asked)
            self._tasks.start_soon(self._report_stalls)
            await self._write()

    async def _read(self) -> None:
        error: ClaudeTransportError | None = None
        try:
            async with self._connection.batches() as batches:
                while await batches.pour(self._take):
                    self._perform_due()
                    if await self._storage.make_room(closing=self._life.close_requested):
                        self._watch.restart()
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            error = translated(exc, "the transport could not read")
        finally:
            self._reading_over.set()
        self._end(error)

    def _take(self, lines: Sequence[bytes]) -> bool:
        """Read a batch, and deliver it if it is nothing but messages; True when there is more to do, which takes the reader's task.

        It may be called in no task at all, where bytes were noticed: nothing can be waited for, or started, in here.
        """
        try:
            messages = self._decoder.messages(lines)
        except ClaudeTransportError as exc:
            # a strict transport's first bad line ends the conversation, after what came before it
            messages, self._failure = cast("list[Message]", self._decoder.before_failure), exc
        kinds = self._decoder.kinds
        self._watch.saw(messages, kinds)
        self._connection.count_failures(messages, kinds)
        actions = self._conversation.received(messages, kinds)
        deliveries = [action for action in actions if isinstance(action, Deliver)]
        if len(deliveries) < len(actions):
            self._due = actions
            return True
        for delivery in deliveries:
            self._storage.put(delivery.messages, delivery.turns)
        return self._failure is not None or self._storage.is_overfull

    def _perform_due(self) -> None:
        actions, self._due = self._due, ()
        for action in actions:
            self._perform(action)
        if self._failure is not None:
            raise self._failure

    def _perform(self, action: Action) -> None:
        match action:
            case Deliver():
                self._storage.put(action.messages, action.turns)
            case Settle():
                self._storage.settle(action, self._life.error)
            case Resolve(request_id, response):
                self._requests.resolve(request_id, response)
            case Reject(request_id, result):
                self._requests.fail(request_id, error_for(result) or ResultError("the run failed", result=result))
            case Start(request):
                self._outbox.check_room()
                question = self._questions.take(request)
                if question is not None and self._tasks is not None:
                    self._tasks.start_soon(self._questions.answer, question, self._reply, self._end_by_crash)
            case Cancel(request_id):
                self._questions.cancel(request_id)

    # -------------------------------------------------------------------------------------------------- around and after it

    async def _live(self) -> None:
        """The whole life, in one task. However it ends, nobody is left waiting."""
        try:
            self._start.announce()
            self._start.brief(self._conversation)
            self._decoder = LineDecoder(strict=self._connection.is_strict)
            await self._connection.connect(timeout=self._start.timeout)
            await self._converse()
        except Exception as exc:  # noqa: BLE001 - as above
            self._life.fail_start(translated(exc, "the transport failed"))
        finally:
            self._end(None)
            self._outbox.close(self._life.gone("the conversation is closed"))
            self._life.fail_start(TransportClosed("the query was closed before it was ready"))
            await self._connection.close()
            with anyio.CancelScope(shield=True):
                await self._questions.mcp.aclose()

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        finally:
            # before the callbacks are waited for: one that does not want to be cancelled must not keep a process alive
            self._end(None)
            with anyio.move_on_after(_READER_GRACE, shield=True):
                await self._reading_over.wait()
            await self._stop_what_was_guarded()
            await self._connection.close()
            if still := self._questions.open:
                logger.info("closing waits for callbacks that are still at work: %s", printable(", ".join(still)))

    async def _stop_what_was_guarded(self) -> None:
        """Interrupt a turn that was cut off: without its input, a CLI that does not block on failure would go on unasked."""
        if self._life.lost_turns and self._questions.guards and not self._start.blocks_on_failure:
            await self._outbox.write_last(self._requests.line("interrupt"))

    async def _close_when_asked(self) -> None:
        await self._close.ending_when_asked()
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _report_stalls(self) -> None:
        stall = await self._watch.next_stall()
        while not stall.killed:
            self._perform(self._watch.delivery_of(stall))
            stall = await self._watch.next_stall()
        self._perform(self._watch.delivery_of(stall))
        self._life.ended_by_itself = False
        self._end(self._watch.error_for(stall))
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _end_by_crash(self, name: str, crash: BaseException) -> None:
        """End the conversation, because the callback `name` raised what is no `Exception`; the peer has its answer before."""
        error = UsageError(
            f"{name} raised {type(crash).__name__}, which is no Exception and so ends the conversation. Catch it in the callback",
            code="usage.callback_failed",
        )
        error.__cause__ = crash
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            await self._outbox.flush()
        if not self._life.ended.is_set():
            self._life.ended_by_itself = False
            self._end(error)
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        if (exit_of_program := meant_for_the_program(crash)) is not None:
            raise exit_of_program

    def _end(self, error: ClaudeTransportError | None) -> None:
        """The stream has ended: settle everything that is outstanding, at once, with the cause."""
        if self._life.ended.is_set():
            return
        for action in self._due:  # read, but the task that would have done it was cancelled in the same moment
            if not isinstance(action, Start):
                self._perform(action)
        self._due = ()
        error = cause_of_end(error, last=self._conversation.last_result, counters=self._decoder.counters)
        self._life.end(error, lost_turns=self._conversation.open_turns, dropped_tasks=self._conversation.background_agents)
        self._requests.fail_all(error)
        self._outbox.fail(self._life.gone("the conversation has ended"))
        for action in self._conversation.ended():
            self._perform(action)
        self._storage.end(error)

    def _reply(self, request_id: str, line: bytes) -> bool:
        is_wanted = self._conversation.answered(request_id)
        if is_wanted:
            self._outbox.post(line)
            self._watch.restart()
        self._storage.note_change()
        return is_wanted

    def _tell_for_mcp(self, name: str, message: dict[str, Any]) -> None:
        """What an in-process MCP server says on its own; the CLI's acknowledgement is of no interest."""
        self._requests.tell("mcp_message", server_name=name, message=message)


class QueryOptions(TypedDict, total=False):
    """What `Query` takes beside its transport, each key with the meaning and the default that it has there.

    For `**query_options: Unpack[QueryOptions]`: type checkers then know every name, and refuse a misspelt one.
    """

    can_use_tool: CanUseToolCallback | None
    hooks: Mapping[str, Sequence[HookMatcher]] | None
    mcp_servers: Mapping[str, Any] | None
    agents: Mapping[str, Any] | None
    initialize: Mapping[str, Any] | None
    on_request: OnRequest | None
    on_callback_error: OnCallbackError
    initialize_timeout: float
    transport_close_timeout: float
    max_buffered_bytes: int
    watchdog: Watchdog | None
