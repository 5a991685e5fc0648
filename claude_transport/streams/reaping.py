"""The end of a child process, in every way it can come: by itself, by request, by force, with its children or without.

The rules, and why they are what they are:

* The child leads its own session and process group. A Ctrl-C at the terminal reaches only the host, and one signal reaches
  everything the child started (a prefix such as `sh -c` or `docker` included).
* Closing climbs down a ladder inside one total time: end of input, a grace, SIGTERM to the group, SIGKILL to the group. The
  CLI writes its transcript between end of input and exit (~35 ms when idle, docs/reference/protocol.md#timing); SIGTERM also ends its tool
  shells, SIGKILL orphans them (recording 20e, docs/reference/protocol.md#signals), hence the order.
* Exit is observed without reaping (`WNOWAIT`), so that the process id, which is also the group's, cannot be given to somebody
  else while the group may still have to be signalled.
* What has left the group is found by its marks (`marking`) and killed (`sweeping`). What the host leaves behind when it is
  itself killed is ended by a process beside it (`guard`).
* No wait trusts the event loop alone: in a fork of the host that unwound, the loop has lost its files and misses what happens to them.
  So closing looks for itself, again and again, and ends at most a second after its time.
* All of it runs in tasks of its own: no cancellation of a caller can stop half-way down. When the event loop itself ends,
  what is left is killed at once, without awaiting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread
import msgspec

from claude_transport.background import BackgroundTask, HostLoop
from claude_transport.errors import UsageError
from claude_transport.streams.guard import descendants, guard, kill_marked
from claude_transport.streams.inflow import Inflow
from claude_transport.streams.sweeping import Sweep, sweeper

# --- The last words of a child process: always read, bounded in memory, handed on line by line to whoever asked.


logger: logging.Logger = logging.getLogger(__name__)

_TAIL_BYTES = 64 * 2**10
"""Bytes kept for error reports: a minified stack excerpt of the CLI is about 1 KB, a Python traceback a few."""

_CRUMB_BYTES = 1024
"""A piece is joined to the one before while both are no more than this together: small objects cost many times their size."""

_MAX_LINE_BYTES = 16 * 2**10
"""A line longer than this is handed on in pieces, so that a program that never writes a newline costs no memory."""


class StderrTail:
    """Keeps the end of what was fed, and calls `on_line` with each line (without its newline, undecodable bytes replaced).

    A callback that raises is logged once and not called again for that reason alone: later lines are still delivered.
    """

    def __init__(self, on_line: Callable[[str], object] | None = None) -> None:
        self._on_line = on_line
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._line = b""
        self._complained = False

    @property
    def text(self) -> str:
        """The last 64 KiB, decoded as UTF-8 with replacement, without trailing white space."""
        return b"".join(self._pieces)[-_TAIL_BYTES:].decode("utf-8", "replace").rstrip()

    def feed(self, data: bytes) -> None:
        """Take what was read from the pipe."""
        if self._pieces and len(self._pieces[-1]) + len(data) <= _CRUMB_BYTES:
            self._pieces[-1] += data
        else:
            self._pieces.append(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= _TAIL_BYTES:
            self._size -= len(self._pieces.popleft())
        if self._on_line is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._call(line)
            while len(self._line) > _MAX_LINE_BYTES:
                self._call(self._line[:_MAX_LINE_BYTES])
                self._line = self._line[_MAX_LINE_BYTES:]

    def finish(self) -> None:
        """Hand on a last line that had no newline."""
        if self._line:
            self._call(self._line)
            self._line = b""

    def _call(self, line: bytes) -> None:
        if self._on_line is None:
            return
        try:
            self._on_line(line.rstrip(b"\r").decode("utf-8", "replace"))
        except Exception:
            # the callback is somebody else's code; losing the child's stderr to it would be worse than its bug
            if not self._complained:
                self._complained = True
                logger.exception("the stderr callback raised; further errors of it are not logged")


# --- Waits for a pipe and for the end of a process, which also work where the event loop cannot watch one more descriptor.


_LOOK_AGAIN = 0.02
"""Seconds between two looks into a pipe that cannot be watched."""


async def readable(fd: int) -> None:
    """Wait until there may be something to read from `fd`. Where it cannot be watched, that is after a moment."""
    try:
        await anyio.wait_readable(fd)
    except OSError:
        await anyio.sleep(_LOOK_AGAIN)


async def process_end(pid: int, block: Callable[[], object]) -> None:
    """Wait for the end of a child without collecting it. `block` does the same in a thread, where nothing else works."""
    with contextlib.suppress(AttributeError, OSError):
        pidfd = os.pidfd_open(pid)
        try:
            await anyio.wait_readable(pidfd)
            return
        finally:
            os.close(pidfd)
    # This system has no pidfd, or cannot watch one more: a thread blocks instead. It ends with the child, which closing guarantees. It has
    # a limiter of its own, because it would wait for one of the shared threads as long as other children live.
    await anyio.to_thread.run_sync(block, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


# --- How a process ended.


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: one of the two is set, or neither when it is not known."""

    exit_code: int | None = None
    signal: int | None = None

    @classmethod
    def of_returncode(cls, returncode: int) -> ExitStatus:
        """The status behind `Popen.returncode`, which is negative for signals."""
        return cls(signal=-returncode) if returncode < 0 else cls(exit_code=returncode)

    @property
    def failed(self) -> bool:
        """True for a non-zero exit code and for a death by signal."""
        return bool(self.exit_code) or self.signal is not None


