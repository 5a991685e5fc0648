"""What reads the lines of an agent for others: `MetricsReader` counts, `SpanMaker` traces, `TapeReader` shows a tape to people.

An agent that has none of them is counted, traced and shown as far as lines tell by themselves. Claude needs none: its lines are what
metrics, spans and the inspector read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from claude_transport.agents.scene import Section, TapeFigures
from claude_transport.protocol.blocks import ToolResultBlock, ToolUseBlock
from claude_transport.protocol.conversation import Settle
from claude_transport.protocol.envelope import Message, Usage
from claude_transport.protocol.messages import ResultMessage, UserMessage

if TYPE_CHECKING:
    from opentelemetry.context import Context


class WrittenPrompt(msgspec.Struct, frozen=True):
    """A user message on its way to the agent. A message without a uuid gets a made-up one."""

    uuid: str
    message: UserMessage


class PromptFollower(ABC):
    """Follows the prompts of one connection: which are being written, and which are lost at its end. Each agent has one."""

    def __init__(self) -> None:
        self._in_flight: list[tuple[str | bytes, list[WrittenPrompt]]] = []

    @property
    @abstractmethod
    def session_id(self) -> str | None:
        """The session, or the thread, of the last message."""

    def writing(self, data: str | bytes) -> list[WrittenPrompt]:
        """Return the prompts in `data`, which is about to be written."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if prompts := self.sent(raw):
            self._in_flight.append((data, prompts))
        return prompts

    def written(self, data: str | bytes) -> list[WrittenPrompt]:
        """Return the prompts in `data`, which has been written."""
        for index, (other, prompts) in enumerate(self._in_flight):
            if other is data:
                del self._in_flight[index]
                return prompts
        return []

    def not_written(self, data: str | bytes) -> list[WrittenPrompt]:
        """Forget and return the prompts in `data`, whose write has failed."""
        prompts = self.written(data)
        for prompt in prompts:
            self.unsent(prompt)
        return prompts

    @abstractmethod
    def ended(self) -> tuple[Settle, ...]:
        """Return the prompts that are lost, because nothing more will come."""

    @abstractmethod
    def sent(self, raw: bytes) -> list[WrittenPrompt]:
        """Register the prompts in `raw`, which is about to be written, and return them."""

    @abstractmethod
    def unsent(self, prompt: WrittenPrompt) -> None:
        """Forget a prompt whose write has failed."""


class LineMeaning(msgspec.Struct, frozen=True, kw_only=True):
    """What a line means for the counts of a session.

    * `spoke`: the uuid of the prompt that the model has begun to answer.
    * `usage`: that of an answer of the API, after a name for this answer. It may be said again, with larger numbers.
    * `result`: the end of a turn, in the words of Claude, and `answers` the names of its answers of the API.
    * `settled`: the prompts that have reached their final state.
    """

    spoke: str | None = None
    usage: tuple[str, Usage] | None = None
    result: ResultMessage | None = None
    answers: Sequence[str] = ()
    settled: Sequence[Settle] = ()


class MetricsReader(ABC):
    """Reads the lines of one connection to an agent for `MetricsTransport`, in order. It may not wait, and is called for every line."""

    delta_kind: str = "delta"
    """What the lines are counted as that `telling()` leaves out."""

    @property
    @abstractmethod
    def prompts(self) -> PromptFollower:
        """What follows the prompts of this connection."""

    def telling(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return the lines that may mean something: without pieces of texts, which are most lines of a session and say least."""
        return lines

    @abstractmethod
    def kind_of(self, line: bytes) -> str | None:
        """Return what a line of either side is counted as, such as its type or its method. None for a line without a message."""

    @abstractmethod
    def read(self, line: bytes, kind: str) -> Iterable[LineMeaning]:
        """Return what a line of the agent means; `kind` is what `kind_of()` says of it."""


SpanAttributes: TypeAlias = Mapping[str, str | bool | int | float | tuple[str, ...]]
"""Attributes of a span."""


class SpanTexts(Protocol):
    """Makes the attributes of spans that hold texts, which are redacted and cut. An agent gets it when the user wants texts in spans."""

    def of_prompt(self, message: UserMessage, /) -> SpanAttributes:
        """Return the prompt of a turn."""
        ...

    def of_result(self, result: ResultMessage, /) -> SpanAttributes:
        """Return the answer of a turn."""
        ...

    def of_call(self, block: ToolUseBlock, /) -> SpanAttributes:
        """Return the input of a tool call."""
        ...

    def of_answer(self, block: ToolResultBlock, /) -> SpanAttributes:
        """Return the output of a tool call."""
        ...


class SpanMaker(Protocol):
    """Makes the OpenTelemetry spans of one session for `TracingTransport`, which reports what is written and read, in order."""

    def noted(self, uuid: str, *, context: Context) -> None:
        """Remember the parent of the turn of a prompt, which may be written later."""
        ...

    def writing(self, data: str | bytes, *, context: Context | None = None) -> None:
        """Begin the spans of the prompts in `data`, which is about to be written. `context` is for those of which none was noted."""
        ...

    def written(self, data: str | bytes) -> None:
        """Note that `data` has been written."""
        ...

    def not_written(self, data: str | bytes, error: BaseException) -> None:
        """End the spans of the prompts in `data`, because writing it failed."""
        ...

    def telling(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return the lines that concern a span, or may."""
        ...

    def heard(self, line: bytes, *, context: Context | None = None) -> None:
        """Begin, change and end spans as a line of the agent requires. `context` is the parent of a turn that no prompt began."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """End all open spans as failed, because no line will follow. `error` is why; None for a normal end."""
        ...


class TapeReader(ABC):
    """Reads the lines of one tape into a `Scene`, in order, for the inspector and for the live page of a session."""

    @abstractmethod
    def said(self, line: bytes) -> Message:
        """Read a line of the host, and return its message, which is counted. A `DecodeFailure` is shown by the caller."""

    @abstractmethod
    def heard(self, line: bytes, kept: tuple[Section, ...] = ()) -> Message:
        """Read a line of the agent, as `said()` does. `kept` has the text of one that is not whole on the tape."""

    def ended(self) -> None:  # noqa: B027 - may be left out
        """Note the end of the tape: what is open has no end on it."""

    def figures(self) -> TapeFigures:
        """Return the figures of what was read so far. It may be called before the end."""
        return TapeFigures()
