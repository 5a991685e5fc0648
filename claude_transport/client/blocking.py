"""`SyncQuery` and `SyncTurn`: a conversation with Claude for programs without an event loop.

Written by docs/generate_blocking.py from the asynchronous classes: do not edit.
"""

from __future__ import annotations

import os
import uuid as uuids
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from claude_transport.client.connection import DEFAULT_CLOSE_TIMEOUT
from claude_transport.client.controls import DEFAULT_CONTROL_TIMEOUT, INTERRUPT_TIMEOUT, MODEL_TIMEOUT
from claude_transport.client.query import Priority, Query
from claude_transport.client.questions import CanUseToolCallback, HookMatcher, OnCallbackError, OnRequest
from claude_transport.client.reports import CloseReport, ResumePoint
from claude_transport.client.storage import Turn
from claude_transport.client.watchdog import DEFAULT_WATCHDOG, Watchdog
from claude_transport.exchange.outcomes import InterruptOutcome
from claude_transport.loops.threads import Backend, SyncConversation, SyncIterator, SyncTurnBase, loop_for, refuse_in_a_loop
from claude_transport.protocol.answers import (
    BinaryVersion,
    ContextUsage,
    ConversationRewind,
    CwdChange,
    ExportedConversation,
    FileContents,
    FileSuggestions,
    ForkResult,
    HookListing,
    InterruptReceipt,
    McpCallResult,
    McpServersChange,
    McpServerStatus,
    MemoryInfo,
    PermissionRules,
    PlanInfo,
    ReloadedPlugins,
    RewindResult,
    SandboxInfo,
    SettingsInfo,
    SideAnswer,
    SkillsInfo,
    StatusInfo,
    TaskOutput,
    UsageInfo,
    WorkspaceDiffAnswer,
)
from claude_transport.protocol.control import CommandInfo, InitializationInfo, ModelInfo
from claude_transport.protocol.conversation import TurnState
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import CompactBoundary, ResultMessage
from claude_transport.transport import TransportInfo, TransportLike


class SyncTurn(SyncTurnBase[Message]):
    """Does what `Turn` does, and blocks until it is done. `Turn` says the rest."""

    _inner: Turn

    @property
    def uuid(self) -> str:
        """The uuid with which the prompt was sent: your own, or the one that `send()` made up."""
        return self._inner.uuid

    @property
    def state(self) -> TurnState:
        """What has become of the prompt: queued, started, or finally done, folded, dropped or lost (see `TurnState`)."""
        return self._inner.state

    def is_open(self) -> bool:
        """Return True while the prompt has no final state yet: it waits or runs. False once it has a result, was cancelled, or the
        conversation has ended.
        """
        return self._inner.is_open()

    def result(self, *, timeout: float | None = None) -> ResultMessage:
        """Wait for the result of the turn that this prompt had, or was folded into. Its messages need not be read for that. A result that
        reports a failure is returned, not raised: see `ResultMessage.raise_for_error()`.

        Raises:
            MissingResult: there will be none, because the prompt was cancelled or the conversation ended. `messages` holds
                the last messages of the turn.
            ProcessError, ConnectionLost: there will be none, because the peer failed.
            TimeoutError: `timeout` seconds have passed. The turn goes on: wait again, or call `interrupt()`.
        """
        return self._loop.call(self._inner.result, timeout=timeout)


