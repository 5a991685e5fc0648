"""`Controls`: one typed method for each control request that a running CLI answers, grouped by what they are about.

Each request here was answered by CLI 2.1.329; `request()` sends any other. The methods have plain names, and
`docs/reference/control-requests.md` has the names of the wire beside them. How a request is sent is in `query` and `connection`.
"""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

import anyio

from claude_transport.client.mcp import whole_configuration
from claude_transport.errors import (
    ClaudeTransportError,
    ControlRequestFailed,
    ControlTimeout,
    InputClosed,
    NotConnected,
    TransportClosed,
    UsageError,
)
from claude_transport.exchange.arguments import check_seconds
from claude_transport.exchange.outcomes import InterruptOutcome
from claude_transport.loggers import logger_for
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
    McpResourceContents,
    McpServersChange,
    McpServerStatus,
    McpServerStatuses,
    MemoryInfo,
    MessageCancellation,
    ModelListing,
    OutputStyles,
    PermissionRules,
    PlanInfo,
    ReloadedPlugins,
    RewindResult,
    SandboxInfo,
    SessionTitle,
    SettingsInfo,
    SideAnswer,
    SkillListing,
    SkillsInfo,
    StatusInfo,
    TaskOutput,
    UsageInfo,
    WorkspaceDiffAnswer,
)
from claude_transport.protocol.control import Answer, CommandInfo, ModelInfo

logger: logging.Logger = logger_for(__name__)

DEFAULT_CONTROL_TIMEOUT = 60.0
"""Seconds for an answer to a control request. Most take 1 to 20 ms (docs/reference/protocol.md#answer-times)."""

MODEL_TIMEOUT = 600.0
"""Seconds for the few requests that ask a model, which may be retried."""

INTERRUPT_TIMEOUT = 10.0
"""Seconds for the answer to an interrupt, which takes 5-30 ms."""

MILLISECONDS: Final = 1000

A = TypeVar("A", bound=Answer)


class Asking(ABC):
    """Base of the groups of control requests: what they need to send one. The CLI also answers during a turn, and in any order.

    Every method raises `ControlRequestFailed` when the CLI refuses (with `error_code` when it gave one), and `ControlTimeout` after
    `timeout` seconds (`math.inf` waits for ever). When the peer is gone, it raises `ConnectionLost`, `ProcessError` or `TransportClosed`.
    """

    @abstractmethod
    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Send the control request `subtype` with these `fields` and wait for its answer. Returns the fields of the answer."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True while there is something that an interrupt could stop."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """True once nothing can be asked any more."""

    @abstractmethod
    async def _early_prompts_sent(self) -> None:
        """Wait until every prompt that waits for the start has been sent, or will not be."""

    async def _ask(self, answer: type[A], subtype: str, *, timeout: float, **fields: Any) -> A:
        """Send a request and return the typed answer. Fields that are None are left out."""
        return answer.from_payload(await self.request(subtype, timeout=timeout, **said(fields)))

    async def _tell(self, subtype: str, *, timeout: float, **fields: Any) -> None:
        """Send a request whose answer has no fields. Fields that are None are left out."""
        await self.request(subtype, timeout=timeout, **said(fields))


def said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


