"""Hooks: the events at which the CLI calls its host, the input of each, and what a callback may return.

`parse_hook_input` reads the input of an event. `encode_hook_output` encodes what a callback returned. It refuses an output that the CLI
would silently ignore: otherwise a refusal with a spelling mistake would let the tool run.

Inputs were seen on CLI 2.1.329 (tests/protocol/hook_inputs.ndjson) unless their text says "never seen in a recording". The callbacks are
called in `client.questions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
from msgspec import field

from claude_transport.errors import UsageError
from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.envelope import Number, Part, to_wire
from claude_transport.protocol.salvage import Salvaged


class HookEvent(StrEnum):
    """The 33 hook events of CLI 2.1.329, as `get_hooks_listing` names them; the value of each member is its wire name.

    Hooks of a host were seen to be called for all events except Setup, TeammateIdle, TaskCreated, TaskCompleted and CwdChanged
    (tests/protocol/hook_inputs.ndjson). SessionStart is called for `/clear` and a compaction, not when the process starts.
    """

    PRE_TOOL_USE = "PreToolUse"
    """Before a tool runs, whatever the permission rules say. Only this event can reliably stop a tool."""
    POST_TOOL_USE = "PostToolUse"
    """After a tool ran successfully."""
    POST_TOOL_USE_FAILURE = "PostToolUseFailure"
    """After a tool call failed."""
    POST_TOOL_BATCH = "PostToolBatch"
    """After all tools of one model message ran."""
    PERMISSION_REQUEST = "PermissionRequest"
    """When permission is needed. `can_use_tool` is called at the same time, and the first answer wins."""
    PERMISSION_DENIED = "PermissionDenied"
    """After the permission mode "auto" denied a tool."""
    NOTIFICATION = "Notification"
    """When the CLI has a notice for the user."""
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    """When a prompt arrived, before the model sees it; the hook can block it."""
    USER_PROMPT_EXPANSION = "UserPromptExpansion"
    """When a slash command or an MCP prompt is expanded to a prompt."""
    SESSION_START = "SessionStart"
    """When a session begins: after `/clear`, a compaction, …"""
    SESSION_END = "SessionEnd"
    """When a session ends: by `/clear`, …"""
    STOP = "Stop"
    """When the turn is about to end; the hook can keep it going."""
    STOP_FAILURE = "StopFailure"
    """When the turn ends because the API failed."""
    SUBAGENT_START = "SubagentStart"
    """When a subagent begins."""
    SUBAGENT_STOP = "SubagentStop"
    """When a subagent is about to end; the hook can keep it going."""
    PRE_COMPACT = "PreCompact"
    """Before the conversation is compacted."""
    POST_COMPACT = "PostCompact"
    """After the conversation was compacted."""
    PRE_MODEL_SWITCH = "PreModelSwitch"
    """When another model was requested, before the switch; the hook can refuse it."""
    POST_MODEL_SWITCH = "PostModelSwitch"
    """After the model was switched."""
    SETUP = "Setup"
    """When a repository is prepared or maintained. Published in the CLI's type declarations; never seen in a recording."""
    TEAMMATE_IDLE = "TeammateIdle"
    """When an agent of a team has no work left. Published in the CLI's type declarations; never seen in a recording."""
    TASK_CREATED = "TaskCreated"
    """When an entry was added to the task list. Published in the CLI's type declarations; never seen in a recording."""
    TASK_COMPLETED = "TaskCompleted"
    """When an entry of the task list was marked as done. Published in the CLI's type declarations; never seen in a recording."""
    ELICITATION = "Elicitation"
    """When an MCP server asks the user a question. The hook can decline with `HookOutput.block`; `on_request` can answer."""
    ELICITATION_RESULT = "ElicitationResult"
    """When the user answered an MCP server. The hook can turn the answer into a refusal with `HookOutput.block`."""
    CONFIG_CHANGE = "ConfigChange"
    """When a settings file changed."""
    WORKTREE_CREATE = "WorktreeCreate"
    """When a worktree is needed; the hook creates it and returns its path."""
    WORKTREE_REMOVE = "WorktreeRemove"
    """When a worktree is to be removed."""
    INSTRUCTIONS_LOADED = "InstructionsLoaded"
    """When a CLAUDE.md or a rule file was read."""
    CWD_CHANGED = "CwdChanged"
    """When the working directory changed. Published in the CLI's type declarations; never seen in a recording."""
    FILE_CHANGED = "FileChanged"
    """When a watched file changed: one of the `watch_paths` that a SessionStart hook returned."""
    DIRECTORY_ADDED = "DirectoryAdded"
    """When a directory was added to the session, for example by `register_repo_root`."""
    MESSAGE_DISPLAY = "MessageDisplay"
    """When whole new lines of an assistant message are ready to be shown."""


class HookEffort(Part, frozen=True, kw_only=True):
    """The reasoning effort of the model in this turn, in `HookInput.effort`. `level`: low, medium, high, …"""

    level: str = ""


class HookMcpServer(Part, frozen=True, kw_only=True):
    """The MCP server that offers the tool of this call. A server can have any `name`. To decide about trust, test `source`, which says
    where its configuration comes from (`sdk`, `plugin`, `dynamic`, `user`, …).
    """

    name: str = ""
    source: str = ""


