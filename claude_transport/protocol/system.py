"""`system` messages: one class per subtype the CLI is known to send; any other stays a plain `SystemMessage`.

Observed on CLI 2.1.329 (recording names in brackets) unless marked *declared*, which means: from the CLI's published type
declarations, never seen. Where a description gives values, they are those seen or declared; others may come.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.envelope import Message, Number, Part

__all__ = [
    "APIRetryMessage",
    "CommandsChanged",
    "CompactBoundary",
    "CompactMetadata",
    "FilesPersisted",
    "Informational",
    "InitMessage",
    "LocalCommandOutput",
    "MCPServerState",
    "MemoryRecall",
    "MirrorError",
    "ModelFallback",
    "ModelRefusalFallback",
    "ModelRefusalNoFallback",
    "Notification",
    "PluginState",
    "SessionStateChanged",
    "SessionTitleChanged",
    "SessionWritesLost",
    "StatusMessage",
    "SystemMessage",
    "ThinkingTokens",
    "WorkerShuttingDown",
]


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