class FileControls(Asking):
    """Files, where the CLI runs."""

    async def rewind_files(self, uuid: str, *, dry_run: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> RewindResult:
        """Restore files as they were when the user message `uuid` was sent; with `dry_run` only report what that would do.

        Needs `CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true` in the CLI's environment. Without it, or for a message without a checkpoint,
        it raises `ControlRequestFailed`; a dry run may say so in `can_rewind` and `error` instead. Changes that shell commands made are not
        restored.
        """
        return await self._ask(RewindResult, "rewind_files", timeout=timeout, user_message_id=uuid, dry_run=dry_run or None)

    async def read_file(
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
        return await self._ask(FileContents, "read_file", timeout=timeout, path=os.fspath(path), max_bytes=max_bytes, encoding=encoding)

    async def seed_read_state(self, path: str | os.PathLike[str], *, mtime: float, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI that the model has seen a file as of `mtime`, so that it may edit it at once.

        `mtime` is in seconds, as `os.stat` has it. The CLI ignores a file that is newer or missing, and does not say so.
        """
        await self._tell("seed_read_state", timeout=timeout, path=os.fspath(path), mtime=math.ceil(mtime * MILLISECONDS))

    async def file_suggestions(self, query: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> FileSuggestions:
        """Return paths below the working directory that match `query`, the beginning of a path."""
        return await self._ask(FileSuggestions, "file_suggestions", timeout=timeout, query=query)

    async def workspace_diff(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> WorkspaceDiffAnswer:
        """Return what has changed in the git working tree of the session, or in `no_diff_reason` why that is not known."""
        return await self._ask(WorkspaceDiffAnswer, "get_workspace_diff", timeout=timeout)

    async def plan(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> PlanInfo:
        """Return the plan of the session; `exists` of the answer is False when there is none."""
        return await self._ask(PlanInfo, "get_plan", timeout=timeout)


class McpControls(Asking):
    """MCP servers."""

    async def mcp_status(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[McpServerStatus, ...]:
        """Return all MCP servers of the session: for each its state, its configuration, and when it is connected its tools."""
        return (await self._ask(McpServerStatuses, "mcp_status", timeout=timeout)).servers

    async def mcp_reconnect(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Have the CLI connect to the MCP server named `server` again.

        Raises `ControlRequestFailed` for an unknown server, for one that still cannot be reached, and for one of this program: switch
        that off and on with `mcp_toggle` instead.
        """
        await self._tell("mcp_reconnect", timeout=timeout, serverName=server)

    async def mcp_toggle(self, server: str, *, enabled: bool, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Switch the MCP server named `server` off, or on with a new connection. One of this program begins anew when it is
        switched on again; its running tools are cancelled then. Raises `ControlRequestFailed` for an unknown server.
        """
        await self._tell("mcp_toggle", timeout=timeout, serverName=server, enabled=enabled)

    async def mcp_set_servers(
        self, servers: Mapping[str, Mapping[str, Any]], *, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> McpServersChange:
        """Replace all dynamic MCP servers by `servers` (name to configuration). Returns what was added and removed, and which could not be
        connected.

        A configuration is `{"type": "stdio", "command": …}`, `{"type": "http", "url": …}`, `{"type": "sdk", "name": …}`. The servers that
        the Query was given are dynamic, too: those that are not in `servers` are removed. Servers of files and options stay.
        """
        plain = {name: whole_configuration(config) for name, config in servers.items()}
        return await self._ask(McpServersChange, "mcp_set_servers", timeout=timeout, servers=plain)

    async def mcp_call(
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
        limit = None if call_timeout is None else round(call_timeout * MILLISECONDS)
        return await self._ask(McpCallResult, "mcp_call", timeout=timeout, tool=tool, arguments=dict(arguments or {}), timeout_ms=limit)

    async def mcp_message(self, server: str, message: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Send the CLI a JSON-RPC message in the name of an MCP server of this program, such as `notifications/tools/list_changed`.

        It is for servers of type `sdk`; an unknown `server` raises no error. An answer of the CLI comes as a request `mcp_message` of
        its own.
        """
        await self._tell("mcp_message", timeout=timeout, server_name=server, message=dict(message))

    async def mcp_read_resource(self, server: str, uri: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[dict[str, Any], ...]:
        """Read the resource `uri` of an MCP server. Returns it as MCP content objects. The CLI reads only `ui://` URIs; others raise
        `ControlRequestFailed`.
        """
        return (await self._ask(McpResourceContents, "mcp_read_resource", timeout=timeout, serverName=server, uri=uri)).contents

    async def mcp_authenticate(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> dict[str, Any]:
        """Begin to sign in to a remote MCP server. Returns the fields of the answer as they came. Only the CLI's refusal of an unknown
        server was seen.
        """
        return await self.request("mcp_authenticate", timeout=timeout, serverName=server)

    async def mcp_clear_auth(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Have the CLI forget its sign-in to an MCP server. Raises `ControlRequestFailed` for an unknown server and for one of type stdio;
        only these refusals were seen.
        """
        await self._tell("mcp_clear_auth", timeout=timeout, serverName=server)

    async def channel_enable(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Let an MCP server of a plugin send messages into the conversation. Raises `ControlRequestFailed` for other servers; only that was
        seen.
        """
        await self._tell("channel_enable", timeout=timeout, serverName=server)

    async def reload_connectors(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> dict[str, Any]:
        """Have the CLI read the list of claude.ai connectors again. Returns the fields of the answer as they came. Only the failure with an
        API key was seen.
        """
        return await self.request("reload_connectors", timeout=timeout)


class ModelControls(Asking):
    """The model, its cost and its context window."""

    async def set_model(self, model: str | None = None, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Use another model from the next request to the API on; `model=None` is the default model again. Returns the name that is now set.

        The CLI accepts any string, also one that names no model; with a wrong name the next turn fails
        (docs/reference/protocol.md#requests-that-accept-anything). Raises `ControlRequestFailed` when a PreModelSwitch hook refuses the
        switch.
        """
        return str((await self.request("set_model", timeout=timeout, model=model)).get("model", model))

    async def set_max_thinking_tokens(
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
        fields: dict[str, Any] = {} if display is None else {"thinking_display": display}
        await self.request("set_max_thinking_tokens", timeout=timeout, max_thinking_tokens=tokens, **fields)

    async def list_models(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[ModelInfo, ...]:
        """Return the models that the user may choose; `ModelInfo.value` is the argument for `set_model`."""
        return (await self._ask(ModelListing, "list_models", timeout=timeout)).models

    async def context_usage(
        self, *, detail: Literal["summary", "full"] | None = None, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> ContextUsage:
        """Return what fills the model's context window, in tokens. With `detail="summary"` the CLI estimates the numbers (8 ms); otherwise
        it has the API count them (1.1 s).
        """
        return await self._ask(ContextUsage, "get_context_usage", timeout=timeout, detail=detail)

    async def session_cost(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Return what the session has cost so far, as text for people; the method `usage` returns numbers."""
        return str((await self.request("get_session_cost", timeout=timeout)).get("text", ""))

    async def usage(self, *, skip_behaviors: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> UsageInfo:
        """Return what the session has used so far, in dollars, tokens and time, and what is left of the limits of a subscription.

        With `skip_behaviors=True`, the CLI does not look at earlier sessions.
        """
        return await self._ask(UsageInfo, "get_usage", timeout=timeout, skip_behaviors=skip_behaviors or None)


class PermissionControls(Asking):
    """The permission mode, and the rules, hooks and sandbox behind it."""

    async def set_permission_mode(self, mode: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Change the permission mode (default, acceptEdits, plan, dontAsk, auto, bypassPermissions). Returns the new mode.

        Raises `ControlRequestFailed` for an unknown mode (`invalid_mode`), and for `bypassPermissions` in a session that was
        not started with it (`bypass_not_launched`).
        """
        return str((await self.request("set_permission_mode", timeout=timeout, mode=mode)).get("mode", mode))

    async def permission_rules(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> PermissionRules:
        """Return the permission rules that are in force (allow, ask, deny), each with the place that it comes from."""
        return await self._ask(PermissionRules, "list_permission_rules", timeout=timeout)

    async def register_repo_root(
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
        flags = {"reload_claude_md": reload_claude_md, "reload_plugins": reload_plugins, "reload_skills": reload_skills}
        path = os.fspath(directory)
        fields = {name: flag for name, flag in flags.items() if flag is not None}
        return str((await self.request("register_repo_root", timeout=timeout, directory=path, **fields)).get("directory", path))

    async def hooks_listing(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> HookListing:
        """Return the hooks of the settings files, and the names of all hook events. Hooks of this program are not listed."""
        return await self._ask(HookListing, "get_hooks_listing", timeout=timeout)

    async def sandbox_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SandboxInfo:
        """Return whether the shell commands of the session run in a sandbox, and how that is set up."""
        return await self._ask(SandboxInfo, "get_sandbox_dialog", timeout=timeout)

    async def set_proactivity_level(self, level: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Set how much the CLI may do by itself: ask, default, proactive.

        Raises `ControlRequestFailed` unless the session was initialised with `proactivity: true`; its success has not been seen.
        """
        await self._tell("set_proactivity_level", timeout=timeout, level=level)


class SessionControls(Asking):
    """The session: its name, its directory, its text, its end."""

    async def end_session(self, *, reason: str | None = None, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Ask the CLI to end by itself, although its input has not ended. It aborts a running turn and kills background tasks.

        Returns when the CLI has agreed. The conversation ends soon after, and `aclose()` reports how.
        """
        await self._tell("end_session", timeout=timeout, reason=reason)

    async def status(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> StatusInfo:
        """Return what the command `/status` shows, as text for people."""
        return await self._ask(StatusInfo, "get_status", timeout=timeout)

    async def binary_version(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> BinaryVersion:
        """Return the version of the CLI's program."""
        return await self._ask(BinaryVersion, "get_binary_version", timeout=timeout)

    async def rename_session(self, title: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Give the session the title `title`. A `session_title_changed` message follows."""
        await self._tell("rename_session", timeout=timeout, title=title)

    async def set_color(self, color: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Give the session an accent color, such as "red", or the default again with "default".

        CLI 2.1.330 answers it over Remote Control only: in stream-json sessions it raises `ControlRequestFailed`.
        """
        await self._tell("set_color", timeout=timeout, color=color)

    async def generate_session_title(self, description: str, *, timeout: float = MODEL_TIMEOUT) -> str | None:
        """Ask a model for a title that fits `description`. Does not rename the session. Returns None when no title was made."""
        return (await self._ask(SessionTitle, "generate_session_title", timeout=timeout, description=description)).title

    async def side_question(self, question: str, *, timeout: float = MODEL_TIMEOUT) -> SideAnswer:
        """Ask the model a question that leaves no trace in the conversation, and return its answer. This is one paid API call."""
        return await self._ask(SideAnswer, "side_question", timeout=timeout, question=question)

    async def export_conversation(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ExportedConversation:
        """Return the conversation as plain text."""
        return await self._ask(ExportedConversation, "export_conversation", timeout=timeout)

    async def fork_conversation(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ForkResult:
        """Ask for a copy of the conversation under a new id. In stream-json sessions `forked` of the answer is always False: use the option
        `fork_session` instead.
        """
        return await self._ask(ForkResult, "fork_conversation", timeout=timeout)

    async def rewind_conversation(self, uuid: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ConversationRewind:
        """Remove the user message `uuid` and everything after it from the conversation. Returns the text of that message. Files are not
        changed; see `rewind_files`.
        """
        return await self._ask(ConversationRewind, "rewind_conversation", timeout=timeout, target_message_uuid=uuid)

    async def set_cwd(
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
        trust = {} if trusted_directory is None else {"trust_accepted": True, "trusted_directory": os.fspath(trusted_directory)}
        return await self._ask(CwdChange, "set_cwd", timeout=timeout, path=os.fspath(path), **trust)

    async def set_has_subscribers(self, has_subscribers: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI whether a user is watching the session. It succeeds; no effect was seen."""
        await self._tell("set_has_subscribers", timeout=timeout, has_subscribers=has_subscribers)

    async def set_message_waiting(self, waiting: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI whether the user has written a message that is not sent yet."""
        await self._tell("set_message_waiting", timeout=timeout, waiting=waiting)

    async def set_prompt_suggestions_paused(self, paused: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Have the CLI pause its suggestions for the user's next prompt (`paused=True`), or make them again. It succeeds; no effect was
        seen.
        """
        await self._tell("set_prompt_suggestions_paused", timeout=timeout, paused=paused)

    async def prompt_draft_activity(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI that the user is writing a prompt at this moment. It succeeds; no effect was seen."""
        await self._tell("prompt_draft_activity", timeout=timeout)

    async def rate_message(
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
        await self._tell("message_rated", timeout=timeout, messageUuid=uuid, sentiment=sentiment, surface=surface, cleared=cleared)


class SettingsControls(Asking):
    """Settings, plugins, skills, output styles, memory."""

    async def settings(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SettingsInfo:
        """Return the settings of the session: merged, each source alone, and the values in use."""
        return await self._ask(SettingsInfo, "get_settings", timeout=timeout)

    async def apply_flag_settings(self, settings: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Apply settings to this session, as `--settings` does. Invalid ones raise `ControlRequestFailed`, and none is applied."""
        await self._tell("apply_flag_settings", timeout=timeout, settings=dict(settings))

    async def update_settings(
        self,
        source: Literal["userSettings", "localSettings"],
        settings: Mapping[str, Any],
        *,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> None:
        """Write `settings` to the settings file `source`. Only `outputStyle` of localSettings and `effortLevel` of userSettings can be
        written; others raise `ControlRequestFailed`.
        """
        await self._tell("update_settings", timeout=timeout, source=source, settings=dict(settings))

    async def reload_plugins(
        self, *, hold_on_cache_impact: bool = False, refuse_if_busy: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> ReloadedPlugins:
        """Have the CLI read the plugins again. Returns all commands, agents, plugins and MCP servers; a `commands_changed` message comes,
        too.

        With `hold_on_cache_impact`, changes that would invalidate the prompt cache are held back, and `held` of the answer says so. With
        `refuse_if_busy`, the request fails while a turn is running. Both are published in the CLI's type declarations, and were never seen
        in a recording.
        """
        return await self._ask(
            ReloadedPlugins,
            "reload_plugins",
            timeout=timeout,
            hold_on_cache_impact=hold_on_cache_impact or None,
            refuse_if_busy=refuse_if_busy or None,
        )

    async def reload_skills(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[CommandInfo, ...]:
        """Have the CLI read the skills from their files again. Returns all skills that there are now."""
        return (await self._ask(SkillListing, "reload_skills", timeout=timeout)).skills

    async def reload_output_styles(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[str, ...]:
        """Have the CLI read the output styles from their files again. Returns the names of all that there are now."""
        return (await self._ask(OutputStyles, "reload_output_styles", timeout=timeout)).available_output_styles

    async def skills_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SkillsInfo:
        """Return the skills that the user can manage, without those that are built in."""
        return await self._ask(SkillsInfo, "get_skills_dialog", timeout=timeout)

    async def memory_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> MemoryInfo:
        """Return the files and folders with what the CLI remembers between sessions (CLAUDE.md, …), and for each file whether it exists."""
        return await self._ask(MemoryInfo, "get_memory_dialog", timeout=timeout)


class TaskControls(Asking):
    """Turns, queued messages and background tasks: stop them, look at them."""

    async def interrupt(self, *, timeout: float = INTERRUPT_TIMEOUT) -> InterruptOutcome:
        """Stop the running turn. Returns an outcome within `timeout` seconds, and raises no error of the peer.

        Prompts that wait in the CLI's queue stay, and make the next turn; `interrupt_all` drops them. Prompts that wait for the start of
        the query are sent first, within the same `timeout`, and stopped as well.

        The outcome is `DEAD` when the CLI cannot be asked (it has ended, or `end_input()` was called while a turn runs), or when it
        refuses. The CLI agrees even when nothing runs. `aclose()` stops the turn in any case.

        Raises `UsageError` for a call from another event loop, and for a `timeout` that is no number.
        """
        check_seconds("timeout", timeout)
        deadline = anyio.current_time() + timeout
        with anyio.CancelScope(deadline=deadline) as waiting:
            await self._early_prompts_sent()
        if waiting.cancelled_caught:
            return InterruptOutcome.TIMED_OUT
        running = self.is_running
        try:
            await self.request("interrupt", timeout=max(deadline - anyio.current_time(), 0.0))
        except ControlTimeout:
            return InterruptOutcome.TIMED_OUT
        except (ControlRequestFailed, InputClosed) as exc:
            if not self.has_ended and not self.is_running:
                return InterruptOutcome.NOT_RUNNING
            logger.info("the running turn cannot be interrupted: %s", exc)
            return InterruptOutcome.DEAD
        except NotConnected:
            return InterruptOutcome.NOT_RUNNING
        except TransportClosed:
            return InterruptOutcome.DEAD
        except UsageError:
            if self.has_ended:
                return InterruptOutcome.DEAD
            raise  # of another event loop
        except ClaudeTransportError as exc:
            if exc.code == "transport.failed":
                logger.exception("the running turn cannot be interrupted")
            return InterruptOutcome.DEAD
        return InterruptOutcome.ACKNOWLEDGED if running else InterruptOutcome.NOT_RUNNING

    async def interrupt_all(self, *, timeout: float = INTERRUPT_TIMEOUT) -> InterruptReceipt:
        """Stop the running turn and drop the prompts that wait. Returns their uuids in `cancelled`. Raises as every request does."""
        return await self._ask(InterruptReceipt, "interrupt", timeout=timeout, cancel_queued=True)

    async def cancel_message(self, uuid: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> bool:
        """Drop the prompt `uuid` that waits in the CLI's queue. Returns False when its turn has begun already, or when there is no such
        prompt.
        """
        return (await self._ask(MessageCancellation, "cancel_async_message", timeout=timeout, message_uuid=uuid)).cancelled

    async def stop_task(self, task_id: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Stop the background shell or agent `task_id`. Its `task_notification` message comes before the call returns.

        An unknown id raises no error: the task messages, and for agents `Query.background_tasks`, tell which tasks there are.
        """
        await self._tell("stop_task", timeout=timeout, task_id=task_id)

    async def background(self, tool_use_id: str | None = None, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> bool | None:
        """Move the running tool call `tool_use_id` to the background. Returns whether that was done. Without an id, moves all running tools
        and returns None.

        A shell can be moved once its `task_started` has come, about two seconds after its start. Before, the result is False.
        """
        answer = await self.request("background_tasks", timeout=timeout, **({} if tool_use_id is None else {"tool_use_id": tool_use_id}))
        backgrounded = answer.get("backgrounded")
        return backgrounded if isinstance(backgrounded, bool) else None

    async def task_output(self, task_id: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> TaskOutput:
        """Return what a background shell has written so far. Raises `ControlRequestFailed` for an unknown id."""
        return await self._ask(TaskOutput, "get_task_output", timeout=timeout, task_id=task_id)


class Controls(
    TaskControls,
    ModelControls,
    PermissionControls,
    McpControls,
    FileControls,
    SettingsControls,
    SessionControls,
):
    """All typed requests: each of them is one `request()`."""
