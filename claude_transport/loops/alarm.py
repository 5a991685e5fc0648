"""`Alarm` calls a function at a time, in the running event loop. It has no task of its own: hundreds of sessions wait for something that
rarely comes.

On asyncio the loop does it. On trio, one task serves all alarms of a run.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from claude_transport.loggers import logger_for
from claude_transport.loops.current import asyncio_loop_here, trio_here

if TYPE_CHECKING:
    from asyncio import TimerHandle

logger: logging.Logger = logger_for(__name__)

LINGER: Final = 0.25
"""Seconds for which the task of a trio run waits for the next alarm before it ends."""


class Alarm:
    """Calls `func`, which must not wait, at a time by the clock of the event loop. An exception of it is logged.

    An alarm belongs to the event loop in which it is set. At the end of the loop nothing rings any more.
    """

    __slots__ = ("_context", "_func", "_handle", "_ringer")

    def __init__(self, func: Callable[[], object]) -> None:
        self._func = func
        self._context: contextvars.Context | None = None
        self._handle: TimerHandle | None = None  # on asyncio, while it is set
        self._ringer: _Ringer | None = None  # on trio, while it is set

    @property
    def is_set(self) -> bool:
        """True while it is going to ring."""
        return self._handle is not None or self._ringer is not None

    def set(self, when: float) -> None:
        """Ring at `when`, in the context of this call, and not at the time that was set before. `math.inf` is never.

        Raises:
            RuntimeError: no event loop is running, or it takes no new task. (One that is ending may also take it, and never ring.)
        """
        self.cancel()
        if when == math.inf:
            return
        self._context = contextvars.copy_context()
        loop = asyncio_loop_here()
        if loop is not None:
            self._handle = loop.call_at(when, self.ring)
        else:
            ringer = _Ringer.here()
            ringer.add(self, when)
            self._ringer = ringer

    def cancel(self) -> None:
        """Do not ring. Does nothing when it is not set."""
        if self._handle is not None:
            self._handle.cancel()
        elif self._ringer is not None:
            self._ringer.remove(self)
        self._handle = self._ringer = self._context = None

    def ring(self) -> None:
        """Call the function now. The event loop does that."""
        context = self._context or contextvars.copy_context()
        self._handle = self._ringer = self._context = None
        try:
            context.run(self._func)
        except Exception:
            logger.exception("what an alarm called has failed")


class _Ringer:
    """Rings the alarms of one trio run. Its task starts with the first alarm, and ends a moment after the last."""

    def __init__(self, trio: Any) -> None:
        self._trio = trio  # given and not imported: trio may not be installed
        self._alarms: dict[Alarm, float] = {}
        self._idle_since = 0.0
        self._is_running = False
        self._sleep: Any = None  # the cancel scope of the sleeping task

    @staticmethod
    def here() -> _Ringer:
        of_run = _ringers()
        ringer: _Ringer | None = of_run.get(None)
        if ringer is None:
            ringer = _Ringer(trio_here())
            of_run.set(ringer)
        return ringer

    def add(self, alarm: Alarm, when: float) -> None:
        if not self._is_running:
            self._trio.lowlevel.spawn_system_task(self._run, name="ring alarms")
            self._is_running = True
        elif self._sleep is not None and when < self._sleep.deadline:
            self._sleep.deadline = when
        self._alarms[alarm] = when

    def remove(self, alarm: Alarm) -> None:
        self._alarms.pop(alarm, None)
        if not self._alarms and self._is_running:  # else the run is over
            self._idle_since = self._trio.current_time()
            if self._sleep is not None:
                self._sleep.deadline = min(self._sleep.deadline, self._idle_since + LINGER)

    async def _run(self) -> None:
        try:
            while self._alarms or self._trio.current_time() < self._idle_since + LINGER:
                next_look = min(self._alarms.values(), default=self._idle_since + LINGER)
                with self._trio.CancelScope(deadline=next_look) as self._sleep:
                    await self._trio.sleep_forever()
                self._sleep = None
                now = self._trio.current_time()
                for alarm in [alarm for alarm, when in self._alarms.items() if when <= now]:
                    if alarm in self._alarms:  # one that rang may have cancelled it
                        self.remove(alarm)
                        alarm.ring()
        finally:
            self._is_running, self._sleep = False, None


@functools.cache
def _ringers() -> Any:
    """Return the variable that holds the ringer of each trio run. Made late, because trio is imported late."""
    return sys.modules["trio"].lowlevel.RunVar("claude_transport.ringer", None)
