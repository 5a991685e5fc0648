"""`Lookout`: on trio, one task that looks out for many pipes, and calls back: what `loop.add_reader()` is on asyncio.

trio itself is told of a descriptor for each wait, and resumes a task for each that is ready. For messages that come alone, in hundreds of
sessions, that is a third of what they cost.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from typing import Self


logger: logging.Logger = logging.getLogger(__name__)


class _Callbacks(NamedTuple):
    on_readable: Callable[[], object]
    on_lost: Callable[[], object]


class Lookout:
    """Looks out for the descriptors of one run of trio, in a task that lives from when the first is added until the last is removed."""

    def __init__(self) -> None:
        self._watched: dict[int, _Callbacks] = {}
        self._epoll: select.epoll | None = None  # set while the task lives
        self._is_over = False

    @classmethod
    def here(cls) -> Self | None:
        """That of the run of the caller; None where there can be none: on other systems than Linux, and when the run is ending."""
        if not hasattr(select, "epoll"):
            return None
        lookout = _lookouts.get(None)
        if not isinstance(lookout, cls):
            lookout = cls()
            _lookouts.set(lookout)
        return None if lookout._is_over else lookout

    def add_reader(self, fd: int, on_readable: Callable[[], object], on_lost: Callable[[], object]) -> bool:
        """Have `on_readable` called, in no task of the caller's, whenever there is something to read from `fd`, until `remove_reader()`.

        `on_lost` is called when that comes to an end before: with the run, or because `on_readable` raised. Returns False when `fd`
        cannot be looked out for: no descriptor is free, the system refuses it, or the run takes no new task.
        """
        try:
            epoll = self._epoll or self._begin()
            epoll.register(fd, select.EPOLLIN)
        except (OSError, RuntimeError):
            logger.debug("cannot look out for descriptor %d", fd, exc_info=True)
            self._end_if_idle()
            return False
        self._watched[fd] = _Callbacks(on_readable, on_lost)
        return True

    def remove_reader(self, fd: int) -> None:
        """Forget `fd`, before it is closed; nothing happens when it is not watched."""
        if self._watched.pop(fd, None) is not None and self._epoll is not None:
            self._epoll.unregister(fd)
            self._end_if_idle()

    def _begin(self) -> select.epoll:
        epoll = select.epoll()
        try:
            trio.lowlevel.spawn_system_task(self._look, epoll, name="look out for pipes")
        except BaseException:
            epoll.close()
            raise
        self._epoll = epoll
        return epoll

    def _end_if_idle(self) -> None:
        epoll = self._epoll
        if epoll is not None and not self._watched:
            self._epoll = None  # the task sees it, wherever it is
            if trio.lowlevel.in_trio_run():
                trio.lowlevel.notify_closing(epoll)
            epoll.close()

    async def _look(self, epoll: select.epoll) -> None:
        try:
            while epoll is self._epoll:
                await trio.lowlevel.wait_readable(epoll)
                self._call_back(epoll)
        except trio.ClosedResourceError:
            pass  # the last was removed while nothing happened
        except trio.Cancelled:
            self._is_over = True
            for fd in list(self._watched):
                self._lose(fd)
            raise

    def _call_back(self, epoll: select.epoll) -> None:
        # between the moment in which the task was woken and this one, the last may have been removed, and the epoll closed
        for fd, _ in epoll.poll(0) if epoll is self._epoll else ():
            callbacks = self._watched.get(fd)
            if callbacks is not None:  # it may have been removed by the one before it
                try:
                    callbacks.on_readable()
                except Exception:  # in this task it would be trio's "internal error", and the end of the program
                    logger.exception("a callback of the lookout failed")
                    self._lose(fd)

    def _lose(self, fd: int) -> None:
        callbacks = self._watched.get(fd)
        self.remove_reader(fd)
        if callbacks is not None:
            try:
                callbacks.on_lost()
            except Exception:
                logger.exception("a callback of the lookout failed")


_lookouts: trio.lowlevel.RunVar[Lookout | None] = trio.lowlevel.RunVar("claude_transport.lookout", None)
