"""How an answer is shown: `AnswerReader` turns messages into pieces, and `Face` shows them as plain text.

Only the answer goes to stdout; everything else is a line on stderr. `render_rich` shows the same pieces as Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TextIO, TypeAlias

import anyio
import msgspec

from claude_transport.app.terminal import Look, Progress, TerminalOutput, is_terminal, json_for_terminals, one_line, visible
from claude_transport.inspection.speech import StreamedBlocks
from claude_transport.inspection.turn_book import tokens_of_turn
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
from claude_transport.protocol.token_counts import TokenCounts, token_counts
from claude_transport.wrappers.metrics import TokenLedger

_TELLING: Final = ("command", "file_path", "notebook_path", "path", "pattern", "url", "query", "skill", "description", "prompt")
"""Fields of a tool's input that say most about the call, best first."""
CALM: Final = 2
"""Ticks without output before the time is shown. Otherwise it would flicker between the words."""


class Words(msgspec.Struct, frozen=True):
    """More text of the answer, to be shown directly after what is there."""

    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """What follows is a new paragraph."""


class ShownToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """Claude uses a tool. `nested` means that one of its subagents does."""

    tool_use_id: str
    name: str
    gist: str
    nested: bool = False


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the run that is not part of the answer."""

    text: str
    problem: bool = False


Piece: TypeAlias = Words | Paragraph | ShownToolCall | Remark


class AnswerReader:
    """Turns messages into pieces, in order, each text once: whether it was streamed word by word or came in whole blocks.

    Attributes:
        model: The model that answered.
        result: The result of the last prompt.
        results: The results that answer a prompt, in order.
        silenced: Ids of tool calls whose refusal has been shown already.
        tokens: The tokens of all turns with a result, counted as `inspect` does.
    """

    def __init__(self) -> None:
        self.model: str = ""
        self.result: ResultMessage | None = None
        self.results: list[ResultMessage] = []
        self.silenced: set[str] = set()
        self.tokens: TokenCounts = TokenCounts()
        self._ledger = TokenLedger()
        self._blocks = StreamedBlocks()
        self._message_id = ""
        self._streamed = ""  # the text of the current block that came in deltas
        self._said_something = False

    def read(self, message: Message) -> list[Piece]:
        """Return what to show for a message. Often that is nothing."""
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
                yield from (_trouble_of(block) for block in message.tool_results if self._went_wrong(block))
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
            started = message.event.get("message")
            self._message_id = str(started.get("id", "")) if isinstance(started, dict) else ""
            self._streamed = ""
            yield Paragraph()
        elif message.event_type == "content_block_start":
            self._streamed = ""
        elif message.text:
            self._streamed += message.text
            yield Words(message.text)

    def _read_assistant(self, message: AssistantMessage) -> Iterator[Piece]:
        if message.error is not None:
            return  # the result reports the same failure, with more details
        nested = message.parent_tool_use_id is not None
        if not nested:
            if not message.is_synthetic:
                self.model = message.model or self.model
            if message.message.id != self._message_id:
                self._message_id, self._streamed = message.message.id, ""
                yield Paragraph()
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                yield ShownToolCall(tool_use_id=block.id, name=block.name, gist=gist_of(block.input), nested=nested)
            elif isinstance(block, TextBlock) and not nested:
                yield from self._rest_of(block.text)

    def _rest_of(self, text: str) -> Iterator[Piece]:
        """Yield the part of a block that was not streamed: usually nothing, or all of it."""
        streamed, self._streamed = self._streamed, ""
        if text.startswith(streamed) and len(text) > len(streamed):
            yield Words(text[len(streamed) :])

    def _read_result(self, message: ResultMessage) -> Iterator[Piece]:
        if message.answers_a_prompt:
            self.results.append(message)
        if self.result is None or message.answers_a_prompt:
            self.result = message
        if message.result and message.is_error is not True and not self._said_something:
            yield Words(message.result)  # slash commands answer only in the result

    def _went_wrong(self, block: ToolResultBlock) -> bool:
        return block.is_error is True and block.tool_use_id not in self.silenced


def _trouble_of(block: ToolResultBlock) -> Remark:
    content = block.content
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content or () if isinstance(part, TextBlock))
    return Remark(text=content.strip().partition("\n")[0] or "the tool failed", problem=True)


def _remark_on(message: Message) -> str:
    match message:
        case APIRetryMessage():
            status = f" ({message.error_status})" if message.error_status else ""
            wait = f"in {as_float(message.retry_delay_ms) / 1000:.0f} s, {message.attempt} of {message.max_retries}"
            return f"the API request failed{status}; trying again {wait}"
        case ModelFallback():
            return f"{message.fallback_model} has replaced {message.original_model}"
        case PermissionDeniedMessage():
            return f"{message.tool_name} was not allowed"
        case CompactBoundary():
            return "the conversation was shortened to fit"
        case RateLimitEvent() if message.rate_limit_info.status not in {"", "allowed"}:
            return f"the account is near or over its limit ({message.rate_limit_info.status})"
        case OversizedMessage():
            return f"a message of {message.size} bytes was skipped: the limit is {message.limit}"
        case DecodeFailure() if message.kind != "blank":
            return "a line without a message was skipped"
        case _:
            return ""


def gist_of(tool_input: Mapping[str, Any]) -> str:
    """Return what a tool call is about: the most telling field of its input, or all of it as JSON."""
    for name in _TELLING:
        value = tool_input.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return msgspec.json.encode(tool_input).decode() if tool_input else ""


def summarize(
    result: ResultMessage, *, model: str, seconds: float, look: Look, tokens: TokenCounts | None = None, priced: bool = True
) -> str:
    """Return model, duration, tokens and cost in one line, without what is not known.

    Args:
        result: The result of the last prompt, with the cost.
        model: The model that answered.
        seconds: The time since the program's run began.
        look: For the separator.
        tokens: The tokens of all turns. Default: those of `result`.
        priced: Whether the result says what the run has cost.
    """
    used = token_counts(result.usage) if tokens is None else tokens
    read = used.input_tokens + used.cache_creation_input_tokens + used.cache_read_input_tokens
    cost = as_float(result.total_cost_usd)
    parts = [
        one_line(model, width=80),
        f"{seconds:.1f} s",
        f"{read:,} tokens in, {used.output_tokens:,} out",
        "" if not priced else "no cost" if cost <= 0 else f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}",
    ]
    return f" {look.symbol('dot')} ".join(part for part in parts if part)


class Face:
    """Shows the pieces of an answer when they come.

    With `quiet`, stderr gets only problems and questions. On a terminal, it keeps stdout and stderr from running into each other. `lock` is
    held while something is shown or asked, so that a question stays the last line until it is answered. `progress` shows how long things
    take; None shows nothing of it.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO, *, look: Look, quiet: bool = False, progress: Progress | None = None) -> None:
        self._quiet = quiet
        self._progress = progress
        self._activity = ""
        self._calm = 0  # ticks since something was shown
        self.lock: anyio.Lock = anyio.Lock()
        self.look = look
        self._output = TerminalOutput(stdout)
        self._stderr = stderr
        self._on_terminal = is_terminal(stdout)
        self._shares_terminal = self._on_terminal and is_terminal(stderr)
        self._in_line = False  # the current line of stdout is not empty
        self._written = False
        self._new_paragraph = False
        self._after_words = False  # the last output on the terminal was the answer
        self._shown: dict[str, anyio.Event] = {}

    async def show(self, piece: Piece) -> None:
        """Show one piece."""
        async with self.lock:
            match piece:
                case Words():
                    self._activity = "claude is writing"
                    await self._words(visible(piece.text) if self._on_terminal else piece.text)
                case Paragraph():
                    self._new_paragraph = True
                case ShownToolCall():
                    self._new_paragraph = True
                    indent = "  " if piece.nested else ""
                    self._activity = f"claude uses {piece.name}"
                    self.mention(f"{indent}{self.look.symbol('tool')} {piece.name}: {piece.gist}", cut=True)
                    self.shown(piece.tool_use_id).set()
                case Remark(problem=True):
                    self.say(f"  {self.look.symbol('bad')} {piece.text}", style="yellow", cut=True)
                case Remark():
                    self.mention(f"  {self.look.symbol('dot')} {piece.text}", cut=True)

    def shown(self, tool_use_id: str) -> anyio.Event:
        """Return the event that is set when the line about this tool call has been shown."""
        return self._shown.setdefault(tool_use_id, anyio.Event())

    async def raw(self, line: bytes) -> None:
        """Write a line of NDJSON to stdout: the exact bytes, or on a terminal the same JSON with control characters escaped."""
        async with self.lock:
            self._activity = "claude is at work"
            self._rest()
            await self._output.write_bytes((json_for_terminals(line) if self._on_terminal else line) + b"\n")

    async def finish(self) -> None:
        """End the last line of the answer."""
        self._rest()
        if self._in_line:
            self._in_line = False
            await self._output.write("\n")

    async def _words(self, text: str) -> None:
        if self._new_paragraph:
            self._new_paragraph = False
            text = text.lstrip("\n")
            if self._written:
                text = ("\n\n" if self._in_line else "\n") + text
        if text:
            self._rest()
            await self._output.write(text)
            self._written = self._after_words = True
            self._in_line = not text.endswith("\n")

    def say(self, text: str, *, style: str = "", cut: bool = False, end: str = "\n") -> None:
        """Write one line to stderr at once. `cut` shortens it to the width of the terminal. A line break in `text` becomes U+FFFD."""
        self._rest()
        text = one_line_kept(text, width=self.look.width) if cut else visible(text).replace("\n", "\N{REPLACEMENT CHARACTER}")
        try:
            if self._shares_terminal and self._after_words:
                self._make_room()
            self._stderr.write((self.look.paint(text, style, stderr=True) if style else text) + end)
            self._stderr.flush()
        except OSError:
            pass  # stderr cannot be written to; the answer is still useful

    def mention(self, text: str, *, cut: bool = False) -> None:
        """Write a dim line to stderr, unless quiet."""
        if not self._quiet:
            self.say(text, style="dim", cut=cut)

    def _make_room(self) -> None:
        """Write an empty line between the answer and the next line of stderr."""
        self._stderr.write("\n\n" if self._in_line else "\n")
        self._in_line = self._after_words = False
        self._new_paragraph = True

    def waiting(self, what: str) -> None:
        """Remember what takes a while, for a display that leaves no trace."""
        self._activity = what

    @property
    def on_tick(self) -> Callable[[float], None] | None:
        """The callback for the seconds that the work has taken so far. None if this face does not show them."""
        return None if self._progress is None else self._tick

    def _tick(self, seconds: float) -> None:
        self._calm += 1
        in_the_way = self.lock.locked() or (self._shares_terminal and self._in_line)
        if self._progress is not None and self._calm >= CALM and not in_the_way:
            self._progress.label = self._activity
            self._progress.update(seconds)

    def _rest(self) -> None:
        """Clear the progress line, because other output follows. It may come back after that."""
        self._calm = 0
        if self._progress is not None:
            self._progress.close()


def one_line_kept(text: str, *, width: int) -> str:
    """Return `one_line(text)` with its indentation."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    return indent + one_line(text, width=width - len(indent))
