"""`DirectFuture`: on asyncio, a wait that ends in the callback that settles it, and not in the next turn of the event loop.

An ordinary future has its waiter resumed by the next turn: one more look at all descriptors for each message that comes alone. But
whoever settles it may be in the middle of something, or a task, and one task cannot run inside another. So `resuming()` is put around
a callback of the event loop, and whose wait it has settled is resumed when it has done its work.

It imports asyncio for the type checkers only. The class of the futures is made at the first use, when asyncio runs: an import at that
moment would need a free file descriptor.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from asyncio import Future

    _Base = Future[None]
else:
    _Base = object

__all__ = ["DirectFuture", "direct_future_class", "resuming"]


class _Callback(threading.local):
    """The callback that runs in this thread, if it is one of those that resume."""

    settled: list[DirectFuture] | None = None


_callback = _Callback()


class DirectFuture(_Base):
    """A future for one waiter. The waiter goes on at the end of the callback that settles it, or in the next turn of the event loop.

    This is only what it adds to asyncio's `Future`: `direct_future_class()` is the whole.
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

    def settle(self) -> None:
        """End the wait."""
        self.set_result(None)
        if _callback.settled is None:
            self.resume_soon()
        else:
            _callback.settled.append(self)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it, as any future."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self.resume_soon()
        return is_cancelled

    def resume(self) -> None:
        """Have the waiter go on inside this call."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            callback, context = waiter
            if context is None:
                callback(self)
            else:
                context.run(callback, self)

    def resume_soon(self) -> None:
        """Have the waiter go on in the next turn of the event loop."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            callback, context = waiter
            self.get_loop().call_soon(callback, self, context=context)


@functools.cache
def direct_future_class() -> type[DirectFuture]:
    """Return the class whose instances are futures of asyncio. For callers that know that asyncio runs."""
    return type("DirectFuture", (DirectFuture, sys.modules["asyncio"].Future), {})


def resuming(func: Callable[[], object]) -> None:
    """Call `func`, then resume those whose wait it has settled. For callbacks of the event loop; never for what a task calls."""
    if "nest_asyncio" in sys.modules or "nest_asyncio2" in sys.modules:
        func()  # as in notebooks, who is resumed may run the loop again, in the midst of the callback: so they go on in the next turn
        return
    _callback.settled = settled = list[DirectFuture]()
    try:
        func()
    finally:
        _callback.settled = None
        while settled:
            try:
                settled.pop(0).resume()
            except BaseException:  # Ctrl-C in the midst of a task: the others go on as they would have
                for future in settled:
                    future.resume_soon()
                raise
