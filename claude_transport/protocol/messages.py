"""The messages of a conversation, typed to the leaf; payloads that are not ours (tool input, API events, schemas) stay dicts.

Wire spelling (`permissionMode`, `modelUsage`) is turned into Python spelling here and nowhere else. Every field has a default: a CLI
that leaves something out, or is newer than this page, never breaks a stream. What a class does not name is still in `to_dict()`.

Sources: recordings of CLI 2.1.329 (names in brackets); *declared* means published in type declarations and never seen.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar, Self

from msgspec import field
from msgspec.structs import force_setattr

from claude_transport.protocol.blocks import ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from claude_transport.protocol.diagnosis import Outcome, diagnose, error_for
from claude_transport.protocol.envelope import HIDDEN, Message, ModelUsage, Number, Part, Usage

# --- Messages that accompany a conversation without being part of it: limits, progress, lifecycle, resets, mirrors, keep-alives.


class RateLimitInfo(Part, rename="camel", frozen=True, kw_only=True):
    """Where the account stands; status: allowed, allowed_warning, rejected. Times are seconds since the epoch."""

    status: str = ""
    resets_at: Number | None = None
    rate_limit_type: str | None = None
    utilization: Number | None = None
    is_using_overage: bool | None = None
    overage_status: str | None = None
    overage_resets_at: Number | None = None
    overage_disabled_reason: str | None = None
    unified_windows: dict[str, Any] | None = None

    @property
    def resets_at_time(self) -> dt.datetime | None:
        """When the limit lifts, as an aware datetime in UTC; None when unknown or no real time."""
        try:
            return None if self.resets_at is None else dt.datetime.fromtimestamp(self.resets_at, dt.UTC)
        except (ValueError, OverflowError, OSError):  # a number, but no moment that a calendar knows
            return None


class RateLimitEvent(Message, tag_field="type", tag="rate_limit_event", frozen=True, kw_only=True):
    """The account's limits changed; only with a subscription login. [25d, 25l]"""

    rate_limit_info: RateLimitInfo = RateLimitInfo()
    session_id: str | None = None
    uuid: str | None = None


class ToolProgress(Message, tag_field="type", tag="tool_progress", frozen=True, kw_only=True):
    """A tool is still running; the first comes after 30 s. `parent_tool_use_id` is the tool use, `tool_use_id` this heartbeat. [17c]"""

    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: Number = 0
    heartbeat: bool | None = None
    task_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class CommandLifecycle(Message, tag_field="type", tag="command_lifecycle", frozen=True, kw_only=True):
    """What became of the user message `command_uuid`: queued, started, completed, cancelled. Undeclared, but sent. [07a]"""

    command_uuid: str = ""
    state: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ConversationReset(Message, tag_field="type", tag="conversation_reset", frozen=True, kw_only=True):
    """`/clear`: a new conversation began, and the `session_id` of later messages is another one. [18za]"""

    new_conversation_id: str = ""
    trigger: str | None = None
    user_message_uuid: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class TranscriptMirror(Message, tag_field="type", tag="transcript_mirror", frozen=True, kw_only=True):
    """Lines that were added to the transcript at `file_path`; comes before the result, and once more after the end of input. [16o]"""

    file_path: str = field(name="filePath", default="")
    entries: tuple[Any, ...] = ()


class KeepAlive(Message, tag_field="type", tag="keep_alive", frozen=True, kw_only=True):
    """Nothing happened; accepted in both directions, not seen on stdio. [18p]"""


class UpdateEnvironmentVariables(Message, tag_field="type", tag="update_environment_variables", frozen=True, kw_only=True):
    """Host → CLI: sets environment variables in the running CLI, which accepts it without an answer. [18q]"""

    variables: dict[str, str] = field(default_factory=dict)


class ActiveGoal(Message, tag_field="type", tag="active_goal", frozen=True, kw_only=True):
    """The goal the session pursues, or None. *Declared.*"""

    value: dict[str, Any] | None = None
    session_id: str | None = None
    uuid: str | None = None


