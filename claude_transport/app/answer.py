"""`AnswerReader`: what there is to show of each message, once; whether it came word by word or in whole blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from claude_transport.inspection.scene import tokens_of_turn
from claude_transport.inspection.speech import StreamedBlocks
from claude_transport.protocol.blocks import TextBlock, ToolResultBlock, ToolUseBlock
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, as_float
from claude_transport.protocol.messages import (
    APIRetryMessage,
    AssistantMessage,
    CompactBoundary,
    InitMessage,
    ModelFallback,
    PermissionDeniedMessage,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    UserMessage,
)
from claude_transport.wrappers.metrics import TokenLedger
from claude_transport.wrappers.metrics_snapshot import TokenCounts

_TELLING: Final = ("command", "file_path", "notebook_path", "path", "pattern", "url", "query", "skill", "description", "prompt")
"""Fields of tool input that say most about a call, best first."""


class Words(msgspec.Struct, frozen=True):
    """More of the answer, to be shown right behind what is there."""

    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """What comes next is a new paragraph."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """Claude uses a tool; `nested` when one of its agents does."""

    tool_use_id: str
    name: str
    gist: str
    nested: bool = False


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the run that is not part of the answer."""

    text: str
    problem: bool = False


Piece: TypeAlias = Words | Paragraph | ToolCall | Remark


class AnswerReader:
    """Turns messages into pieces, in order. Afterwards it knows the `model`, the `result` of the last prompt, and all `tokens`."""

    def __init__(self) -> None:
        self.model: str = ""
        self.result: ResultMessage | None = None
        self.results: list[ResultMessage] = []
        """Those that answer a prompt, in order."""
        self.silenced: set[str] = set()
        """Tool calls whose refusal has been shown already."""
        self.tokens: TokenCounts = TokenCounts()
        """What the turns have used that have a result, as `inspect` counts it."""
        self._ledger = TokenLedger()
        self._blocks = StreamedBlocks()
        self._message_id = ""
        self._streamed = ""  # what came in deltas of the block that is being written
        self._said_something = False

    def read(self, message: Message) -> list[Piece]:
        """What to show for this message; often nothing."""
        self._count(message)
        pieces = list(self._read(message))
        self._said_something = self._said_something or any(isinstance(piece, Words) for piece in pieces)
        return pieces

    def _count(self, message: Message) -> None:
        match message:
            case StreamEvent():
                message_id, usage = self._blocks.read(message, 0.0)
                self._blocks.unfinished()
                self._ledger.message(message_id, usage, is_subagent=message.parent_tool_use_id is not None)
            case AssistantMessage() if not message.is_synthetic:
                self._ledger.message(message.message.id, message.message.usage, is_subagent=message.parent_tool_use_id is not None)
            case ResultMessage() if message.prompt_uuids is not None:
                self.tokens = self.tokens.plus(tokens_of_turn(message, in_progress=self._ledger.in_progress))
                self._ledger.result(message)

    def _read(self, message: Message) -> Iterator[Piece]:
        match message:
            case StreamEvent(parent_tool_use_id=None):
                yield from self._read_event(message)
            case AssistantMessage():
                yield from self._read_assistant(message)
            case UserMessage(parent_tool_use_id=None):
                yield from (self._trouble_of(block) for block in message.tool_results if self._went_wrong(block))
            case InitMessage():
                self.model = self.model or message.model
            case ResultMessage():
                yield from self._read_result(message)
            case _:
                text = _remark_on(message)
                if text:
                    yield Remark(text=text)

    def _read_event(self, message: StreamEvent) -> Iterator[Piece]:
        if message.event_type == "message_start":
            self._message_id = str(_dict(message.event.get("message")).get("id", ""))
            self._streamed = ""
            yield Paragraph()
        elif message.event_type == "content_block_start":
            self._streamed = ""
        elif message.text:
            self._streamed += message.text
            yield Words(message.text)

    def _read_assistant(self, message: AssistantMessage) -> Iterator[Piece]:
        if message.error is not None:
            return  # the CLI's account of a failure; the result says the same, and better
        nested = message.parent_tool_use_id is not None
        if not nested:
            if not message.is_synthetic:
                self.model = message.model or self.model
            if message.message.id != self._message_id:
                self._message_id, self._streamed = message.message.id, ""
                yield Paragraph()
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                yield ToolCall(tool_use_id=block.id, name=block.name, gist=gist_of(block.input), nested=nested)
            elif isinstance(block, TextBlock) and not nested:
                yield from self._rest_of(block.text)

    def _rest_of(self, text: str) -> Iterator[Piece]:
        """The whole block when none of it was streamed; what is missing of it when some was, which is usually nothing."""
        streamed, self._streamed = self._streamed, ""
        if text.startswith(streamed) and len(text) > len(streamed):
            yield Words(text[len(streamed) :])

    def _read_result(self, message: ResultMessage) -> Iterator[Piece]:
        if message.answers_a_prompt:
            self.results.append(message)
        if self.result is None or message.answers_a_prompt:
            self.result = message
        if message.result and message.is_error is not True and not self._said_something:
            yield Words(message.result)  # slash commands answer in the result only

    def _went_wrong(self, block: ToolResultBlock) -> bool:
        return block.is_error is True and block.tool_use_id not in self.silenced

    def _trouble_of(self, block: ToolResultBlock) -> Remark:
        content = block.content
        if not isinstance(content, str):
            content = "\n".join(part.text for part in content or () if isinstance(part, TextBlock))
        return Remark(text=content.strip().partition("\n")[0] or "the tool failed", problem=True)


def _remark_on(message: Message) -> str:
    match message:
        case APIRetryMessage():
            status = f" ({message.error_status})" if message.error_status else ""
            wait = f"in {as_float(message.retry_delay_ms) / 1000:.0f} s, {message.attempt} of {message.max_retries}"
            return f"the API did not answer well{status}; trying again {wait}"
        case ModelFallback():
            return f"{message.fallback_model} has taken over from {message.original_model}"
        case PermissionDeniedMessage():
            return f"{message.tool_name} was not allowed"
        case CompactBoundary():
            return "the conversation was shortened to fit"
        case RateLimitEvent() if message.rate_limit_info.status not in {"", "allowed"}:
            return f"the account is near its limit, or over it ({message.rate_limit_info.status})"
        case OversizedMessage():
            return f"a message of {message.size} bytes was left out: longer than {message.limit}"
        case DecodeFailure() if message.kind != "blank":
            return "a line that holds no message was left out"
        case _:
            return ""


def gist_of(tool_input: Mapping[str, Any]) -> str:
    """What a tool call is about: its most telling field, or all of it as JSON."""
    for name in _TELLING:
        value = tool_input.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return msgspec.json.encode(tool_input).decode() if tool_input else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