# --- The time that closing a child takes: how it is divided, and how each part of it is waited for.


_FIRST_LOOK = 0.02
_LAST_LOOK = 0.5
"""Seconds between two looks at what the event loop should have noticed: a short time at first, then longer."""


class CloseSchedule(msgspec.Struct, frozen=True):
    """How one total closing time is divided over the rungs of the ladder, in seconds."""

    grace: float
    terminate: float
    kill: float

    @property
    def total(self) -> float:
        """All rungs together."""
        return self.grace + self.terminate + self.kill

    @classmethod
    def within(cls, total: float) -> CloseSchedule:
        """Three fifths to leave by itself, three tenths after SIGTERM, the rest to be collected after SIGKILL."""
        total = max(total, 0.0)
        return cls(grace=total * 0.6, terminate=total * 0.3, kill=total * 0.1)


async def come(event: anyio.Event, *, seconds: float, look: Callable[[], bool]) -> bool:
    """Wait until the event is set, or `look()` returns True, for `seconds` at most. Return whether that has come.

    `look` is for an event loop that misses things: one whose files a fork of the host has taken out of the selector that both share.
    """
    deadline = anyio.current_time() + seconds
    pause = _FIRST_LOOK
    while not (event.is_set() or look()):
        left = deadline - anyio.current_time()
        if left <= 0:
            return False
        with anyio.move_on_after(min(pause, left)):
            await event.wait()
        pause = min(2 * pause, _LAST_LOOK)
    return True


_READ_BYTES = 64 * 2**10
"""Bytes per read: the capacity of a pipe on Linux."""

_PIPE_READS = 16
"""Reads that empty the largest pipe an unprivileged Linux process can have (1 MiB), and then stop, whoever still writes."""

_DRAIN_GRACE = 1.0
"""Seconds after the child's exit in which its pipes may still end by themselves. After that, whoever holds them is not the child."""

_GROUP_GRACE = 0.5
"""Seconds that what is left of the group gets between SIGTERM and SIGKILL once its leader is gone."""

_LAST_RESORT = 1.0
"""Seconds to wait for a killed process where nothing can be awaited any more. SIGKILL takes microseconds, or for ever."""

_OVERTIME = 0.8
"""Seconds after the time for closing in which the caller waits for the sweep. After that, the sweep goes on in the background."""


