"""The messages of a conversation as typed classes. Payloads that belong to others (tool input, API events, schemas) stay dicts.

Names on the wire (`permissionMode`, `modelUsage`) become Python names here. Every field has a default, so a CLI that is newer, or that
leaves a field out, never breaks a stream. Keys without a field are still in `to_dict()`.

`codec` turns lines into these classes. Names in brackets are recordings of CLI 2.1.329.
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
    """A message of the Messages API, as `AssistantMessage.message` holds it: usually **one** content block, and no `stop_reason`.

    The CLI sends an API message with N blocks as N `AssistantMessage`s with the same `id` and the same `usage`. So count the usage once per
    `id`, or take it from the `ResultMessage`.
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
    """What the model said: text, thinking and tool calls, usually one content block in each message. API errors arrive as this class too,
    with the kind of the error in `error` and `is_synthetic` True.

    `parent_tool_use_id` is None in the main conversation. In a message of a subagent it is the id of the tool call that started the
    subagent. `aborted` is True for an answer that an interrupt cut off.
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
    is_meta: bool | None = None

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """The content blocks of this message, in order; usually one."""
        return self.message.content

    @property
    def model(self) -> str:
        """The name of the model that answered, such as `claude-opus-5-5`; `<synthetic>` when the CLI wrote the message itself."""
        return self.message.model

    @property
    def text(self) -> str:
        """The texts of all text blocks of this message, joined by newlines; an empty string when it has none. Thinking is left out."""
        return "\n".join(block.text for block in self.message.content if isinstance(block, TextBlock) and block.text)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls of the model in this message, in order; empty when it has none. Calls of the API's own tools are left out."""
        return tuple(block for block in self.message.content if isinstance(block, ToolUseBlock))

    @property
    def is_synthetic(self) -> bool:
        """True when the CLI wrote this message itself, as it does for API errors and slash commands; False when a model wrote it."""
        return self.message.model == "<synthetic>"


class UserContent(Part, frozen=True, kw_only=True):
    """The content of `UserMessage.message`: the role `user`, and in `content` a text or content blocks."""

    always_written: ClassVar[frozenset[str]] = frozenset({"content"})

    role: str = "user"
    content: str | tuple[ContentBlock, ...] = ""


class UserMessage(Message, tag_field="type", tag="user", frozen=True, kw_only=True):
    """A message with the role `user`. A message that you send to the CLI is a prompt. A message from the CLI mostly holds the results of
    tools; it can also be a repeated prompt (`is_replay`) or a text that the CLI added (`is_synthetic`).
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
    refused_message_id: str | None = None
    """Id at the API of the message that the model refused to finish. With this message, the CLI asks it once more."""
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
        """The content of this message: one text, or a tuple of content blocks."""
        return self.message.content

    @property
    def text(self) -> str:
        """The text of this message. When the content is blocks: the texts of its text blocks, joined by newlines; an empty string without
        any.
        """
        content = self.message.content
        if isinstance(content, str):
            return content
        return "\n".join(block.text for block in content if isinstance(block, TextBlock) and block.text)

    @property
    def tool_results(self) -> tuple[ToolResultBlock, ...]:
        """The results of tools in this message, in order; empty when it has none."""
        content = self.message.content
        return () if isinstance(content, str) else tuple(block for block in content if isinstance(block, ToolResultBlock))


class StreamEvent(Message, tag_field="type", tag="stream_event", frozen=True, kw_only=True):
    """One raw event of the Messages API stream, as a dict in `event`: for example, the next piece of an answer that the model is still
    writing. Sent only with the option `include_partial_messages`.

    The complete `AssistantMessage` of a content block arrives **before** the `content_block_stop` event of that block.
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
        """The `type` of the API event: `message_start`, `content_block_delta`, …; an empty string when it has none."""
        kind = self.event.get("type")
        return kind if isinstance(kind, str) else ""

    @property
    def delta_type(self) -> str:
        """The kind of piece that a `content_block_delta` event adds: `text_delta`, `thinking_delta`, `input_json_delta`, …; an empty string
        for all other events.
        """
        return self._delta("type")

    @property
    def text(self) -> str:
        """The piece of the answer's text that this event adds; an empty string for an event without text."""
        return self._delta("text")

    @property
    def thinking(self) -> str:
        """The piece of the model's thinking that this event adds; an empty string for an event without thinking."""
        return self._delta("thinking")


