"""Files, pipes and the end of the event loop, watched without a task for each.

`FileWatch` calls a function when a file can be read, and `LoopEnd` when the event loop ends. On asyncio the loop itself watches files. On
trio the `DescriptorWatcher` of the run does both. Where neither can, a task waits. Both are made before they begin, so that their owner can
end them whatever interrupts `begin()`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from claude_transport.loggers import logger_for
from claude_transport.loops.alarm import LINGER, Alarm
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import asyncio_loop_here, trio_here

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

logger: logging.Logger = logger_for(__name__)

_LOOK_AGAIN = 0.02
"""Seconds between two looks at a file that the event loop cannot watch."""

_keepers: set[Task[None]] = set()  # asyncio keeps only weak references to its tasks


class FileWatch:
    """Calls `on_readable` whenever `fd` has something to read, in the context of `begin()`. `on_readable` must not wait.

    Call `end()` in the same event loop, and before `fd` is closed.
    """

    __slots__ = ("_fd", "_is_over", "_loop", "_name", "_on_readable", "_task", "_watcher")

    def __init__(self, fd: int, on_readable: Callable[[], object], *, name: str) -> None:
        self._fd = fd
        self._on_readable = on_readable
        self._name = name
        self._loop: AbstractEventLoop | None = None
        self._watcher: DescriptorWatcher | None = None
        self._task: LoopTask | None = None
        self._is_over = False

    def begin(self) -> None:
        """Watch from now on. Raises `RuntimeError` when the loop is ending."""
        self._loop = asyncio_loop_here()
        if self._loop is not None:
            with contextlib.suppress(NotImplementedError, OSError):
                self._loop.add_reader(self._fd, self._on_readable)
                return
        else:
            self._watcher = DescriptorWatcher.here()
            call = functools.partial(contextvars.copy_context().run, self._on_readable)
            if self._watcher is not None and self._watcher.add_reader(self._fd, call, _ignore):
                return
        self._task = LoopTask.spawn(self._look, name=self._name)

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
        elif self._watcher is not None:
            self._watcher.remove_reader(self._fd)

    async def _look(self) -> None:
        while not self._is_over:
            try:
                await anyio.wait_readable(self._fd)
            except OSError:
                await anyio.sleep(_LOOK_AGAIN)
            self._on_readable()


class LoopEnd:
    """Calls `func` when the running event loop ends and cancels what runs in it, unless `release()` was called before, in this loop."""

    __slots__ = ("_func", "_keeper", "_name", "_until", "_watcher")

    def __init__(self, func: Callable[[], object], *, name: str) -> None:
        self._func: Callable[[], object] | None = func
        self._name = name
        self._watcher: DescriptorWatcher | None = None
        self._until: Future[None] | None = None
        self._keeper: LoopTask | None = None

    def begin(self) -> None:
        """Notice the end of the loop from now on. Raises `RuntimeError` when it is ending already."""
        loop = asyncio_loop_here()
        if loop is not None:
            self._until = loop.create_future()
            task = loop.create_task(_wait_for(self._until), name=self._name)
            _keepers.add(task)
            task.add_done_callback(self._done)
            return
        self._watcher = DescriptorWatcher.here()
        if self._watcher is None or not self._watcher.add_end(self._tell):
            self._keeper = LoopTask.spawn(anyio.sleep_forever, name=self._name, at_end=self._tell)

    def release(self) -> None:
        """Do not call `func` any more."""
        self._func = None
        if self._until is not None and not self._until.done():
            self._until.set_result(None)
        if self._watcher is not None:
            self._watcher.remove_end(self._tell)
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


# On trio: one task that watches all pipes of a run and calls back, as `loop.add_reader()` does on asyncio.


class _Callbacks(NamedTuple):
    on_readable: Callable[[], object]
    on_lost: Callable[[], object]


class DescriptorWatcher:
    """Watches file descriptors in one trio run, and tells when the run ends. Its task starts with the first descriptor, and ends a quarter
    of a second after the last one was removed, so that sessions that follow each other share it.

    trio itself registers a descriptor anew for each wait and resumes a task for each that is ready. For messages that come
    alone in hundreds of sessions, that is a third of their cost. The watcher has an epoll of its own, so it exists on Linux only.
    """

    def __init__(self, trio: Any) -> None:
        self._trio = trio  # given and not imported: this module is also used where trio is not installed
        self._watched: dict[int, _Callbacks] = {}
        self._ends: list[Callable[[], object]] = []
        self._epoll: select.epoll | None = None  # set while the task lives
        self._idle_since = 0.0
        self._end_of_idling = Alarm(self._end_idling)
        self.is_over: bool = False

    @staticmethod
    def here() -> DescriptorWatcher | None:
        """Return the watcher of the running trio run; None on asyncio, on other systems than Linux, and when the run is ending."""
        trio = trio_here()
        if trio is None or not hasattr(select, "epoll"):
            return None
        of_run = _watchers()
        watcher: DescriptorWatcher | None = of_run.get(None)
        if watcher is None:
            watcher = DescriptorWatcher(trio)
            of_run.set(watcher)
        return None if watcher.is_over else watcher

    def add_reader(self, fd: int, on_readable: Callable[[], object], on_lost: Callable[[], object]) -> bool:
        """Call `on_readable`, outside of the caller's tasks, whenever `fd` has something to read, until `remove_reader()`.

        `on_lost` is called when watching ends before that: with the run, or because `on_readable` raised.

        Returns:
            False when `fd` cannot be watched: no descriptor is free, the system refuses it, or the run takes no new task.
        """
        self._watched[fd] = _Callbacks(on_readable, on_lost)  # first, so that `remove_reader()` is right whatever interrupts this
        try:
            epoll = self._epoll or self._begin()
            epoll.register(fd, select.EPOLLIN)
        except (OSError, RuntimeError):
            logger.debug("descriptor %d cannot be watched; trio's own wait is used for it", fd, exc_info=True)
            del self._watched[fd]
            self._end_if_idle()
            return False
        return True

    def remove_reader(self, fd: int) -> None:
        """Stop watching `fd`. Call it before `fd` is closed; it does nothing when `fd` is not watched."""
        if self._watched.pop(fd, None) is not None and self._epoll is not None:
            with contextlib.suppress(FileNotFoundError):  # a Ctrl-C came before it was registered
                self._epoll.unregister(fd)
            self._end_if_idle()

    def add_end(self, func: Callable[[], object]) -> bool:
        """Call `func` when the run ends, until `remove_end()`. Returns False when that cannot be noticed, as `add_reader()` does."""
        self._ends.append(func)
        try:
            if self._epoll is None:
                self._begin()
        except (OSError, RuntimeError):
            self._ends.remove(func)
            return False
        return True

    def remove_end(self, func: Callable[[], object]) -> None:
        """Do not call `func` any more. Does nothing when it was removed, or called."""
        if func in self._ends:
            self._ends.remove(func)
            self._end_if_idle()

    def _begin(self) -> select.epoll:
        epoll = select.epoll()
        try:
            self._trio.lowlevel.spawn_system_task(self._look, epoll, name="look out for pipes")
        except BaseException:
            epoll.close()
            raise
        self._epoll = epoll
        return epoll

    @property
    def _is_idle(self) -> bool:
        return self._epoll is not None and not self._watched and not self._ends

    def _end_if_idle(self) -> None:
        """End soon, unless something is watched by then; at once where there is no time for that."""
        if not self._is_idle:
            return
        if self.is_over or not self._trio.lowlevel.in_trio_run():
            self._end()
            return
        self._idle_since = self._trio.current_time()
        if not self._end_of_idling.is_set:
            try:
                self._end_of_idling.set(self._idle_since + LINGER)
            except RuntimeError:  # the run takes no new task
                self._end()

    def _end_idling(self) -> None:
        if self._is_idle and self._trio.current_time() < self._idle_since + LINGER:
            self._end_of_idling.set(self._idle_since + LINGER)
        elif self._is_idle:
            self._end()

    def _end(self) -> None:
        epoll, self._epoll = self._epoll, None  # the task ends when it sees this
        if epoll is not None:
            if self._trio.lowlevel.in_trio_run():
                self._trio.lowlevel.notify_closing(epoll)
            epoll.close()

    async def _look(self, epoll: select.epoll) -> None:
        trio = self._trio
        try:
            while epoll is self._epoll:
                try:
                    await trio.lowlevel.wait_readable(epoll)
                except OSError:  # the system has no room for one more watch: look now and then until it has
                    await trio.sleep(_LOOK_AGAIN)
                self._call_back(epoll)
        except trio.ClosedResourceError:
            pass  # the last descriptor was removed during the wait
        except trio.Cancelled:
            self.is_over = True
            for fd in list(self._watched):
                self._lose(fd)
            while self._ends:
                self._call(self._ends.pop(), "a child could not be told of the end of the event loop")
            self._end_if_idle()
            raise

    def _call_back(self, epoll: select.epoll) -> None:
        # since the task was woken, the last descriptor may have been removed and the epoll closed
        for fd, _ in epoll.poll(0) if epoll is self._epoll else ():
            callbacks = self._watched.get(fd)
            if callbacks is not None:  # an earlier callback may have removed it
                try:
                    callbacks.on_readable()
                except Exception:  # it would end the program: in this task it is an "internal error" of trio
                    logger.exception("reading descriptor %d failed; it is not watched any more", fd)
                    self._lose(fd)

    def _lose(self, fd: int) -> None:
        callbacks = self._watched.get(fd)
        self.remove_reader(fd)
        if callbacks is not None:
            self._call(callbacks.on_lost, f"the reader of descriptor {fd} could not be told that it is not watched any more")

    def _call(self, func: Callable[[], object], complaint: str) -> None:
        try:
            func()
        except Exception:
            logger.exception("%s", complaint)


@functools.cache
def _watchers() -> Any:
    """Return the variable that holds the watcher of each trio run. Made late, because trio is imported late."""
    return sys.modules["trio"].lowlevel.RunVar("claude_transport.watcher", None)
