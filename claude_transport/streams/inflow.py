"""`Inflow`: what comes out of a pipe, read where the event loop notices it.

The loop is told of the pipe once. Who takes what comes has it read one chunk ahead, and is woken with the bytes already there; who has it
poured is called with them, and no task wakes up at all. To register the pipe anew for each wait, as one-shot waiting does, cost a message
that comes alone a third of its processor time.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from claude_transport.background import asyncio_loop_here, trio_here
from claude_transport.streams.direct import resuming
from claude_transport.streams.wakeup import Wakeup

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from claude_transport.streams.lookout import Lookout

__all__ = ["Inflow"]


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
