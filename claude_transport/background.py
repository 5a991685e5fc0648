"""A task that belongs to nobody's cancel scope: what is started here is finished here, whoever called and from where.

A transport may be connected in one task and closed in another, and the caller that closes it may itself be cancelled at
any moment, by anyio, by trio or by asyncio's own `Task.cancel()` (which no shield stops). A task group cannot serve that:
it must be left by the task that entered it. So the few things that must outlive their caller run as top-level tasks of
the event loop, and callers only wait for them.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

__all__ = ["BackgroundTask", "in_event_loop"]

logger = logging.getLogger(__name__)

_running: set[asyncio.Task[None]] = set()  # asyncio keeps only weak references to its tasks


def in_event_loop() -> bool:
    """True when the calling code runs inside an asyncio or trio event loop."""
    try:
        anyio.lowlevel.current_token()
    except Exception:  # noqa: BLE001 - anyio raises NoEventLoopError or, in older versions, sniffio's error
        return False
    return True


class BackgroundTask:
    """A top-level task of the running event loop, on asyncio and on trio.

    It ends when its function does, when `cancel()` is called, or when the event loop ends (which cancels it: the function
    then has until its next `await` to leave things in order). An exception that escapes the function is logged.
    """

    def __init__(self, func: Callable[[], Awaitable[object]], *, name: str) -> None:
        self._func = func
        self._name = name
        self._scope = anyio.CancelScope()
        self._finished = anyio.Event()

    @classmethod
    def spawn(cls, func: Callable[[], Awaitable[object]], *, name: str) -> BackgroundTask:
        """Start `func` now, in a copy of the caller's context; must be called inside an event loop."""
        task = cls(func, name=name)
        trio = sys.modules.get("trio")  # if it was never imported, it is not what is running
        if trio is not None and trio.lowlevel.in_trio_run():
            trio.lowlevel.spawn_system_task(task._run, name=name, context=contextvars.copy_context())
        else:
            handle = asyncio.get_running_loop().create_task(task._run(), name=name)
            _running.add(handle)
            handle.add_done_callback(_running.discard)
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
        try:
            with self._scope:
                await self._func()
        except Exception:
            logger.exception("background task %r failed", self._name)
        finally:
            self._finished.set()