class HookInput(Salvaged, frozen=True, kw_only=True):
    """What a hook callback gets as its first argument, with the fields that all events share. Each event has a subclass.

    `parse_hook_input` makes it. A plain `HookInput` comes for an unknown event, and for an input without a field that the event's class
    requires. `input["tool_name"]` reads a value under its wire name, and `to_dict()` returns the whole dict of the wire. `agent_id` and
    `agent_type` name the subagent in which the event happened; they are None in the main conversation.
    """

    essential: ClassVar[frozenset[str]] = frozenset()
    """Wire names that an input must have to become this class. A guard must not decide on a default value."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt_id: str | None = None
    permission_mode: str | None = None
    agent_id: str | None = None
    """The subagent in which the event happened; None in the main conversation."""
    agent_type: str | None = None
    effort: HookEffort | None = None

    @classmethod
    def from_wire_input(cls, data: Mapping[str, Any]) -> Self | None:
        """Make this class from `data`, the dict that the CLI sent. `parse_hook_input` calls it.

        Returns None when an essential field is missing or has a wrong type, or when too many values have a wrong type.
        """
        typed = cls._salvage(data)
        if typed is None or not cls.essential <= typed.raw.keys() or cls.essential & set(typed.misfits):
            return None
        return typed

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value that the CLI sent under the wire name `key`; `default` when it sent none."""
        return self.to_dict().get(key, default)

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.to_dict()

    def keys(self) -> list[str]:
        """Return the wire names of all values that the CLI sent, so that `dict(input)` works."""
        return list(self.to_dict())


class ToolHookInput(HookInput, frozen=True, kw_only=True):
    """Base of the inputs of hooks for one tool call: the name of the tool and its arguments (`tool_input`). `mcp_server` is None for a tool
    that no MCP server offers.
    """

    essential: ClassVar[frozenset[str]] = frozenset({"tool_name", "tool_input"})

    tool_name: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)
    mcp_server: HookMcpServer | None = None


class PreToolUseInput(ToolHookInput, frozen=True, kw_only=True):
    """Input of a PreToolUse hook: the tool `tool_name` is about to run with `tool_input`. The hook can stop it: return
    `PreToolUseDecision.deny(…)`.
    """

    tool_use_id: str = ""


class PostToolUseInput(ToolHookInput, frozen=True, kw_only=True):
    """Input of a PostToolUse hook: a tool ran without an error. `tool_response` is its result, in a structure of its own for each tool;
    `duration_ms` does not include waiting for permission.
    """

    tool_use_id: str = ""
    tool_response: Any = None
    duration_ms: Number | None = None


class PostToolUseFailureInput(ToolHookInput, frozen=True, kw_only=True):
    """Input of a PostToolUseFailure hook: a tool call failed. `error` is the text that the model gets."""

    tool_use_id: str = ""
    error: str = ""
    is_interrupt: bool | None = None
    duration_ms: Number | None = None


class PermissionRequestInput(ToolHookInput, frozen=True, kw_only=True):
    """Input of a PermissionRequest hook: the CLI needs permission for a tool call, and the hook may give or refuse it
    (`PermissionRequestDecision`). `permission_suggestions` are rules that would allow such calls from then on. There is no tool use id.
    """

    permission_suggestions: tuple[PermissionUpdate, ...] = ()


class PermissionDeniedInput(ToolHookInput, frozen=True, kw_only=True):
    """Input of a PermissionDenied hook: the permission mode "auto" has denied a tool call. `reason` says why."""

    tool_use_id: str = ""
    reason: str = ""


class ToolCallRecord(Part, frozen=True, kw_only=True):
    """One finished tool call, in `PostToolBatchInput.tool_calls`. `tool_response` is what the model gets, also after an error."""

    tool_name: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str = ""
    tool_response: Any = None


class PostToolBatchInput(HookInput, frozen=True, kw_only=True):
    """Input of a PostToolBatch hook: all tool calls of one model message (`tool_calls`) have ended, with or without an error."""

    tool_calls: tuple[ToolCallRecord, ...] = ()


class NotificationInput(HookInput, frozen=True, kw_only=True):
    """Input of a Notification hook: the CLI has a notice for the user, with the text `message`. `notification_type`: elicitation_response,
    …
    """

    message: str = ""
    title: str | None = None
    notification_type: str = ""


class UserPromptSubmitInput(HookInput, frozen=True, kw_only=True):
    """Input of a UserPromptSubmit hook: a prompt arrived, and the model has not seen it yet. `HookOutput.block` refuses it.

    `source` says where the prompt came from: user, sdk, system, loop_wakeup, schedule_wakeup, poll_event. It was never seen in a recording.
    """

    essential: ClassVar[frozenset[str]] = frozenset({"prompt"})

    prompt: str = ""
    source: str | None = None
    session_title: str | None = None


class UserPromptExpansionInput(HookInput, frozen=True, kw_only=True):
    """Input of a UserPromptExpansion hook: the command `command_name` is about to be replaced by the text that it stands for. `prompt` is
    what the user wrote. `expansion_type`: slash_command, mcp_prompt.
    """

    expansion_type: str = ""
    command_name: str = ""
    command_args: str = ""
    command_source: str | None = None
    prompt: str = ""


