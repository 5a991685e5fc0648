"""When each step of closing a child comes: SIGTERM, SIGKILL, the end of waiting. The steps can come sooner while they are under way.

docs/explanation/closing-a-process.md says what the steps are for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio
import msgspec

from claude_transport.loops.current import LightEvent

_GRACE_SHARE = 0.6
"""The part of the closing time in which a child may exit by itself. Three quarters of the rest follow SIGTERM, one quarter SIGKILL."""

_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
"""Seconds between two checks for events that the loop may have missed: at first, and at last."""


class CloseSchedule(msgspec.Struct, frozen=True):
    """Seconds of each step of closing: until SIGTERM, until SIGKILL, and after that."""

    grace: float
    terminate: float
    kill: float

    @property
    def total(self) -> float:
        """Seconds of all steps together."""
        return self.grace + self.terminate + self.kill

    @classmethod
    def within(cls, total: float, *, waited: float = 0.0) -> CloseSchedule:
        """Divide `total` seconds: 60 % to exit by itself, 30 % after SIGTERM, 10 % after SIGKILL. Negative values count as 0.

        A child whose input ended `waited` seconds ago has had these seconds of its 60 %. The other steps share what that leaves.
        """
        total = max(total, 0.0)
        grace = max(total * _GRACE_SHARE - waited, 0.0)
        return cls(grace=grace, terminate=(total - grace) * 0.75, kill=(total - grace) * 0.25)


class Countdown:
    """The times at which the steps of closing one child end, by the clock of its event loop. They move forward, never back."""

    __slots__ = ("_clock", "_input_ended_at", "_scope", "_step", "_times")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times = (math.inf, math.inf, math.inf)
        self._step = 0
        self._scope: anyio.CancelScope | None = None
        self._input_ended_at: float | None = None

    def note_end_of_input(self) -> None:
        """Note that the child has no more input from now on."""
        self._input_ended_at = self._clock()

    def begin(self, seconds: float) -> None:
        """Begin the steps, which take `seconds` in all."""
        self._bring_forward(CloseSchedule.within(seconds))

    def hurry(self, seconds: float) -> None:
        """Let the steps end in `seconds` from now at the latest. What the child had since the end of its input counts as its grace."""
        waited = 0.0 if self._input_ended_at is None else self._clock() - self._input_ended_at
        self._bring_forward(CloseSchedule.within(seconds, waited=waited))

    def _bring_forward(self, schedule: CloseSchedule) -> None:
        asked = self._clock() + schedule.grace
        killed = asked + schedule.terminate
        times = (asked, killed, killed + schedule.kill)
        self._times = (min(self._times[0], times[0]), min(self._times[1], times[1]), min(self._times[2], times[2]))
        if self._scope is not None:
            self._scope.deadline = self._times[self._step]

    @property
    def left(self) -> float:
        """Seconds until the end of the last step, negative after it."""
        return self._times[2] - self._clock()

    @property
    def last_step(self) -> float:
        """Seconds of the last step."""
        return self._times[2] - self._times[1]

    async def reached(self, step: int, event: LightEvent, *, look: Callable[[], bool]) -> bool:
        """Wait for `event`, as `set_or_seen()` does, until the end of a step: 0 is the grace, 1 follows SIGTERM. False if that is first."""
        self._step = step
        with anyio.CancelScope(deadline=self._times[step]) as self._scope:
            await set_or_seen(event, seconds=math.inf, look=look)
        return event.is_set() or look()


async def set_or_seen(event: anyio.Event | LightEvent, *, seconds: float, look: Callable[[], bool]) -> bool:
    """Wait until `event` is set or `look()` returns True, for `seconds` at most. Return False when the time is over.

    `look` is polled, for an event loop that misses events (see `streams.reaping`).
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
