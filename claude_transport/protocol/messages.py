"""The messages of a conversation, typed to the leaf; payloads that are not ours (tool input, API events, schemas) stay dicts.

Wire spelling (`permissionMode`, `modelUsage`) is turned into Python spelling here and nowhere else. Every field has a default: a CLI
that leaves something out, or is newer than this page, never breaks a stream. What a class does not name is still in `to_dict()`.

Everything that belongs to a message can be imported from here, also what lives next door (blocks, `system` subtypes).
Sources: recordings of CLI 2.1.329 (names in brackets); *declared* means published in type declarations and never seen.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar, Self

from msgspec import field
from msgspec.structs import force_setattr

from claude_transport.protocol import blocks, envelope, events, system, tasks, unreadable, usage
from claude_transport.protocol.blocks import *  # noqa: F403 - each of these modules names what it gives away
from claude_transport.protocol.blocks import ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from claude_transport.protocol.diagnosis import Outcome, diagnose, error_for
from claude_transport.protocol.envelope import *  # noqa: F403
from claude_transport.protocol.envelope import HIDDEN, Message, Number, Part
from claude_transport.protocol.events import *  # noqa: F403
from claude_transport.protocol.session import SessionForked
from claude_transport.protocol.system import *  # noqa: F403
from claude_transport.protocol.system import SystemMessage
from claude_transport.protocol.tasks import *  # noqa: F403
from claude_transport.protocol.unreadable import *  # noqa: F403
from claude_transport.protocol.usage import *  # noqa: F403
from claude_transport.protocol.usage import ModelUsage, Usage

__all__ = [
    "SYSTEM_SUBTYPES",
    "APIMessage",
    "AssistantMessage",
    "PermissionDenial",
    "ResultMessage",
    "SessionForked",
    "StreamEvent",
    "UserContent",
    "UserMessage",
]
__all__ += blocks.__all__
__all__ += envelope.__all__
__all__ += events.__all__
__all__ += system.__all__
__all__ += tasks.__all__
__all__ += unreadable.__all__
__all__ += usage.__all__


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