class SessionStartInput(HookInput, frozen=True, kw_only=True):
    """Input of a SessionStart hook: a session begins. `source`: startup, resume, clear, compact, fork.

    The last four fields tell what it costs to resume a session whose prompt cache may have expired. They are in the CLI's type
    declarations, and were never seen in a recording.
    """

    source: str = ""
    model: str | None = None
    session_title: str | None = None
    seconds_since_last_response: Number | None = None
    context_tokens: int | None = None
    prompt_cache_likely_expired: bool | None = None
    estimated_cache_write_usd: Number | None = None


class SessionEndInput(HookInput, frozen=True, kw_only=True):
    """Input of a SessionEnd hook: a session ends. `reason`: clear, resume, logout, prompt_input_exit, other."""

    reason: str = ""


class BackgroundTaskInfo(Part, frozen=True, kw_only=True):
    """A shell, subagent, monitor or workflow (`type`) that runs in the background while the turn ends; listed in
    `TurnEndInput.background_tasks`. Fields that do not apply to its `type` are None.
    """

    id: str = ""
    type: str = ""
    status: str = ""
    description: str = ""
    command: str | None = None
    agent_type: str | None = None
    server: str | None = None
    tool: str | None = None
    name: str | None = None


class SessionCron(Part, frozen=True, kw_only=True):
    """A prompt that the CLI sends by itself at set times, listed in `TurnEndInput.session_crons`. `schedule` is a cron expression;
    `recurring` is False for a prompt that is sent once.
    """

    id: str = ""
    schedule: str = ""
    recurring: bool = False
    prompt: str = ""


class TurnEndInput(HookInput, frozen=True, kw_only=True):
    """Base of the inputs of Stop and SubagentStop hooks, which can keep the turn going with `HookOutput.block`.

    `stop_hook_active` is True when a hook has already kept this turn going. Test it: a hook that always blocks keeps the turn going for
    ever. `background_tasks` is what still runs in the background, `session_crons` the prompts that are planned.
    """

    stop_hook_active: bool = False
    last_assistant_message: str | None = None
    background_tasks: tuple[BackgroundTaskInfo, ...] = ()
    session_crons: tuple[SessionCron, ...] = ()


class StopInput(TurnEndInput, frozen=True, kw_only=True):
    """Input of a Stop hook: the turn of the main conversation is about to end. `HookOutput.block` makes the model continue."""


class StopFailureInput(HookInput, frozen=True, kw_only=True):
    """Input of a StopFailure hook: the turn ends because the API failed. `error`: rate_limit, server_error, unknown, … as in
    `AssistantMessage.error`.
    """

    error: str = ""
    error_details: str | None = None
    last_assistant_message: str | None = None


class SubagentStartInput(HookInput, frozen=True, kw_only=True):
    """Input of a SubagentStart hook: a subagent begins its work. `agent_id` is its id, `agent_type` its kind (`general-purpose`, …)."""


class SubagentStopInput(TurnEndInput, frozen=True, kw_only=True):
    """Input of a SubagentStop hook: a subagent is about to end. `HookOutput.block` makes it continue. `agent_transcript_path` is the file
    with what it said.
    """

    agent_transcript_path: str = ""


class PreCompactInput(HookInput, frozen=True, kw_only=True):
    """Input of a PreCompact hook: the conversation is about to be replaced by a summary. `HookOutput.block` prevents it. `trigger`: manual,
    auto. `custom_instructions` is what the user wants the summary to keep.
    """

    trigger: str = ""
    custom_instructions: str | None = None


class PostCompactInput(HookInput, frozen=True, kw_only=True):
    """Input of a PostCompact hook: the conversation was replaced by the summary `compact_summary`. `trigger`: manual, auto."""

    trigger: str = ""
    compact_summary: str = ""


class ModelSwitchInput(HookInput, frozen=True, kw_only=True):
    """Base of the inputs of PreModelSwitch and PostModelSwitch hooks: a switch between two models, and an estimate of what it costs.

    `estimated_cache_write_usd` is the price of writing the context (`context_tokens`) to the prompt cache of the new model.
    `requested_model` is None when the default model was asked for. `source`: command, picker, sdk; in PostModelSwitch also auto or resume.
    `cache_ttl`: 5m, 1h. `pricing` says where the price comes from: configured, catalog, default.
    """

    essential: ClassVar[frozenset[str]] = frozenset({"from_model", "to_model"})

    from_model: str = ""
    to_model: str = ""
    requested_model: str | None = None
    source: str = ""
    context_tokens: int = 0
    prompt_cache_warm: bool = False
    cache_ttl: str = ""
    estimated_cache_write_usd: Number = 0
    pricing: str = ""


class PreModelSwitchInput(ModelSwitchInput, frozen=True, kw_only=True):
    """Input of a PreModelSwitch hook: another model was requested. To refuse the switch, return `PreModelSwitchDecision.deny(…)`."""


class PostModelSwitchInput(ModelSwitchInput, frozen=True, kw_only=True):
    """Input of a PostModelSwitch hook: the session has switched from `from_model` to `to_model`."""


