"""`Pace`: others get their turn now and then, and not at every step."""

from __future__ import annotations

from typing import Final

import anyio.lowlevel

from claude_transport.background import is_being_cancelled_here

__all__ = ["Pace"]

_STEPS: Final = 8
"""Steps from one turn of the others to the next: in chunks of 64 KiB, half a megabyte."""


class Pace:
    """For work that is cut into steps none of which waits: each can be cancelled, and every few of them lets others run.

    A checkpoint at every step would be kinder to others, but a turn of the event loop takes as long as carrying 64 KiB does.
    """

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """A checkpoint at the first step and every eighth after it; at the others, only what is cancelled stops here."""
        is_turn = self._steps % _STEPS == 0 or is_being_cancelled_here()
        self._steps += 1
        await (anyio.lowlevel.checkpoint() if is_turn else anyio.lowlevel.checkpoint_if_cancelled())
