"""`system` messages about work under way: tool calls that were denied, tasks, hooks, long requests, installations.

Sources are given as in `system.py`: recording names in brackets, or *declared* for what was never seen.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from claude_transport.protocol.envelope import Number, Part
from claude_transport.protocol.system import SystemMessage

__all__ = [
    "BackgroundTask",
    "BackgroundTasksChanged",
    "ControlRequestProgress",
    "ElicitationComplete",
    "HookMessage",
    "HookProgress",
    "HookResponse",
    "HookStarted",
    "PermissionDeniedMessage",
    "PluginInstall",
    "TaskNotification",
    "TaskPatch",
    "TaskProgress",
    "TaskStarted",
    "TaskUpdated",
    "TaskUsage",
]


class PermissionDeniedMessage(SystemMessage, frozen=True, kw_only=True):
    """A tool call was denied without asking anybody. [04h]"""

    subtype: str = "permission_denied"
    tool_name: str = ""
    tool_use_id: str = ""
    message: str = ""
    agent_id: str | None = None
    decision_reason_type: str | None = None
    decision_reason: str | None = None


class TaskUsage(Part, frozen=True, kw_only=True):
    """What a task has used so far."""

    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: Number = 0


class TaskStarted(SystemMessage, frozen=True, kw_only=True):
    """A subagent (`local_agent`) or background shell (`local_bash`) has started. [15a, 24a]"""

    subtype: str = "task_started"
    task_id: str = ""
    run_id: str | None = None
    tool_use_id: str | None = None
    description: str = ""
    task_type: str | None = None
    is_backgrounded: bool | None = None
    subagent_type: str | None = None
    spawn_depth: int | None = None
    prompt: str | None = None


class TaskProgress(SystemMessage, frozen=True, kw_only=True):
    """What a running task is at. [15a]"""

    subtype: str = "task_progress"
    task_id: str = ""
    run_id: str | None = None
    tool_use_id: str | None = None
    description: str = ""
    subagent_type: str | None = None
    usage: TaskUsage | None = None
    last_tool_name: str | None = None
    summary: str | None = None


class TaskPatch(Part, frozen=True, kw_only=True):
    """What changed about a task; None means unchanged. `end_time` is in ms since the epoch."""

    status: str | None = None
    description: str | None = None
    end_time: Number | None = None
    error: str | None = None
    is_backgrounded: bool | None = None


class TaskUpdated(SystemMessage, frozen=True, kw_only=True):
    """Something about a task changed; status: completed, killed, … [15a]"""

    subtype: str = "task_updated"
    task_id: str = ""
    run_id: str | None = None
    patch: TaskPatch = TaskPatch()


class TaskNotification(SystemMessage, frozen=True, kw_only=True):
    """A task has ended (`completed`, `stopped`, `failed`); it may wake the session and start a turn of its own. [15a, 24a]"""

    subtype: str = "task_notification"
    task_id: str = ""
    run_id: str | None = None
    tool_use_id: str | None = None
    status: str = ""
    output_file: str | None = None
    summary: str = ""
    summary_is_report: bool | None = None
    usage: TaskUsage | None = None


class BackgroundTask(Part, frozen=True, kw_only=True):
    """A task that is alive in the background."""

    task_id: str = ""
    run_id: str | None = None
    task_type: str = ""
    description: str = ""
    subagent_type: str | None = None


class BackgroundTasksChanged(SystemMessage, frozen=True, kw_only=True):
    """**All** background tasks that are alive now: it replaces what was known before. [24a]"""

    subtype: str = "background_tasks_changed"
    tasks: tuple[BackgroundTask, ...] = ()


class HookMessage(SystemMessage, frozen=True, kw_only=True):
    """Base of what is told about hooks from settings files (hooks of the host arrive as `HookCallback` requests instead).

    `hook_event` is also taken from `hook_event_name`, or from `hook_name` ("PreToolUse:Bash") when the CLI sends no other.
    """

    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    hook_event_name: str | None = None

    def __post_init__(self) -> None:
        """Take the event by its other names."""
        if not self.hook_event:
            force_setattr(self, "hook_event", self.hook_event_name or self.hook_name.partition(":")[0])


class HookStarted(HookMessage, frozen=True, kw_only=True):
    """A hook has started; SessionStart ones come before the answer to `initialize`. [05m]"""

    subtype: str = "hook_started"


class HookProgress(HookMessage, frozen=True, kw_only=True):
    """What a running hook has printed so far. *Declared.*"""

    subtype: str = "hook_progress"
    output: str = ""
    stdout: str = ""
    stderr: str = ""


class HookResponse(HookMessage, frozen=True, kw_only=True):
    """A hook has ended. [05l]"""

    subtype: str = "hook_response"
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    outcome: str = ""


class ControlRequestProgress(SystemMessage, frozen=True, kw_only=True):
    """A long control request is alive; `request_id` is the host's. [08a: side_question]"""

    subtype: str = "control_request_progress"
    request_id: str = ""
    status: str = ""
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: Number | None = None
    error_status: int | None = None


class ElicitationComplete(SystemMessage, frozen=True, kw_only=True):
    """An MCP server's question that was answered elsewhere (a URL) is settled. *Declared.*"""

    subtype: str = "elicitation_complete"
    mcp_server_name: str = ""
    elicitation_id: str = ""


class PluginInstall(SystemMessage, frozen=True, kw_only=True):
    """Plugins are being installed: started, installed, failed, completed. *Declared.*"""

    subtype: str = "plugin_install"
    status: str = ""
    name: str | None = None
    error: str | None = None
