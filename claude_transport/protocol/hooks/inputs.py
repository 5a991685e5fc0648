"""What hooks are told, one class for each event. Seen on CLI 2.1.329 (tests/protocol/hook_inputs.ndjson) unless marked *Declared*."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Self

from msgspec import field

from claude_transport.errors import UsageError
from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.envelope import HIDDEN, Number, Part
from claude_transport.protocol.hooks.events import HookEvent
from claude_transport.protocol.salvage import salvage

# --- What every hook input has.


class HookEffort(Part, frozen=True, kw_only=True):
    """How hard the model thinks in this turn: low, medium, high, ..."""

    level: str = ""


class HookMcpServer(Part, frozen=True, kw_only=True):
    """The MCP server of a tool. Trust `source` (`sdk`, `plugin`, `dynamic`, `user`, ...), not the name."""

    name: str = ""
    source: str = ""


class HookInput(Part, frozen=True, kw_only=True):
    """What a hook is told, of any event; also of one that this version has no class for, or that lacks what its class needs.

    It can be read like the wire's dict as well (`input["tool_name"]`), and `to_dict()` gives that dict, nothing lost.
    """

    essential: ClassVar[frozenset[str]] = frozenset()
    """Wire names without which an input is not taken for one of its event: what a guard decides on must not be a default."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt_id: str | None = None
    permission_mode: str | None = None
    agent_id: str | None = None
    """The subagent in which it happened; None in the main conversation."""
    agent_type: str | None = None
    effort: HookEffort | None = None
    misfits: tuple[str, ...] = field(name=HIDDEN + "misfits", default=())
    """Wire paths of what did not fit and holds its default instead."""
    raw: dict[str, Any] = field(name=HIDDEN + "raw", default_factory=dict)
    """The input as it came."""

    @classmethod
    def from_wire_input(cls, data: Mapping[str, Any]) -> Self | None:
        """`data` as this class, or None when something essential is missing or has another type, or when too much does not fit."""
        misfits: list[str] = []
        raw = dict(data)
        struct = salvage(cls, raw, misfits=misfits)
        if struct is None or not cls.essential <= raw.keys() or cls.essential & set(misfits):
            return None
        known = {name: getattr(struct, name) for name in cls.__struct_fields__ if name not in {"raw", "misfits"}}
        return cls(**known, misfits=tuple(misfits), raw=raw)

    def to_dict(self) -> dict[str, Any]:
        """The whole input, in wire spelling."""
        return dict(self.raw) if self.raw else super().to_dict()

    def get(self, key: str, default: Any = None) -> Any:
        """The wire's value of `key`, or `default`."""
        return self.to_dict().get(key, default)

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.to_dict()

    def keys(self) -> list[str]:
        """The wire names, so that `dict(input)` works too."""
        return list(self.to_dict())

    def _shown(self) -> Iterator[tuple[str, Any]]:
        for name in self.__struct_fields__:
            if name not in {"raw", "misfits"}:
                yield name, getattr(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(self._shown())


# --- What hooks are told about tools.


class ToolHookInput(HookInput, frozen=True, kw_only=True):
    """What all events about one tool call have; `mcp_server` with a tool of an MCP server."""

    essential: ClassVar[frozenset[str]] = frozenset({"tool_name", "tool_input"})

    tool_name: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)
    mcp_server: HookMcpServer | None = None


class PreToolUseInput(ToolHookInput, frozen=True, kw_only=True):
    """A tool is about to run. [05a, 05c]"""

    tool_use_id: str = ""


class PostToolUseInput(ToolHookInput, frozen=True, kw_only=True):
    """A tool has run; `tool_response` is its own structure, `duration_ms` is without the waiting for permission. [05a]"""

    tool_use_id: str = ""
    tool_response: Any = None
    duration_ms: Number | None = None


class PostToolUseFailureInput(ToolHookInput, frozen=True, kw_only=True):
    """A tool has failed: `error` is what the model is told."""

    tool_use_id: str = ""
    error: str = ""
    is_interrupt: bool | None = None
    duration_ms: Number | None = None


class PermissionRequestInput(ToolHookInput, frozen=True, kw_only=True):
    """Permission is asked for; there is no tool use id. [05b]"""

    permission_suggestions: tuple[PermissionUpdate, ...] = ()


class PermissionDeniedInput(ToolHookInput, frozen=True, kw_only=True):
    """The auto mode has refused a tool, for `reason`."""

    tool_use_id: str = ""
    reason: str = ""


class ToolCallRecord(Part, frozen=True, kw_only=True):
    """One call of a batch; `tool_response` is what the model is told."""

    tool_name: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str = ""
    tool_response: Any = None


class PostToolBatchInput(HookInput, frozen=True, kw_only=True):
    """Every call of one model message has run, well or not. [05a, 05b]"""

    tool_calls: tuple[ToolCallRecord, ...] = ()


class NotificationInput(HookInput, frozen=True, kw_only=True):
    """Something for the user; `notification_type`: elicitation_response, ..."""

    message: str = ""
    title: str | None = None
    notification_type: str = ""


