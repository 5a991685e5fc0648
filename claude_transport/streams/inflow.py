"""`Inflow`: what comes out of a pipe, read where the event loop notices it.

On asyncio the loop is told of the pipe once, and reads one chunk ahead by itself: whoever waits is woken with the bytes already there. To
register the pipe anew for each wait, as one-shot waiting does, cost a message that comes alone a third of its processor time. On
trio, and on a loop that cannot watch a pipe, it is the loop's own `wait_readable()`.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from claude_transport.background import asyncio_loop_here, trio_here

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable

    from claude_transport.streams.direct import DirectFuture

__all__ = ["Inflow"]


class Inflow:
    """The reading end `fd` of a non-blocking pipe. It owns no more than its place in the event loop: who closes `fd` calls `close()` first.

    Bytes that were read ahead stay here until they are taken, so a cancelled reader loses nothing; and there is one chunk of them at
    most: a pipe that nobody reads is not watched, and its writer waits.
    """

    __slots__ = ("_ahead", "_closed", "_fd", "_loop", "_make_future", "_max_bytes", "_waiter", "is_dry")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ahead: bytes | None = None
        self._max_bytes = 0
        self._waiter: DirectFuture | None = None
        self._closed = False
        self._loop: AbstractEventLoop | None = None  # set while it watches the pipe
        self._make_future: Callable[[], DirectFuture] | None = None  # likewise
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

    def arrival(self) -> Awaitable[None]:
        """Wait until `take()` may have something, or until `wake()`. Always a checkpoint.

        Raises `BusyResourceError` beside another one, and `ClosedResourceError` after `close()`.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        if self._ahead is not None:
            return anyio.lowlevel.checkpoint()
        if self._waiter is not None and not self._waiter.done():
            raise anyio.BusyResourceError("reading from")
        make_future = self._make_future or self._watch()
        if make_future is None:
            return self._readable()
        self._waiter = make_future()
        return self._waiter

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

    def wake(self) -> None:
        """Have whoever waits look again, although nothing may have arrived."""
        self.is_dry = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.settle_soon()
        elif self._loop is None and not self._closed:
            anyio.notify_closing(self._fd)

    def close(self) -> None:
        """Wake whoever waits, and have the event loop forget the pipe; what was read ahead is dropped."""
        self.wake()
        self._unwatch()
        self._closed = True
        self._ahead = None

    def _watch(self) -> Callable[[], DirectFuture] | None:
        """Have the loop watch the pipe from now on: what makes something to wait for; None where no loop can."""
        loop = asyncio_loop_here()
        if loop is not None and self._max_bytes:
            try:
                loop.add_reader(self._fd, self._on_readable)
            except NotImplementedError:
                return None
            from claude_transport.streams.direct import DirectFuture  # late, as asyncio itself

            self._loop, self._make_future = loop, functools.partial(DirectFuture, loop=loop)
            return self._make_future
        return None

    def _unwatch(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = self._make_future = None

    def _on_readable(self) -> None:
        if self._ahead is not None:
            self._unwatch()  # it was not taken: until somebody waits again, the pipe is the buffer
            return
        try:
            self._ahead = os.read(self._fd, self._max_bytes)
        except BlockingIOError:
            return  # `take()` was quicker
        except OSError:
            self._unwatch()  # `take()` gets the same, and raises it where it can be caught
        else:
            if not self._ahead:
                self._unwatch()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.settle_now()  # the last thing to be done here: the reader may close all of this
