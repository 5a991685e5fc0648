"""The time that closing a child takes: how it is divided, and how each part of it is waited for."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

__all__ = ["CloseSchedule", "come"]

_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
"""Seconds between two looks at what the event loop should have noticed: a short time at first, then longer."""


class CloseSchedule(msgspec.Struct, frozen=True):
    """How one total closing time is divided over the rungs of the ladder, in seconds."""

    grace: float
    terminate: float
    kill: float

    @property
    def total(self) -> float:
        """All rungs together."""
        return self.grace + self.terminate + self.kill

    @classmethod
    def within(cls, total: float) -> CloseSchedule:
        """Three fifths to leave by itself, three tenths after SIGTERM, the rest to be collected after SIGKILL."""
        total = max(total, 0.0)
        return cls(grace=total * 0.6, terminate=total * 0.3, kill=total * 0.1)


async def come(event: anyio.Event, *, seconds: float, look: Callable[[], bool]) -> bool:
    """Wait until the event is set, or `look()` returns True, for `seconds` at most. Return whether that has come.

    `look` is for an event loop that misses things: one whose files a fork of the host has taken out of the selector that both share.
    """
    deadline = anyio.current_time() + seconds
    pause = _FIRST_LOOK
    while not (event.is_set() or look()):
        left = deadline - anyio.current_time()
        if left <= 0:
            return False
        with anyio.move_on_after(min(pause, left)):
            await event.wait()
        pause = min(2 * pause, _LAST_LOOK)
    return True