class SetupInput(HookInput, frozen=True, kw_only=True):
    """Input of a Setup hook: the CLI prepares or maintains a repository. `trigger`: init, maintenance. Published in the CLI's type
    declarations; never seen in a recording.
    """

    trigger: str = ""


class TeammateIdleInput(HookInput, frozen=True, kw_only=True):
    """Input of a TeammateIdle hook: an agent of a team, `teammate_name`, has no work left. Published in the CLI's type declarations; never
    seen in a recording.
    """

    teammate_name: str = ""
    team_name: str = ""


class TaskInput(HookInput, frozen=True, kw_only=True):
    """Base of the inputs of TaskCreated and TaskCompleted hooks: one entry of the task list (a to-do item, not a process). Published in the
    CLI's type declarations; never seen in a recording.
    """

    task_id: str = ""
    task_subject: str = ""
    task_description: str | None = None
    teammate_name: str | None = None
    team_name: str | None = None


class TaskCreatedInput(TaskInput, frozen=True, kw_only=True):
    """Input of a TaskCreated hook: an entry was added to the task list (to-do items, not processes). Published in the CLI's type
    declarations; never seen in a recording.
    """


class TaskCompletedInput(TaskInput, frozen=True, kw_only=True):
    """Input of a TaskCompleted hook: an entry of the task list (a to-do item, not a process) was marked as done. Published in the CLI's
    type declarations; never seen in a recording.
    """


class ElicitationInput(HookInput, frozen=True, kw_only=True):
    """Input of an Elicitation hook: the MCP server `mcp_server_name` asks the user `message`. `HookOutput.block` declines the question.

    `mode` is `form` (the answer follows the JSON schema `requested_schema`) or `url` (the user answers on the web page `url`).
    """

    mcp_server_name: str = ""
    message: str = ""
    mode: str | None = None
    url: str | None = None
    elicitation_id: str | None = None
    requested_schema: dict[str, Any] | None = None


class ElicitationResultInput(HookInput, frozen=True, kw_only=True):
    """Input of an ElicitationResult hook: the user answered the question of an MCP server. `action`: accept, decline, cancel. `content` is
    the answer, if there is one. `HookOutput.block` turns it into a refusal.
    """

    mcp_server_name: str = ""
    elicitation_id: str | None = None
    mode: str | None = None
    action: str = ""
    content: dict[str, Any] | None = None


class ConfigChangeInput(HookInput, frozen=True, kw_only=True):
    """Input of a ConfigChange hook: a settings file, or a skill, has changed on disk. `source`: user_settings, project_settings,
    local_settings, policy_settings, skills.
    """

    source: str = ""
    file_path: str | None = None


class InstructionsLoadedInput(HookInput, frozen=True, kw_only=True):
    """Input of an InstructionsLoaded hook: the CLI read a CLAUDE.md or a file with rules, `file_path`.

    `memory_type`: User, Project, Local, Managed. `load_reason`: session_start, nested_traversal, path_glob_match, include, compact.
    `trigger_file_path` is the file that made the CLI read it.
    """

    file_path: str = ""
    memory_type: str = ""
    load_reason: str = ""
    globs: tuple[str, ...] = ()
    trigger_file_path: str | None = None
    parent_file_path: str | None = None


class WorktreeCreateInput(HookInput, frozen=True, kw_only=True):
    """Input of a WorktreeCreate hook: the CLI needs a worktree called `name`. The hook must create it and return its path in a
    `WorktreeCreateOutput`.
    """

    name: str = ""


class WorktreeRemoveInput(HookInput, frozen=True, kw_only=True):
    """Input of a WorktreeRemove hook: the CLI wants the worktree at `worktree_path` removed."""

    worktree_path: str = ""


class CwdChangedInput(HookInput, frozen=True, kw_only=True):
    """Input of a CwdChanged hook: the working directory of the session changed from `old_cwd` to `new_cwd`. Published in the CLI's type
    declarations; never seen in a recording.
    """

    old_cwd: str = ""
    new_cwd: str = ""


class FileChangedInput(HookInput, frozen=True, kw_only=True):
    """Input of a FileChanged hook: a watched file has changed. `event`: change, add, unlink. The `watch_paths` that a SessionStart hook
    returned name the watched files.
    """

    file_path: str = ""
    event: str = ""


class DirectoryAddedInput(HookInput, frozen=True, kw_only=True):
    """Input of a DirectoryAdded hook: the session may now also work in `directory`. `source`: slash_command, register_repo_root."""

    directory: str = ""
    source: str = ""


class MessageDisplayInput(HookInput, frozen=True, kw_only=True):
    """Input of a MessageDisplay hook: new whole lines of an assistant message, `delta`, are ready to be shown. `index` counts the pieces of
    one message from 0; `final` is True for the last piece.
    """

    turn_id: str = ""
    message_id: str = ""
    index: int = 0
    final: bool = False
    delta: str = ""


INPUTS: Final[Mapping[str, type[HookInput]]] = {event: globals()[f"{event}Input"] for event in HookEvent}
"""The input class of each event. Its name is the name of the event followed by `Input`."""


