"""`Wakeup`: something has changed; whoever waits looks again."""

from __future__ import annotations

import anyio

__all__ = ["Wakeup"]


class Wakeup:
    """An event that can happen again, and costs nothing while nobody waits for it.

    Who waits for it has looked at the state before, without an `await` in between.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def fire(self) -> None:
        """Wake everybody who waits now."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    async def wait(self) -> None:
        """Return at the next `fire()`. Not bounded here: who waits says in its own docstring what ends it."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