class PermissionDenial(Part, frozen=True, kw_only=True):
    """A tool call that was denied, in `ResultMessage.permission_denials`: the tool, the id of the call, and the input of the tool."""

    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)


class ResultMessage(Message, tag_field="type", tag="result", frozen=True, kw_only=True):
    """The end of a turn: the final text in `result`, the cost, and whether the turn failed. Test `is_error`, never `subtype`: API failures
    arrive as `subtype: "success"` with `is_error: true`.

    `outcome` and `raise_for_error()` name the kind of failure. `usage` counts the tokens of this turn. `total_cost_usd` (US dollars) and
    `model_usage` are totals since the process started; in a resumed session, since that session began. Other messages may follow.
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
    begun_message_ids: tuple[str, ...] = ()
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
    said: str | None = field(name=HIDDEN + "said", default=None)
    """The text of a failure without the secrets of the session's options, for the error. Not on the wire: a `Query` fills it in."""

    def __post_init__(self) -> None:
        """Drop an origin without a kind."""
        _drop_nameless_origin(self)

    @property
    def is_unsolicited(self) -> bool:
        """True when no user message started this turn: a background task ended and woke the session, which started the turn itself. [15a,
        24a]

        The CLI may add a queued prompt to such a turn. That prompt is then in `prompt_uuids`.
        """
        return self.origin is not None and self.origin.get("kind") == "task-notification"

    @property
    def answers_a_prompt(self) -> bool:
        """True when this is the result of a prompt that this host sent; False for a turn that the CLI started by itself.

        `prompt_uuids` decides, which a `Query` fills in. When it is None, `is_unsolicited` decides. That is wrong for a session resumed at
        a deferred tool call: it begins with a turn of its own, whose result looks like any other.
        """
        return not self.is_unsolicited if self.prompt_uuids is None else bool(self.prompt_uuids)

    @property
    def outcome(self) -> Outcome:
        """The meaning of this result: success or the kind of failure, whether a retry can help, and a text for users. Never raises.

        The turn failed when `is_error` is True, or when a JSON schema was requested and `structured_output` is missing.
        """
        return diagnose(self)

    def raise_for_error(self) -> Self:
        """Return this result when the turn succeeded; otherwise raise the error that describes the failure. `outcome` tells it without
        raising.

        Raises:
            ResultError: the turn failed; the subclass says how: `RateLimited`, `AuthFailed`, `MaxTurnsReached`, … Its `result` is this
                message. What the CLI wrote is its `reason`, without secrets and cut.
        """
        error = error_for(self)
        if error is not None:
            raise error
        return self


def _drop_nameless_origin(message: UserMessage | ResultMessage) -> None:
    if message.origin is not None and not isinstance(message.origin.get("kind"), str):
        force_setattr(message, "origin", None)


# Events of the session: limits, progress, lifecycle, resets, mirrors.


class RateLimitInfo(Part, rename="camel", frozen=True, kw_only=True):
    """The state of the account's usage limits, in a `RateLimitEvent`. `status`: allowed, allowed_warning, rejected. `resets_at` and
    `overage_resets_at` are in seconds since the epoch.

    `rate_limit_type` names the limit (`five_hour`, …). `unified_windows` has the state of each limit by its name.
    """

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
        """The time at which the limit ends (`resets_at`) as an aware datetime in UTC; None when unknown, or when the number is not a valid
        time.
        """
        try:
            return None if self.resets_at is None else dt.datetime.fromtimestamp(self.resets_at, dt.UTC)
        except (ValueError, OverflowError, OSError):  # outside of the years that datetime can hold
            return None


class RateLimitEvent(Message, tag_field="type", tag="rate_limit_event", frozen=True, kw_only=True):
    """A report on the account's usage limits, in `rate_limit_info`. Sent only with a subscription login, not with an API key."""

    rate_limit_info: RateLimitInfo = RateLimitInfo()
    session_id: str | None = None
    uuid: str | None = None