class SyncQuery(SyncConversation[Message]):
    """Holds a conversation as `Query` does, for programs without an event loop: every method blocks until it is done.
    Use it as `with SyncQuery(transport) as it`, or call `start()` and `close()`.

    The conversation runs in an event loop of its own, in a thread that ends with it. Callbacks are called in that thread. Every method may
    be called from any thread without a running event loop. A Ctrl-C during a call cancels the call.

    Args:
        backend: `asyncio` or `trio`, on which the conversation runs. The other arguments are those of `Query`.

    Raises `UsageError` with the code `usage.running_loop` where an event loop runs: use `Query` there. After `close()`, methods
    raise `TransportClosed`.
    """

    _inner: Query

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
        backend: Backend = "asyncio",
    ) -> None:
        refuse_in_a_loop("SyncQuery", "use Query there")
        inner = Query(
            transport,
            can_use_tool=can_use_tool,
            hooks=hooks,
            mcp_servers=mcp_servers,
            agents=agents,
            initialize=initialize,
            on_request=on_request,
            on_callback_error=on_callback_error,
            initialize_timeout=initialize_timeout,
            close_timeout=close_timeout,
            transport_close_timeout=transport_close_timeout,
            max_buffered_bytes=max_buffered_bytes,
            watchdog=watchdog,
        )
        super().__init__(inner, loop_for("SyncQuery", inner, instead="use Query there", backend=backend))

    def start(self) -> None:
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
        self._loop.call(self._inner.start)

    def abandon(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT, hurry: bool = False) -> None:
        """Begin to close the query and return at once, without waiting for the end. May be called from any thread, also outside a task.

        `timeout`, in seconds, and `hurry` mean what they mean for `aclose()`. A `timeout` that is no number raises `UsageError`.
        """
        return self._inner.abandon(timeout=timeout, hurry=hurry)

    def send(
        self, content: str | Sequence[Mapping[str, Any]], *, uuid: str | uuids.UUID | None = None, priority: Priority | None = None
    ) -> SyncTurn:
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
        return SyncTurn(self._loop, self._loop.call(lambda: self._inner.send(content, uuid=uuid, priority=priority)), owner=self)

    def compact(self, instructions: str = "") -> CompactBoundary:
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
        return self._loop.call(lambda: self._inner.compact(instructions))

    def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
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
        return self._loop.call(lambda: self._inner.request(subtype, timeout=timeout, **fields))

    def end_input(self) -> None:
        """Tell the CLI that no further prompt will come. The running turn finishes, but from then on the CLI can ask this program nothing:
        no permission, no hook, no MCP server of this program. Waits for prompts that a wrapper holds back (`SessionTerms.before_prompt`).

        Raises:
            UsageError: a turn or a background agent still runs, this query has hooks that can refuse something, and this version of the
                CLI would continue without asking them (code `usage.guards_need_input`). Wait until the property `is_quiet` is True, or
                close the query, which interrupts the turn.
            NotConnected, TransportClosed, ConnectionLost: the query was not started, or it is over.
        """
        self._loop.call(self._inner.end_input)

    def messages(self) -> SyncIterator[Message]:
        """Iterate over all messages of the conversation in order, from the first that was not taken yet; also those that belong to no turn.

        Unread messages of a turn are lost when its `Turn` is dropped: to miss nothing, call `messages()` before you send.
        `dropped_messages` counts those that were dropped above `max_buffered_bytes`. Two such iterations at once share the messages between
        them. The iteration ends with the conversation. When the conversation failed, the iteration raises the cause after the last message.
        """
        return self._iterate(lambda: aiter(self._inner.messages()))

    def changed(self) -> None:
        """Wait until something happens: a message comes, the conversation ends, or a question of the CLI is answered. Returns at once when
        the conversation has ended. For loops that wait until a property, such as `is_quiet`, has a certain value.
        """
        self._loop.call(self._inner.changed)

    @property
    def initialization(self) -> InitializationInfo:
        """The CLI's answer to the request `initialize`: commands, models, account, capabilities, … Raises `NotConnected` before `start()`
        is done.
        """
        return self._inner.initialization

    @property
    def info(self) -> TransportInfo:
        """What the transport knows of its peer and itself, as a `TransportInfo`: versions, exit code, counts of bytes and bad lines."""
        return self._inner.info

    @property
    def is_quiet(self) -> bool:
        """True when no turn runs or waits, no background agent is at work, and no question of the CLI is open: nothing can ask this program
        anything, so that `end_input()` is safe.
        """
        return self._inner.is_quiet

    @property
    def is_running(self) -> bool:
        """True while a turn runs, or a prompt waits for its turn: there is something that `interrupt()` could stop."""
        return self._inner.is_running

    @property
    def has_ended(self) -> bool:
        """True once the peer has ended, or closing of the query has begun: nothing more can be sent."""
        return self._inner.has_ended

    @property
    def resume_point(self) -> ResumePoint | None:
        """Where a new process can continue the conversation: the session id, and the uuid of the last message of the main conversation.
        None before the first turn has begun, and after `/clear` until the next turn begins.
        """
        return self._inner.resume_point

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Uuids of the prompts that wait or run: they have neither a result nor another final state. In the order of sending."""
        return self._inner.open_turns

    @property
    def late_responses(self) -> int:
        """How many answers of the CLI came for no waiting request, for instance after the request had timed out."""
        return self._inner.late_responses

    @property
    def pending_requests(self) -> dict[str, str]:
        """Control requests of this program to which the CLI has not answered yet: request id to subtype."""
        return self._inner.pending_requests

    @property
    def pending_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests to this program whose callbacks are still at work."""
        return self._inner.pending_questions

    @property
    def failed_callbacks(self) -> int:
        """How many callbacks raised, cancelled themselves, took too long, or returned something that cannot be sent to the CLI.

        Counted are can_use_tool, hooks, on_request and MCP servers of this program. `claude_transport.exchange.failures` logs each of
        them, and the conversation continues.
        """
        return self._inner.failed_callbacks

    @property
    def late_answers(self) -> int:
        """How many answers of callbacks were not sent, because the CLI had withdrawn its question by then, or a hook had taken too long."""
        return self._inner.late_answers

    @property
    def background_tasks(self) -> dict[str, str]:
        """The background agents that are at work: task id to description. Background shells are not listed."""
        return self._inner.background_tasks

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory for messages that were read and that your program has not taken yet.

        It is an estimate for each message: its line, its Struct, and the objects made of its JSON (counted by the brackets, commas and
        colons of the line). The messages never take more than twice as much. A message that waits both in a turn and for `messages()`
        counts twice.
        """
        return self._inner.buffered_bytes

    @property
    def dropped_messages(self) -> int:
        """How many unread messages were dropped to stay within `max_buffered_bytes`."""
        return self._inner.dropped_messages

    def rewind_files(self, uuid: str, *, dry_run: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> RewindResult:
        """Restore files as they were when the user message `uuid` was sent; with `dry_run` only report what that would do.

        Needs `CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true` in the CLI's environment. Without it, or for a message without a checkpoint,
        it raises `ControlRequestFailed`; a dry run may say so in `can_rewind` and `error` instead. Changes that shell commands made are not
        restored.
        """
        return self._loop.call(lambda: self._inner.rewind_files(uuid, dry_run=dry_run, timeout=timeout))

    def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        encoding: Literal["utf-8", "base64"] | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> FileContents:
        """Read a file as the CLI sees it. `encoding="base64"` is for files that are not text; `max_bytes` cuts a long file. Raises
        `ControlRequestFailed` for a file outside of the working directory, or a missing one.
        """
        return self._loop.call(lambda: self._inner.read_file(path, max_bytes=max_bytes, encoding=encoding, timeout=timeout))

    def seed_read_state(self, path: str | os.PathLike[str], *, mtime: float, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI that the model has seen a file as of `mtime`, so that it may edit it at once.

        `mtime` is in seconds, as `os.stat` has it. The CLI ignores a file that is newer or missing, and does not say so.
        """
        self._loop.call(lambda: self._inner.seed_read_state(path, mtime=mtime, timeout=timeout))

    def file_suggestions(self, query: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> FileSuggestions:
        """Return paths below the working directory that match `query`, the beginning of a path."""
        return self._loop.call(lambda: self._inner.file_suggestions(query, timeout=timeout))

    def workspace_diff(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> WorkspaceDiffAnswer:
        """Return what has changed in the git working tree of the session, or in `no_diff_reason` why that is not known."""
        return self._loop.call(lambda: self._inner.workspace_diff(timeout=timeout))

    def plan(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> PlanInfo:
        """Return the plan of the session; `exists` of the answer is False when there is none."""
        return self._loop.call(lambda: self._inner.plan(timeout=timeout))

    def mcp_status(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[McpServerStatus, ...]:
        """Return all MCP servers of the session: for each its state, its configuration, and when it is connected its tools."""
        return self._loop.call(lambda: self._inner.mcp_status(timeout=timeout))

    def mcp_reconnect(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Have the CLI connect to the MCP server named `server` again.

        Raises `ControlRequestFailed` for an unknown server, for one that still cannot be reached, and for one of this program: switch
        that off and on with `mcp_toggle` instead.
        """
        self._loop.call(lambda: self._inner.mcp_reconnect(server, timeout=timeout))

    def mcp_toggle(self, server: str, *, enabled: bool, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Switch the MCP server named `server` off, or on with a new connection. One of this program begins anew when it is
        switched on again; its running tools are cancelled then. Raises `ControlRequestFailed` for an unknown server.
        """
        self._loop.call(lambda: self._inner.mcp_toggle(server, enabled=enabled, timeout=timeout))

    def mcp_set_servers(self, servers: Mapping[str, Mapping[str, Any]], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> McpServersChange:
        """Replace all dynamic MCP servers by `servers` (name to configuration). Returns what was added and removed, and which could not be
        connected.

        A configuration is `{"type": "stdio", "command": …}`, `{"type": "http", "url": …}`, `{"type": "sdk", "name": …}`. The servers that
        the Query was given are dynamic, too: those that are not in `servers` are removed. Servers of files and options stay.
        """
        return self._loop.call(lambda: self._inner.mcp_set_servers(servers, timeout=timeout))

    def mcp_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_timeout: float | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> McpCallResult:
        """Call a tool (`mcp__server__tool`) without the model and without any permission check: no callback is asked, no rule can deny it.
        Returns its result.

        The CLI gives up after `call_timeout` seconds, this method after `timeout`. Raises `ControlRequestFailed` when the server is not
        connected. When the tool itself fails, `is_error` of the result is True.
        """
        return self._loop.call(lambda: self._inner.mcp_call(tool, arguments, call_timeout=call_timeout, timeout=timeout))

    def mcp_message(self, server: str, message: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Send the CLI a JSON-RPC message in the name of an MCP server of this program, such as `notifications/tools/list_changed`.

        It is for servers of type `sdk`; an unknown `server` raises no error. An answer of the CLI comes as a request `mcp_message` of
        its own.
        """
        self._loop.call(lambda: self._inner.mcp_message(server, message, timeout=timeout))

    def mcp_read_resource(self, server: str, uri: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[dict[str, Any], ...]:
        """Read the resource `uri` of an MCP server. Returns it as MCP content objects. The CLI reads only `ui://` URIs; others raise
        `ControlRequestFailed`.
        """
        return self._loop.call(lambda: self._inner.mcp_read_resource(server, uri, timeout=timeout))

    def mcp_authenticate(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> dict[str, Any]:
        """Begin to sign in to a remote MCP server. Returns the fields of the answer as they came. Only the CLI's refusal of an unknown
        server was seen.
        """
        return self._loop.call(lambda: self._inner.mcp_authenticate(server, timeout=timeout))

    def mcp_clear_auth(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Have the CLI forget its sign-in to an MCP server. Raises `ControlRequestFailed` for an unknown server and for one of type stdio;
        only these refusals were seen.
        """
        self._loop.call(lambda: self._inner.mcp_clear_auth(server, timeout=timeout))

    def channel_enable(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Let an MCP server of a plugin send messages into the conversation. Raises `ControlRequestFailed` for other servers; only that was
        seen.
        """
        self._loop.call(lambda: self._inner.channel_enable(server, timeout=timeout))

    def reload_connectors(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> dict[str, Any]:
        """Have the CLI read the list of claude.ai connectors again. Returns the fields of the answer as they came. Only the failure with an
        API key was seen.
        """
        return self._loop.call(lambda: self._inner.reload_connectors(timeout=timeout))

    def set_model(self, model: str | None = None, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Use another model from the next request to the API on; `model=None` is the default model again. Returns the name that is now set.

        The CLI accepts any string, also one that names no model; with a wrong name the next turn fails
        (docs/reference/protocol.md#requests-that-accept-anything). Raises `ControlRequestFailed` when a PreModelSwitch hook refuses the
        switch.
        """
        return self._loop.call(lambda: self._inner.set_model(model, timeout=timeout))

    def set_max_thinking_tokens(
        self,
        tokens: int | None,
        *,
        display: Literal["summarized", "omitted", "highlights"] | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> None:
        """Limit how many tokens the model may think; None removes the limit. `display` says how its thinking is shown.

        0 switches thinking off. Models that choose by themselves how much to think (`claude-opus-5-5`) ignore the limit: the CLI accepts
        it, and asks the API for adaptive thinking as before.
        """
        self._loop.call(lambda: self._inner.set_max_thinking_tokens(tokens, display=display, timeout=timeout))

    def list_models(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[ModelInfo, ...]:
        """Return the models that the user may choose; `ModelInfo.value` is the argument for `set_model`."""
        return self._loop.call(lambda: self._inner.list_models(timeout=timeout))

    def context_usage(self, *, detail: Literal["summary", "full"] | None = None, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ContextUsage:
        """Return what fills the model's context window, in tokens. With `detail="summary"` the CLI estimates the numbers (8 ms); otherwise
        it has the API count them (1.1 s).
        """
        return self._loop.call(lambda: self._inner.context_usage(detail=detail, timeout=timeout))

    def session_cost(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Return what the session has cost so far, as text for people; the method `usage` returns numbers."""
        return self._loop.call(lambda: self._inner.session_cost(timeout=timeout))

    def usage(self, *, skip_behaviors: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> UsageInfo:
        """Return what the session has used so far, in dollars, tokens and time, and what is left of the limits of a subscription.

        With `skip_behaviors=True`, the CLI does not look at earlier sessions.
        """
        return self._loop.call(lambda: self._inner.usage(skip_behaviors=skip_behaviors, timeout=timeout))

    def set_permission_mode(self, mode: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Change the permission mode (default, acceptEdits, plan, dontAsk, auto, bypassPermissions). Returns the new mode.

        Raises `ControlRequestFailed` for an unknown mode (`invalid_mode`), and for `bypassPermissions` in a session that was
        not started with it (`bypass_not_launched`).
        """
        return self._loop.call(lambda: self._inner.set_permission_mode(mode, timeout=timeout))

    def permission_rules(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> PermissionRules:
        """Return the permission rules that are in force (allow, ask, deny), each with the place that it comes from."""
        return self._loop.call(lambda: self._inner.permission_rules(timeout=timeout))

    def register_repo_root(
        self,
        directory: str | os.PathLike[str],
        *,
        reload_claude_md: bool | None = None,
        reload_plugins: bool | None = None,
        reload_skills: bool | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> str:
        """Let the session work in a directory below its own. Returns the path that was added.

        Raises `ControlRequestFailed` for one that is elsewhere or does not exist.
        """
        return self._loop.call(
            lambda: self._inner.register_repo_root(
                directory, reload_claude_md=reload_claude_md, reload_plugins=reload_plugins, reload_skills=reload_skills, timeout=timeout
            )
        )

    def hooks_listing(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> HookListing:
        """Return the hooks of the settings files, and the names of all hook events. Hooks of this program are not listed."""
        return self._loop.call(lambda: self._inner.hooks_listing(timeout=timeout))

    def sandbox_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SandboxInfo:
        """Return whether the shell commands of the session run in a sandbox, and how that is set up."""
        return self._loop.call(lambda: self._inner.sandbox_info(timeout=timeout))

    def set_proactivity_level(self, level: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Set how much the CLI may do by itself: ask, default, proactive.

        Raises `ControlRequestFailed` unless the session was initialised with `proactivity: true`; its success has not been seen.
        """
        self._loop.call(lambda: self._inner.set_proactivity_level(level, timeout=timeout))

    def end_session(self, *, reason: str | None = None, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Ask the CLI to end by itself, although its input has not ended. It aborts a running turn and kills background tasks.

        Returns when the CLI has agreed. The conversation ends soon after, and `aclose()` reports how.
        """
        self._loop.call(lambda: self._inner.end_session(reason=reason, timeout=timeout))

    def status(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> StatusInfo:
        """Return what the command `/status` shows, as text for people."""
        return self._loop.call(lambda: self._inner.status(timeout=timeout))

    def binary_version(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> BinaryVersion:
        """Return the version of the CLI's program."""
        return self._loop.call(lambda: self._inner.binary_version(timeout=timeout))

    def rename_session(self, title: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Give the session the title `title`. A `session_title_changed` message follows."""
        self._loop.call(lambda: self._inner.rename_session(title, timeout=timeout))

    def set_color(self, color: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Give the session an accent color, such as "red", or the default again with "default".

        CLI 2.1.330 answers it over Remote Control only: in stream-json sessions it raises `ControlRequestFailed`.
        """
        self._loop.call(lambda: self._inner.set_color(color, timeout=timeout))

    def generate_session_title(self, description: str, *, timeout: float = MODEL_TIMEOUT) -> str | None:
        """Ask a model for a title that fits `description`. Does not rename the session. Returns None when no title was made."""
        return self._loop.call(lambda: self._inner.generate_session_title(description, timeout=timeout))

    def side_question(self, question: str, *, timeout: float = MODEL_TIMEOUT) -> SideAnswer:
        """Ask the model a question that leaves no trace in the conversation, and return its answer. This is one paid API call."""
        return self._loop.call(lambda: self._inner.side_question(question, timeout=timeout))

    def export_conversation(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ExportedConversation:
        """Return the conversation as plain text."""
        return self._loop.call(lambda: self._inner.export_conversation(timeout=timeout))

    def fork_conversation(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ForkResult:
        """Ask for a copy of the conversation under a new id. In stream-json sessions `forked` of the answer is always False: use the option
        `fork_session` instead.
        """
        return self._loop.call(lambda: self._inner.fork_conversation(timeout=timeout))

    def rewind_conversation(self, uuid: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ConversationRewind:
        """Remove the user message `uuid` and everything after it from the conversation. Returns the text of that message. Files are not
        changed; see `rewind_files`.
        """
        return self._loop.call(lambda: self._inner.rewind_conversation(uuid, timeout=timeout))

    def set_cwd(
        self,
        path: str | os.PathLike[str],
        *,
        trusted_directory: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> CwdChange:
        """Change the working directory of the session to `path`. `status` of the answer says whether that was done.

        For a directory that is not trusted, `status` is `needs_trust` and nothing was done: ask the user, and repeat the call with the
        answer's `directory` as `trusted_directory`. While a turn is running, it is `rejected`.
        """
        return self._loop.call(lambda: self._inner.set_cwd(path, trusted_directory=trusted_directory, timeout=timeout))

    def set_has_subscribers(self, has_subscribers: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI whether a user is watching the session. It succeeds; no effect was seen."""
        self._loop.call(lambda: self._inner.set_has_subscribers(has_subscribers, timeout=timeout))

    def set_message_waiting(self, waiting: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI whether the user has written a message that is not sent yet."""
        self._loop.call(lambda: self._inner.set_message_waiting(waiting, timeout=timeout))

    def set_prompt_suggestions_paused(self, paused: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Have the CLI pause its suggestions for the user's next prompt (`paused=True`), or make them again. It succeeds; no effect was
        seen.
        """
        self._loop.call(lambda: self._inner.set_prompt_suggestions_paused(paused, timeout=timeout))

    def prompt_draft_activity(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI that the user is writing a prompt at this moment. It succeeds; no effect was seen."""
        self._loop.call(lambda: self._inner.prompt_draft_activity(timeout=timeout))

    def rate_message(
        self,
        uuid: str,
        *,
        sentiment: Literal["positive", "negative"],
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> None:
        """Send the maker of the CLI a rating of the message `uuid`, where that is allowed. `surface` says whether a text or a tool call is
        rated; `cleared=True` takes the rating back.
        """
        self._loop.call(lambda: self._inner.rate_message(uuid, sentiment=sentiment, surface=surface, cleared=cleared, timeout=timeout))

    def settings(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SettingsInfo:
        """Return the settings of the session: merged, each source alone, and the values in use."""
        return self._loop.call(lambda: self._inner.settings(timeout=timeout))

    def apply_flag_settings(self, settings: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Apply settings to this session, as `--settings` does. Invalid ones raise `ControlRequestFailed`, and none is applied."""
        self._loop.call(lambda: self._inner.apply_flag_settings(settings, timeout=timeout))

    def update_settings(
        self, source: Literal["userSettings", "localSettings"], settings: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> None:
        """Write `settings` to the settings file `source`. Only `outputStyle` of localSettings and `effortLevel` of userSettings can be
        written; others raise `ControlRequestFailed`.
        """
        self._loop.call(lambda: self._inner.update_settings(source, settings, timeout=timeout))

    def reload_plugins(
        self, *, hold_on_cache_impact: bool = False, refuse_if_busy: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> ReloadedPlugins:
        """Have the CLI read the plugins again. Returns all commands, agents, plugins and MCP servers; a `commands_changed` message comes,
        too.

        With `hold_on_cache_impact`, changes that would invalidate the prompt cache are held back, and `held` of the answer says so. With
        `refuse_if_busy`, the request fails while a turn is running. Both are published in the CLI's type declarations, and were never seen
        in a recording.
        """
        return self._loop.call(
            lambda: self._inner.reload_plugins(hold_on_cache_impact=hold_on_cache_impact, refuse_if_busy=refuse_if_busy, timeout=timeout)
        )

    def reload_skills(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[CommandInfo, ...]:
        """Have the CLI read the skills from their files again. Returns all skills that there are now."""
        return self._loop.call(lambda: self._inner.reload_skills(timeout=timeout))

    def reload_output_styles(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[str, ...]:
        """Have the CLI read the output styles from their files again. Returns the names of all that there are now."""
        return self._loop.call(lambda: self._inner.reload_output_styles(timeout=timeout))

    def skills_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SkillsInfo:
        """Return the skills that the user can manage, without those that are built in."""
        return self._loop.call(lambda: self._inner.skills_info(timeout=timeout))

    def memory_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> MemoryInfo:
        """Return the files and folders with what the CLI remembers between sessions (CLAUDE.md, …), and for each file whether it exists."""
        return self._loop.call(lambda: self._inner.memory_info(timeout=timeout))

    def interrupt(self, *, timeout: float = INTERRUPT_TIMEOUT) -> InterruptOutcome:
        """Stop the running turn. Returns an outcome within `timeout` seconds, and raises no error of the peer.

        Prompts that wait in the CLI's queue stay, and make the next turn; `interrupt_all` drops them. Prompts that wait for the start of
        the query are sent first, within the same `timeout`, and stopped as well.

        The outcome is `DEAD` when the CLI cannot be asked (it has ended, or `end_input()` was called while a turn runs), or when it
        refuses. The CLI agrees even when nothing runs. `aclose()` stops the turn in any case.

        Raises `UsageError` for a call from another event loop, and for a `timeout` that is no number.
        """
        return self._loop.call(lambda: self._inner.interrupt(timeout=timeout))

    def interrupt_all(self, *, timeout: float = INTERRUPT_TIMEOUT) -> InterruptReceipt:
        """Stop the running turn and drop the prompts that wait. Returns their uuids in `cancelled`. Raises as every request does."""
        return self._loop.call(lambda: self._inner.interrupt_all(timeout=timeout))

    def cancel_message(self, uuid: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> bool:
        """Drop the prompt `uuid` that waits in the CLI's queue. Returns False when its turn has begun already, or when there is no such
        prompt.
        """
        return self._loop.call(lambda: self._inner.cancel_message(uuid, timeout=timeout))

    def stop_task(self, task_id: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Stop the background shell or agent `task_id`. Its `task_notification` message comes before the call returns.

        An unknown id raises no error: the task messages, and for agents `Query.background_tasks`, tell which tasks there are.
        """
        self._loop.call(lambda: self._inner.stop_task(task_id, timeout=timeout))

    def background(self, tool_use_id: str | None = None, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> bool | None:
        """Move the running tool call `tool_use_id` to the background. Returns whether that was done. Without an id, moves all running tools
        and returns None.

        A shell can be moved once its `task_started` has come, about two seconds after its start. Before, the result is False.
        """
        return self._loop.call(lambda: self._inner.background(tool_use_id, timeout=timeout))

    def task_output(self, task_id: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> TaskOutput:
        """Return what a background shell has written so far. Raises `ControlRequestFailed` for an unknown id."""
        return self._loop.call(lambda: self._inner.task_output(task_id, timeout=timeout))

    def close(self, *, wait_for_background: bool = False, timeout: float = DEFAULT_CLOSE_TIMEOUT, hurry: bool = False) -> CloseReport:
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
        return self._close(lambda: self._inner.aclose(wait_for_background=wait_for_background, timeout=timeout, hurry=hurry))
