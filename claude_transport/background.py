"""A task that belongs to nobody's cancel scope: what is started here is finished here, whoever called and from where.

A transport may be connected in one task and closed in another, and the caller that closes it may itself be cancelled at
any moment, by anyio, by trio or by asyncio's own `Task.cancel()` (which no shield stops). A task group cannot serve that:
it must be left by the task that entered it. So the few things that must outlive their caller run as top-level tasks of
the event loop, and callers only wait for them.
"""

from __future__ import annotations

import _thread
import contextvars
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task


logger: logging.Logger = logging.getLogger(__name__)

_running: set[Task[None]] = set()  # asyncio keeps only weak references to its tasks


def trio_here() -> Any:
    """Return the trio module when the caller runs under trio, else None.

    trio may not be imported at all, or another thread may have imported only a part of it. Then it is not what is running.
    """
    in_trio_run = getattr(sys.modules.get("trio.lowlevel"), "in_trio_run", None)
    return sys.modules["trio"] if in_trio_run is not None and in_trio_run() else None


def _asyncio_loop() -> AbstractEventLoop:
    """Return the running asyncio loop. Raises `RuntimeError` when there is none."""
    # Not imported here: that would cost a fifth of importing this package, and raise in finalisers at the interpreter's exit.
    # Another thread may have imported only a part of it, as with trio.
    get_running_loop = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    if get_running_loop is None:
        raise RuntimeError("asyncio is not imported, so it is not what is running")
    loop: AbstractEventLoop = get_running_loop()
    return loop


def asyncio_loop_here() -> AbstractEventLoop | None:
    """The asyncio loop that the caller runs in; None under trio. Raises `RuntimeError` outside of any."""
    return _asyncio_loop() if trio_here() is None else None


def is_being_cancelled_here() -> bool:
    """True when asyncio itself has been asked to cancel the task that the caller runs in, which no cancel scope knows of."""
    if trio_here() is not None:
        return False
    task = sys.modules["asyncio"].current_task()
    return task is not None and task.cancelling() > 0


def clock_here() -> Callable[[], float]:
    """What `anyio.current_time()` asks in the loop that the caller runs in, to be kept by those who ask it for every message."""
    loop = asyncio_loop_here()
    clock: Callable[[], float] = trio_here().current_time if loop is None else loop.time
    return clock


class HostLoop:
    """The event loop something was made in, to be found again from a finaliser, another thread or another loop."""

    __slots__ = ("_asyncio_loop", "_trio_token")

    def __init__(self) -> None:
        """Remembers the running loop; raises `RuntimeError` when there is none."""
        trio = trio_here()
        self._trio_token = None if trio is None else trio.lowlevel.current_trio_token()
        self._asyncio_loop = None if trio is not None else _asyncio_loop()

    @property
    def is_current(self) -> bool:
        """True when the caller runs inside this loop."""
        # As `trio_here()` and `_asyncio_loop()`, without their calls: this is asked for each message that is waited for.
        lowlevel = sys.modules.get("trio.lowlevel")
        if getattr(lowlevel, "in_trio_run", bool)():
            return self._trio_token is not None and lowlevel.current_trio_token() is self._trio_token  # type: ignore[union-attr]
        get_running_loop = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
        if self._asyncio_loop is None or get_running_loop is None:
            return False
        try:
            return get_running_loop() is self._asyncio_loop
        except RuntimeError:
            return False

    @property
    def is_paused(self) -> bool:
        """True for an asyncio loop that is neither running nor closed: what was scheduled there may wait for ever."""
        loop = self._asyncio_loop
        return loop is not None and not loop.is_running() and not loop.is_closed()

    def call_soon(self, func: Callable[[], object]) -> bool:
        """Have `func` called inside the loop, from any thread; False when the loop is over."""
        try:
            if self._trio_token is not None:
                self._trio_token.run_sync_soon(func)
            elif self._asyncio_loop is not None:
                self._asyncio_loop.call_soon_threadsafe(func)
        except RuntimeError:  # closed; trio's RunFinishedError is one, too
            return False
        return True


class BackgroundTask:
    """A top-level task of the running event loop, on asyncio and on trio.

    It ends when its function does, when `cancel()` is called, or when the event loop ends (which cancels it: the function
    then has until its next `await` to leave things in order). An exception that escapes the function is logged; Ctrl-C is
    the program's, in whichever task it was noticed.
    """

    def __init__(self, func: Callable[[], Awaitable[object]], *, name: str, at_end: Callable[[], object] | None = None) -> None:
        self._func = func
        self._name = name
        self._at_end = at_end
        self._scope = anyio.CancelScope()
        self._started = False
        self._finished = anyio.Event()

    @classmethod
    def spawn(cls, func: Callable[[], Awaitable[object]], *, name: str, at_end: Callable[[], object] | None = None) -> BackgroundTask:
        """Start `func` now, in a copy of the caller's context; must be called inside an event loop.

        `at_end` is called when the task is over in whatever way: also when it was cancelled before its first step, in which case
        not even a `finally` inside `func` runs. Raises `RuntimeError` when the loop is ending and takes no new task.
        """
        task = cls(func, name=name, at_end=at_end)
        trio = trio_here()
        if trio is not None:
            trio.lowlevel.spawn_system_task(task._run, name=name, context=contextvars.copy_context())
        else:
            handle = _asyncio_loop().create_task(task._run(), name=name)
            _running.add(handle)
            handle.add_done_callback(task._done)
        return task

    @property
    def finished(self) -> bool:
        """True once the function has returned, raised or been cancelled."""
        return self._finished.is_set()

    def cancel(self) -> None:
        """Ask the function to stop at its next `await`; does not wait for it."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Return when the task has finished; cancelling the waiter does not touch the task."""
        await self._finished.wait()

    async def join(self) -> None:
        """Return when the task has finished, and not before: the caller's cancellation is delivered afterwards.

        For waits that the task itself bounds, such as closing a process.
        """
        cancelled: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while not self._finished.is_set():
                try:
                    await self._finished.wait()
                except anyio.get_cancelled_exc_class() as exc:
                    # asyncio's Task.cancel() comes through a shield; it is kept, not swallowed
                    cancelled = exc
        if cancelled is not None:
            raise cancelled

    async def _run(self) -> None:
        self._started = True
        try:
            with self._scope:
                await self._func()
        except Exception:
            logger.exception("background task %r failed", self._name)
        except (KeyboardInterrupt, SystemExit, BaseExceptionGroup) as exc:
            if not self._hand_over(exc):
                raise
        finally:
            self._finish()

    def _hand_over(self, exc: BaseException) -> bool:
        """Give what is meant for the whole program to the main task; False when there is nothing of the kind, or no need.

        On trio only: Ctrl-C may hit any task below this one, and what leaves a system task is an "internal error" there.
        """
        group = exc if isinstance(exc, BaseExceptionGroup) else BaseExceptionGroup(self._name, [exc])
        if trio_here() is None or group.subgroup((KeyboardInterrupt, SystemExit)) is None:
            return False
        if group.subgroup(KeyboardInterrupt) is not None:
            _thread.interrupt_main()  # pressed again, where trio knows what to do about it: nothing is interrupted in this frame
        else:
            logger.error("background task %r failed: it was told to exit", self._name, exc_info=exc)
        return True

    def _done(self, handle: Task[None]) -> None:
        _running.discard(handle)
        if not self._started:
            self._finish()

    def _finish(self) -> None:
        try:
            if self._at_end is not None:
                self._at_end()
        except Exception:
            logger.exception("the end of background task %r failed", self._name)
        finally:
            self._finished.set()
