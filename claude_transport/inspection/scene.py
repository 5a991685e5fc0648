"""`Scene`: where whoever reads a part of the tape puts down what happened, at the record that is being read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from claude_transport.inspection.event import Lane, Level, Section
from claude_transport.inspection.event_shelf import EventShelf
from claude_transport.inspection.summary import Problem
from claude_transport.inspection.turn_book import SettledPrompt, TurnBook
from claude_transport.inspection.wording import gist as gist_of
from claude_transport.protocol.turn_states import TurnState

__all__ = ["Scene"]

_MAX_PROBLEMS = 100
"""Problems told one by one; all are counted."""


class Scene:
    """Adds events with the time, the record and the turn of now; those that are warnings or errors become problems of the tape."""

    def __init__(self, shelf: EventShelf) -> None:
        self.shelf: EventShelf = shelf
        self.turns: TurnBook = TurnBook()
        self.t: float = 0.0
        self.record: int = 0
        self.problems: list[Problem] = []
        self.problem_count: int = 0
        self.error_count: int = 0

    def add(
        self,
        lane: Lane,
        kind: str,
        title: str,
        *,
        gist: str = "",
        level: Level = "normal",
        t: float | None = None,
        sections: Iterable[Section] = (),
        **more: Any,
    ) -> int:
        """Put an event there, at `t` (default: now): its id."""
        event = self.shelf.add(
            record=self.record,
            t=self.t if t is None else t,
            lane=lane,
            kind=kind,
            title=title,
            gist=gist,
            level=level,
            turn=more.pop("turn", self.turns.current),
            sections=tuple(sections),
            **more,
        )
        if level in ("warning", "error"):
            self.blame(level, f"{title}: {gist}" if gist else title, event=event)
        return event

    def text(self, label: str, text: str) -> tuple[Section, ...]:
        """A section, or none for an empty text."""
        return (self.shelf.section(label, text),) if text else ()

    def blame(self, level: Level, text: str, *, event: int | None) -> None:
        """Note a problem."""
        self.problem_count += 1
        self.error_count += level == "error"
        if len(self.problems) < _MAX_PROBLEMS:
            serious: Literal["warning", "error"] = "error" if level == "error" else "warning"
            self.problems.append(Problem(self.t, serious, gist_of(text), event))

    def worsen(self, event: int, level: Level, text: str, **fields: Any) -> None:
        """Make an event that is there already a problem."""
        self.shelf.change(event, level=level, **fields)
        self.blame(level, text, event=event)

    def settle(self, prompts: Iterable[SettledPrompt]) -> None:
        """Say what became of prompts, where they are shown."""
        for prompt in prompts:
            if prompt.state is TurnState.dropped:
                self.worsen(prompt.event, "warning", "a prompt was cancelled before it ran", status="dropped", turn=None)
            elif prompt.state is TurnState.lost:
                self.worsen(prompt.event, "error", "a prompt has no result", status="lost", turn=prompt.turn)
            else:
                self.shelf.change(prompt.event, status=prompt.state.value, turn=prompt.turn)