def parse_hook_input(event: str, data: Mapping[str, Any]) -> HookInput:
    """Read the input of a hook: make the class of the event from the dict that the CLI sent. `Query` calls it before each hook callback.

    A value of a wrong type leaves its field at the default, and its wire path is in `misfits`.

    Args:
        event: the name of the event on the wire, for example "PreToolUse".
        data: the dict that the CLI sent as `input` of its `hook_callback` request.

    Returns:
        The class of the event; a plain `HookInput` for an unknown event, or when a field that the class requires is missing.

    Raises:
        UsageError: `data` is not a mapping.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"the input of a {event} hook must be a mapping, not a {type(data).__name__}")
    cls = INPUTS.get(event, HookInput)
    typed = cls.from_wire_input(data)
    # HookInput has no essential field: `from_wire_input` gives None only when too many values do not fit
    return typed if typed is not None else HookInput.from_wire_input(data) or HookInput(raw=dict(data))


class SpecificOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of the hook outputs that only some events accept (`hookSpecificOutput` on the wire).

    A hook callback returns an instance of a subclass, alone or as `HookOutput.specific`. The subclass lists in `events` where it is
    accepted; elsewhere it raises `UsageError`. A field that is None is not sent.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset()
    """The events that accept this output."""


class PreToolUseDecision(SpecificOutput, frozen=True, kw_only=True):
    """Output of a PreToolUse hook: decide whether the tool runs. Make it with `allow()`, `deny()`, `ask()` and `defer()`.

    `deny` stops this call only, and the model gets `permission_decision_reason`. `allow` skips the permission rules. `updated_input`
    replaces the arguments that the model wrote. `additional_context` is further information for the model.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PRE_TOOL_USE})

    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: Mapping[str, Any] | None = None
    additional_context: str | None = None

    @classmethod
    def allow(cls, reason: str | None = None, *, updated_input: Mapping[str, Any] | None = None) -> Self:
        """Return the decision to run the tool without asking for permission; with `updated_input`, with these arguments instead of the
        model's.
        """
        return cls(permission_decision="allow", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Return the decision not to run the tool. The model gets `reason`, and the turn continues."""
        return cls(permission_decision="deny", permission_decision_reason=reason)

    @classmethod
    def ask(cls, reason: str | None = None, *, updated_input: Mapping[str, Any] | None = None) -> Self:
        """Return the decision to have `can_use_tool` asked about this call, whatever the permission rules say.

        `reason` tells why; the CLI may pass it on in `CallbackContext.decision_reason`. `updated_input` replaces the arguments that the
        model wrote.
        """
        return cls(permission_decision="ask", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def defer(cls) -> Self:
        """Return the decision to postpone: the turn ends without an error. Its result has `terminal_reason` `tool_deferred`, and the call
        in `deferred_tool_use`. Of several calls in one message, only the last is kept.

        When another process resumes the session, its PreToolUse hook is asked about the call before the first prompt, and the turn
        continues. The result of that turn belongs to no prompt (`prompt_uuids` is empty). In the same process, the next prompt continues
        without the tool.

        Needs claude 2.1.257 or newer. On an older one, and where the version is not known, `Query` denies the call instead.
        """
        return cls(permission_decision="defer")


class PreModelSwitchDecision(SpecificOutput, frozen=True, kw_only=True):
    """Output of a PreModelSwitch hook: decide whether the session switches to the requested model. Make it with `allow()` and `deny()`. The
    decision `ask` refuses when there is no user to ask.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PRE_MODEL_SWITCH})

    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str | None = None

    @classmethod
    def allow(cls) -> Self:
        """Return the decision to switch to the requested model."""
        return cls(permission_decision="allow")

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Return the decision to keep the present model because of `reason`. The `set_model` request that asked for the switch fails."""
        return cls(permission_decision="deny", permission_decision_reason=reason)


class _RequestDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    behavior: Literal["allow", "deny"]
    updated_input: Mapping[str, Any] | None = None
    updated_permissions: Sequence[Any] | None = None
    message: str | None = None
    interrupt: bool | None = None


class PermissionRequestDecision(SpecificOutput, frozen=True, kw_only=True):
    """Output of a PermissionRequest hook: answer the permission request instead of `can_use_tool`, whose callback is then cancelled. Make
    it with `allow()` and `deny()`.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PERMISSION_REQUEST})

    decision: _RequestDecision

    @classmethod
    def allow(
        cls,
        *,
        updated_input: Mapping[str, Any] | None = None,
        updated_permissions: Sequence[PermissionUpdate | Mapping[str, Any]] | None = None,
    ) -> Self:
        """Return the decision to run the tool. `updated_input` replaces the arguments that the model wrote; `updated_permissions` are
        changes of the permission rules, as in `Allow`.
        """
        return cls(decision=_RequestDecision(behavior="allow", updated_input=updated_input, updated_permissions=updated_permissions))

    @classmethod
    def deny(cls, message: str | None = None, *, interrupt: bool = False) -> Self:
        """Return the decision not to run the tool, with `message` as the reason. `interrupt=True` also ends the turn."""
        return cls(decision=_RequestDecision(behavior="deny", message=message, interrupt=interrupt or None))


