"""Where a prompt is on its way to a result, and every step it may take."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TURN_TRANSITIONS", "TurnEvent", "TurnState"]


class TurnState(StrEnum):
    """Where a prompt is: waiting, running, or in one of four ends."""

    queued = "queued"
    """It was sent, and waits for its turn."""
    started = "started"
    """Claude works on it."""
    done = "done"
    """It had a turn of its own, and this is its result."""
    folded = "folded"
    """It was taken into another prompt's turn and shares that one's result (recordings 10f, 10i)."""
    dropped = "dropped"
    """It was cancelled before it ran (recordings 10e, 07f); there will be no result."""
    lost = "lost"
    """The conversation ended first; there will be no result."""


class TurnEvent(StrEnum):
    """What can happen to a prompt."""

    taken = "taken"
    """The CLI began to work on it."""
    led = "led"
    """A result came, and this prompt is the one it answers."""
    joined = "joined"
    """A result came that answers this prompt along with an earlier one."""
    returned = "returned"
    """The turn it seemed to have was one that nobody asked for, as its result says; it waits again."""
    cancelled = "cancelled"
    """The CLI took it out of its queue."""
    ended = "ended"
    """The stream ended."""


TURN_TRANSITIONS: dict[tuple[TurnState, TurnEvent], TurnState] = {
    (TurnState.queued, TurnEvent.taken): TurnState.started,
    (TurnState.queued, TurnEvent.led): TurnState.done,
    (TurnState.queued, TurnEvent.joined): TurnState.folded,
    (TurnState.queued, TurnEvent.cancelled): TurnState.dropped,
    (TurnState.queued, TurnEvent.ended): TurnState.lost,
    (TurnState.started, TurnEvent.taken): TurnState.started,
    (TurnState.started, TurnEvent.led): TurnState.done,
    (TurnState.started, TurnEvent.joined): TurnState.folded,
    (TurnState.started, TurnEvent.returned): TurnState.queued,
    (TurnState.started, TurnEvent.cancelled): TurnState.dropped,
    (TurnState.started, TurnEvent.ended): TurnState.lost,
}
"""Every legal step of a prompt. The four ends have no way out: what comes after them changes nothing."""