class UserPromptSubmitInput(HookInput, frozen=True, kw_only=True):
    """A prompt has come. `source` (*declared*): user, sdk, system, loop_wakeup, schedule_wakeup, poll_event. [05a]"""

    essential: ClassVar[frozenset[str]] = frozenset({"prompt"})

    prompt: str = ""
    source: str | None = None
    session_title: str | None = None


class UserPromptExpansionInput(HookInput, frozen=True, kw_only=True):
    """A command becomes a prompt; `expansion_type`: slash_command, mcp_prompt."""

    expansion_type: str = ""
    command_name: str = ""
    command_args: str = ""
    command_source: str | None = None
    prompt: str = ""


class SessionStartInput(HookInput, frozen=True, kw_only=True):
    """A session begins; `source`: startup, resume, clear, compact, fork. The costs of a resume are *declared*."""

    source: str = ""
    model: str | None = None
    session_title: str | None = None
    seconds_since_last_response: Number | None = None
    context_tokens: int | None = None
    prompt_cache_likely_expired: bool | None = None
    estimated_cache_write_usd: Number | None = None


class SessionEndInput(HookInput, frozen=True, kw_only=True):
    """A session ends; `reason`: clear, resume, logout, prompt_input_exit, other."""

    reason: str = ""


class BackgroundTaskInfo(Part, frozen=True, kw_only=True):
    """Work that goes on in the background; `type`: shell, subagent, monitor, workflow."""

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
    """A prompt that will come by itself; `schedule` is a cron expression."""

    id: str = ""
    schedule: str = ""
    recurring: bool = False
    prompt: str = ""


class TurnEndInput(HookInput, frozen=True, kw_only=True):
    """Somebody is about to stop; `stop_hook_active` when a hook has kept it going before: the guard against going on for ever."""

    stop_hook_active: bool = False
    last_assistant_message: str | None = None
    background_tasks: tuple[BackgroundTaskInfo, ...] = ()
    session_crons: tuple[SessionCron, ...] = ()


class StopInput(TurnEndInput, frozen=True, kw_only=True):
    """The turn is about to end. [05a, 05j]"""


class StopFailureInput(HookInput, frozen=True, kw_only=True):
    """The turn ends by an API error; `error`: rate_limit, server_error, unknown, ... as in `AssistantMessage.error`."""

    error: str = ""
    error_details: str | None = None
    last_assistant_message: str | None = None


class SubagentStartInput(HookInput, frozen=True, kw_only=True):
    """A subagent begins: `agent_id`, `agent_type`."""


class SubagentStopInput(TurnEndInput, frozen=True, kw_only=True):
    """A subagent is about to end."""

    agent_transcript_path: str = ""


class PreCompactInput(HookInput, frozen=True, kw_only=True):
    """The conversation is about to be compacted; `trigger`: manual, auto."""

    trigger: str = ""
    custom_instructions: str | None = None


class PostCompactInput(HookInput, frozen=True, kw_only=True):
    """The conversation has been compacted."""

    trigger: str = ""
    compact_summary: str = ""


