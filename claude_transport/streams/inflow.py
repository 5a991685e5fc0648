"""`Inflow`: what comes out of a pipe, read where the event loop notices it.

The loop is told of the pipe once. Who takes what comes has it read one chunk ahead, and is woken with the bytes already there; who has it
poured is called with them, and no task wakes up at all. To register the pipe anew for each wait, as one-shot waiting does, cost a message
that comes alone a third of its processor time.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.lowlevel

from claude_transport.background import asyncio_loop_here, is_being_cancelled_here, trio_here

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from claude_transport.streams.lookout import Lookout


# --- `DirectFuture`: on asyncio, a wait that ends in the callback that settles it, and not in the next turn of the event loop.


if TYPE_CHECKING:
    from asyncio import Future

    _Base = Future[None]
else:
    _Base = object


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


# --- `Wakeup`: something has changed; whoever waits looks again.


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


# --- `Pace`: others get their turn now and then, and not at every step.


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


class _Pouring:
    """Somebody who is called with what comes, in the context that they asked in."""

    __slots__ = ("_context", "_func", "failure", "is_enough")

    def __init__(self, func: Callable[[bytes], bool]) -> None:
        self._func = func
        self._context = contextvars.copy_context()
        self.is_enough = False
        self.failure: BaseException | None = None

    def hand_on(self, chunk: bytes) -> bool:
        """Whether they want no more; what they raise is for the task that waits."""
        try:
            self.is_enough = self._context.run(self._func, chunk)
        except BaseException as exc:  # noqa: BLE001 - see above
            self.failure = exc
            return True
        return self.is_enough


class Inflow:
    """The reading end `fd` of a non-blocking pipe. It owns no more than its place in the event loop: who closes `fd` calls `close()` first.

    Bytes that were read ahead stay here until they are taken, so a cancelled reader loses nothing; and there is one chunk of them at
    most: a pipe that nobody reads is not watched, and its writer waits.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ahead: bytes | None = None
        self._max_bytes = 0
        self._woken = Wakeup()
        self._is_waited_for = False
        self._closed = False
        self._watching: AbstractEventLoop | Lookout | None = None
        self._pouring: _Pouring | None = None
        self.is_dry: bool = False
        """True when the last read emptied the pipe, so that there is no point in reading again before something has arrived."""

    def take(self, max_bytes: int) -> bytes | None:
        """What is there, at most `max_bytes`, without waiting: b"" at the end of the pipe, None when there is nothing yet."""
        self._max_bytes = max_bytes
        chunk = self._ahead
        if chunk is None:
            try:
                chunk = os.read(self._fd, max_bytes)
            except BlockingIOError:
                self.is_dry = True
                return None
        elif len(chunk) > max_bytes:
            self._ahead = chunk[max_bytes:]
            return chunk[:max_bytes]
        self._ahead = None
        self.is_dry = 0 < len(chunk) < max_bytes
        return chunk

    async def arrival(self) -> None:
        """Wait until `take()` may have something, or until `wake()`. Always a checkpoint.

        Raises `BusyResourceError` beside another one, and `ClosedResourceError` after `close()`.
        """
        self._refuse_if_busy()
        if self._ahead is not None:
            await anyio.lowlevel.checkpoint()
        else:
            self._is_waited_for = True
            try:
                is_watched = self._watching is not None or self._watch_on_asyncio()
                await (self._woken.wait() if is_watched else self._readable())
            finally:
                self._is_waited_for = False

    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Wait, and have what comes meanwhile handed to `hand_on`, chunk by chunk, where the loop notices it, until that returns True.

        Returns True then. False: it is `take()` that has something to say, as after `arrival()`. `hand_on` is called in the caller's
        context but in none of its tasks: it may not wait, nor start anything. What it raises is raised here. Once
        the caller is cancelled it is not called any more; whether it was called just before that, it knows itself.

        Raises `BusyResourceError` and `ClosedResourceError` as `arrival()` does.
        """
        self._refuse_if_busy()
        if self._ahead is not None or not (self._watching or self._watch_on_asyncio() or self._watch_on_trio()):
            await self.arrival()
            return False
        self._pouring = pouring = _Pouring(hand_on)
        self._is_waited_for = True
        try:
            await self._woken.wait()
        finally:
            self._is_waited_for = False
            self._pouring = None
        if pouring.failure is not None:
            raise pouring.failure
        return pouring.is_enough

    def wake(self) -> None:
        """Have whoever waits look again, although nothing may have arrived."""
        self.is_dry = False
        self._woken.fire()
        if self._watching is None and not self._closed:
            anyio.notify_closing(self._fd)

    def close(self) -> None:
        """Wake whoever waits, and have the event loop forget the pipe; what was read ahead is dropped."""
        self.wake()
        self._unwatch()
        self._closed = True
        self._ahead = None

    # ------------------------------------------------------------------------------------------------------------- waiting

    def _refuse_if_busy(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._is_waited_for:
            raise anyio.BusyResourceError("reading from")

    async def _readable(self) -> None:
        trio = trio_here()
        if trio is None:
            with contextlib.suppress(anyio.ClosedResourceError):  # woken without data
                await anyio.wait_readable(self._fd)
            return
        # what anyio calls, without the way there, which a message that comes alone would pay each time
        try:
            await trio.lowlevel.wait_readable(self._fd)
        except trio.ClosedResourceError:
            pass
        except trio.BusyResourceError as exc:
            raise anyio.BusyResourceError("reading from") from exc

    # ------------------------------------------------------------------------------------------------------------ watching

    def _watch_on_asyncio(self) -> bool:
        """Have the loop watch the pipe from now on: whether it does."""
        loop = asyncio_loop_here()
        if loop is None or not self._max_bytes:
            return False
        try:
            loop.add_reader(self._fd, resuming, self._on_readable)
        except NotImplementedError:
            return False
        self._watching = loop
        return True

    def _watch_on_trio(self) -> bool:
        """The same there; who takes what comes is better off with trio's own way."""
        if trio_here() is None or not self._max_bytes:
            return False
        try:
            from claude_transport.streams.lookout import Lookout  # late, as trio itself
        except OSError:
            return False  # no file descriptor is free, for one: then trio watches the pipe for each wait

        lookout = Lookout.here()
        if lookout is None or not lookout.add_reader(self._fd, self._on_readable, self._on_lost):
            return False
        self._watching = lookout
        return True

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching.remove_reader(self._fd)
            self._watching = None

    def _on_lost(self) -> None:
        self._watching = None
        self.wake()

    def _on_readable(self) -> None:
        if self._ahead is not None:
            self._unwatch()  # it was not taken: until somebody waits again, the pipe is the buffer
            return
        try:
            chunk = os.read(self._fd, self._max_bytes)
        except BlockingIOError:
            return  # `take()` was quicker
        except OSError:
            self._unwatch()  # `take()` gets the same, and raises it where it can be caught
        else:
            if self._pouring is not None and chunk and self._woken.is_awaited:  # by nobody when it was cancelled a moment ago
                self.is_dry = len(chunk) < self._max_bytes
                if not self._pouring.hand_on(chunk):
                    return
                self._pouring = None  # what comes next is read ahead
            else:
                self._ahead = chunk
                if not chunk:
                    self._unwatch()
        self._woken.fire()
