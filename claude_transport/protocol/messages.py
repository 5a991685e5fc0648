"""The messages of a conversation as typed classes. Payloads that belong to others (tool input, API events, schemas) stay dicts.

Names on the wire (`permissionMode`, `modelUsage`) become Python names here. Every field has a default, so a CLI that is newer, or that
leaves a field out, never breaks a stream. Keys without a field are still in `to_dict()`.

`codec` turns lines into these classes. Names in brackets are recordings of CLI 2.1.329; *declared* means published in type declarations,
but never seen.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar, Self

from msgspec import field
from msgspec.structs import force_setattr

from claude_transport.protocol.blocks import ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from claude_transport.protocol.diagnosis import Outcome, diagnose, error_for
from claude_transport.protocol.envelope import HIDDEN, Message, ModelUsage, Number, Part, Usage

# What is said: assistant, user, stream events, results.


class APIMessage(Part, frozen=True, kw_only=True):
    """The message of the Messages API, usually with **one** content block and without a `stop_reason`.

    An API message with N blocks arrives as N `AssistantMessage`s with the same `id` and the same usage. So count usage once per `id`, or
    take it from the result.
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
    """Text, thinking and tool calls of the model, one block at a time. API errors arrive as this class too, with `error` set and
    `is_synthetic` True. [11_*]
    """

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
        """The content blocks."""
        return self.message.content

    @property
    def model(self) -> str:
        """The model that answered; `<synthetic>` when the CLI wrote the message itself."""
        return self.message.model

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines. Blocks without text add nothing."""
        return "\n".join(block.text for block in self.message.content if isinstance(block, TextBlock) and block.text)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls among the blocks."""
        return tuple(block for block in self.message.content if isinstance(block, ToolUseBlock))

    @property
    def is_synthetic(self) -> bool:
        """True when the CLI wrote the message itself, as it does for API errors and slash commands."""
        return self.message.model == "<synthetic>"


class UserContent(Part, frozen=True, kw_only=True):
    """The content of `UserMessage.message`: text or blocks."""

    always_written: ClassVar[frozenset[str]] = frozenset({"content"})

    role: str = "user"
    content: str | tuple[ContentBlock, ...] = ""


class UserMessage(Message, tag_field="type", tag="user", frozen=True, kw_only=True):
    """A message with the role `user`. Sent to the CLI it is a prompt. From the CLI it is mostly tool results, or a repeated prompt
    (`is_replay`).
    """

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
    """What caused a message that is not a prompt of this host, at least its `kind`. None when the wire's object has no kind."""
    tool_use_result: Any = None
    tool_result_meta: tuple[dict[str, Any], ...] | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    pasted_content: tuple[Any, ...] | None = None
    inline_pastes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Drop an origin without a kind."""
        _drop_nameless_origin(self)

    @property
    def content(self) -> str | tuple[ContentBlock, ...]:
        """The text or the content blocks."""
        return self.message.content

    @property
    def text(self) -> str:
        """The text, or the text blocks joined by newlines."""
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
    """A raw event of the Messages API stream; sent only with `include_partial_messages`. [03]

    The complete `AssistantMessage` of a block arrives **before** the `content_block_stop` of that block.
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
        """The type of the API event: `message_start`, `content_block_delta`, …"""
        kind = self.event.get("type")
        return kind if isinstance(kind, str) else ""

    @property
    def delta_type(self) -> str:
        """The type of the delta: `text_delta`, `thinking_delta`, `input_json_delta`, …; empty for other events than
        `content_block_delta`.
        """
        return self._delta("type")

    @property
    def text(self) -> str:
        """The piece of answer text in this event, or an empty string."""
        return self._delta("text")

    @property
    def thinking(self) -> str:
        """The piece of thinking in this event, or an empty string."""
        return self._delta("thinking")


class PermissionDenial(Part, frozen=True, kw_only=True):
    """A tool call that was denied."""

    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)