class AdditionalContext(SpecificOutput, frozen=True):
    """Output of a hook that gives the model more information: `return AdditionalContext("…")`.

    Accepted at Notification, PostModelSwitch, PostToolBatch, PostToolUse, PostToolUseFailure, PreToolUse, SessionStart, Setup, Stop,
    SubagentStart, SubagentStop, UserPromptExpansion and UserPromptSubmit.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset(
        {
            HookEvent.NOTIFICATION,
            HookEvent.POST_MODEL_SWITCH,
            HookEvent.POST_TOOL_BATCH,
            HookEvent.POST_TOOL_USE,
            HookEvent.POST_TOOL_USE_FAILURE,
            HookEvent.PRE_TOOL_USE,
            HookEvent.SESSION_START,
            HookEvent.SETUP,
            HookEvent.STOP,
            HookEvent.SUBAGENT_START,
            HookEvent.SUBAGENT_STOP,
            HookEvent.USER_PROMPT_EXPANSION,
            HookEvent.USER_PROMPT_SUBMIT,
        }
    )

    additional_context: str | None = None


class PostToolUseOutput(SpecificOutput, frozen=True, kw_only=True):
    """Output of a PostToolUse hook: add information for the model (`additional_context`), or replace the result of the tool by
    `updated_tool_output`.

    `updated_mcp_tool_output` is a replacement for tools of MCP servers only. Never put the output of a tool into `classifier_context`: the
    type declarations say that the permission classifier of the mode "auto" trusts it.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.POST_TOOL_USE})

    additional_context: str | None = None
    classifier_context: str | None = None
    updated_tool_output: Any = None
    updated_mcp_tool_output: Any = field(name="updatedMCPToolOutput", default=None)


class UserPromptExpansionOutput(SpecificOutput, frozen=True, kw_only=True):
    """Output of a UserPromptExpansion hook: give the model more information (`additional_context`).

    `suppress_original_prompt=True` matters only together with `HookOutput(decision="block")`: the message about the refusal then does not
    repeat the prompt.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.USER_PROMPT_EXPANSION})

    additional_context: str | None = None
    suppress_original_prompt: bool | None = None


class UserPromptSubmitOutput(SpecificOutput, frozen=True, kw_only=True):
    """Output of a UserPromptSubmit hook: give the model more information (`additional_context`), or set the title of the session.

    `suppress_original_prompt=True` matters only together with `HookOutput(decision="block")`: the message about the refusal then does not
    repeat the prompt.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.USER_PROMPT_SUBMIT})

    additional_context: str | None = None
    session_title: str | None = None
    suppress_original_prompt: bool | None = None


class SessionStartOutput(SpecificOutput, frozen=True, kw_only=True):
    """Output of a SessionStart hook: set what the session begins with.

    `additional_context` is information for the model, `initial_user_message` a first prompt. `watch_paths` are files: when one changes,
    FileChanged hooks are called. `reload_skills=True` has the skills read again.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.SESSION_START})

    additional_context: str | None = None
    initial_user_message: str | None = None
    session_title: str | None = None
    watch_paths: Sequence[str] | None = None
    reload_skills: bool | None = None


class PermissionDeniedOutput(SpecificOutput, frozen=True, kw_only=True):
    """Output of a PermissionDenied hook: `retry=True` lets the model try the denied tool call again. Published in the CLI's type
    declarations; never seen in a recording.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PERMISSION_DENIED})

    retry: bool | None = None


class ElicitationReply(SpecificOutput, frozen=True, kw_only=True):
    """Output that answers an MCP server in place of the user (Elicitation), or replaces the user's answer (ElicitationResult).

    CLI 2.1.329 accepts it only from command hooks in settings files. When a hook callback of this program returns it, the CLI silently
    drops it. Such a hook can only decline, with `HookOutput.block`. To accept, answer the request `elicitation` with the `on_request` of
    `Query`.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.ELICITATION, HookEvent.ELICITATION_RESULT})

    action: Literal["accept", "decline", "cancel"] | None = None
    content: Mapping[str, Any] | None = None


class WatchPaths(SpecificOutput, frozen=True):
    """Output of a CwdChanged or FileChanged hook: `return WatchPaths(["…"])` names files; when one of them changes, FileChanged hooks are
    called. Published in the CLI's type declarations; never seen in a recording. So it is not known whether the list replaces an earlier
    one.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.CWD_CHANGED, HookEvent.FILE_CHANGED})

    watch_paths: Sequence[str] | None = None


class WorktreeCreateOutput(SpecificOutput, frozen=True):
    """Output of a WorktreeCreate hook: the path of the worktree that the hook has created: `return WorktreeCreateOutput("/…")`."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.WORKTREE_CREATE})

    worktree_path: str


class MessageDisplayOutput(SpecificOutput, frozen=True):
    """Output of a MessageDisplay hook: show this text to the user instead of `MessageDisplayInput.delta`. Published in the CLI's type
    declarations; never seen in a recording.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.MESSAGE_DISPLAY})

    display_content: str | None = None


class HookOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a hook callback may return at every event; `specific` holds a part that only some events accept. A field that is None is not
    sent.

    `decision="block"` with a `reason` refuses a prompt (UserPromptSubmit), keeps the turn going (Stop), or declines the
    question of an MCP server (Elicitation, ElicitationResult). `continue_=False` with a `stop_reason` ends the turn after the current tool;
    it does *not* stop that tool. `system_message` is shown to the user.

    `suppress_output` and `terminal_sequence` are sent as they are; no recording shows what they do for a hook of a program. `extra` is sent
    unchecked, for fields that only a newer CLI knows.
    """

    continue_: bool | None = field(name="continue", default=None)
    stop_reason: str | None = None
    suppress_output: bool | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    system_message: str | None = None
    terminal_sequence: str | None = None
    specific: SpecificOutput | None = field(name="hookSpecificOutput", default=None)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def block(cls, reason: str) -> Self:
        """Return an output that says no, because of `reason`: it refuses the prompt (UserPromptSubmit), keeps the turn going (Stop,
        SubagentStop), or declines in place of the user (Elicitation, ElicitationResult). A PreToolUse hook returns
        `PreToolUseDecision.deny` instead.
        """
        return cls(decision="block", reason=reason)

    @classmethod
    def stop(cls, reason: str) -> Self:
        """Return an output that ends the turn after the current tool. The result has `terminal_reason` `hook_stopped`: no error."""
        return cls(continue_=False, stop_reason=reason)


class AsyncHookOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output that lets the CLI continue at once, without the decision of this hook: whatever the hook does later cannot stop anything.
    `timeout` is the time for that work, in seconds. Published in the CLI's type declarations; never seen in a recording.
    """

    timeout: float | None = None


# the class for a dict is the first one of its event, so the specific classes come before the generic one
_CLASSES: Final = (
    PreToolUseDecision,
    PreModelSwitchDecision,
    PermissionRequestDecision,
    PostToolUseOutput,
    UserPromptExpansionOutput,
    UserPromptSubmitOutput,
    SessionStartOutput,
    PermissionDeniedOutput,
    ElicitationReply,
    WatchPaths,
    WorktreeCreateOutput,
    MessageDisplayOutput,
    AdditionalContext,
)
_PYTHON_SPELLING: Final[dict[str, str]] = {"continue_": "continue", "async_": "async"}
"""Keys that are Python keywords, as the official SDK spells them in dicts."""
_SPECIFIC: Final = "hookSpecificOutput"


def encode_hook_output(event: str, output: object, *, strict: bool = True) -> dict[str, Any]:
    """Encode what a hook callback returned as the payload of the control response. `Query` calls it after each hook callback.

    Args:
        event: the wire name of the event.
        output: None, a `HookOutput`, a `SpecificOutput`, an `AsyncHookOutput`, or a mapping in wire spelling. A mapping is checked as
            strictly as a class; its `hookEventName` may be missing.
        strict: False passes on the keys of a mapping that are not known here, instead of raising `UsageError`.

    Returns:
        A dict that can be written as JSON; {} for None.

    Raises:
        UsageError: the event is unknown, or the output has a wrong type, an unknown key, a wrong value, a part that this event does not
            accept, or a value that is not JSON. The message names the event and the fault.
    """
    if event not in INPUTS:
        raise UsageError(f"unknown hook event {event!r}; the names are the values of HookEvent")
    name = HookEvent(event)
    wire = _encode(name, output) if strict or not isinstance(output, Mapping) else _encode_loosely(name, output)
    try:
        msgspec.json.encode(wire)
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"the output of a {event} hook cannot be written as JSON: {exc}") from exc
    return wire


def _encode(event: HookEvent, output: object) -> dict[str, Any]:
    match output:
        case None:
            return {}
        case AsyncHookOutput():
            return {"async": True} if output.timeout is None else {"async": True, "asyncTimeout": round(output.timeout * 1000)}
        case SpecificOutput():
            return _encode(event, HookOutput(specific=output))
        case HookOutput():
            wire = _present(output)
            extra = wire.pop("extra", {})
            if output.specific is not None:
                if event not in output.specific.events:
                    name, events = type(output.specific).__name__, ", ".join(sorted(output.specific.events))
                    raise UsageError(f"a {event} hook cannot return a {name}, which is for {events}")
                wire[_SPECIFIC] = _present(output.specific)
            return {**_encode_mapping(event, wire), **extra}
        case Mapping():
            return _encode_mapping(event, output)
        case _:
            raise UsageError(f"a {event} hook returned a {type(output).__name__}; return None, a HookOutput, a SpecificOutput or a mapping")


def _encode_mapping(event: HookEvent, output: Mapping[str, Any]) -> dict[str, Any]:
    wire: dict[str, Any] = {_PYTHON_SPELLING.get(key, key): to_wire(value) for key, value in output.items() if value is not None}
    if "async" in wire:
        if wire["async"] is not True or wire.keys() - {"async", "asyncTimeout"}:
            raise UsageError(f"the asynchronous output of a {event} hook must be {{'async': True}}, with no other key than 'asyncTimeout'")
        return wire
    if "extra" in wire:
        raise UsageError(f"the output of a {event} hook has the unknown key 'extra'")
    specific = wire.get(_SPECIFIC)
    if specific is not None:
        wire[_SPECIFIC] = _checked_specific(event, specific)
    _check(event, HookOutput, {key: value for key, value in wire.items() if key != _SPECIFIC})
    return wire


