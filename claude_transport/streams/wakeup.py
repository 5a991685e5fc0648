"""`Wakeup`: something has changed; whoever waits looks again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from claude_transport.background import asyncio_loop_here, trio_here
from claude_transport.streams.direct import direct_future_class

__all__ = ["Wakeup"]


class Wakeup:
    """An event that can happen again, and costs nothing while nobody waits for it.

    Who waits for it has looked at the state before, without an `await` in between. It belongs to the event loop of its first wait.

    What is waited for is the loop's own: a bare future on asyncio, being rescheduled on trio. A conversation waits for every message that
    comes alone, and to make an `anyio.Event` for it took longer than to decode it.
    """

    __slots__ = ("_make_future", "_trio", "_waiting")

    def __init__(self) -> None:
        self._make_future: Callable[[], Any] | None = None  # on asyncio, once somebody has waited
        self._trio: Any = None  # likewise on trio
        self._waiting: list[Any] = []  # one for each who waits: a future that two tasks wait for is cancelled with either

    @property
    def is_awaited(self) -> bool:
        """True while somebody waits who was not cancelled."""
        if self._trio is not None:
            return bool(self._waiting)
        # On asyncio, one who was cancelled a moment ago is still here. Not a generator: this is asked for each message that comes alone.
        return not all([waiter.done() for waiter in self._waiting])  # noqa: C419

    def fire(self) -> None:
        """Wake everybody who waits now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if self._trio is not None:
                    self._trio.lowlevel.reschedule(waiter)
                elif not waiter.done():  # it may have been cancelled a moment ago
                    waiter.settle()

    async def wait(self) -> None:
        """Return at the next `fire()`. Not bounded here: who waits says in its own docstring what ends it."""
        make_future = self._make_future or self._find_loop()
        if make_future is None:
            await self._rescheduled(self._trio)
            return
        future = make_future()
        self._waiting.append(future)
        try:
            await future
        except BaseException:
            if future in self._waiting:
                self._waiting.remove(future)
            raise

    async def _rescheduled(self, trio: Any) -> None:
        task = trio.lowlevel.current_task()

        def abort(_: object) -> Any:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._waiting.append(task)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _find_loop(self) -> Callable[[], Any] | None:
        """What makes a future, in the asyncio loop that runs; None on trio."""
        if self._trio is not None:
            return None
        loop = asyncio_loop_here()
        if loop is None:
            self._trio = trio_here()
        else:
            self._make_future = functools.partial(direct_future_class(), loop=loop)
        return self._make_future
