"""`Pulse`: something has changed; whoever waits looks again."""

from __future__ import annotations

import anyio

__all__ = ["Pulse"]


class Pulse:
    """An event that can happen again. Who waits for it has looked at the state before, without an `await` in between."""

    def __init__(self) -> None:
        self._next = anyio.Event()

    def fire(self) -> None:
        """Wake everybody who waits now."""
        now, self._next = self._next, anyio.Event()
        now.set()

    async def wait(self) -> None:
        """Return at the next `fire()`. Not bounded here: who waits says in its own docstring what ends it."""
        await self._next.wait()
