"""`InterruptOutcome`: what an interrupt has done, the same words for every agent."""

from __future__ import annotations

from enum import StrEnum


class InterruptOutcome(StrEnum):
    """What `Query.interrupt()` returns: whether the CLI stops the running turn."""

    ACKNOWLEDGED = "acknowledged"
    """The CLI stops the running turn; its result follows (docs/reference/protocol.md#interrupts)."""
    NOT_RUNNING = "not_running"
    """No turn was running."""
    TIMED_OUT = "timed_out"
    """The peer did not answer in time."""
    DEAD = "dead"
    """The peer has ended or cannot be asked: input has ended, or it refuses while the turn still runs."""