class ResultMessage(Message, tag_field="type", tag="result", frozen=True, kw_only=True):
    """The end of a turn. Test `is_error`, never `subtype`: API failures arrive as `subtype: "success"` with `is_error: true`. [11_*]

    `usage` is for this turn. `total_cost_usd` (US dollars) and `model_usage` are totals since the process started. Other messages may
    follow.
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
    """The tool call that a PreToolUse hook deferred: `id`, `name`, `input`. A process that resumes the session handles it first."""
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
    """The `error` of the turn's last assistant message. Not on the wire: `Conversation` fills it in."""
    resets_at: dt.datetime | None = field(name=HIDDEN + "resets_at", default=None)
    """When the limit of the last `rate_limit_event` ends, in UTC. Not on the wire: `Conversation` fills it in."""
    prompt_uuids: tuple[str, ...] | None = field(name=HIDDEN + "prompt_uuids", default=None)
    """Uuids of the prompts that this result answers, the main one first. Empty for a turn that no prompt of this conversation started;
    None when no `Conversation` has seen the result. Not on the wire.
    """
    expects_structured_output: bool = field(name=HIDDEN + "expects_structured_output", default=False)
    """True when a JSON schema was requested. A success without `structured_output` is then a failure. Not on the wire: `Conversation`
    fills it in.
    """

    def __post_init__(self) -> None:
        """Drop an origin without a kind."""
        _drop_nameless_origin(self)

    @property
    def is_unsolicited(self) -> bool:
        """True when no user message started this turn: the end of a background task woke the session. [15a, 24a]

        The CLI may add a queued prompt to such a turn. That prompt is then in `prompt_uuids`.
        """
        return self.origin is not None and self.origin.get("kind") == "task-notification"

    @property
    def answers_a_prompt(self) -> bool:
        """True when this is the result of a prompt of this host: decided by `prompt_uuids`, or by `origin` when that is None.

        A session that is resumed at a deferred tool call begins with a turn of its own, whose result looks like any other.
        """
        return not self.is_unsolicited if self.prompt_uuids is None else bool(self.prompt_uuids)

    @property
    def outcome(self) -> Outcome:
        """Success or failure, with the kind of failure and whether a retry can help."""
        return diagnose(self)

    def raise_for_error(self) -> Self:
        """Return the result when the run succeeded; else raise the `ResultError` that describes the failure."""
        error = error_for(self)
        if error is not None:
            raise error
        return self


def _drop_nameless_origin(message: UserMessage | ResultMessage) -> None:
    if message.origin is not None and not isinstance(message.origin.get("kind"), str):
        force_setattr(message, "origin", None)


# Events of the session: limits, progress, lifecycle, resets, mirrors.


class RateLimitInfo(Part, rename="camel", frozen=True, kw_only=True):
    """The state of the account's limits. `status`: allowed, allowed_warning, rejected. Times are seconds since the epoch."""

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
        """When the limit ends, as an aware datetime in UTC; None when unknown, or when the number is not a valid time."""
        try:
            return None if self.resets_at is None else dt.datetime.fromtimestamp(self.resets_at, dt.UTC)
        except (ValueError, OverflowError, OSError):  # outside of the years that datetime can hold
            return None


class RateLimitEvent(Message, tag_field="type", tag="rate_limit_event", frozen=True, kw_only=True):
    """The limits of the account changed. Sent only with a subscription login. [25d, 25l]"""

    rate_limit_info: RateLimitInfo = RateLimitInfo()
    session_id: str | None = None
    uuid: str | None = None


class ToolProgress(Message, tag_field="type", tag="tool_progress", frozen=True, kw_only=True):
    """A tool is still running. The first one comes after 30 s. `parent_tool_use_id` is the tool call; `tool_use_id` only identifies this
    message. [17c]
    """

    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: Number = 0
    heartbeat: bool | None = None
    task_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class CommandLifecycle(Message, tag_field="type", tag="command_lifecycle", frozen=True, kw_only=True):
    """The user message `command_uuid` changed its state: queued, started, completed, cancelled. Sent, but not declared. [07a]"""

    command_uuid: str = ""
    state: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ConversationReset(Message, tag_field="type", tag="conversation_reset", frozen=True, kw_only=True):
    """`/clear` began a new conversation. Later messages have another `session_id`. [18za]"""

    new_conversation_id: str = ""
    trigger: str | None = None
    user_message_uuid: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class TranscriptMirror(Message, tag_field="type", tag="transcript_mirror", frozen=True, kw_only=True):
    """Lines that were added to the transcript at `file_path`. Comes before the result, and once more after the end of input. [16o]"""

    file_path: str = field(name="filePath", default="")
    entries: tuple[Any, ...] = ()