class AuthStatus(Message, tag_field="type", tag="auth_status", frozen=True, kw_only=True):
    """How signing in goes. *Declared.*"""

    is_authenticating: bool = field(name="isAuthenticating", default=False)
    output: tuple[str, ...] = ()
    error: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class PromptSuggestion(Message, tag_field="type", tag="prompt_suggestion", frozen=True, kw_only=True):
    """What the user might say next. *Declared.*"""

    suggestion: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ToolUseSummary(Message, tag_field="type", tag="tool_use_summary", frozen=True, kw_only=True):
    """A few tool uses in one sentence. *Declared.*"""

    summary: str = ""
    preceding_tool_use_ids: tuple[str, ...] = ()
    session_id: str | None = None
    uuid: str | None = None


# --- `system` messages: one class per subtype the CLI is known to send; any other stays a plain `SystemMessage`.


class SystemMessage(Message, tag_field="type", tag="system", frozen=True, kw_only=True):
    """Something the CLI reports about itself; `.subtype` says what, and is all that is known of a new subtype."""

    subtype: str = ""
    session_id: str | None = None
    uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------ session and turn


class MCPServerState(Part, frozen=True, kw_only=True):
    """An MCP server in `InitMessage.mcp_servers`; status: connected, failed, needs-auth, pending, disabled."""

    name: str = ""
    status: str = ""
    source: str | None = None


class PluginState(Part, frozen=True, kw_only=True):
    """A loaded plugin."""

    name: str = ""
    path: str = ""
    source: str | None = None


class InitMessage(SystemMessage, frozen=True, kw_only=True):
    """The state of the session, sent at the start of **every** turn, not once per process. [10a]

    Feature-test on `capabilities`, not on `claude_code_version`.
    """

    subtype: str = "init"
    cwd: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[MCPServerState, ...] = ()
    permission_mode: str = field(name="permissionMode", default="")
    api_key_source: str = field(name="apiKeySource", default="")
    claude_code_version: str = ""
    output_style: str = ""
    slash_commands: tuple[str, ...] = ()
    terminal_slash_commands: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    plugins: tuple[PluginState, ...] = ()
    capabilities: tuple[str, ...] = ()
    additional_directories: tuple[str, ...] = ()
    original_cwd: str | None = None
    memory_paths: dict[str, Any] | None = None
    messaging_socket_path: str | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    view_mode: str | None = None
    analytics_disabled: bool | None = None
    product_feedback_disabled: bool | None = None
    served_by_anthropic: bool | None = None
    per_turn_effort_active: bool | None = None
    ultrathink_available: bool | None = None
    ultrathink_typed_raises: bool | None = None


class StatusMessage(SystemMessage, frozen=True, kw_only=True):
    """What the session is doing: `requesting`, `compacting`, or None; also sent after the permission mode changed. [03, 18za]"""

    subtype: str = "status"
    status: str | None = None
    permission_mode: str | None = field(name="permissionMode", default=None)
    compact_result: str | None = None
    compact_error: str | None = None


class SessionStateChanged(SystemMessage, frozen=True, kw_only=True):
    """`running`, `requires_action` or `idle`; only when switched on by the environment. [02f]"""

    subtype: str = "session_state_changed"
    state: str = ""
    sdk_host_only: bool | None = None


class SessionTitleChanged(SystemMessage, frozen=True, kw_only=True):
    """The session has a new title. [08a]"""

    subtype: str = "session_title_changed"
    title: str = ""


class CompactMetadata(Part, frozen=True, kw_only=True):
    """How a conversation was shortened; counts are tokens."""

    trigger: str = ""
    pre_tokens: int = 0
    post_tokens: int | None = None
    cumulative_dropped_tokens: int | None = None
    duration_ms: Number | None = None
    preserved_segment: dict[str, Any] | None = None
    preserved_messages: dict[str, Any] | None = None


class CompactBoundary(SystemMessage, frozen=True, kw_only=True):
    """Everything before this was replaced by a summary. [18za]"""

    subtype: str = "compact_boundary"
    compact_metadata: CompactMetadata = CompactMetadata()
    logical_parent_uuid: str | None = None


class CommandsChanged(SystemMessage, frozen=True, kw_only=True):
    """The full new list of slash commands. [08a]"""

    subtype: str = "commands_changed"
    commands: tuple[dict[str, Any], ...] = ()


class Informational(SystemMessage, frozen=True, kw_only=True):
    """A line of text for the user, such as a hook's `systemMessage` or the reason why a prompt was blocked. [05e]"""

    subtype: str = "informational"
    content: str = ""
    level: str = ""
    tag: str | None = None
    tool_use_id: str | None = None
    prevent_continuation: bool | None = None
    prompt_submit_outcome: dict[str, Any] | None = None


