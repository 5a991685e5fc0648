"""An event loop in a thread of its own, for programs without one: what `SyncQuery` and other blocking clients are built on."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import Context, copy_context
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar, cast

import anyio

from claude_transport.errors import ConfigurationError, SpawnError, TransportClosed, UsageError
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Backend = Literal["asyncio", "trio"]

_TICK: Final = 0.5
"""Seconds between two looks for Ctrl-C. It interrupts a wait for a lock only where this thread receives it, and never on Windows."""
_LAST_WAIT: Final = 10.0
"""Seconds for cancelled work, and for the end of the thread. Both bound their own time; this is for what resists."""


def refuse_in_a_loop(name: str, instead: str) -> None:
    """Raise `UsageError` when an event loop runs in this thread, which `name` would block. `instead` is the remedy."""
    try:
        HostLoop()
    except RuntimeError:
        return  # as it should be: no event loop runs here
    raise UsageError(f"{name} would block the event loop that runs in this thread: {instead}", code="usage.running_loop")


class _Job(Generic[T]):
    """One call that a thread waits for."""

    def __init__(self, func: Callable[[], Awaitable[T]], *, backend: Backend) -> None:
        self._func = func
        self._backend = backend
        self._context = copy_context()
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self._task: LoopTask | None = None
        self._is_cancelled = False
        self.done = threading.Event()

    def start(self) -> None:
        """Start the call in its event loop, with the context variables of the thread that waits."""
        if not self._is_cancelled:
            self._context.run(self._spawn)

    def _spawn(self) -> None:
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:  # the context is that of another thread, or a copy of that of another event loop
            sniffio.current_async_library_cvar.set(self._backend)
        try:
            self._task = LoopTask.spawn(self._run, name="claude blocking call", at_end=self.done.set)
        except RuntimeError as exc:  # the loop is ending
            error = TransportClosed("it was closed during the call")
            error.__cause__ = exc
            self._error = error
            self.done.set()

    def cancel(self) -> None:
        """Cancel the call, from its event loop."""
        self._is_cancelled = True
        if self._task is None:
            self.done.set()
        else:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._outcome.append(await self._func())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as exc:  # noqa: BLE001 - the thread that waits gets it, whatever it is
            self._error = exc

    def result(self) -> T:
        """Return or raise what the call did."""
        error, self._error = self._error, None  # an error that is raised refers to this frame
        if error is not None:
            try:
                raise error
            finally:
                del error
        if not self._outcome:
            raise TransportClosed("it was closed during the call")
        return self._outcome[0]


class LoopThread:
    """An event loop in a thread of its own. The first call starts the thread.

    Args:
        name: what is called, for errors, such as `SyncQuery`.
        instead: what to use where an event loop runs, for errors.
        backend: `asyncio` or `trio`.
        at_end: the last thing that the thread does. It bounds its own time.
    """

    def __init__(self, name: str, *, instead: str, backend: Backend = "asyncio", at_end: Callable[[], Awaitable[object]]) -> None:
        refuse_in_a_loop(name, instead)
        if backend not in {"asyncio", "trio"}:
            raise UsageError(f"backend={backend!r} is neither 'asyncio' nor 'trio'")
        if find_spec(backend) is None:
            raise ConfigurationError(
                f"backend={backend!r} needs the package {backend}: pip install {backend}", option="backend", code="config.missing_extra"
            )
        self._name, self._instead = name, instead
        self._backend: Backend = backend
        self._at_end = at_end
        self._lock = threading.Lock()
        self._jobs: set[_Job[Any]] = set()
        self._thread: threading.Thread | None = None
        self._process: int | None = None  # the one that started the thread: a fork of it has no such thread
        self._host: HostLoop | None = None
        self._over = False
        self._started = threading.Event()
        self._stop = threading.Event()
        self._wake: Callable[[], object] = bool
        self._failure: BaseException | None = None

    def call(self, func: Callable[[], Awaitable[T]], *, timeout: float | None = None) -> T:
        """Run `func()` in the event loop, wait for it, and return its result. A Ctrl-C in the wait cancels it, and is raised.

        Raises:
            TimeoutError: it took longer than `timeout` seconds, and was cancelled. Its text is that for the wait for a turn.
            UsageError: code `usage.running_loop`: an event loop runs in the thread of the caller.
            SpawnError: the system has no thread for the event loop. A later call tries again.
            TransportClosed: the event loop has ended, or ends during the call. Or it is that of the process of which this one is a fork.
        """
        refuse_in_a_loop(self._name, self._instead)
        if self._is_of_another_process:  # before the lock, which nobody may be left to release
            raise TransportClosed(f"this {self._name} belongs to the process that started it, and this is a fork of it: make one here")
        job = _Job(func if timeout is None else lambda: _limited(func, timeout), backend=self._backend)
        with self._lock:
            if self._over or self._stop.is_set():
                raise TransportClosed(f"this {self._name} is closed")
            if self._thread is None:
                self._start()
            self._jobs.add(job)
        try:
            _wait(self._started)
            if self._host is not None:
                self._host.call_soon(job.start)
            _wait(job.done)
        except BaseException:
            if self._host is not None and self._host.call_soon(job.cancel):
                job.done.wait(_LAST_WAIT)
            raise
        finally:
            with self._lock:
                self._jobs.discard(job)
        if self._failure is not None:
            raise self._failure
        return job.result()

    def _start(self) -> None:
        """Start the thread, under the lock."""
        self._thread = threading.Thread(target=Context().run, args=(self._run,), name=f"claude {self._name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as exc:  # "can't start new thread"
            self._thread = None
            raise SpawnError(f"{self._name} needs a thread, and none can be started: {exc}") from exc
        self._process = os.getpid()
        atexit.register(self.end)  # a program may end without closing

    @property
    def _is_of_another_process(self) -> bool:
        return self._process is not None and self._process != os.getpid()

    def end(self, *, wait: bool = True) -> None:
        """End the event loop and its thread. A second call does nothing. Without `wait`, in a finaliser, it only begins to.

        In a fork of the process that started the thread, this does nothing.
        """
        if self._is_of_another_process:
            return
        self._stop.set()
        if self._host is not None:
            self._host.call_soon(self._wake)
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_WAIT)

    def _run(self) -> None:
        try:
            anyio.run(self._serve, backend=self._backend)
        except BaseException as exc:  # noqa: BLE001 - such as a backend that cannot be imported: the caller gets it
            never_ran = self._host is None and isinstance(exc, Exception)
            self._failure = _unusable(self._backend, exc) if never_ran else exc
        finally:
            with self._lock:
                self._over = True
                left = list(self._jobs)
            self._started.set()
            for job in left:
                job.done.set()
            atexit.unregister(self.end)

    async def _serve(self) -> None:
        stopped = anyio.Event()
        self._wake = stopped.set
        self._host = HostLoop()
        self._started.set()
        if not self._stop.is_set():
            await stopped.wait()
        with self._lock:
            left = list(self._jobs)
        for job in left:
            job.cancel()
        await self._at_end()


def _unusable(backend: Backend, cause: BaseException) -> ConfigurationError:
    error = ConfigurationError(f"backend={backend!r} cannot be used", option="backend")
    error.__cause__ = cause
    return error


async def _limited(func: Callable[[], Awaitable[T]], timeout: float) -> T:
    with anyio.move_on_after(timeout):
        return await func()
    raise TimeoutError(f"no result after {timeout:g} seconds; the turn goes on: wait again, or call interrupt()")


def _wait(event: threading.Event) -> None:
    while not event.wait(_TICK):
        pass


_END: Final = object()


class SyncIterator(Iterator[T_co]):
    """A blocking iteration over what comes in another thread's event loop. Its methods are those of any iterator."""

    def __init__(self, loop: LoopThread, iterator: AsyncIterator[T_co], *, owner: object = None) -> None:
        self._loop = loop
        self._iterator = iterator
        self._owner = owner  # kept, so that the conversation is not closed as long as this is iterated

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        item = self._loop.call(self._take)
        if item is _END:
            raise StopIteration
        return cast("T_co", item)

    async def _take(self) -> T_co | object:
        return await anext(self._iterator, _END)


