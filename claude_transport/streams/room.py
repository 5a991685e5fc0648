"""How much a pipe holds and how much is read at once: more under load, and the usual amount again when the load is over.

A pipe of Linux holds 64 KiB. A program that writes megabytes then stops and starts for each of them. `PipeRoom` makes one
pipe larger while its reads come back full, or while its writes find it full, and makes it small again afterwards.

Linux counts the pages of all pipes of a user against one limit (`pipe-user-pages-soft`, 64 MiB). Above it, new pipes of that
user get two pages, in every program. So all rooms of this process share an eighth of that limit (`PipePages`), and each gets
at most half of what is left. What the system refuses is not asked for again before the next burst. On other systems than
Linux, pipes keep their size.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop

if sys.platform == "linux":
    import fcntl

logger: logging.Logger = logger_for(__name__)

READ_BYTES: Final = 64 * 2**10
"""Bytes of a usual read, and what a pipe of Linux holds."""

MOST_READ_BYTES: Final = 256 * 2**10
"""Bytes of the largest read. A batch of more small messages would keep other tasks waiting for longer than a millisecond."""

_WIDE_BYTES: Final = 2**20
"""Bytes of the largest pipe. It is what Linux allows a user without special rights, too."""

_FULL_TIMES: Final = 4
"""Full reads in a row, or waits of one large write, after which more is worth it: the other end does its part."""

_IDLE_SECONDS: Final = 1.0
"""Seconds without load after which a pipe is made small again."""

_SHARE: Final = 8
"""The part of the limit of a user that one process takes: an eighth."""

_USUAL_LIMIT: Final = 16384 * 4096
"""Bytes of all pipes of a user, where the system does not tell its limit."""


def _set_size(fd: int, size: int) -> int:
    """Set the size of a pipe and return what the system made of it. Raises `OSError` when it refuses."""
    if sys.platform != "linux":
        raise OSError("only Linux changes the size of a pipe")
    return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)


def _limit_of_user() -> int:
    """Return the bytes that the pipes of one user may have together; 0 where pipes have one size."""
    if sys.platform != "linux":
        return 0
    try:
        pages = int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text("ascii"))
    except (OSError, ValueError):
        return _USUAL_LIMIT
    return pages * 4096 or _USUAL_LIMIT  # 0 means that there is no limit


class ReadSize:
    """The size of the reads from a socket: `bytes` for the next one. It grows after full reads, and a short read ends that."""

    __slots__ = ("_full_count", "bytes")

    def __init__(self) -> None:
        self.bytes: int = READ_BYTES
        self._full_count = 0

    def note(self, count: int) -> bool:
        """Note that a read for `bytes` bytes returned `count`. Returns True when that makes the next ones larger."""
        if count < self.bytes:
            self._full_count = 0
            if count < READ_BYTES:
                self.bytes = READ_BYTES
            return False
        self._full_count += 1
        if self._full_count != _FULL_TIMES:
            return False
        self.bytes = MOST_READ_BYTES
        return True


class PipePages:
    """The bytes that the pipes of this process may have beyond their usual size. Every thread may use it.

    Args:
        limit: bytes for all pipes together. None: an eighth of what the system allows the user.
        set_size: sets the size of a pipe, given its descriptor and the bytes; raises `OSError` when it is refused.
    """

    def __init__(self, *, limit: int | None = None, set_size: Callable[[int, int], int] = _set_size) -> None:
        self._limit = limit
        self._set_size = set_size
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}

    @property
    def taken(self) -> int:
        """Bytes in use now, beyond the usual sizes."""
        return sum(self._sizes.values()) - READ_BYTES * len(self._sizes)

    def widen(self, fd: int) -> int:
        """Make a pipe larger. Returns its size, which is the usual one when nothing is left or the system refuses."""
        with self._lock:
            if self._limit is None:
                self._limit = _limit_of_user() // _SHARE
            most = READ_BYTES + (self._limit - self.taken) // 2
            size = _WIDE_BYTES
            while size > most:
                size //= 2
            if size > READ_BYTES:
                try:
                    self._sizes[fd] = size = self._set_size(fd, size)
                except OSError as exc:
                    logger.debug("pipe %d keeps its size: %s", fd, exc)
                    return READ_BYTES
            return max(size, READ_BYTES)

    def narrow(self, fd: int) -> bool:
        """Give a pipe its usual size again. Returns False when it holds too much for that."""
        with self._lock:
            if fd in self._sizes:
                try:
                    self._set_size(fd, READ_BYTES)
                except OSError:
                    return False
                del self._sizes[fd]
            return True

    def forget(self, fd: int) -> None:
        """Note that a pipe is about to be closed: its number may soon belong to another file."""
        with self._lock:
            self._sizes.pop(fd, None)


pipe_pages: Final = PipePages()
"""What the pipes of this process share."""


class PipeRoom:
    """The size of the pipe `fd`, and of the reads from it. Call `close()` before the pipe is closed, in any thread.

    The pipe grows in the event loop in which it is used. A task of the library looks once a second whether the load is over. It ends with
    the last large pipe of the loop.
    """

    __slots__ = ("_fd", "_pages", "_watch", "full_count", "is_busy", "read_bytes")

    def __init__(self, fd: int, *, pages: PipePages = pipe_pages) -> None:
        self._fd = fd
        self._pages = pages
        self._watch: _IdleWatch | None = None
        self.read_bytes: int = READ_BYTES
        """Bytes that the next read asks for."""
        self.full_count: int = 0
        """How often in a row the pipe was full. Its user sets it to 0 when it was not."""
        self.is_busy: bool = False
        """True when the pipe was full since the last look."""

    def note_full(self) -> None:
        """Note that a read came back full, or that a write has to wait. The fourth in a row makes the pipe grow."""
        self.is_busy = True
        self.full_count += 1
        if self.full_count == _FULL_TIMES:
            self.widen()

    def widen(self) -> None:
        """Make the pipe larger, if it is not and something is left of what the process may use."""
        self.is_busy = True
        if self._watch is not None:
            return
        size = self._pages.widen(self._fd)
        if size > READ_BYTES:
            try:
                watch = _IdleWatch.here()
                watch.add(self)
            except RuntimeError:  # the event loop is ending, and takes no new task
                self._pages.narrow(self._fd)
            else:
                self._watch = watch
                self.read_bytes = min(size, MOST_READ_BYTES)

    def narrow_if_idle(self) -> bool:
        """Give the pipe its usual size, if it was not full since the last call. Returns True when it has that size now."""
        if self.is_busy or not self._pages.narrow(self._fd):
            self.is_busy = False
            return False
        self._watch = None
        self.read_bytes = READ_BYTES
        self.full_count = 0
        return True

    def close(self) -> None:
        """Give back what the pipe takes. From now on its size is not changed."""
        self._pages.forget(self._fd)
        if self._watch is not None:
            self._watch.remove(self)
            self._watch = None


class _IdleWatch:
    """Looks at the large pipes of one event loop, once a second, while there are any."""

    def __init__(self) -> None:
        self._loop = HostLoop()
        self._rooms: set[PipeRoom] = set()
        self._task: LoopTask | None = None

    @staticmethod
    def here() -> _IdleWatch:
        """Return the one of the running event loop."""
        try:
            return _of_loop.get()
        except LookupError:
            watch = _IdleWatch()
            _of_loop.set(watch)
            return watch

    def add(self, room: PipeRoom) -> None:
        """Look at this pipe from now on. Raises `RuntimeError` when the event loop is ending."""
        if self._task is None or self._task.finished:
            self._task = LoopTask.spawn(self._look, name="look for idle pipes")
        self._rooms.add(room)

    def remove(self, room: PipeRoom) -> None:
        """Look at this pipe no more. Any thread may call it."""
        self._rooms.discard(room)
        if not self._rooms and self._task is not None and self._loop.is_current:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        while True:
            await anyio.sleep(_IDLE_SECONDS)
            for room in list(self._rooms):
                if room.narrow_if_idle():
                    self._rooms.discard(room)
            if not self._rooms:
                return


_of_loop: Final[anyio.lowlevel.RunVar[_IdleWatch]] = anyio.lowlevel.RunVar("claude_transport.idle_pipes")