class Notification(SystemMessage, frozen=True, kw_only=True):
    """A short notice that replaces an earlier one with the same `key`. [05j]"""

    subtype: str = "notification"
    key: str = ""
    text: str = ""
    priority: str = ""
    color: str | None = None
    timeout_ms: Number | None = None


class ThinkingTokens(SystemMessage, frozen=True, kw_only=True):
    """An estimate of how much the model has been thinking, in tokens. [03]"""

    subtype: str = "thinking_tokens"
    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0


class LocalCommandOutput(SystemMessage, frozen=True, kw_only=True):
    """What a slash command printed. *Declared.*"""

    subtype: str = "local_command_output"
    content: str = ""


class WorkerShuttingDown(SystemMessage, frozen=True, kw_only=True):
    """The worker goes away on purpose; a resumed session repeats old ones. *Declared.*"""

    subtype: str = "worker_shutting_down"
    reason: str = ""


# ----------------------------------------------------------------------------------------------------- the API and models


class APIRetryMessage(SystemMessage, frozen=True, kw_only=True):
    """The CLI waits `retry_delay_ms` and calls the API again; `error_status` is None when there was no HTTP answer. [11_500_then_ok]"""

    subtype: str = "api_retry"
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: Number = 0
    error_status: int | None = None
    error: str = ""


class ModelFallback(SystemMessage, frozen=True, kw_only=True):
    """Another model has taken over, for instance after repeated 529s. Undeclared, but seen on 2.1.329."""

    subtype: str = "model_fallback"
    trigger: str = ""
    original_model: str = ""
    fallback_model: str = ""
    content: str = ""


class ModelRefusalFallback(SystemMessage, frozen=True, kw_only=True):
    """The model refused, and another one is asked. *Declared.*"""

    subtype: str = "model_refusal_fallback"
    trigger: str = ""
    direction: str = ""
    scope: str | None = None
    original_model: str = ""
    fallback_model: str = ""
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    retracted_message_uuids: tuple[str, ...] | None = None
    refused_user_message_uuid: str | None = None
    content: str = ""


class ModelRefusalNoFallback(SystemMessage, frozen=True, kw_only=True):
    """The model refused, and there is nobody else to ask."""

    subtype: str = "model_refusal_no_fallback"
    original_model: str = ""
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    refused_user_message_uuid: str | None = None
    content: str = ""


# ------------------------------------------------------------------------------------------------------------------ storage


class MemoryRecall(SystemMessage, frozen=True, kw_only=True):
    """Memories were added to the turn. *Declared.*"""

    subtype: str = "memory_recall"
    mode: str = ""
    memories: tuple[dict[str, Any], ...] = ()


class FilesPersisted(SystemMessage, frozen=True, kw_only=True):
    """Files were uploaded, or failed to be. *Declared.*"""

    subtype: str = "files_persisted"
    files: tuple[dict[str, Any], ...] = ()
    failed: tuple[dict[str, Any], ...] = ()
    processed_at: str | None = None


class MirrorError(SystemMessage, frozen=True, kw_only=True):
    """The transcript could not be mirrored to the host's store. *Declared.*"""

    subtype: str = "mirror_error"
    error: str = ""
    key: dict[str, Any] | None = None


class SessionWritesLost(SystemMessage, frozen=True, kw_only=True):
    """Parts of the transcript could not be written. *Declared, by name only*: see `to_dict()` for what it says."""

    subtype: str = "session_writes_lost"


# --- `system` messages about work under way: tool calls that were denied, tasks, hooks, long requests, installations.


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


# ------------------------------------------------------------------------------------------------------------------ speech


class APIMessage(Part, frozen=True, kw_only=True):
    """The message as the Messages API gives it, usually with **one** content block and no `stop_reason` yet.

    One API message of N blocks arrives as N `AssistantMessage`s with the same `id`, each with the same usage: count usage once
    per `id`, or take it from the result.
    """

    always_written: ClassVar[frozenset[str]] = frozenset({"content"})

    id: str = ""
    type: str = "message"
    role: str = "assistant"
    model: str = ""
    content: tuple[ContentBlock, ...] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    stop_details: dict[str, Any] | None = None
    container: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    diagnostics: Any = None


