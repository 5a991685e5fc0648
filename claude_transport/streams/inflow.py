"""The fast path of reading: a pipe that the event loop watches once.

Its users see two names:

* `Inflow` reads one pipe: `take()` without waiting, `arrival()` to wait, `pour()` to have chunks handed to a function.
* `CooperativeYield` lets other tasks run now and then, in a loop that never waits.

What each trick gains is in `docs/explanation/performance.md`; `benchmarks/bench_tricks.py` measures it. Lines and messages are not known
here: see `claude_transport.transports.stream`.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from claude_transport.loggers import logger_for
from claude_transport.loops.current import Wakeup, asyncio_loop_here, is_being_cancelled_here
from claude_transport.loops.descriptors import DescriptorWatcher
from claude_transport.streams.room import READ_BYTES, PipeRoom

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

logger: logging.Logger = logger_for(__name__)

_PACE_BYTES: Final = 512 * 2**10
"""Bytes between two full checkpoints of `CooperativeYield`: some thousand small messages, or the work of two milliseconds."""

_LOADED_SECONDS: Final = 0.0005
"""A checkpoint that takes longer has let other tasks work. Ten streams that carry 512 KiB at a time would keep them waiting for long."""

_LOADED_STEPS: Final = 8
"""Steps that are full checkpoints after a long one. trio may resume the caller before the others, so that one alone does not tell."""


_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks at pipes that the system does not let trio wait for."""


class CooperativeYield:
    """Lets other tasks run now and then, in a loop whose steps do not wait.

    A full checkpoint at every step would cost as much as carrying 64 KiB.

    Args:
        heeds_load: make every step a full checkpoint while one of the last eight let other tasks work for half a millisecond or more.
    """

    __slots__ = ("_heeds_load", "_left", "_loaded_steps")

    def __init__(self, *, heeds_load: bool = False) -> None:
        self._heeds_load = heeds_load
        self._left = 0
        self._loaded_steps = 0

    async def step(self, size: int = READ_BYTES) -> None:
        """Let other tasks run at the first step, and then after every 512 KiB. Every step raises if the task was cancelled.

        Args:
            size: bytes that the step carries. A smaller step counts as 64 KiB.
        """
        if self._left > 0 and not is_being_cancelled_here():
            self._left -= max(READ_BYTES, size)
            await anyio.lowlevel.checkpoint_if_cancelled()
            return
        began = time.perf_counter()
        await anyio.lowlevel.checkpoint()
        if self._heeds_load and time.perf_counter() - began >= _LOADED_SECONDS:
            self._loaded_steps = _LOADED_STEPS
        if self._loaded_steps:
            self._loaded_steps -= 1
        else:
            self._left = _PACE_BYTES - max(READ_BYTES, size)


