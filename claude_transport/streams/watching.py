"""`FileWatch` calls a function when a file can be read, and `LoopEnd` when the event loop ends. A task for each would cost more.

On asyncio the loop itself watches files. On trio the `Lookout` of the run does both. Where neither can, a task waits.

Both are made before they begin, so that their owner can end them whatever interrupts `begin()`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from claude_transport.background import BackgroundTask, asyncio_loop_here
from claude_transport.streams.inflow import Lookout

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

_LOOK_AGAIN = 0.02
"""Seconds between two looks at a file that the event loop cannot watch."""

_keepers: set[Task[None]] = set()  # asyncio keeps only weak references to its tasks


class FileWatch:
    """Calls `on_readable` whenever `fd` has something to read, in the context of `begin()`. `on_readable` must not wait.

    Call `end()` in the same event loop, and before `fd` is closed.
    """

    __slots__ = ("_fd", "_is_over", "_lookout", "_loop", "_name", "_on_readable", "_task")

    def __init__(self, fd: int, on_readable: Callable[[], object], *, name: str) -> None:
        self._fd = fd
        self._on_readable = on_readable
        self._name = name
        self._loop: AbstractEventLoop | None = None
        self._lookout: Lookout | None = None
        self._task: BackgroundTask | None = None
        self._is_over = False

    def begin(self) -> None:
        """Watch from now on. Raises `RuntimeError` when the loop is ending."""
        self._loop = asyncio_loop_here()
        if self._loop is not None:
            with contextlib.suppress(NotImplementedError, OSError):
                self._loop.add_reader(self._fd, self._on_readable)
                return
        else:
            self._lookout = Lookout.here()
            call = functools.partial(contextvars.copy_context().run, self._on_readable)
            if self._lookout is not None and self._lookout.add_reader(self._fd, call, _ignore):
                return
        self._task = BackgroundTask.spawn(self._look, name=self._name)

    def end(self) -> None:
        """Do not watch any more. A second call does nothing."""
        if self._is_over:
            return
        self._is_over = True
        self._on_readable = _ignore  # it belongs to an object that knows this watch
        if self._task is not None:
            self._task.cancel()
        elif self._loop is not None:
            with contextlib.suppress(NotImplementedError):
                self._loop.remove_reader(self._fd)
        elif self._lookout is not None:
            self._lookout.remove_reader(self._fd)

    async def _look(self) -> None:
        while not self._is_over:
            try:
                await anyio.wait_readable(self._fd)
            except OSError:
                await anyio.sleep(_LOOK_AGAIN)
            self._on_readable()


class LoopEnd:
    """Calls `func` when the running event loop ends and cancels what runs in it, unless `release()` was called before, in this loop."""

    __slots__ = ("_func", "_keeper", "_lookout", "_name", "_until")

    def __init__(self, func: Callable[[], object], *, name: str) -> None:
        self._func: Callable[[], object] | None = func
        self._name = name
        self._lookout: Lookout | None = None
        self._until: Future[None] | None = None
        self._keeper: BackgroundTask | None = None

    def begin(self) -> None:
        """Notice the end of the loop from now on. Raises `RuntimeError` when it is ending already."""
        loop = asyncio_loop_here()
        if loop is not None:
            self._until = loop.create_future()
            task = loop.create_task(_wait_for(self._until), name=self._name)
            _keepers.add(task)
            task.add_done_callback(self._done)
            return
        self._lookout = Lookout.here()
        if self._lookout is None or not self._lookout.add_end(self._tell):
            self._keeper = BackgroundTask.spawn(anyio.sleep_forever, name=self._name, at_end=self._tell)

    def release(self) -> None:
        """Do not call `func` any more."""
        self._func = None
        if self._until is not None and not self._until.done():
            self._until.set_result(None)
        if self._lookout is not None:
            self._lookout.remove_end(self._tell)
        if self._keeper is not None:
            self._keeper.cancel()

    def _done(self, task: Task[None]) -> None:
        _keepers.discard(task)
        self._tell()

    def _tell(self) -> None:
        func, self._func = self._func, None
        if func is not None:
            func()


async def _wait_for(future: Future[None]) -> None:
    await future


def _ignore() -> None:
    """Do nothing: nothing is watched any more, or `LoopEnd` is told of the end."""