class KeepAlive(Message, tag_field="type", tag="keep_alive", frozen=True, kw_only=True):
    """A message without content. Both sides accept it; it was not seen on stdio. [18p]"""


class UpdateEnvironmentVariables(Message, tag_field="type", tag="update_environment_variables", frozen=True, kw_only=True):
    """Host to CLI: sets environment variables in the running CLI. The CLI does not answer. [18q]"""

    variables: dict[str, str] = field(default_factory=dict)


class ActiveGoal(Message, tag_field="type", tag="active_goal", frozen=True, kw_only=True):
    """The goal of the session, or None. *Declared.*"""

    value: dict[str, Any] | None = None
    session_id: str | None = None
    uuid: str | None = None


class AuthStatus(Message, tag_field="type", tag="auth_status", frozen=True, kw_only=True):
    """The progress of a login. *Declared.*"""

    is_authenticating: bool = field(name="isAuthenticating", default=False)
    output: tuple[str, ...] = ()
    error: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class PromptSuggestion(Message, tag_field="type", tag="prompt_suggestion", frozen=True, kw_only=True):
    """A suggestion for the user's next prompt. *Declared.*"""

    suggestion: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ToolUseSummary(Message, tag_field="type", tag="tool_use_summary", frozen=True, kw_only=True):
    """One sentence about several tool calls. *Declared.*"""

    summary: str = ""
    preceding_tool_use_ids: tuple[str, ...] = ()
    session_id: str | None = None
    uuid: str | None = None


class SessionForked(Message, frozen=True, kw_only=True):
    """The running session (`actual`) is not the expected one (`expected`). Delivered right after the init message that names it; never
    on the wire.

    `expected` is the id from the options (`session_id`, else `resume`), or the session before. `requested` is True when the options asked
    for a fork: then the resumed session stays unchanged, and new messages belong to `actual` only. When it is False, check your stored
    session ids: an older CLI, another machine or a third-party transport may answer a resume with a new session. A `/clear` sends
    `ConversationReset` instead.

    CLI 2.1.329 keeps the id of a resumed session [16b], uses the id it is given [16d, 16m], and makes a new one only for a fork.
    """

    expected: str = ""
    actual: str = ""
    requested: bool = False

    @property
    def type(self) -> str:
        """Always `session_forked`, which is never sent on the wire; `raw` is empty."""
        return "session_forked"

    def to_dict(self) -> dict[str, str | bool]:
        """Return the type and the fields."""
        return {"type": self.type, "expected": self.expected, "actual": self.actual, "requested": self.requested}


# `system` messages: one class for each known subtype. First those about the session and the turn.


class SystemMessage(Message, tag_field="type", tag="system", frozen=True, kw_only=True):
    """A report of the CLI about itself. `subtype` says which; an unknown subtype stays a plain `SystemMessage`."""

    subtype: str = ""
    session_id: str | None = None
    uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()


class MCPServerState(Part, frozen=True, kw_only=True):
    """An MCP server in `InitMessage.mcp_servers`. `status`: connected, failed, needs-auth, pending, disabled."""

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

    Test for features with `capabilities`, not with `claude_code_version`.
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
    """The session's activity: `requesting`, `compacting`, or None. Also sent after the permission mode changed. [03, 18za]"""

    subtype: str = "status"
    status: str | None = None
    permission_mode: str | None = field(name="permissionMode", default=None)
    compact_result: str | None = None
    compact_error: str | None = None


class SessionStateChanged(SystemMessage, frozen=True, kw_only=True):
    """The session is `running`, `idle`, or waits for the user (`requires_action`). Sent only when an environment variable enables it.
    [02f]
    """

    subtype: str = "session_state_changed"
    state: str = ""
    sdk_host_only: bool | None = None


