"""`Event`: one thing that happened on a tape, with its time, its lane, and as much of its text as there is room for."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from claude_transport.wrappers.metrics_snapshot import TokenCounts

__all__ = ["LANES", "Event", "Lane", "Level", "Section"]

Lane: TypeAlias = Literal["user", "assistant", "tools", "control", "session"]
"""Who acts: the user, the model, its tools and tasks, the two sides of the control protocol, or the CLI and the recording themselves."""

LANES: tuple[Lane, ...] = ("user", "assistant", "tools", "control", "session")

Level: TypeAlias = Literal["minor", "normal", "warning", "error"]
"""`minor` is bookkeeping, which a reader wants to see only when looking for it."""


class Section(msgspec.Struct, frozen=True):
    """A named piece of text. `chars` is its length on the tape; the text itself may have been cut to less."""

    label: str
    text: str
    chars: int

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning is here."""
        return self.chars > len(self.text)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, `t` seconds after the start of the tape; `record` is the tape's record that began it, from 1.

    `seconds` is how long it took, None when it is a moment, or never ended (then `status` is `open`). `waited` is how long the model
    had been asked when its first words came; `pieces` in how many an answer was streamed. `status` is empty where there is nothing to
    say: `ok`, `error`, `denied`, `cancelled`, `open`, the code of a result, …. `turn` counts from 1; None outside of turns. `nested`
    events are those of a subagent: `agent` says which, in the words it was started with, and `parent` is the `id` of the event of the call
    that started it. They are empty and None where the tape does not say so.
    """

    id: int
    record: int
    t: float
    lane: Lane
    kind: str
    title: str
    gist: str = ""
    level: Level = "normal"
    status: str = ""
    seconds: float | None = None
    waited: float | None = None
    turn: int | None = None
    nested: bool = False
    agent: str = ""
    parent: int | None = None
    tokens: TokenCounts | None = None
    cost_usd: float | None = None
    pieces: int | None = None
    sections: tuple[Section, ...] = ()
