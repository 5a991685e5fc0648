"""Messages that accompany a conversation without being part of it: limits, progress, lifecycle, resets, mirrors, keep-alives."""

from __future__ import annotations

import datetime as dt
from typing import Any

from msgspec import field

from claude_transport.protocol.envelope import Message, Number, Part

__all__ = [
    "ActiveGoal",
    "AuthStatus",
    "CommandLifecycle",
    "ConversationReset",
    "KeepAlive",
    "PromptSuggestion",
    "RateLimitEvent",
    "RateLimitInfo",
    "ToolProgress",
    "ToolUseSummary",
    "TranscriptMirror",
    "UpdateEnvironmentVariables",
]


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
