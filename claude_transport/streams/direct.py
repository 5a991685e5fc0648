"""`DirectFuture`: on asyncio, a wait that ends where it is settled, and not in the next turn of the event loop.

It imports asyncio, so it is imported by those who know that asyncio is what runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Self

__all__ = ["DirectFuture"]


class DirectFuture(asyncio.Future[None]):
    """A future for one waiter, which `settle_now()` resumes at once.

    An ordinary future has its waiter resumed by the next turn of the event loop: a look at all descriptors, for each message that comes
    alone. Whoever calls `settle_now()` is a callback of the event loop and no task, since one task cannot run inside another.
    """

    _waiter: tuple[Callable[[Any], object], Context | None] | None = None  # here and not in `__init__`: one is made for each message

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        """Keep the first one here, which is the waiter's; others are called as those of any future."""
        if self._waiter is None and not self.done():
            self._waiter = (fn, context)
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Self], object], /) -> int:
        """Forget it: how many there were."""
        removed = 0
        if self._waiter is not None and self._waiter[0] == fn:
            self._waiter = None
            removed = 1
        return removed + super().remove_done_callback(fn)

    def settle_now(self) -> None:
        """Resume the waiter inside this call."""
        self.set_result(None)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            callback, context = waiter
            if context is None:
                callback(self)
            else:
                context.run(callback, self)

    def settle_soon(self) -> None:
        """Resume it in the next turn of the event loop: for callers that are tasks, or in the middle of something."""
        self.set_result(None)
        self._resume_soon()

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it, as any future."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._resume_soon()
        return is_cancelled

    def _resume_soon(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            callback, context = waiter
            self.get_loop().call_soon(callback, self, context=context)