class Inflow:
    """Reads a non-blocking pipe, `fd`. The caller owns `fd` and calls `close()` here before it closes `fd`.

    The event loop watches the pipe from the first wait on. It reads at most one chunk ahead; the chunk stays here until
    it is taken, so a cancelled reader loses nothing. A pipe that no task reads is not watched, and its writer blocks.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ahead: bytes | None = None
        self._room = PipeRoom(fd)
        self._max_bytes = 0
        self._woken = Wakeup()
        self._is_waited_for = False
        self._closed = False
        self._watching: AbstractEventLoop | DescriptorWatcher | None = None
        self._pouring: _Pouring | None = None
        self.read_bytes: int = READ_BYTES
        """Bytes that the last read asked for."""
        self.is_dry: bool = False
        """True when the last read emptied the pipe: another read is useless before something arrives."""

    def take(self, max_bytes: int) -> bytes | None:
        """Return at most `max_bytes` bytes without waiting: b"" at the end of the pipe, None when there is nothing yet."""
        self._max_bytes = max_bytes
        chunk = self._ahead
        if chunk is None:
            try:
                return self._read()
            except BlockingIOError:
                self.is_dry = True
                return None
        if len(chunk) > max_bytes:
            self._ahead = chunk[max_bytes:]
            return chunk[:max_bytes]
        self._ahead = None
        return chunk

    def _read(self) -> bytes:
        """Read once from the pipe. Raises `BlockingIOError` when it is empty."""
        room = self._room
        asked = room.read_bytes
        if asked > self._max_bytes:
            asked = self._max_bytes
        self.read_bytes = asked
        chunk = os.read(self._fd, asked)
        count = len(chunk)
        if count == asked:
            self.is_dry = False
            if count == room.read_bytes:
                room.note_full()
        else:
            self.is_dry = count > 0
            room.full_count = 0
        return chunk

    async def arrival(self) -> None:
        """Wait until `take()` may return something, or until `wake()` is called. Always a checkpoint.

        Raises:
            anyio.BusyResourceError: another task waits already.
            anyio.ClosedResourceError: `close()` was called.
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

    @property
    def is_awaited(self) -> bool:
        """True while a task waits in `arrival()` or `pour()`, and nothing has woken it yet."""
        return self._is_waited_for and (self._watching is None or self._woken.is_awaited)

    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Wait, and have the event loop call `hand_on` with each chunk that arrives, until it returns True.

        `hand_on` runs in the caller's context but in no task: it must not wait or start tasks. An exception of it is raised here.
        After the caller is cancelled it is not called again; it may have run once just before.

        Returns:
            True when `hand_on` returned True. False when the caller has to call `take()`, as after `arrival()`.

        Raises:
            anyio.BusyResourceError: another task waits already.
            anyio.ClosedResourceError: `close()` was called.
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
        """Wake the task that waits, although nothing may have arrived."""
        self.is_dry = False
        self._woken.fire()
        if self._watching is None and not self._closed:
            anyio.notify_closing(self._fd)

    def close(self) -> bytes:
        """Wake the task that waits, and stop watching the pipe. Return what was read ahead, which is nothing most times."""
        self.wake()
        self._unwatch()
        self._closed = True
        ahead, self._ahead = self._ahead, None
        self.give_back()
        return ahead or b""

    def give_back(self) -> None:
        """Give back what the pipe takes beyond its usual size. Any thread may call it, before `fd` is closed."""
        self._room.close()

    def _refuse_if_busy(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._is_waited_for:
            raise anyio.BusyResourceError("reading from")

    async def _readable(self) -> None:
        with contextlib.suppress(anyio.ClosedResourceError):  # woken without data
            await anyio.wait_readable(self._fd)

    def _watch_on_asyncio(self) -> bool:
        """Have the asyncio loop watch the pipe from now on. Return False on trio, and where the loop cannot watch files."""
        loop = asyncio_loop_here()
        if loop is None or not self._max_bytes:
            return False
        try:
            loop.add_reader(self._fd, self._on_readable)
        except NotImplementedError:
            return False
        self._watching = loop
        return True

    def _watch_on_trio(self) -> bool:
        """Have the watcher watch the pipe from now on. Only `pour()` does so: for `arrival()`, trio's own wait is faster."""
        watcher = DescriptorWatcher.here() if self._max_bytes else None
        if watcher is None or not watcher.add_reader(self._fd, self._on_readable, self._on_lost):
            return False
        self._watching = watcher
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
            self._unwatch()  # the last chunk was not taken: let the pipe fill until a task waits again
            return
        try:
            chunk = self._read()
        except BlockingIOError:
            return  # `take()` was quicker
        except OSError:
            self._unwatch()  # `take()` gets the same error and raises it in the reader's task
        else:
            # the waiter may have been cancelled a moment ago: then the chunk is kept for the next one
            if self._pouring is not None and chunk and self._woken.is_awaited:
                pouring = self._pouring
                try:
                    pouring.is_enough = pouring.context.run(pouring.hand_on, chunk)
                    if not pouring.is_enough:
                        return
                except BaseException as exc:  # noqa: BLE001 - raised again in `pour()`
                    pouring.failure = exc
                self._pouring = None  # the next chunk is read ahead
            else:
                self._ahead = chunk
                if not chunk:
                    self._unwatch()
        self._woken.fire()


class _Pouring:
    """The function of one `pour()` call with the context of the caller, and how its calls ended."""

    __slots__ = ("context", "failure", "hand_on", "is_enough")

    def __init__(self, hand_on: Callable[[bytes], bool]) -> None:
        self.hand_on = hand_on
        self.context = contextvars.copy_context()
        self.is_enough = False
        self.failure: BaseException | None = None