class AsyncConversation(Protocol):
    """What a conversation must have to be used from a thread."""

    async def start(self) -> None: ...

    async def aclose(self) -> object: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


def loop_for(name: str, conversation: AsyncConversation, *, instead: str, backend: Backend) -> LoopThread:
    """Make the event loop of a conversation, which is closed when the loop ends."""
    return LoopThread(name, instead=instead, backend=backend, at_end=conversation.aclose)


class SyncPart:
    """Base of what is used from a thread: an object of an event loop, and that loop."""

    def __init__(self, loop: LoopThread, inner: Any, *, owner: object = None) -> None:
        self._loop = loop
        self._inner = inner
        self._owner = owner  # kept, so that the conversation is not closed as long as a part of it is used

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._inner!r}>"

    def _iterate(self, make: Callable[[], AsyncIterator[T]]) -> SyncIterator[T]:
        async def made() -> AsyncIterator[T]:
            return make()

        return SyncIterator(self._loop, self._loop.call(made), owner=self)


class SyncTurnBase(SyncPart, Generic[T_co]):
    """Base of a turn that is iterated from a thread."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        messages: SyncIterator[T_co] = SyncIterator(self._loop, self._inner)
        return next(messages)


class SyncConversation(SyncPart, Generic[T_co]):
    """Base of a conversation that is held from a thread. Dropping it closes it."""

    def __init__(self, inner: AsyncConversation, loop: LoopThread) -> None:
        super().__init__(loop, inner)
        weakref.finalize(self, loop.end, wait=False).atexit = False  # at exit, the loop ends by itself, and is waited for

    def __enter__(self) -> Self:
        try:
            self._loop.call(self._inner.start)
        except BaseException:
            self._loop.end()
            raise
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        with contextlib.suppress(TransportClosed):  # it was closed in the block
            self._close(lambda: self._inner.__aexit__(exc_type, exc, traceback))

    def __iter__(self) -> SyncIterator[T_co]:
        return self._iterate(lambda: aiter(self._inner))

    def _close(self, close: Callable[[], Awaitable[T]]) -> T:
        try:
            return self._loop.call(close)
        finally:
            self._loop.end()
