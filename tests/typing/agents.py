"""What type checkers know of an agent of a plug-in and its readers: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_type

from claude_transport.agents import (
    Agent,
    LineMeaning,
    MetricsReader,
    PromptFollower,
    Scene,
    SpanMaker,
    TapeFigures,
    TapeReader,
    find_agent,
)
from claude_transport.messages import Message, decode_message


class Counts(MetricsReader):
    def __init__(self, prompts: PromptFollower) -> None:
        self._prompts = prompts

    @property
    def prompts(self) -> PromptFollower:
        return self._prompts

    def kind_of(self, line: bytes) -> str | None:
        return "line"

    def read(self, line: bytes, kind: str) -> Iterator[LineMeaning]:
        yield LineMeaning(spoke="prompt-1")


class Tape(TapeReader):
    def __init__(self, scene: Scene) -> None:
        scene.add("assistant", "text", "Text", level="minor")
        scene.add("model", "text", "Text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def said(self, line: bytes) -> Message:
        return decode_message(line)

    def heard(self, line: bytes, kept: tuple[Any, ...] = ()) -> Message:
        return decode_message(line)

    def figures(self) -> TapeFigures:
        return TapeFigures(turns=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Spans:
    """It lacks most of what makes spans."""

    def heard(self, line: bytes) -> None: ...


class Decodes(Tape):
    def said(self, line: bytes) -> Mapping[str, object]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return {}


class Half(MetricsReader):
    """It cannot be made: what it counts lines as is missing."""

    @property
    def prompts(self) -> PromptFollower:
        raise NotImplementedError

    def read(self, line: bytes, kind: str) -> Sequence[LineMeaning]:
        return ()


class Typed(Agent):
    def metrics_reader(self) -> Half:
        return Half()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]

    def tape_reader(self, scene: Scene) -> Tape:
        return Tape(scene)

    def spans(self, tracer: Any, *, content: Any) -> Spans:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return Spans()


class Untold(Agent):
    def metrics_reader(self) -> Tape:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError


def read(scene: Scene) -> None:
    agent = find_agent("acme")
    assert_type(agent.metrics_reader(), MetricsReader | None)
    assert_type(agent.tape_reader(scene), TapeReader | None)
    assert_type(agent.spans(None, content=None), SpanMaker | None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