class SessionTitleChanged(SystemMessage, frozen=True, kw_only=True):
    """The session has a new title. [08a]"""

    subtype: str = "session_title_changed"
    title: str = ""


class CompactMetadata(Part, frozen=True, kw_only=True):
    """How a conversation was compacted. Counts are tokens."""

    trigger: str = ""
    pre_tokens: int = 0
    post_tokens: int | None = None
    cumulative_dropped_tokens: int | None = None
    duration_ms: Number | None = None
    preserved_segment: dict[str, Any] | None = None
    preserved_messages: dict[str, Any] | None = None


class CompactBoundary(SystemMessage, frozen=True, kw_only=True):
    """Everything before this message was replaced by a summary. [18za]"""

    subtype: str = "compact_boundary"
    compact_metadata: CompactMetadata = CompactMetadata()
    logical_parent_uuid: str | None = None


class CommandsChanged(SystemMessage, frozen=True, kw_only=True):
    """The complete new list of slash commands. [08a]"""

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
    """A short notice for the user. It replaces an earlier notice with the same `key`. [05j]"""

    subtype: str = "notification"
    key: str = ""
    text: str = ""
    priority: str = ""
    color: str | None = None
    timeout_ms: Number | None = None


class ThinkingTokens(SystemMessage, frozen=True, kw_only=True):
    """An estimate of the tokens that the model has used for thinking so far. [03]"""

    subtype: str = "thinking_tokens"
    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0


class LocalCommandOutput(SystemMessage, frozen=True, kw_only=True):
    """The output of a slash command. *Declared.*"""

    subtype: str = "local_command_output"
    content: str = ""


class WorkerShuttingDown(SystemMessage, frozen=True, kw_only=True):
    """The worker process of the CLI shuts down on purpose. A resumed session sends earlier messages of this kind again. *Declared.*"""

    subtype: str = "worker_shutting_down"
    reason: str = ""


# `system` messages about the API and models.


class APIRetryMessage(SystemMessage, frozen=True, kw_only=True):
    """The CLI waits `retry_delay_ms` and then calls the API again. `error_status` is None when there was no HTTP response.
    [11_500_then_ok]
    """

    subtype: str = "api_retry"
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: Number = 0
    error_status: int | None = None
    error: str = ""


class ModelFallback(SystemMessage, frozen=True, kw_only=True):
    """Another model took over, for example after repeated 529 errors. Seen on 2.1.329, but not declared."""

    subtype: str = "model_fallback"
    trigger: str = ""
    original_model: str = ""
    fallback_model: str = ""
    content: str = ""


class ModelRefusalFallback(SystemMessage, frozen=True, kw_only=True):
    """The model refused, and another model is asked. *Declared.*"""

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
    """The model refused, and there is no other model to ask."""

    subtype: str = "model_refusal_no_fallback"
    original_model: str = ""
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    refused_user_message_uuid: str | None = None
    content: str = ""


# `system` messages about storage.


class MemoryRecall(SystemMessage, frozen=True, kw_only=True):
    """Memories were added to the turn. *Declared.*"""

    subtype: str = "memory_recall"
    mode: str = ""
    memories: tuple[dict[str, Any], ...] = ()


class FilesPersisted(SystemMessage, frozen=True, kw_only=True):
    """Files were uploaded; those that could not be are in `failed`. *Declared.*"""

    subtype: str = "files_persisted"
    files: tuple[dict[str, Any], ...] = ()
    failed: tuple[dict[str, Any], ...] = ()
    processed_at: str | None = None


class MirrorError(SystemMessage, frozen=True, kw_only=True):
    """The transcript could not be mirrored to the store of the host. *Declared.*"""

    subtype: str = "mirror_error"
    error: str = ""
    key: dict[str, Any] | None = None


class SessionWritesLost(SystemMessage, frozen=True, kw_only=True):
    """Parts of the transcript could not be written. Only the name is *declared*; `to_dict()` has its content."""

    subtype: str = "session_writes_lost"


# `system` messages about denied tool calls, tasks, hooks, long requests and installations.