def _encode_loosely(event: HookEvent, output: Mapping[str, Any]) -> dict[str, Any]:
    """Check the known keys of `output` and add the unknown ones unchecked."""
    wire: dict[str, Any] = {_PYTHON_SPELLING.get(key, key): value for key, value in output.items()}
    if wire.get("async") is True:
        return {key: to_wire(value) for key, value in wire.items()}
    specific = wire.get(_SPECIFIC)
    known, unknown = _divided(HookOutput, wire)
    if isinstance(specific, Mapping):
        # an event without a class of its own has only `hookEventName` there
        cls = next((cls for cls in _CLASSES if event in cls.events), SpecificOutput)
        said, more = _divided(cls, specific)
        name = {key: specific[key] for key in ("hookEventName",) if key in specific}
        more.pop("hookEventName", None)
        encoded = _encode_mapping(event, {**known, _SPECIFIC: {**said, **name}})
        return {**encoded, _SPECIFIC: _joined(encoded[_SPECIFIC], more), **unknown}
    return {**_encode_mapping(event, known), **unknown}


def _divided(cls: type[msgspec.Struct], wire: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split `wire` into what the class knows and what it does not, nested classes included."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(cls) if field.name != "extra"}
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for key, value in wire.items():
        if key not in fields:
            unknown[key] = to_wire(value)
        elif isinstance(value, Mapping) and _is_struct(fields[key]):
            known[key], inside = _divided(fields[key], value)
            if inside:
                unknown[key] = inside
        else:
            known[key] = value
    return known, unknown


def _is_struct(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _joined(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """Merge both; objects that are in both are merged, too."""
    inside = {key: {**known[key], **unknown[key]} for key in known.keys() & unknown.keys()}
    return {**known, **unknown, **inside}


def _checked_specific(event: HookEvent, specific: object) -> dict[str, Any]:
    if not isinstance(specific, Mapping):
        raise UsageError(f"{_SPECIFIC} of a {event} hook must be a mapping, not a {type(specific).__name__}")
    named = specific.get("hookEventName", str(event))
    if named != event:
        raise UsageError(f"a {event} hook returned a {_SPECIFIC} for the event {named!r}")
    fields = {key: value for key, value in specific.items() if key != "hookEventName" and value is not None}
    cls = next((cls for cls in _CLASSES if event in cls.events), None)
    if cls is None:
        if fields:
            raise UsageError(f"the event {event} has no {_SPECIFIC}; leave it out")
        return {"hookEventName": str(event)}
    _check(event, cls, fields)
    return {"hookEventName": str(event), **fields}


def _check(event: HookEvent, cls: type[msgspec.Struct], wire: dict[str, Any]) -> None:
    """Raise `UsageError` when `wire` is not a valid `cls`. (A Struct checks types only when it is decoded.)"""
    try:
        msgspec.convert(wire, cls, str_keys=True)
    except (msgspec.ValidationError, TypeError) as exc:
        raise UsageError(f"the output of a {event} hook is wrong: {exc}") from exc


def _present(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that are set, in wire spelling, as JSON values."""
    wire: dict[str, Any] = {}
    for name, wire_name in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True):
        value = getattr(struct, name)
        if value is not None and not isinstance(value, SpecificOutput):
            wire[wire_name] = _present(value) if isinstance(value, msgspec.Struct) else to_wire(value)
    return wire


_PERMISSION: Final = frozenset({HookEvent.PRE_TOOL_USE, HookEvent.PRE_MODEL_SWITCH})
_STOP: Final = frozenset(
    {HookEvent.STOP, HookEvent.SUBAGENT_STOP, HookEvent.TASK_CREATED, HookEvent.TASK_COMPLETED, HookEvent.TEAMMATE_IDLE}
)
_BLOCK: Final = frozenset(
    {
        HookEvent.CONFIG_CHANGE,
        HookEvent.ELICITATION,
        HookEvent.ELICITATION_RESULT,
        HookEvent.POST_TOOL_BATCH,
        HookEvent.POST_TOOL_USE,
        HookEvent.POST_TOOL_USE_FAILURE,
        HookEvent.PRE_COMPACT,
        HookEvent.USER_PROMPT_EXPANSION,
        HookEvent.USER_PROMPT_SUBMIT,
    }
)

DENIABLE: Final[frozenset[HookEvent]] = frozenset({HookEvent.PERMISSION_REQUEST}) | _PERMISSION | _STOP | _BLOCK
"""Events whose hooks can refuse something. Hooks of the other events are only informed."""


def denial_of(event: str, reason: str) -> dict[str, Any] | None:
    """Return the response payload that refuses at `event`, with `reason`; None when the event cannot refuse.

    The refusal of a Stop hook ends the turn. It does not keep the turn going, because a hook that always fails would do so for ever.
    """
    if event in _PERMISSION:
        return _specific(event, permissionDecision="deny", permissionDecisionReason=reason)
    if event == HookEvent.PERMISSION_REQUEST:
        return _specific(event, decision={"behavior": "deny", "message": reason})
    if event in _STOP:
        return {"continue": False, "stopReason": reason}
    if event in _BLOCK:
        return {"decision": "block", "reason": reason}
    return None


def _specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": str(event), **fields}}