class AssistantMessage(Message, tag_field="type", tag="assistant", frozen=True, kw_only=True):
    """What the model said, block by block. Errors arrive in this shape too: `error` set and `is_synthetic` true. [11_*]"""

    message: APIMessage = APIMessage()
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    timestamp: str | None = None
    request_id: str | None = None
    error: str | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    api_error: str | None = None
    aborted: bool | None = None
    user_message_uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()
    tool_use_meta: tuple[dict[str, Any], ...] | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    thinking_duration_ms: Number | None = None
    thinking_display: str | None = None
    local_command_source: str | None = None
    local_command_run: dict[str, Any] | None = None

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """The blocks."""
        return self.message.content

    @property
    def model(self) -> str:
        """The model that answered; `<synthetic>` when the CLI speaks for itself."""
        return self.message.model

    @property
    def text(self) -> str:
        """The text blocks, joined by a newline; blocks without text, or with something else in its place, add nothing."""
        return "\n".join(block.text for block in self.message.content if isinstance(block, TextBlock) and block.text)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tools the model wants to use."""
        return tuple(block for block in self.message.content if isinstance(block, ToolUseBlock))

    @property
    def is_synthetic(self) -> bool:
        """Whether the CLI wrote this itself, as it does for API errors and slash commands."""
        return self.message.model == "<synthetic>"


class UserContent(Part, frozen=True, kw_only=True):
    """Text, or blocks: what stands in `UserMessage.message`."""

    always_written: ClassVar[frozenset[str]] = frozenset({"content"})

    role: str = "user"
    content: str | tuple[ContentBlock, ...] = ""


class UserMessage(Message, tag_field="type", tag="user", frozen=True, kw_only=True):
    """A user's turn: towards the CLI a prompt; from the CLI mostly tool results, and echoes of prompts (`is_replay`)."""

    message: UserContent = UserContent()
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    timestamp: str | None = None
    priority: str | None = None
    should_query: bool | None = field(name="shouldQuery", default=None)
    client_composed: bool | None = None
    is_synthetic: bool | None = field(name="isSynthetic", default=None)
    is_replay: bool | None = field(name="isReplay", default=None)
    origin: dict[str, Any] | None = None
    """What made the message, when it is no prompt of this host: at least its `kind`. None for an object without one, such as `{}`."""
    tool_use_result: Any = None
    tool_result_meta: tuple[dict[str, Any], ...] | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    pasted_content: tuple[Any, ...] | None = None
    inline_pastes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """An origin without a kind says nothing."""
        _drop_nameless_origin(self)

    @property
    def content(self) -> str | tuple[ContentBlock, ...]:
        """The text or the blocks."""
        return self.message.content

    @property
    def text(self) -> str:
        """The text, or the text blocks joined by a newline."""
        content = self.message.content
        if isinstance(content, str):
            return content
        return "\n".join(block.text for block in content if isinstance(block, TextBlock) and block.text)

    @property
    def tool_results(self) -> tuple[ToolResultBlock, ...]:
        """The tool results among the blocks."""
        content = self.message.content
        return () if isinstance(content, str) else tuple(block for block in content if isinstance(block, ToolResultBlock))


class StreamEvent(Message, tag_field="type", tag="stream_event", frozen=True, kw_only=True):
    """A raw event of the Messages API stream; only with `include_partial_messages`. [03]

    The complete `AssistantMessage` of a block arrives **before** that block's `content_block_stop`.
    """

    event: dict[str, Any] = field(default_factory=dict)
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    api_message_id: str | None = None
    ttft_ms: Number | None = None
    thinking_display: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()
    owed_rows: tuple[Any, ...] | None = None
    abandoned_blocks: dict[str, Any] | None = None

    def _delta(self, key: str) -> str:
        delta = self.event.get("delta") if self.event.get("type") == "content_block_delta" else None
        value = delta.get(key) if isinstance(delta, dict) else None
        return value if isinstance(value, str) else ""

    @property
    def event_type(self) -> str:
        """`message_start`, `content_block_delta`, …"""
        kind = self.event.get("type")
        return kind if isinstance(kind, str) else ""

    @property
    def delta_type(self) -> str:
        """`text_delta`, `thinking_delta`, `input_json_delta`, …; empty when this is no `content_block_delta`."""
        return self._delta("type")

    @property
    def text(self) -> str:
        """The piece of answer in this event, or an empty string."""
        return self._delta("text")

    @property
    def thinking(self) -> str:
        """The piece of reasoning in this event, or an empty string."""
        return self._delta("thinking")


# ------------------------------------------------------------------------------------------------------------------ result