class PermissionDeniedMessage(SystemMessage, frozen=True, kw_only=True):
    """A tool call was denied without asking the user or the host. [04h]"""

    subtype: str = "permission_denied"
    tool_name: str = ""
    tool_use_id: str = ""
    message: str = ""
    agent_id: str | None = None
    decision_reason_type: str | None = None
    decision_reason: str | None = None


class TaskUsage(Part, frozen=True, kw_only=True):
    """Tokens, tool calls and time that a task has used so far."""

    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: Number = 0


class TaskStarted(SystemMessage, frozen=True, kw_only=True):
    """A subagent (`local_agent`) or background shell (`local_bash`) started. [15a, 24a]"""

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
    """The progress of a running task. [15a]"""

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
    """The changed fields of a task; None means unchanged. `end_time` is in milliseconds since the epoch."""

    status: str | None = None
    description: str | None = None
    end_time: Number | None = None
    error: str | None = None
    is_backgrounded: bool | None = None


class TaskUpdated(SystemMessage, frozen=True, kw_only=True):
    """A task changed. Its status is completed, killed, … [15a]"""

    subtype: str = "task_updated"
    task_id: str = ""
    run_id: str | None = None
    patch: TaskPatch = TaskPatch()


class TaskNotification(SystemMessage, frozen=True, kw_only=True):
    """A task ended (`completed`, `stopped`, `failed`). This may wake the session and start a turn without a prompt. [15a, 24a]"""

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
    """A task that runs in the background."""

    task_id: str = ""
    run_id: str | None = None
    task_type: str = ""
    description: str = ""
    subagent_type: str | None = None


class BackgroundTasksChanged(SystemMessage, frozen=True, kw_only=True):
    """**All** tasks that run in the background now. This list replaces the previous one. [24a]"""

    subtype: str = "background_tasks_changed"
    tasks: tuple[BackgroundTask, ...] = ()


class HookMessage(SystemMessage, frozen=True, kw_only=True):
    """Base of the messages about hooks from settings files. (Hooks of the host arrive as `HookCallback` requests.)

    When the CLI sends no `hook_event`, it is taken from `hook_event_name`, or from `hook_name` ("PreToolUse:Bash").
    """

    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    hook_event_name: str | None = None

    def __post_init__(self) -> None:
        """Take the event from its other names."""
        if not self.hook_event:
            force_setattr(self, "hook_event", self.hook_event_name or self.hook_name.partition(":")[0])


class HookStarted(HookMessage, frozen=True, kw_only=True):
    """A hook started. Those of SessionStart come before the answer to `initialize`. [05m]"""

    subtype: str = "hook_started"


class HookProgress(HookMessage, frozen=True, kw_only=True):
    """The output of a running hook so far. *Declared.*"""

    subtype: str = "hook_progress"
    output: str = ""
    stdout: str = ""
    stderr: str = ""


class HookResponse(HookMessage, frozen=True, kw_only=True):
    """A hook ended. [05l]"""

    subtype: str = "hook_response"
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    outcome: str = ""


class ControlRequestProgress(SystemMessage, frozen=True, kw_only=True):
    """A long control request is still running. `request_id` is the id that the host chose. [08a: side_question]"""

    subtype: str = "control_request_progress"
    request_id: str = ""
    status: str = ""
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: Number | None = None
    error_status: int | None = None


class ElicitationComplete(SystemMessage, frozen=True, kw_only=True):
    """The question of an MCP server was answered elsewhere (at a URL). *Declared.*"""

    subtype: str = "elicitation_complete"
    mcp_server_name: str = ""
    elicitation_id: str = ""


class PluginInstall(SystemMessage, frozen=True, kw_only=True):
    """The progress of installing plugins: started, installed, failed, completed. *Declared.*"""

    subtype: str = "plugin_install"
    status: str = ""
    name: str | None = None
    error: str | None = None


def _subtypes(base: type[SystemMessage]) -> dict[str, type[SystemMessage]]:
    found = {base().subtype: base}
    for child in base.__subclasses__():
        found |= _subtypes(child)
    found.pop("", None)  # classes that only share fields
    return found


SYSTEM_SUBTYPES = _subtypes(SystemMessage)
"""The class of each known `system` subtype."""
