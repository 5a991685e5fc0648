"""Tasks that belong to no cancel scope: a task started here ends here, whichever task called it.

A transport may be connected in one task and closed in another. The closing caller may itself be cancelled at any time, by anyio, trio or
asyncio's `Task.cancel()` (which ignores shields). A task group cannot be used for this, because the task that entered it must leave it. So
the work that must outlive its caller runs as a top-level task of the event loop, and callers only wait for it.
"""

from __future__ import annotations

import _thread
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claude_transport.loggers import logger_for
from claude_transport.loops.current import running_asyncio_loop, trio_here

if TYPE_CHECKING:
    from asyncio import Task


logger: logging.Logger = logger_for(__name__)

_running: set[Task[None]] = set()  # asyncio keeps only weak references to its tasks


class _Unstarted(Coroutine[Any, Any, Any]):
    """A coroutine that is made when it is first awaited: one that never is leaves no warning."""

    def __init__(self, func: Callable[..., Coroutine[Any, Any, object]], args: tuple[object, ...]) -> None:
        self._func = func
        self._args = args

    def __await__(self) -> Generator[Any, Any, object]:
        return self._func(*self._args).__await__()

    def send(self, value: object) -> Any:
        raise RuntimeError("it can only be awaited")

    def throw(self, *exc_info: Any) -> Any:
        raise RuntimeError("it can only be awaited")

    def close(self) -> None:
        """Do nothing: no coroutine was made."""


def start_in(tasks: TaskGroup, func: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
    """Start `func` in a task group. Nothing is said about a coroutine that was never awaited when asyncio ends before its first step."""
    if trio_here() is not None:
        tasks.start_soon(func, *args)
    else:
        tasks.start_soon(lambda: _Unstarted(func, args), name=func.__qualname__)


class OrderedStarts:
    """Starts functions in tasks that begin in the order of the calls. Trio begins the tasks of one moment in any order."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[..., Coroutine[Any, Any, object]], tuple[object, ...]]] = []

    def start_in(self, tasks: TaskGroup, func: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Start `func` in a task group, as `start_in()` does."""
        if trio_here() is not None:
            tasks.start_soon(self._run_next, name=func.__qualname__)
            self._waiting.append((func, args))
        else:
            start_in(tasks, func, *args)

    async def _run_next(self) -> None:
        """Run the function that has waited longest, whichever call has started this task."""
        func, args = self._waiting.pop(0)
        await func(*args)


class LoopTask:
    """A top-level task of the running event loop, on asyncio and on trio.

    It ends when its function returns, when `cancel()` is called, or when the event loop ends. The end of the loop cancels it: the function
    can then clean up until its next `await`. An exception that leaves the function is logged. Ctrl-C is passed on to the main task.
    """

    __slots__ = ("__weakref__", "_at_end", "_finished", "_func", "_is_finished", "_name", "_scope")

    def __init__(self, func: Callable[[], Awaitable[object]], *, name: str, at_end: Callable[[], object] | None = None) -> None:
        self._func: Callable[[], Awaitable[object]] | None = func  # let go at the end: it belongs to an object that knows this task
        self._name = name
        self._at_end = at_end
        self._scope = anyio.CancelScope()
        self._is_finished = False
        self._finished: anyio.Event | None = None  # made when a task waits for it

    @classmethod
    def spawn(cls, func: Callable[[], Awaitable[object]], *, name: str, at_end: Callable[[], object] | None = None) -> LoopTask:
        """Start `func` in a copy of the caller's context. Call it inside an event loop.

        Args:
            func: the async function to run.
            name: the name of the task in logs and debuggers.
            at_end: called when the task has ended in any way, even when it was cancelled before its first step (then no `finally` inside
                `func` runs).

        Raises:
            RuntimeError: the loop is ending and takes no new task.
        """
        task = cls(func, name=name, at_end=at_end)
        trio = trio_here()
        if trio is not None:
            trio.lowlevel.spawn_system_task(task._run, name=name, context=contextvars.copy_context())
        else:
            handle = running_asyncio_loop().create_task(task._run(), name=name)
            _running.add(handle)
            handle.add_done_callback(task._done)
        return task

    @property
    def finished(self) -> bool:
        """True when the function has returned, raised or been cancelled."""
        return self._is_finished

    def cancel(self) -> None:
        """Ask the function to stop at its next `await`, without waiting for it."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Wait until the task has finished. Cancelling the waiter does not affect the task."""
        if self._is_finished:
            await anyio.lowlevel.checkpoint()
            return
        if self._finished is None:
            self._finished = anyio.Event()
        await self._finished.wait()

    async def join(self) -> None:
        """Wait until the task has finished, even when the caller is cancelled; its cancellation is raised afterwards.

        Use it only where the task bounds its own time, such as closing a process.
        """
        if self._is_finished:
            return
        cancelled: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while not self._is_finished:
                try:
                    await self.wait()
                except anyio.get_cancelled_exc_class() as exc:
                    # asyncio's Task.cancel() ignores shields; it is raised again below
                    cancelled = exc
        if cancelled is not None:
            raise cancelled

    async def _run(self) -> None:
        try:
            with self._scope:
                if self._func is not None:
                    await self._func()
        except Exception:
            logger.exception("background task %r failed", self._name)
        except (KeyboardInterrupt, SystemExit, BaseExceptionGroup) as exc:
            if not self._hand_over(exc):
                raise
        finally:
            self._finish()

    def _hand_over(self, exc: BaseException) -> bool:
        """Pass Ctrl-C or an exit on to the main task; returns False when `exc` is neither, or when asyncio handles it.

        On trio only: there, Ctrl-C may be raised in any task, and an exception that leaves a system task is an "internal error".
        """
        group = exc if isinstance(exc, BaseExceptionGroup) else BaseExceptionGroup(self._name, [exc])
        if trio_here() is None or group.subgroup((KeyboardInterrupt, SystemExit)) is None:
            return False
        if group.subgroup(KeyboardInterrupt) is not None:
            _thread.interrupt_main()  # raise Ctrl-C again in the main task, where trio handles it
        else:
            logger.error("background task %r ended with SystemExit", self._name, exc_info=exc)
        return True

    def _done(self, handle: Task[None]) -> None:
        _running.discard(handle)
        self._finish()  # for a task that was cancelled before its first step; else it does nothing

    def _finish(self) -> None:
        try:
            if self._at_end is not None:
                self._at_end()
        except Exception:
            logger.exception("at_end of background task %r failed", self._name)
        finally:
            self._is_finished = True
            self._func = self._at_end = None
            if self._finished is not None:
                self._finished.set()