class ToolProgress(Message, tag_field="type", tag="tool_progress", frozen=True, kw_only=True):
    """A tool call has been running for `elapsed_time_seconds`. The first of these messages comes after 30 s. `parent_tool_use_id` is the id
    of the tool call; `tool_use_id` only identifies this message.
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
    """The user message with the uuid `command_uuid` has a new `state`: queued, started, completed, cancelled. Sent only for user messages
    with a uuid. The CLI's type declarations do not contain it.
    """

    command_uuid: str = ""
    state: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ConversationReset(Message, tag_field="type", tag="conversation_reset", frozen=True, kw_only=True):
    """The command `/clear` ended the conversation and began a new one in the same process. Later messages have another `session_id`, which
    is not `new_conversation_id`.
    """

    new_conversation_id: str = ""
    trigger: str | None = None
    user_message_uuid: str | None = None
    timestamp: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class TranscriptMirror(Message, tag_field="type", tag="transcript_mirror", frozen=True, kw_only=True):
    """A copy of the lines that were added to the session's transcript file at `file_path`; `entries` has them as JSON values. Sent only
    with the option `session_mirror`: before the result, and once more after the end of input.
    """

    file_path: str = field(name="filePath", default="")
    entries: tuple[Any, ...] = ()


class KeepAlive(Message, tag_field="type", tag="keep_alive", frozen=True, kw_only=True):
    """A message without content, to keep a connection alive. The CLI ignores it on its input; it was never seen on its output."""


class UpdateEnvironmentVariables(Message, tag_field="type", tag="update_environment_variables", frozen=True, kw_only=True):
    """The host tells the running CLI to set environment `variables`. The CLI accepts the message and sends no answer."""

    variables: dict[str, str] = field(default_factory=dict)


class ActiveGoal(Message, tag_field="type", tag="active_goal", frozen=True, kw_only=True):
    """The goal of the session, as an object in `value`; None when the session has no goal. Published in the CLI's type declarations; never
    seen in a recording.
    """

    value: dict[str, Any] | None = None
    session_id: str | None = None
    uuid: str | None = None


class AuthStatus(Message, tag_field="type", tag="auth_status", frozen=True, kw_only=True):
    """The progress of a login of the CLI: whether it is still running, its `output` as lines of text, and its `error` when it failed.
    Published in the CLI's type declarations; never seen in a recording.
    """

    is_authenticating: bool = field(name="isAuthenticating", default=False)
    output: tuple[str, ...] = ()
    error: str | None = None
    session_id: str | None = None
    uuid: str | None = None


class PromptSuggestion(Message, tag_field="type", tag="prompt_suggestion", frozen=True, kw_only=True):
    """A suggestion of the CLI for the user's next prompt. Requested with the option `prompt_suggestions`. Published in the CLI's type
    declarations; never seen in a recording.
    """

    suggestion: str = ""
    session_id: str | None = None
    uuid: str | None = None


class ToolUseSummary(Message, tag_field="type", tag="tool_use_summary", frozen=True, kw_only=True):
    """One sentence that sums up several tool calls, whose ids are in `preceding_tool_use_ids`. Published in the CLI's type declarations;
    never seen in a recording.
    """

    summary: str = ""
    preceding_tool_use_ids: tuple[str, ...] = ()
    session_id: str | None = None
    uuid: str | None = None


class SessionForked(Message, frozen=True, kw_only=True):
    """This library found that the running session (`actual`) is not the expected one (`expected`). The message comes right after the
    `InitMessage` with the id `actual`; it is never on the wire.

    `expected` is the id from the options (`session_id`, else `resume`), or the id of the session that ran before in the same process.
    `requested` is True when the options asked for a fork: then the resumed session stays unchanged, and new messages belong to `actual`
    only. When it is False, check your stored session ids: an older CLI, another machine or a third-party transport may answer a resume with
    a new session. A `/clear` sends `ConversationReset` instead.

    CLI 2.1.329 keeps the id of a resumed session, uses the id it is given, and makes a new one only for a fork.
    """

    expected: str = ""
    actual: str = ""
    requested: bool = False

    @property
    def type(self) -> str:
        """Always the text `session_forked`. No message on the wire has this type: the library makes the message, and `raw` is empty."""
        return "session_forked"

    def to_dict(self) -> dict[str, str | bool]:
        """Return a new dict with `type`, `expected`, `actual` and `requested`."""
        return {"type": self.type, "expected": self.expected, "actual": self.actual, "requested": self.requested}


# `system` messages: one class for each known subtype. First those about the session and the turn.


class SystemMessage(Message, tag_field="type", tag="system", frozen=True, kw_only=True):
    """A report of the CLI about itself or the session. `subtype` says which. A known subtype arrives as a subclass, such as `InitMessage`;
    an unknown one as a plain `SystemMessage`, whose content is in `to_dict()`.

    `uuid` identifies this message. `user_message_uuids` are the uuids of the prompts that it belongs to, when the CLI sends them.
    """

    subtype: str = ""
    session_id: str | None = None
    uuid: str | None = None
    user_message_uuids: tuple[str, ...] = ()


class MCPServerState(Part, frozen=True, kw_only=True):
    """An MCP server in `InitMessage.mcp_servers`. `status`: connected, failed, needs-auth, pending, disabled. `source` says where it was
    configured: `sdk` for a server of the host, `dynamic`, …
    """

    name: str = ""
    status: str = ""
    source: str | None = None


class PluginState(Part, frozen=True, kw_only=True):
    """A plugin that the session loaded, in `InitMessage.plugins`: its name, its directory in `path` (`builtin` for a plugin of the CLI
    itself), and where it is from in `source`.
    """

    name: str = ""
    path: str = ""
    source: str | None = None


class InitMessage(SystemMessage, frozen=True, kw_only=True):
    """The start of a turn, with the state of the session: model, tools, MCP servers, permission mode and more. Sent at the start of
    **every** turn, not once per process.

    To test whether this CLI has a feature, look in `capabilities`, not at `claude_code_version`.
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
    sandbox_enabled: bool | None = None
    per_turn_effort_active: bool | None = None
    ultrathink_available: bool | None = None
    ultrathink_typed_raises: bool | None = None


