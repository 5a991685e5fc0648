"""What hooks are told, one class for each event. Seen on CLI 2.1.329 (tests/protocol/hook_inputs.ndjson) unless marked *Declared*."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from claude_transport.errors import UsageError
from claude_transport.protocol.envelope import Number, Part
from claude_transport.protocol.hooks.events import HookEvent
from claude_transport.protocol.hooks.hook_input import HookEffort, HookInput, HookMcpServer
from claude_transport.protocol.hooks.tool_inputs import (
    PermissionDeniedInput,
    PermissionRequestInput,
    PostToolBatchInput,
    PostToolUseFailureInput,
    PostToolUseInput,
    PreToolUseInput,
)

__all__ = [
    "INPUTS",
    "BackgroundTaskInfo",
    "ConfigChangeInput",
    "CwdChangedInput",
    "DirectoryAddedInput",
    "ElicitationInput",
    "ElicitationResultInput",
    "FileChangedInput",
    "HookEffort",
    "HookInput",
    "HookMcpServer",
    "InstructionsLoadedInput",
    "MessageDisplayInput",
    "ModelSwitchInput",
    "NotificationInput",
    "PostCompactInput",
    "PostModelSwitchInput",
    "PreCompactInput",
    "PreModelSwitchInput",
    "SessionCron",
    "SessionEndInput",
    "SessionStartInput",
    "SetupInput",
    "StopFailureInput",
    "StopInput",
    "SubagentStartInput",
    "SubagentStopInput",
    "TaskCompletedInput",
    "TaskCreatedInput",
    "TaskInput",
    "TeammateIdleInput",
    "TurnEndInput",
    "UserPromptExpansionInput",
    "UserPromptSubmitInput",
    "WorktreeCreateInput",
    "WorktreeRemoveInput",
    "parse_hook_input",
]


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
    HookEvent.PreToolUse: PreToolUseInput,
    HookEvent.PostToolUse: PostToolUseInput,
    HookEvent.PostToolUseFailure: PostToolUseFailureInput,
    HookEvent.PostToolBatch: PostToolBatchInput,
    HookEvent.PermissionRequest: PermissionRequestInput,
    HookEvent.PermissionDenied: PermissionDeniedInput,
    HookEvent.Notification: NotificationInput,
    HookEvent.UserPromptSubmit: UserPromptSubmitInput,
    HookEvent.UserPromptExpansion: UserPromptExpansionInput,
    HookEvent.SessionStart: SessionStartInput,
    HookEvent.SessionEnd: SessionEndInput,
    HookEvent.Stop: StopInput,
    HookEvent.StopFailure: StopFailureInput,
    HookEvent.SubagentStart: SubagentStartInput,
    HookEvent.SubagentStop: SubagentStopInput,
    HookEvent.PreCompact: PreCompactInput,
    HookEvent.PostCompact: PostCompactInput,
    HookEvent.PreModelSwitch: PreModelSwitchInput,
    HookEvent.PostModelSwitch: PostModelSwitchInput,
    HookEvent.Setup: SetupInput,
    HookEvent.TeammateIdle: TeammateIdleInput,
    HookEvent.TaskCreated: TaskCreatedInput,
    HookEvent.TaskCompleted: TaskCompletedInput,
    HookEvent.Elicitation: ElicitationInput,
    HookEvent.ElicitationResult: ElicitationResultInput,
    HookEvent.ConfigChange: ConfigChangeInput,
    HookEvent.WorktreeCreate: WorktreeCreateInput,
    HookEvent.WorktreeRemove: WorktreeRemoveInput,
    HookEvent.InstructionsLoaded: InstructionsLoadedInput,
    HookEvent.CwdChanged: CwdChangedInput,
    HookEvent.FileChanged: FileChangedInput,
    HookEvent.DirectoryAdded: DirectoryAddedInput,
    HookEvent.MessageDisplay: MessageDisplayInput,
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