class Child:
    """A running child with pipes on its three standard streams: watched from the beginning, and ended for certain.

    `exited` is set when the process has ended, `status` says how. `cut` turns True when its output has to be considered
    over although somebody else still holds the pipe. `closing` turns True, for good, when its end begins. `on_gone` is
    called once, without awaiting, when nothing of it is left, in whatever way that came about. `mark` is what everything it
    starts carries in its environment.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, mark: str, tail: StderrTail, on_gone: Callable[[], object] | None = None) -> None:
        if popen.stdin is None or popen.stdout is None or popen.stderr is None:
            raise UsageError("a Child needs a pipe on each of its standard streams")
        self._loop = HostLoop()
        self._host_pid = os.getpid()
        self._popen = popen
        self._files = (popen.stdin, popen.stdout, popen.stderr)
        self.pid: int = popen.pid
        self.stdin: int
        self.stdout: int
        self.stdin, self.stdout, self._stderr = (file.fileno() for file in self._files)
        for fd in (self.stdin, self.stdout, self._stderr):
            os.set_blocking(fd, False)
        self.inflow: Inflow = Inflow(self.stdout)
        self.tail = tail
        self.exited: anyio.Event = anyio.Event()
        self.status: ExitStatus | None = None
        self.input_closed: bool = False
        self.cut: bool = False
        self.closing: bool = False
        self.killed: bool = False
        self._gone = False
        self._mark = mark
        self._sweep: Sweep | None = None
        self._sweep_is_late = False
        self._on_gone = on_gone
        self._ender: BackgroundTask | None = None
        # No task group anywhere here: its tasks leave a warning behind when the event loop ends before their first step.
        self._watcher: BackgroundTask | None = None
        self._drainer: BackgroundTask | None = None
        try:
            self._drainer = BackgroundTask.spawn(self._drain_stderr, name=f"read stderr of process {self.pid}")
            self._watcher = BackgroundTask.spawn(self._watch, name=f"watch process {self.pid}", at_end=self._watch_ended)
        except BaseException:  # for one, the event loop is ending
            self.kill_now()
            raise

    # ------------------------------------------------------------------------------------------------------------ watching

    async def _watch(self) -> None:
        await self._wait_for_exit()
        self._note_exit()
        await anyio.sleep(_DRAIN_GRACE)
        self.cut = True
        self.inflow.wake()
        if self._drainer is not None:
            self._drainer.cancel()
        # until closing cancels this, or the event loop ends without anybody having closed
        await anyio.sleep_forever()

    def _watch_ended(self) -> None:
        if not self.closing:
            self.kill_now()

    async def _drain_stderr(self) -> None:
        data: bytes | None = None
        while data != b"" and not self._gone:
            # Before every read, not only when there is nothing to read: a flood would keep everybody else from running.
            await readable(self._stderr)
            if data := self._read_now(self._stderr):
                self.tail.feed(data)
        self.tail.finish()

    def drain_stderr_now(self) -> None:
        """Take what is in the pipe without waiting: after the child's exit, all it ever wrote is there."""
        for _ in range(_PIPE_READS):
            data = self._read_now(self._stderr)
            if not data:
                break
            self.tail.feed(data)

    def _read_now(self, fd: int) -> bytes | None:
        """What is in a pipe; None when there is nothing, b"" at its end, which has also come when the child is gone."""
        if self._gone:
            return b""  # the number may be somebody else's by now
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # nothing more can be read from it

    async def _wait_for_exit(self) -> None:
        if self._peek() is None:
            await process_end(self.pid, self._block_until_exit)

    def _block_until_exit(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._popen.wait()

    def _peek(self) -> ExitStatus | None:
        """How the child ended, without reaping it where the system allows that; None while it runs."""
        if self._popen.returncode is None and hasattr(os, "waitid"):
            try:
                result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return ExitStatus()  # somebody else reaped it: that it ended is all there is to know
            if result is None:
                return None
            if result.si_code == os.CLD_EXITED:
                return ExitStatus(exit_code=result.si_status)
            return ExitStatus(signal=result.si_status)
        returncode = self._popen.poll()
        return None if returncode is None else ExitStatus.of_returncode(returncode)

    def _note_exit(self) -> None:
        if self.status is None:
            self.status = self._peek()
        if self._loop.is_current:
            self.exited.set()

    # ------------------------------------------------------------------------------------------------------------- closing

    def close_input(self) -> None:
        """Close the child's standard input; a writer that waits on it is woken."""
        if not self.input_closed:
            self.input_closed = True
            self._close_file(0)

    def begin_end(self, *, timeout: float) -> BackgroundTask | None:
        """Start climbing down the ladder, in at most `timeout` seconds; the task's end is the child's. None: it is gone already."""
        if self._ender is not None or self._gone:
            return self._ender
        self.closing = True
        if not self._loop.is_current or not self.is_ours:
            self.kill_now()  # its own loop, where it could be waited for, is over
            return None
        try:
            self._ender = BackgroundTask.spawn(
                lambda: self._end(CloseSchedule.within(timeout)), name=f"end process {self.pid}", at_end=self.kill_now
            )
        except RuntimeError:  # the loop is ending and takes no new task
            self.kill_now()
        return self._ender

    @property
    def is_ours(self) -> bool:
        """False in a fork of the process that started it."""
        return os.getpid() == self._host_pid

    def abandon(self, *, timeout: float) -> None:
        """End the child from a finaliser, in any thread: gracefully where its event loop still runs, else at once."""
        if self.closing or not self.is_ours:
            return
        if self._loop.is_paused:
            # Its selector still knows our files, so they stay open until it runs again; the process need not wait for that.
            self._kill()
        if not self._loop.call_soon(lambda: self.begin_end(timeout=timeout)):
            self.kill_now()

    async def _end(self, schedule: CloseSchedule) -> None:
        deadline = anyio.current_time() + schedule.total
        suspects = descendants(self.pid)  # while parents still lead to them
        self.close_input()
        self.inflow.close()
        # a child that is blocked on a full pipe never gets to its exit (docs/reference/protocol.md#a-full-pipe)
        discarder = BackgroundTask.spawn(self._discard_output, name=f"discard output of process {self.pid}")
        try:
            await self._climb_down(schedule, deadline=deadline)
        finally:
            discarder.cancel()
        self.drain_stderr_now()
        await self._end_group(min(_GROUP_GRACE, max(deadline - anyio.current_time(), schedule.kill)))
        over = anyio.Event()
        sweep = self._begin_sweep(suspects, then=lambda: self._loop.call_soon(over.set))
        if not await come(over, seconds=deadline + _OVERTIME - anyio.current_time(), look=lambda: sweep.is_over):
            logger.warning("what process %d left behind is still looked for after it was closed", self.pid)
            self._sweep_is_late = True
            sweeper.give_up(sweep)

    async def _discard_output(self) -> None:
        data: bytes | None = None
        while data != b"" and not self._gone:
            # Before every read, as for standard error: a child that never stops writing must not stop the clock.
            await readable(self.stdout)
            data = self._read_now(self.stdout)

    async def _climb_down(self, schedule: CloseSchedule, *, deadline: float) -> None:
        for seconds, signum in ((schedule.grace, signal.SIGTERM), (schedule.terminate, signal.SIGKILL)):
            if await come(self.exited, seconds=seconds, look=self._has_exited):
                return
            self._signal_group(signum)
        # the system may be slow to end it: that is waited for here, and not where waiting blocks the event loop
        await come(self.exited, seconds=deadline + _OVERTIME / 2 - anyio.current_time(), look=self._has_exited)

    def _has_exited(self) -> bool:
        if not self.exited.is_set() and self._peek() is not None:
            self._note_exit()
        return self.exited.is_set()

    async def _end_group(self, grace: float) -> None:
        """What the child left running in its group is asked to go, then made to."""
        if not self.exited.is_set():
            return  # not even SIGKILL worked: kill_now() says so
        self._reap()
        if not self._signal_group(signal.SIGTERM, count=False):
            return  # the usual case: nobody left
        with anyio.move_on_after(grace):
            # they are not our children: there is nothing to wait on but the next look
            while self._signal_group(0, count=False):  # noqa: ASYNC110 - see above
                await anyio.sleep(0.01)
            return
        self._signal_group(signal.SIGKILL, count=False)

    def kill_now(self) -> None:
        """End the whole group without awaiting anything, and release everything; does nothing when that has been done."""
        if self._gone:
            return
        self.closing = True
        self._gone = True
        if not self.is_ours:
            self._leave_to_the_host()
            return
        self._kill()
        self._sweep_now()
        self._note_exit()
        self.tail.finish()
        for task in (self._watcher, self._drainer):
            if task is not None and self._loop.is_current:
                task.cancel()
        for index in range(3):
            self._close_file(index)
        if self._on_gone is not None:
            self._on_gone()

    def _leave_to_the_host(self) -> None:
        """In a fork of the host: neither the process nor what the event loop knows of it is ours, only copies of its files."""
        self._popen.returncode = 0  # nothing to wait for, and nothing to warn about
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()

    def _begin_sweep(self, suspects: Mapping[int, int], *, then: Callable[[], object]) -> Sweep:
        """Have what left the group ended: the CLI's tool shells live in sessions of their own, and survive its SIGKILL."""

        def after() -> None:
            guard.release(self._mark)
            then()

        self._sweep = sweeper.begin(self._mark, suspects=suspects, then=after)
        return self._sweep

    def _sweep_now(self) -> None:
        """The same without awaiting anything."""
        if sys.is_finalizing():  # no other thread runs any more; the guard ends what is left when this process has ended
            if guard.pid is None:
                kill_marked(self._mark)
            return
        if not self._sweep_is_late:
            sweeper.wait(self._sweep or self._begin_sweep({}, then=lambda: None), _LAST_RESORT)

    def _kill(self) -> None:
        if self._popen.returncode is None:
            self._signal_group(signal.SIGKILL, count=self._peek() is None)
            self._reap()

    def _reap(self) -> None:
        try:
            self._popen.wait(timeout=_LAST_RESORT)
        except subprocess.TimeoutExpired:
            logger.exception("process %d does not end, not even by SIGKILL", self.pid)
        else:
            if self.status is None:
                self.status = ExitStatus.of_returncode(self._popen.returncode)

    def _signal_group(self, signum: int, *, count: bool = True) -> bool:
        """Signal every process of the group; False when there is none."""
        try:
            os.killpg(self.pid, signum)
        except (ProcessLookupError, PermissionError):
            # macOS says EPERM for a group of zombies only; either way nobody is left to signal
            return False
        self.killed = self.killed or (count and signum != 0)
        return True

    def _close_file(self, index: int) -> None:
        file = self._files[index]
        if file.closed:
            return
        if self._loop.is_current:
            # The loop must forget the number before the system can give it to somebody else. In a callback of an ending asyncio loop
            # anyio may not know where it is; then everybody who waited has been cancelled, and nothing more is opened.
            with contextlib.suppress(RuntimeError):
                if index == 1:
                    self.inflow.close()
                anyio.notify_closing(file)
        # a broken pipe on close: the peer is gone, which is why it is closed
        with contextlib.suppress(OSError):
            file.close()


def end_unowned(popen: subprocess.Popen[bytes], *, mark: str) -> None:
    """Kill a process that has got no `Child`, and release what belongs to it."""
    if popen.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(timeout=_LAST_RESORT)
    sweeper.wait(sweeper.begin(mark, then=lambda: guard.release(mark)), _LAST_RESORT)
    for file in (popen.stdin, popen.stdout, popen.stderr):
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