class StatusMessage(SystemMessage, frozen=True, kw_only=True):
    """What the session does now, in `status`: `requesting` (it waits for the API), `compacting`, or None. Also sent, with
    `permission_mode`, after the permission mode changed. `compact_result` and `compact_error` say how a compaction ended.
    """

    subtype: str = "status"
    status: str | None = None
    permission_mode: str | None = field(name="permissionMode", default=None)
    compact_result: str | None = None
    compact_error: str | None = None


class SessionStateChanged(SystemMessage, frozen=True, kw_only=True):
    """The session is now `running`, `idle`, or waits for the user (`requires_action`), as `state` says. Sent only when an environment
    variable of the CLI enables it; the option `session_state_events` sets it, and is on by default.
    """

    subtype: str = "session_state_changed"
    state: str = ""
    sdk_host_only: bool | None = None


class SessionTitleChanged(SystemMessage, frozen=True, kw_only=True):
    """The session has a new `title`, for example after `Query.rename_session`."""

    subtype: str = "session_title_changed"
    title: str = ""


class CompactMetadata(Part, frozen=True, kw_only=True):
    """How a conversation was compacted, in a `CompactBoundary`. `trigger`: manual, auto. `pre_tokens` and `post_tokens` are the size of the
    conversation before and after, in tokens. `preserved_segment` and `preserved_messages` name the messages that were kept.
    """

    trigger: str = ""
    pre_tokens: int = 0
    post_tokens: int | None = None
    cumulative_dropped_tokens: int | None = None
    duration_ms: Number | None = None
    preserved_segment: dict[str, Any] | None = None
    preserved_messages: dict[str, Any] | None = None


class CompactBoundary(SystemMessage, frozen=True, kw_only=True):
    """The CLI compacted the conversation: a summary replaces everything before this message. `compact_metadata` has the sizes."""

    subtype: str = "compact_boundary"
    compact_metadata: CompactMetadata = CompactMetadata()
    logical_parent_uuid: str | None = None


class CommandsChanged(SystemMessage, frozen=True, kw_only=True):
    """The slash commands changed. `commands` is the complete new list and replaces the previous one; each entry is the CLI's own object."""

    subtype: str = "commands_changed"
    commands: tuple[dict[str, Any], ...] = ()


class Informational(SystemMessage, frozen=True, kw_only=True):
    """A text for the user in `content`, such as a hook's `systemMessage` or the reason why a prompt was blocked. `level` says how serious
    it is (`warning`, …).
    """

    subtype: str = "informational"
    content: str = ""
    level: str = ""
    tag: str | None = None
    tool_use_id: str | None = None
    prevent_continuation: bool | None = None
    prompt_submit_outcome: dict[str, Any] | None = None


class Notification(SystemMessage, frozen=True, kw_only=True):
    """A short notice for the user in `text`. It replaces an earlier notice with the same `key`. `priority`: immediate, …"""

    subtype: str = "notification"
    key: str = ""
    text: str = ""
    priority: str = ""
    color: str | None = None
    timeout_ms: Number | None = None