class ModelSwitchInput(HookInput, frozen=True, kw_only=True):
    """A switch of models, and what it costs; `source`: command, picker, sdk, and afterwards also auto or resume.

    `requested_model` is None for the default. `cache_ttl`: 5m, 1h. `pricing`: configured, catalog, default.
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
    """Another model was asked for."""


class PostModelSwitchInput(ModelSwitchInput, frozen=True, kw_only=True):
    """Another model is in use."""


class SetupInput(HookInput, frozen=True, kw_only=True):
    """A repository is prepared; `trigger`: init, maintenance. *Declared.*"""

    trigger: str = ""


class TeammateIdleInput(HookInput, frozen=True, kw_only=True):
    """A teammate has nothing to do. *Declared.*"""

    teammate_name: str = ""
    team_name: str = ""


class TaskInput(HookInput, frozen=True, kw_only=True):
    """A task of the task list. *Declared.*"""

    task_id: str = ""
    task_subject: str = ""
    task_description: str | None = None
    teammate_name: str | None = None
    team_name: str | None = None


class TaskCreatedInput(TaskInput, frozen=True, kw_only=True):
    """A task was put on the list. *Declared.*"""


class TaskCompletedInput(TaskInput, frozen=True, kw_only=True):
    """A task was ticked off. *Declared.*"""


class ElicitationInput(HookInput, frozen=True, kw_only=True):
    """An MCP server asks the user something; `mode`: form, url."""

    mcp_server_name: str = ""
    message: str = ""
    mode: str | None = None
    url: str | None = None
    elicitation_id: str | None = None
    requested_schema: dict[str, Any] | None = None


class ElicitationResultInput(HookInput, frozen=True, kw_only=True):
    """The user has answered; `action`: accept, decline, cancel."""

    mcp_server_name: str = ""
    elicitation_id: str | None = None
    mode: str | None = None
    action: str = ""
    content: dict[str, Any] | None = None


class ConfigChangeInput(HookInput, frozen=True, kw_only=True):
    """A settings file has changed; `source`: user_settings, project_settings, local_settings, policy_settings, skills."""

    source: str = ""
    file_path: str | None = None


class InstructionsLoadedInput(HookInput, frozen=True, kw_only=True):
    """A CLAUDE.md or rule file was read.

    `memory_type`: User, Project, Local, Managed. `load_reason`: session_start, nested_traversal, path_glob_match, include, compact.
    """

    file_path: str = ""
    memory_type: str = ""
    load_reason: str = ""
    globs: tuple[str, ...] = ()
    trigger_file_path: str | None = None
    parent_file_path: str | None = None


class WorktreeCreateInput(HookInput, frozen=True, kw_only=True):
    """A worktree of this name is wanted."""

    name: str = ""


class WorktreeRemoveInput(HookInput, frozen=True, kw_only=True):
    """A worktree is to be removed."""

    worktree_path: str = ""


class CwdChangedInput(HookInput, frozen=True, kw_only=True):
    """The working directory has changed. *Declared.*"""

    old_cwd: str = ""
    new_cwd: str = ""


class FileChangedInput(HookInput, frozen=True, kw_only=True):
    """A watched file has changed; `event`: change, add, unlink."""

    file_path: str = ""
    event: str = ""


class DirectoryAddedInput(HookInput, frozen=True, kw_only=True):
    """A directory may be worked in from now on; `source`: slash_command, register_repo_root."""

    directory: str = ""
    source: str = ""


class MessageDisplayInput(HookInput, frozen=True, kw_only=True):
    """New whole lines of an assistant message (`delta`), the `index`-th of its pieces from 0; the last one has `final`. [05a]"""

    turn_id: str = ""
    message_id: str = ""
    index: int = 0
    final: bool = False
    delta: str = ""


INPUTS: Final[Mapping[str, type[HookInput]]] = {
    HookEvent.PRE_TOOL_USE: PreToolUseInput,
    HookEvent.POST_TOOL_USE: PostToolUseInput,
    HookEvent.POST_TOOL_USE_FAILURE: PostToolUseFailureInput,
    HookEvent.POST_TOOL_BATCH: PostToolBatchInput,
    HookEvent.PERMISSION_REQUEST: PermissionRequestInput,
    HookEvent.PERMISSION_DENIED: PermissionDeniedInput,
    HookEvent.NOTIFICATION: NotificationInput,
    HookEvent.USER_PROMPT_SUBMIT: UserPromptSubmitInput,
    HookEvent.USER_PROMPT_EXPANSION: UserPromptExpansionInput,
    HookEvent.SESSION_START: SessionStartInput,
    HookEvent.SESSION_END: SessionEndInput,
    HookEvent.STOP: StopInput,
    HookEvent.STOP_FAILURE: StopFailureInput,
    HookEvent.SUBAGENT_START: SubagentStartInput,
    HookEvent.SUBAGENT_STOP: SubagentStopInput,
    HookEvent.PRE_COMPACT: PreCompactInput,
    HookEvent.POST_COMPACT: PostCompactInput,
    HookEvent.PRE_MODEL_SWITCH: PreModelSwitchInput,
    HookEvent.POST_MODEL_SWITCH: PostModelSwitchInput,
    HookEvent.SETUP: SetupInput,
    HookEvent.TEAMMATE_IDLE: TeammateIdleInput,
    HookEvent.TASK_CREATED: TaskCreatedInput,
    HookEvent.TASK_COMPLETED: TaskCompletedInput,
    HookEvent.ELICITATION: ElicitationInput,
    HookEvent.ELICITATION_RESULT: ElicitationResultInput,
    HookEvent.CONFIG_CHANGE: ConfigChangeInput,
    HookEvent.WORKTREE_CREATE: WorktreeCreateInput,
    HookEvent.WORKTREE_REMOVE: WorktreeRemoveInput,
    HookEvent.INSTRUCTIONS_LOADED: InstructionsLoadedInput,
    HookEvent.CWD_CHANGED: CwdChangedInput,
    HookEvent.FILE_CHANGED: FileChangedInput,
    HookEvent.DIRECTORY_ADDED: DirectoryAddedInput,
    HookEvent.MESSAGE_DISPLAY: MessageDisplayInput,
}
"""The class of each event's input."""


def parse_hook_input(event: str, data: Mapping[str, Any]) -> HookInput:
    """The typed input of `event`; a plain `HookInput` for an event this version does not know, or without what its class needs.

    What is odd elsewhere holds its default and is named in `misfits`. Raises `UsageError` only for `data` that is no mapping.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"the input of a {event} hook is a mapping, not {type(data).__name__}")
    cls = INPUTS.get(event, HookInput)
    typed = cls.from_wire_input(data)
    # HookInput itself has nothing essential: it is None only when too much of it does not fit
    return typed if typed is not None else HookInput.from_wire_input(data) or HookInput(raw=dict(data))
