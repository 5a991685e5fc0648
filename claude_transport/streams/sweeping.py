"""The sweep: when a child is closed, every process that carries one of its marks is killed.

One thread does this for all children that are closed at the same time. It starts with the first request and ends after the last. Each round
is one listing of `/proc`, whatever the number of processes and of children. The listing has the inode of each process, and the kernel
never gives it to a second one. So each process is read once in its life. Processes that ran before the first child was started are
never read, because they cannot be its descendants.

Reading a process can hang for as long as its memory is locked. So no caller reads anything itself. A caller waits for a
bounded time and then calls `give_up()`: another thread goes on, and does not read the process that hangs.

The marks are in `streams.guard`; `streams.reaping` decides when to sweep.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import Logger
from typing import TYPE_CHECKING

from claude_transport.loggers import logger_for
from claude_transport.streams.guard import (
    carried_limit,
    environment_marks,
    is_running,
    is_spared,
    limit_of,
    mark_limits,
    read_file,
)

if TYPE_CHECKING:
    from claude_transport.streams.libproc import Tree

logger: Logger = logger_for(__name__)

_PATIENCE = 1.0
"""Seconds for which a sweep goes on while marked processes are left, or are just starting (which took 0.3 seconds under load)."""

_FIRST_PAUSE = 0.005
_LAST_PAUSE = 0.05
"""Seconds between two rounds: at first, and at last."""

_HANGS = 0.8
"""Seconds after which reading a file counts as hanging. It usually takes a few microseconds."""

_MOST_HANGING = 3
"""Threads that may hang one after the other. After that, the sweep is given up."""

_SHORT_LISTING = 300
"""Processes of the machine up to which `is_clean()` lists them: a tenth of a millisecond."""

_MOST_FORGOTTEN = 1_000
"""Ended processes that are remembered, beyond twice the number of running ones, before they are forgotten."""

_KERNEL_THREADS = b"2"
"""Process id of the parent of all kernel threads. They never have an environment."""


class Sweep:
    """The sweep for one child.

    Attributes:
        mark: the mark of the child.
        suspects: its known descendants: process ids, with their inodes. Without any mark of their own, they count as marked.
        deadline: when the sweep ends even if processes are left, by `time.monotonic()`.
    """

    __slots__ = ("_over", "_then", "deadline", "mark", "suspects")

    def __init__(self, mark: str, *, suspects: Mapping[int, int], deadline: float, then: Callable[[], object]) -> None:
        self.mark: str = mark
        self.suspects: dict[int, int] = dict(suspects)
        self.deadline: float = deadline
        self._then = then
        self._over = _thread.allocate_lock()
        self._over.acquire()

    @property
    def is_over(self) -> bool:
        """True when no marked process is left, or the time is over."""
        return not self._over.locked()

    def wait(self, seconds: float) -> bool:
        """Block until the sweep is over, for `seconds` at most. Return False when it is not."""
        if not self._over.acquire(timeout=max(seconds, 0)):
            return False
        self._over.release()
        return True

    def finish(self) -> None:
        """End the sweep: call `then`, and wake the threads in `wait()`."""
        then, self._then = self._then, _nothing  # it belongs to an object that knows this sweep
        try:
            then()
        except Exception:
            logger.exception("the callback at the end of a sweep failed")
        finally:
            self._over.release()


def _nothing() -> None:
    """Do nothing."""


class _Superseded(Exception):
    """Raised in a thread that hung for too long, after another thread has taken over."""


class Sweeper:
    """Kills the processes that children leave behind.

    `begin()` puts a request into a queue, and a thread works the queue off. No call waits for a lock, so finalisers may call it at any
    point and in any thread.

    Args:
        proc: the folder that `/proc` is mounted at.
        platform: `sys.platform`. On Linux, marks are read. On macOS, only the known descendants and what they start are killed. Elsewhere
            a sweep ends at once.
        tree: the processes of macOS, for tests.
        patience: seconds for which a sweep goes on.
        read: returns the content of one file below `proc`.
    """

    def __init__(
        self,
        *,
        proc: str = "/proc",
        platform: str = sys.platform,
        patience: float = _PATIENCE,
        read: Callable[[str], bytes] = read_file,
        tree: Tree | None = None,
    ) -> None:
        self._proc = proc
        self._tree = tree
        self._has_tree = platform == "darwin"
        self._sees = platform.startswith("linux")
        self._patience = patience
        self._read = read
        self._has_learned = False
        self._known: dict[str, int] = {}
        """Processes that need not be read again: inodes by process id."""
        self._prune_at = _MOST_FORGOTTEN
        self.forget()

    def forget(self) -> None:
        """In a fork of the host: forget requests and children, which are the host's, and the thread, which the fork does not have."""
        self._marked: dict[str, dict[str, int]] = {}
        """By mark, the processes that carry it, as in `_known`."""
        self._limits: dict[int, str] = {}
        """By number, the marks of living children."""
        self._queue: deque[Sweep] = deque()
        self._pending: list[Sweep] = []
        self._working = _thread.allocate_lock()
        self._learning = _thread.allocate_lock()
        self._turn = 0
        self._thread: int | None = None
        self._reading: dict[int, tuple[str, int, float]] = {}
        """By turn, what its thread reads: process id, inode, and since when. The thread that removes the entry is the one that goes on."""
        self._hanging: dict[str, int] = {}
        self._hung = 0

    # For callers

    def learn(self) -> None:
        """Remember the processes that run before the first child. Call it before each start; only the first call costs anything."""
        if self._has_learned or not self._sees:
            return
        with self._learning:
            if not self._has_learned:
                self._has_learned = True
                with contextlib.suppress(OSError):  # no file descriptor is free, for one: then each process will be read once
                    self._known.update(self._list(None))
                self._prune_at = 2 * len(self._known) + _MOST_FORGOTTEN

    def watch(self, mark: str, pid: int) -> None:
        """Set the number that stands for `mark` on a child that was just started, as its second mark."""
        if self._sees:
            self._limits[limit_of(mark)] = mark
            mark_limits(pid, mark)

    def overlook(self, pid: int | None) -> None:
        """Count `pid`, if there is one, as known: a process of this library, which no child has started."""
        if self._sees and pid is not None and str(pid) not in self._known:
            with contextlib.suppress(OSError):
                self._known[str(pid)] = os.stat(f"{self._proc}/{pid}").st_ino  # noqa: PTH116 - a Path costs as much as the call

    def is_clean(self, mark: str) -> bool:
        """Return True when one listing shows that nothing carries `mark`. Else `begin()` has to look. Never waits, and reads no process.

        Only a short listing is made here: the caller is an event loop.
        """
        if not self._sees:
            return True
        if not self._working.acquire(blocking=False):
            return False
        try:
            is_short = os.stat(self._proc).st_nlink <= _SHORT_LISTING  # noqa: PTH116 - about as many links as processes
            is_clean = is_short and not self._marked.get(mark) and not self._list(self._known)
            if is_clean:
                self._limits.pop(limit_of(mark), None)
        except OSError:
            is_clean = False
        finally:
            self._working.release()
        if self._queue and self._working.acquire(blocking=False):  # a request came meanwhile
            self._go_on()
        return is_clean

    def begin(self, mark: str, *, suspects: Mapping[int, int] | None = None, then: Callable[[], object] = lambda: None) -> Sweep:
        """Start to kill everything that carries `mark`, and return at once.

        `suspects` are known descendants (ids with inodes), also killed without a mark. `then` is called in the thread, after the sweep.
        """
        sweep = Sweep(mark, suspects=suspects or {}, deadline=time.monotonic() + self._patience, then=then)
        self._queue.append(sweep)
        if self._working.acquire(blocking=False):
            self._go_on()
        return sweep

    def wait(self, sweep: Sweep, seconds: float) -> None:
        """Block until the sweep is over, for `seconds` at most. In the sweeping thread, where a finaliser may call this, return at once."""
        if self._thread != _thread.get_ident() and not sweep.wait(seconds):
            self.give_up(sweep)

    def give_up(self, sweep: Sweep) -> None:
        """Stop waiting for a sweep. If its thread hangs, another one is started, which goes on without the process that hangs."""
        turn = self._turn
        reading = self._reading.get(turn)
        if sweep.is_over or reading is None or time.monotonic() - reading[2] < _HANGS or self._reading.pop(turn, None) is not reading:
            return
        name, inode, _ = reading
        self._hanging[name] = inode
        self._hung += 1
        self._turn += 1
        pending, self._pending = self._pending, []
        for each in pending:
            each.deadline = time.monotonic() + self._patience
        if name and self._hung < _MOST_HANGING:
            self._queue.extendleft(reversed(pending))
        else:  # listing `/proc` itself hangs, or several processes do: only the group was ended
            logger.warning("reading %s hangs: processes that the child has started outside of its group may live on", self._proc)
            for each in pending:
                self._finish(each)
        self._go_on()

    # In the thread

    def _go_on(self) -> None:
        try:
            _thread.start_new_thread(self._run, (self._turn,))
        except RuntimeError:  # the system has no thread left: work here, although the caller has to wait
            self._run(self._turn)

    def _run(self, turn: int) -> None:
        while True:
            self._thread = _thread.get_ident()
            try:
                self._work_off(turn)
            except _Superseded:
                return
            except Exception:
                logger.exception("a sweep failed: processes that children have started outside of their groups may live on")
                while self._pending:
                    self._finish(self._pending.pop())
            self._thread = None
            self._working.release()
            # a request may have come between the last check of the queue and the release
            if not self._queue or not self._working.acquire(blocking=False):
                return

    def _work_off(self, turn: int) -> None:
        pause = _FIRST_PAUSE
        while True:
            while self._queue:
                self._pending.append(self._queue.popleft())
            if not self._pending:
                return
            try:
                is_sure = self._round(turn)
                self._hung = 0
            except OSError:  # for one, no file descriptor is free
                is_sure = False
            for sweep in tuple(self._pending):
                is_left = self._kill(sweep)
                if time.monotonic() > sweep.deadline or (is_sure and not is_left):
                    self._pending.remove(sweep)
                    self._finish(sweep)
            if self._pending:
                time.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE)

    def _finish(self, sweep: Sweep) -> None:
        self._marked.pop(sweep.mark, None)
        self._limits.pop(limit_of(sweep.mark), None)
        sweep.finish()

    @contextlib.contextmanager
    def _that_may_hang(self, turn: int, name: str = "", inode: int = 0) -> Iterator[None]:
        self._reading[turn] = (name, inode, time.monotonic())
        try:
            yield
        finally:
            if self._reading.pop(turn, None) is None:
                raise _Superseded

    def _round(self, turn: int) -> bool:
        """Examine the processes that are not known. Return True when no marked process can have been missed."""
        is_sure = True
        if self._has_tree:
            return is_sure
        for sweep in self._pending:
            for pid, inode in tuple(sweep.suspects.items()):
                if self._examine(turn, str(pid), inode, suspected=sweep.mark):
                    del sweep.suspects[pid]
                else:
                    is_sure = False
        with self._that_may_hang(turn):
            self._prune()
            unknown = self._list(self._known)
        for name, inode in unknown.items():
            is_sure = self._examine(turn, name, inode) and is_sure
        return is_sure

    def _list(self, known: Mapping[str, int] | None) -> dict[str, int]:
        """Return all processes, as inodes by process id, without those that are in `known` with the same inode."""
        if not self._sees:
            return {}
        inode_of = (known or {}).get
        try:
            with os.scandir(self._proc) as listing:
                # This line is what the other processes of the machine cost when a child is closed.
                return {entry.name: entry.inode() for entry in listing if inode_of(entry.name) != entry.inode()}
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return {}

    def _prune(self) -> None:
        """Forget processes that have ended, when they may be half of those that are remembered."""
        if len(self._known) < self._prune_at:
            return
        there = self._list(None)
        for known in (self._known, self._hanging, *self._marked.values()):
            for name in [name for name, inode in tuple(known.items()) if there.get(name) != inode]:
                del known[name]
        for mark in [mark for mark, processes in self._marked.items() if not processes]:
            del self._marked[mark]
        self._prune_at = 2 * len(there) + _MOST_FORGOTTEN

    def _examine(self, turn: int, name: str, inode: int, *, suspected: str | None = None) -> bool:
        """Read a process and remember its marks. Return False when it has to be read again in the next round.

        `suspected` is the mark of the child whose descendant it is, when that is known.
        """
        if not name.isdigit():
            self._remember(name, inode, ())
            return True
        path = f"{self._proc}/{name}"
        by_limit = self._limits.get(carried_limit(int(name)) or 0, suspected)
        if self._hanging.get(name) == inode:
            self._remember(name, inode, [] if by_limit is None else [by_limit])
            return True
        try:
            with self._that_may_hang(turn, name, inode):
                environ = self._environ(path)
                is_executing = environ == b"" and not self._read(f"{path}/cmdline")
                is_over, age = _state(self._read(f"{path}/stat"))
        except (FileNotFoundError, ProcessLookupError):
            return True
        is_new = age < _PATIENCE
        if is_executing and is_new and not is_over:
            return False  # it is just starting: the new environment is not there yet
        marks = environment_marks(environ or b"")
        if not marks and by_limit is not None and not is_spared(environ or b""):
            marks = [by_limit]
        # A new process may still start the program that gets the mark; one without an environment may be starting it now.
        if marks or is_over or not (is_new or is_executing):
            self._remember(name, inode, marks)
        return True

    def _remember(self, name: str, inode: int, marks: Sequence[str]) -> None:
        for mark in marks:
            self._marked.setdefault(mark, {})[name] = inode
        self._known[name] = inode

    def _environ(self, path: str) -> bytes | None:
        """Return the environment; None when it may not be read: the process of another user, or one that protects its memory."""
        try:
            return self._read(f"{path}/environ")
        except PermissionError:
            return None

    def _kill(self, sweep: Sweep) -> bool:
        """Kill the processes that carry the mark. Return False when there were none."""
        if self._has_tree:
            return self._kill_tree(sweep)
        marked = self._marked.get(sweep.mark, {})
        is_left = False
        for name, inode in tuple(marked.items()):
            path = f"{self._proc}/{name}"
            try:
                if os.stat(path).st_ino == inode and is_running(path) and int(name) != os.getpid():  # noqa: PTH116 - as quick as it gets
                    os.kill(int(name), signal.SIGKILL)
                    is_left = True
                    continue
            except (ProcessLookupError, FileNotFoundError, PermissionError):
                pass  # it has ended, or may not be signalled
            del marked[name]
        return is_left

    def _kill_tree(self, sweep: Sweep) -> bool:
        """Kill the known descendants that still run, and what they have started. Return False when there were none."""
        if self._tree is None:
            from claude_transport.streams.libproc import Tree  # elsewhere it would cost an import

            self._tree = Tree()
        sweep.suspects = self._tree.with_descendants(sweep.suspects)
        for pid in sweep.suspects:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return bool(sweep.suspects)


def _state(stat: bytes) -> tuple[bool, float]:
    """Return True for a process that never has an environment (a zombie, a kernel thread), and its age in seconds."""
    fields = stat.rpartition(b")")[2].split()
    try:
        state, parent, started = fields[0], fields[1], int(fields[19])  # fields 3, 4 and 22 of proc(5)
    except (IndexError, ValueError):
        return False, 0.0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK") if sys.platform == "linux" else 0.0
    return state in b"ZX" or parent == _KERNEL_THREADS, age


sweeper: Sweeper = Sweeper()
"""The sweeper of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=sweeper.forget)