class PermissionDenial(Part, frozen=True, kw_only=True):
    """A tool call that was not allowed."""

    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)


class ResultMessage(Message, tag_field="type", tag="result", frozen=True, kw_only=True):
    """A turn is over. Test `is_error`, never `subtype`: API failures arrive as `subtype: "success"` with `is_error: true`. [11_*]

    `usage` is of this turn; `total_cost_usd` (US dollars) and `model_usage` are cumulative over the process. Frames may follow.
    """

    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    duration_ms: Number = 0
    duration_api_ms: Number = 0
    num_turns: int = 0
    stop_reason: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    total_cost_usd: Number = 0
    usage: Usage = Usage()
    model_usage: dict[str, ModelUsage] = field(name="modelUsage", default_factory=dict)
    permission_denials: tuple[PermissionDenial, ...] = ()
    result_index: int | None = None
    errors: tuple[str, ...] = ()
    structured_output: Any = None
    terminal_reason: str | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    api_error: str | None = None
    startup_failure_reason: str | None = None
    invalid_config_file: dict[str, Any] | None = None
    deferred_tool_use: dict[str, Any] | None = None
    """The call that a PreToolUse hook has put off: `id`, `name`, `input`. A process that resumes the session takes it up first."""
    origin: dict[str, Any] | None = None
    local_command: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()
    queued_turn_count: int | None = None
    ttft_ms: Number | None = None
    ttft_stream_ms: Number | None = None
    time_to_request_ms: Number | None = None
    first_content_frame_ms: Number | None = None
    request_sent_wall_ms: Number | None = None
    first_request_input_tokens: int | None = None
    first_request_cache_read_input_tokens: int | None = None
    model_usage_since_last_result: dict[str, ModelUsage] | None = None
    subagent_stats: dict[str, Any] | None = None
    safety_stops: int | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    assistant_error: str | None = field(name=HIDDEN + "assistant_error", default=None)
    """The `error` of the turn's last assistant message; not on the wire: whoever follows the conversation fills it in."""
    resets_at: dt.datetime | None = field(name=HIDDEN + "resets_at", default=None)
    """When the limit named by the last `rate_limit_event` lifts; filled in like `assistant_error`."""
    prompt_uuids: tuple[str, ...] | None = field(name=HIDDEN + "prompt_uuids", default=None)
    """The prompts that this is the result of, the one it answers first; filled in like `assistant_error`. Empty for a turn that none of
    this conversation's prompts asked for; None when nobody followed the conversation."""
    expects_structured_output: bool = field(name=HIDDEN + "expects_structured_output", default=False)
    """Whether a JSON schema was asked for, so that a success without `structured_output` is none; filled in like `assistant_error`."""

    def __post_init__(self) -> None:
        """An origin without a kind says nothing."""
        _drop_nameless_origin(self)

    @property
    def is_unsolicited(self) -> bool:
        """Whether no user message asked for this turn: a background task woke the session. [15a, 24a]

        A prompt may all the same have been folded into it: then that one is in `prompt_uuids`.
        """
        return self.origin is not None and self.origin.get("kind") == "task-notification"

    @property
    def answers_a_prompt(self) -> bool:
        """Whether it is the result of something that was asked here, as far as anybody knows: by `prompt_uuids`, else by its origin.

        A session that is resumed where a tool was put off begins with a turn of its own, whose result looks like any other.
        """
        return not self.is_unsolicited if self.prompt_uuids is None else bool(self.prompt_uuids)

    @property
    def outcome(self) -> Outcome:
        """What it means: fine or failed, whose fault, and whether trying again can help."""
        return diagnose(self)

    def raise_for_error(self) -> Self:
        """The result itself when the run went well; raises the `ResultError` that says what went wrong when it did not."""
        error = error_for(self)
        if error is not None:
            raise error
        return self


def _drop_nameless_origin(message: UserMessage | ResultMessage) -> None:
    if message.origin is not None and not isinstance(message.origin.get("kind"), str):
        force_setattr(message, "origin", None)


def _subtypes(base: type[SystemMessage]) -> dict[str, type[SystemMessage]]:
    found = {base().subtype: base}
    for child in base.__subclasses__():
        found |= _subtypes(child)
    found.pop("", None)  # bases that only share fields
    return found


SYSTEM_SUBTYPES = _subtypes(SystemMessage)
"""The class of each known `system` subtype."""