class ThinkingTokens(SystemMessage, frozen=True, kw_only=True):
    """The model is thinking. `estimated_tokens` is an estimate of the tokens that this used so far; `estimated_tokens_delta` is how many
    are new since the previous estimate.
    """

    subtype: str = "thinking_tokens"
    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0
    user_message_uuid: str | None = None


class LocalCommandOutput(SystemMessage, frozen=True, kw_only=True):
    """The output of a slash command, as text in `content`. Published in the CLI's type declarations; never seen in a recording."""

    subtype: str = "local_command_output"
    content: str = ""


class WorkerShuttingDown(SystemMessage, frozen=True, kw_only=True):
    """The CLI process that runs the session (its worker) ends on purpose, for `reason`; it did not crash. A resumed session sends the
    messages of this kind from earlier processes again. Published in the CLI's type declarations; never seen in a recording.
    """

    subtype: str = "worker_shutting_down"
    reason: str = ""


# `system` messages about the API and models.


class APIRetryMessage(SystemMessage, frozen=True, kw_only=True):
    """A call of the API failed. The CLI waits `retry_delay_ms` and then calls it again: this is retry `attempt` of at most `max_retries`.
    `error` is the kind of failure; `error_status` is its HTTP status, or None when there was no HTTP response.
    """

    subtype: str = "api_retry"
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: Number = 0
    error_status: int | None = None
    error: str = ""


class ModelFallback(SystemMessage, frozen=True, kw_only=True):
    """The CLI now uses `fallback_model` instead of `original_model`, for example after repeated 529 errors (overloaded). `trigger` is the
    cause. CLI 2.1.329 sent it, but its type declarations do not contain it.
    """

    subtype: str = "model_fallback"
    trigger: str = ""
    original_model: str = ""
    fallback_model: str = ""
    content: str = ""


class ModelRefusalFallback(SystemMessage, frozen=True, kw_only=True):
    """The model `original_model` refused to answer, and the CLI asks `fallback_model` instead. `retracted_message_uuids` are the messages
    that this takes back. Published in the CLI's type declarations; never seen in a recording.
    """

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
    """The model `original_model` refused to answer, and the CLI has no other model to ask. `api_refusal_category` and
    `api_refusal_explanation` are the reason that the API gave.
    """

    subtype: str = "model_refusal_no_fallback"
    original_model: str = ""
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    refused_user_message_uuid: str | None = None
    content: str = ""


# `system` messages about storage.


class MemoryRecall(SystemMessage, frozen=True, kw_only=True):
    """The CLI added memories (notes kept from earlier sessions) to the turn; `memories` lists them. Published in the CLI's type
    declarations; never seen in a recording.
    """

    subtype: str = "memory_recall"
    mode: str = ""
    memories: tuple[dict[str, Any], ...] = ()


class FilesPersisted(SystemMessage, frozen=True, kw_only=True):
    """The CLI uploaded `files`. The files that it could not upload are in `failed`. Published in the CLI's type declarations; never seen in
    a recording.
    """

    subtype: str = "files_persisted"
    files: tuple[dict[str, Any], ...] = ()
    failed: tuple[dict[str, Any], ...] = ()
    processed_at: str | None = None


class MirrorError(SystemMessage, frozen=True, kw_only=True):
    """A part of the transcript could not be copied to the session store of the host; `error` says why, and `key` where it belongs in the
    store. Published in the CLI's type declarations; never seen in a recording.
    """

    subtype: str = "mirror_error"
    error: str = ""
    key: dict[str, Any] | None = None


class SessionWritesLost(SystemMessage, frozen=True, kw_only=True):
    """The CLI could not write parts of the session's transcript file. Only the name is published in the CLI's type declarations, and it was
    never seen in a recording; `to_dict()` has the content.
    """

    subtype: str = "session_writes_lost"


# `system` messages about denied tool calls, tasks, hooks, long requests and installations.


class PermissionDeniedMessage(SystemMessage, frozen=True, kw_only=True):
    """The CLI denied a tool call by itself, without asking the user or the host. `message` says why; `agent_id` is set when a subagent made
    the call.
    """

    subtype: str = "permission_denied"
    tool_name: str = ""
    tool_use_id: str = ""
    message: str = ""
    agent_id: str | None = None
    decision_reason_type: str | None = None
    decision_reason: str | None = None


