"""The event loop that runs the caller, and waits in it that cost little: `HostLoop`, `Wakeup`, `LightEvent` and `FairLock`.

`anyio` has the same for every program. These are for what happens at each message: `benchmarks/bench_tricks.py` measures what they gain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from types import TracebackType

_trio: Any = None
"""The trio module, once this module was called in a run of it."""


def trio_here() -> Any:
    """Return the trio module when the caller runs under trio, else None."""
    global _trio
    if _trio is not None:
        return _trio if _trio.lowlevel.in_trio_run() else None
    # Not imported at all, or only partly by another thread, it is not running.
    in_trio_run = getattr(sys.modules.get("trio.lowlevel"), "in_trio_run", None)
    if in_trio_run is None or not in_trio_run():
        return None
    _trio = sys.modules["trio"]
    return _trio


def running_asyncio_loop() -> AbstractEventLoop:
    """Return the running asyncio loop. Raises `RuntimeError` when there is none."""
    # asyncio is not imported here: this would cost a fifth of this package's import time, and raise in finalisers at exit.
    # As with trio, another thread may have imported only a part of it.
    get_running_loop = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    if get_running_loop is None:
        raise RuntimeError("no event loop is running: asyncio is not imported")
    loop: AbstractEventLoop = get_running_loop()
    return loop


def asyncio_loop_here() -> AbstractEventLoop | None:
    """Return the asyncio loop in which the caller runs; None under trio. Raises `RuntimeError` outside of any event loop."""
    return running_asyncio_loop() if trio_here() is None else None


def is_being_cancelled_here() -> bool:
    """Return True when `Task.cancel()` of asyncio was called for the current task. No cancel scope knows about that."""
    if trio_here() is not None:
        return False
    task = sys.modules["asyncio"].current_task()
    return task is not None and task.cancelling() > 0


def is_stopped_here() -> bool:
    """Return True when the next wait of the current task would be cancelled: by a scope, by a deadline that has passed, or by asyncio."""
    return anyio.current_effective_deadline() <= anyio.current_time() or is_being_cancelled_here()


def clock_here() -> Callable[[], float]:
    """Return the clock of the running event loop: the function behind `anyio.current_time()`. Keeping it saves a lookup for every
    message.
    """
    loop = asyncio_loop_here()
    clock: Callable[[], float] = trio_here().current_time if loop is None else loop.time
    return clock


class HostLoop:
    """The event loop in which an object was made, for use from a finaliser, another thread or another loop."""

    __slots__ = ("_asyncio_loop", "_running_loop", "_trio_token")

    def __init__(self) -> None:
        """Remember the running loop. Raises `RuntimeError` when there is none."""
        trio = trio_here()
        self._trio_token = None if trio is None else trio.lowlevel.current_trio_token()
        self._asyncio_loop = None if trio is not None else running_asyncio_loop()
        self._running_loop: Callable[[], object] = bool if trio is not None else sys.modules["asyncio"]._get_running_loop  # noqa: SLF001

    @property
    def is_current(self) -> bool:
        """True when the caller runs inside this loop."""
        # As `trio_here()` and `running_asyncio_loop()`, without their calls: this is asked for each message that is waited for.
        lowlevel = sys.modules.get("trio.lowlevel")
        if lowlevel is not None and getattr(lowlevel, "in_trio_run", bool)():
            return bool(lowlevel.current_trio_token() is self._trio_token)
        return self._asyncio_loop is not None and self._running_loop() is self._asyncio_loop

    @property
    def is_paused(self) -> bool:
        """True for an asyncio loop that is not running, but not closed either: work scheduled there may wait for ever."""
        loop = self._asyncio_loop
        return loop is not None and not loop.is_running() and not loop.is_closed()

    def call_soon(self, func: Callable[[], object]) -> bool:
        """Call `func` in the loop, from any thread. Returns False when the loop has ended."""
        try:
            if self._trio_token is not None:
                self._trio_token.run_sync_soon(func)
            elif self._asyncio_loop is not None:
                self._asyncio_loop.call_soon_threadsafe(func)
        except RuntimeError:  # the loop is closed (trio's RunFinishedError is a RuntimeError, too)
            return False
        return True


class Wakeup:
    """An event that can fire many times. Firing it costs nothing while no task waits.

    Look at the state before you wait, without an `await` in between: a `fire()` before the wait is not remembered.
    A wakeup belongs to the event loop of its first wait.
    """

    # It uses a bare future on asyncio and `reschedule()` on trio. Making an `anyio.Event` for a message took longer than decoding it.

    __slots__ = ("make_future", "trio", "waiting")

    def __init__(self, *, beside: Wakeup | None = None) -> None:
        """`beside` is one of the same event loop. When it was waited for already, this one has not to look for the loop."""
        self.make_future: Callable[[], Any] | None = None if beside is None else beside.make_future
        """Makes a future of the event loop: on asyncio, from the first wait on."""
        self.trio: Any = None if beside is None else beside.trio
        """The module: on trio, from the first wait on."""
        self.waiting: list[Any] = []  # one entry for each waiter: two tasks on one future would be cancelled together
        """The waits. It is empty while no task waits; not to be changed."""

    @property
    def is_awaited(self) -> bool:
        """True while a task waits that has not been cancelled."""
        for waiter in self.waiting:  # noqa: SIM110 - faster than a generator
            if self.trio is not None or not waiter.done():  # on asyncio, a waiter that was just cancelled is still in the list
                return True
        return False

    def fire(self) -> None:
        """Wake every task that waits now."""
        waiting = self.waiting
        while waiting:  # a Ctrl-C between two of these lines leaves every waiter either in the list or woken
            if self.trio is not None:
                self.trio.lowlevel.reschedule(waiting.pop(0))
            elif not waiting[0].done():
                waiting.pop(0).set_result(None)
            else:  # it was cancelled a moment ago
                waiting.pop(0)

    async def wait(self) -> None:
        """Wait for the next `fire()`. There is no time limit here: the caller's docstring says what ends the wait."""
        make_future = self.make_future or self._find_loop()
        if make_future is None:
            await self._wait_on_trio()
            return
        future = make_future()
        self.waiting.append(future)
        try:
            await future
        except BaseException:
            if future in self.waiting:
                self.waiting.remove(future)
            raise

    async def _wait_on_trio(self) -> None:
        lowlevel = self.trio.lowlevel
        task = lowlevel.current_task()

        def abort(_: object) -> Any:
            if task in self.waiting:  # it always is, unless a Ctrl-C came in the middle of `fire()`; an error here would end the run
                self.waiting.remove(task)
            return lowlevel.Abort.SUCCEEDED

        self.waiting.append(task)
        await lowlevel.wait_task_rescheduled(abort)

    def _find_loop(self) -> Callable[[], Any] | None:
        """Return a function that makes a future of the running asyncio loop; None on trio."""
        if self.trio is not None:
            return None
        loop = asyncio_loop_here()
        if loop is None:
            self.trio = trio_here()
        else:
            self.make_future = loop.create_future
        return self.make_future


