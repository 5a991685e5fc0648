"""`Wakeup`: something has changed; whoever waits looks again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from claude_transport.background import asyncio_loop_here, trio_here

__all__ = ["Wakeup"]


class Wakeup:
    """An event that can happen again, and costs nothing while nobody waits for it.

    Who waits for it has looked at the state before, without an `await` in between. It belongs to the event loop of its first wait.

    What is waited for is the loop's own: a bare future on asyncio, trio's `Event` on trio. A conversation waits for every message that
    comes alone, and to make an `anyio.Event` for it took longer than to decode it.
    """

    __slots__ = ("_is_future", "_make", "_waited_for")

    def __init__(self) -> None:
        self._make: Callable[[], Any] | None = None
        self._is_future = False
        self._waited_for: list[Any] = []  # one for each who waits: a future that two tasks wait for is cancelled with either

    def fire(self) -> None:
        """Wake everybody who waits now."""
        if self._waited_for:
            waited_for, self._waited_for = self._waited_for, []
            for event in waited_for:
                if not self._is_future:
                    event.set()
                elif not event.done():  # its waiter may have been cancelled a moment ago
                    event.set_result(None)

    async def wait(self) -> None:
        """Return at the next `fire()`. Not bounded here: who waits says in its own docstring what ends it."""
        event = (self._make or self._maker())()
        self._waited_for.append(event)
        try:
            await (event if self._is_future else event.wait())
        except BaseException:
            if event in self._waited_for:
                self._waited_for.remove(event)
            raise

    def _maker(self) -> Callable[[], Any]:
        """What makes something to wait for, in the loop that runs."""
        loop = asyncio_loop_here()
        self._is_future = loop is not None
        make: Callable[[], Any] = trio_here().Event if loop is None else loop.create_future
        self._make = make
        return make