class TaskUsage(Part, frozen=True, kw_only=True):
    """What a task (a subagent or a background shell) has used so far: tokens, number of tool calls, and time in milliseconds."""

    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: Number = 0


class TaskStarted(SystemMessage, frozen=True, kw_only=True):
    """A task started: a subagent (`task_type` is `local_agent`) or a shell command (`local_bash`). `tool_use_id` is the tool call that
    started it; `is_backgrounded` says whether it runs in the background.
    """

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
    """The progress of a running task, such as a subagent: what it does now in `description`, the tool that it used last, and what it has
    used so far in `usage`.
    """

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
    """The fields of a task (a subagent or shell) that changed, in a `TaskUpdated`. None means unchanged. `end_time` is in milliseconds
    since the epoch.
    """

    status: str | None = None
    description: str | None = None
    end_time: Number | None = None
    error: str | None = None
    is_backgrounded: bool | None = None


class TaskUpdated(SystemMessage, frozen=True, kw_only=True):
    """The task `task_id` (a subagent or background shell) changed; `patch` has the changed fields, such as a `status` of completed or
    killed.
    """

    subtype: str = "task_updated"
    task_id: str = ""
    run_id: str | None = None
    patch: TaskPatch = TaskPatch()


class TaskNotification(SystemMessage, frozen=True, kw_only=True):
    """The task `task_id` (a subagent or shell) ended: `status` is `completed`, `stopped` or `failed`, `summary` says what came out of it,
    and `output_file` is the file with its output, if there is one. This may wake the session and start a turn without a prompt.
    """

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
    """A task that runs in the background, in `BackgroundTasksChanged.tasks`. `task_type`: local_agent (a subagent), local_bash (a shell
    command).
    """

    task_id: str = ""
    run_id: str | None = None
    task_type: str = ""
    description: str = ""
    subagent_type: str | None = None


class BackgroundTasksChanged(SystemMessage, frozen=True, kw_only=True):
    """**All** tasks (subagents and shells) that run in the background now, in `tasks`. This list replaces the previous one."""

    subtype: str = "background_tasks_changed"
    tasks: tuple[BackgroundTask, ...] = ()


class HookMessage(SystemMessage, frozen=True, kw_only=True):
    """Base class of the messages about hooks that settings files define. (A hook that the host defines arrives as a `HookCallback`
    request.)

    `hook_event` is the event, such as PreToolUse. When the CLI sends no `hook_event`, it is taken from `hook_event_name`, or from
    `hook_name` ("PreToolUse:Bash").
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
    """A hook of a settings file started. Sent with the option `include_hook_events`. For hooks of the event SessionStart it is always
    sent; for those at the start of the process, before the answer to `initialize`.
    """

    subtype: str = "hook_started"


class HookProgress(HookMessage, frozen=True, kw_only=True):
    """The output that a running hook of a settings file has written so far. Published in the CLI's type declarations; never seen in a
    recording.
    """

    subtype: str = "hook_progress"
    output: str = ""
    stdout: str = ""
    stderr: str = ""


class HookResponse(HookMessage, frozen=True, kw_only=True):
    """A hook of a settings file ended: what it wrote (`output`, `stdout`, `stderr`), its `exit_code`, and its `outcome` (`success`, …)."""

    subtype: str = "hook_response"
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    outcome: str = ""


class ControlRequestProgress(SystemMessage, frozen=True, kw_only=True):
    """A control request of the host takes long and is still running. `request_id` is the id that the host chose for it; `status`: started,
    …
    """

    subtype: str = "control_request_progress"
    request_id: str = ""
    status: str = ""
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: Number | None = None
    error_status: int | None = None


class ElicitationComplete(SystemMessage, frozen=True, kw_only=True):
    """The MCP server `mcp_server_name` reports that a question that the user answers at a URL is done. `elicitation_id` identifies the
    question. Published in the CLI's type declarations; never seen in a recording.
    """

    subtype: str = "elicitation_complete"
    mcp_server_name: str = ""
    elicitation_id: str = ""


class PluginInstall(SystemMessage, frozen=True, kw_only=True):
    """The progress of installing plugins. `status`: started, installed, failed, completed. `name` is the plugin, `error` says why it
    failed. Published in the CLI's type declarations; never seen in a recording.
    """

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
