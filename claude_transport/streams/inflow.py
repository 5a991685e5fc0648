"""The fast path of reading: a pipe that the event loop watches once, and waits that cost little.

Everything that makes reading fast is in this module. Its users see five names:

* `Inflow` reads one pipe: `take()` without waiting, `arrival()` to wait, `pour()` to have chunks handed to a function.
* `Pourable` is the class of a stream that offers `pour()`.
* `Wakeup` is an event that can fire many times, and `Flag` one that is set once.
* `Pace` lets other tasks run now and then, in a loop that never waits.

`Lookout`, which watches pipes on trio, is private to `Inflow`. What each trick gains is in
`docs/explanation/performance.md`; `benchmarks/bench_tricks.py` measures it. Lines and messages are not known here:
see `claude_transport.transports.stream`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import os
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.lowlevel

from claude_transport.alarm import LINGER, Alarm
from claude_transport.background import asyncio_loop_here, is_being_cancelled_here, trio_here
from claude_transport.loggers import logger_for
from claude_transport.streams.room import READ_BYTES, PipeRoom

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from types import TracebackType

logger: logging.Logger = logger_for(__name__)

_PACE_BYTES: Final = 512 * 2**10
"""Bytes between two full checkpoints of `Pace`: some thousand small messages, or the work of two milliseconds."""


_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks at pipes that the system does not let trio wait for."""


class Wakeup:
    """An event that can fire many times. Firing it costs nothing while no task waits.

    Look at the state before you wait, without an `await` in between: a `fire()` before the wait is not remembered.
    A wakeup belongs to the event loop of its first wait.
    """

    # It uses a bare future on asyncio and `reschedule()` on trio. Making an `anyio.Event` for a message took longer than decoding it.

    __slots__ = ("_make_future", "_trio", "waiting")

    def __init__(self) -> None:
        self._make_future: Callable[[], Any] | None = None  # on asyncio, after the first wait
        self._trio: Any = None  # on trio, after the first wait
        self.waiting: list[Any] = []  # one entry for each waiter: two tasks on one future would be cancelled together
        """The waits. It is empty while no task waits; not to be changed."""

    @property
    def is_awaited(self) -> bool:
        """True while a task waits that has not been cancelled."""
        for waiter in self.waiting:  # noqa: SIM110 - faster than a generator
            if self._trio is not None or not waiter.done():  # on asyncio, a waiter that was just cancelled is still in the list
                return True
        return False

    def fire(self) -> None:
        """Wake every task that waits now."""
        waiting = self.waiting
        while waiting:  # a Ctrl-C between two of these lines leaves every waiter either in the list or woken
            if self._trio is not None:
                self._trio.lowlevel.reschedule(waiting.pop(0))
            elif not waiting[0].done():
                waiting.pop(0).set_result(None)
            else:  # it was cancelled a moment ago
                waiting.pop(0)

    async def wait(self) -> None:
        """Wait for the next `fire()`. There is no time limit here: the caller's docstring says what ends the wait."""
        make_future = self._make_future or self._find_loop()
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
        lowlevel = self._trio.lowlevel
        task = lowlevel.current_task()

        def abort(_: object) -> Any:
            if task in self.waiting:  # it always is, unless a Ctrl-C came in the middle of `fire()`; an error here would end the run
                self.waiting.remove(task)
            return lowlevel.Abort.SUCCEEDED

        self.waiting.append(task)
        await lowlevel.wait_task_rescheduled(abort)

    def _find_loop(self) -> Callable[[], Any] | None:
        """Return a function that makes a future of the running asyncio loop; None on trio."""
        if self._trio is not None:
            return None
        loop = asyncio_loop_here()
        if loop is None:
            self._trio = trio_here()
        else:
            self._make_future = loop.create_future
        return self._make_future


class Flag:
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


class Turnstile:
    """A lock that lets tasks through in the order of their coming: `anyio.Lock(fast_acquire=True)` at a tenth of its memory.

    Passing a free one is no checkpoint.
    """

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[Flag] | tuple[()] = ()  # a list while tasks wait

    def locked(self) -> bool:
        """Return True while a task is inside."""
        return self._is_taken

    async def __aenter__(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn = Flag()
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


class Pace:
    """Lets other tasks run now and then, in a loop whose steps do not wait.

    A full checkpoint at every step would cost as much as carrying 64 KiB.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = 0

    async def step(self, size: int = READ_BYTES) -> None:
        """Let other tasks run at the first step, and then after every 512 KiB. Every step raises if the task was cancelled.

        Args:
            size: bytes that the step carries. A smaller step counts as 64 KiB.
        """
        is_turn = self._left <= 0 or is_being_cancelled_here()
        if is_turn:
            self._left = _PACE_BYTES
        self._left -= max(READ_BYTES, size)
        await (anyio.lowlevel.checkpoint() if is_turn else anyio.lowlevel.checkpoint_if_cancelled())


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
        self._watching: AbstractEventLoop | Lookout | None = None
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
        """Have the lookout watch the pipe from now on. Only `pour()` does so: for `arrival()`, trio's own wait is faster."""
        lookout = Lookout.here() if self._max_bytes else None
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


# On trio: one task that watches all pipes of a run and calls back, as `loop.add_reader()` does on asyncio.


class _Callbacks(NamedTuple):
    on_readable: Callable[[], object]
    on_lost: Callable[[], object]


class Lookout:
    """Watches file descriptors in one trio run, and its end. Its task starts with the first watch. It ends a quarter of a second after the
    last is removed, so that sessions that follow each other share it.

    trio itself registers a descriptor anew for each wait and resumes a task for each that is ready. For messages that come
    alone in hundreds of sessions, that is a third of their cost. The lookout has an epoll of its own, so it exists on Linux only.
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
    def here() -> Lookout | None:
        """Return the lookout of the running trio run; None on asyncio, on other systems than Linux, and when the run is ending."""
        trio = trio_here()
        if trio is None or not hasattr(select, "epoll"):
            return None
        of_run = _lookouts()
        lookout: Lookout | None = of_run.get(None)
        if lookout is None:
            lookout = Lookout(trio)
            of_run.set(lookout)
        return None if lookout.is_over else lookout

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
def _lookouts() -> Any:
    """Return the variable that holds the lookout of each trio run. Made late, because trio is imported late."""
    return sys.modules["trio"].lowlevel.RunVar("claude_transport.lookout", None)