class LightEvent:
    """A flag that is set once and that tasks can wait for: an `anyio.Event` at a tenth of its cost. For the tasks of one event loop."""

    __slots__ = ("_is_set", "_woken")

    def __init__(self) -> None:
        self._is_set = False
        self._woken: Wakeup | None = None  # made when a task waits

    def is_set(self) -> bool:
        """Return True from the first `set()` on."""
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake every task that waits for it."""
        if not self._is_set:
            self._is_set = True
            if self._woken is not None:
                self._woken.fire()

    async def wait(self) -> None:
        """Wait until the flag is set. Always a checkpoint. What sets the flag bounds the wait."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
        while not self._is_set:
            if self._woken is None:
                self._woken = Wakeup()
            await self._woken.wait()


class FairLock:
    """A lock that lets tasks through in the order of their coming: `anyio.Lock(fast_acquire=True)` at a tenth of its memory.

    Passing a free one is no checkpoint.
    """

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[LightEvent] | tuple[()] = ()  # a list while tasks wait

    def locked(self) -> bool:
        """Return True while a task is inside."""
        return self._is_taken

    async def __aenter__(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn = LightEvent()
        if self._waiting:
            self._waiting.append(turn)
        else:
            self._waiting = [turn]
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._release()  # the turn came together with the cancellation
            else:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._release()

    def _release(self) -> None:
        if self._waiting:
            self._waiting.pop(0).set()  # it stays taken, so that no other task comes in between
        else:
            self._is_taken = False
