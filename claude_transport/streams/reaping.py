"""`Child`: a running child process, watched from its start and ended in every case.

How a child is ended, and why in this way:

* The child leads a session and a process group of its own. So Ctrl-C at the terminal reaches only the host, and one signal reaches
  everything in the group, also behind a prefix such as `sh -c` or `docker`.
* Closing has four steps within one total time: close its input, wait, SIGTERM to the group, SIGKILL to the group. The CLI writes its
  transcript between the end of input and its exit (about 35 ms when idle, docs/reference/protocol.md#timing). On SIGTERM it ends its
  tool shells; SIGKILL leaves them as orphans (docs/reference/protocol.md#signals).
* The exit is observed without collecting the process (`WNOWAIT`). Until it is collected, the system cannot give its id, which is
  also the id of the group, to another process.
* Processes that have left the group are found by their marks and killed (`streams.sweeping`). When the host itself is killed, a guard
  process ends what it leaves behind (`streams.guard`, which also defines the marks).
* No wait relies on the event loop alone. When a fork of the host ends in an orderly way, it removes the host's files from the
  selector that both share, and the host's loop misses events. So closing also polls, and ends at most a second after its time.
* All of this runs in tasks of their own, which no cancellation of a caller can stop. When the event loop ends, the child is killed at
  once, without waiting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread
import msgspec

from claude_transport.errors import UsageError
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop, LightEvent, clock_here
from claude_transport.loops.descriptors import FileWatch, LoopEnd
from claude_transport.streams.guard import descendants, guard, kill_marked
from claude_transport.streams.inflow import Inflow
from claude_transport.streams.room import PipeRoom
from claude_transport.streams.schedule import Countdown, set_or_seen
from claude_transport.streams.sweeping import Sweep, sweeper

logger: logging.Logger = logger_for(__name__)

_READ_BYTES = 64 * 2**10
"""Bytes per read: the capacity of a pipe on Linux."""

_PIPE_READS = 16
"""Reads that empty the largest pipe an unprivileged process can have (1 MiB). Then reading stops, also when the pipe is written on."""

_TAIL_BYTES = 64 * 2**10
"""Bytes of standard error that are kept. A stack excerpt of the CLI has about 1 KB, a Python traceback a few."""

_CRUMB_BYTES = 1024
"""Pieces of standard error are joined up to this size: small objects cost many times their size."""

_MAX_LINE_BYTES = 16 * 2**10
"""A longer line of standard error is handed on in pieces, so that a program without newlines costs no memory."""

DRAIN_GRACE = 1.0
"""Seconds after the child's exit in which its pipes may still end by themselves. Then another process holds them open."""

ENDED_DRAIN_GRACE = 0.2
"""The same for a child whose input this side has ended: it was meant to exit, so what it left behind is waited for less."""

_GROUP_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for the rest of the group, after its leader is gone."""

_LAST_RESORT = 1.0
"""Seconds to block for a killed process where nothing can be awaited. SIGKILL takes microseconds, or for ever."""

OVERTIME = 0.8
"""Seconds after the closing time in which the caller still waits for the sweep. Then the sweep goes on in the background."""


class Child:
    """A running child process with pipes on its three standard streams.

    Attributes:
        pid: its process id, which is also the id of its group.
        stdin: the writing end of the pipe to its input.
        input_room: the size of that pipe.
        inflow: reads its output.
        tail: the end of its standard error.
        exited: set when the process has ended.
        status: how it ended; None before that.
        cut: True when its output counts as ended although another process still holds the pipe.
        closing: True from the moment in which ending it begins.
        killed: True when a signal was needed to end it.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_countdown",
        "_discarding",
        "_ender",
        "_exit_watch",
        "_exited_at",
        "_files",
        "_gone",
        "_has_group",
        "_host_pid",
        "_is_swept",
        "_loop",
        "_loop_end",
        "_mark",
        "_on_gone",
        "_pidfd",
        "_popen",
        "_stderr",
        "_stderr_watch",
        "_stdout",
        "_sweep",
        "_writers",
        "closing",
        "cut",
        "exited",
        "inflow",
        "input_closed",
        "input_room",
        "killed",
        "on_unread",
        "pid",
        "status",
        "stdin",
        "tail",
    )

    def __init__(self, popen: subprocess.Popen[bytes], *, mark: str, tail: StderrTail, on_gone: Callable[[], object] | None = None) -> None:
        """Take over a process that was just started.

        Args:
            popen: the process. It leads its own process group.
            mark: the mark in its environment.
            tail: receives its standard error.
            on_gone: called once, without waiting, when the process has ended and its pipes are closed, however that came.

        Set `on_unread` to a function to have it called with what the process says while it is closed, and with what was not read before.

        Raises `UsageError` without the three pipes, and `RuntimeError` when the event loop is ending.
        """
        if popen.stdin is None or popen.stdout is None or popen.stderr is None:
            raise UsageError("a Child needs a pipe on each of its standard streams")
        self._loop = HostLoop()
        self._host_pid = os.getpid()
        self._popen = popen
        self._files = (popen.stdin, popen.stdout, popen.stderr)
        self.pid: int = popen.pid
        self.stdin: int
        self.stdin, self._stdout, self._stderr = (file.fileno() for file in self._files)
        for fd in (self.stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self.input_room: PipeRoom = PipeRoom(self.stdin)
        self.inflow: Inflow = Inflow(self._stdout)
        self.tail: StderrTail = tail
        self.exited: LightEvent = LightEvent()
        self.status: ExitStatus | None = None
        self.input_closed: bool = False
        self.cut: bool = False
        self.closing: bool = False
        self.killed: bool = False
        self._gone = False
        self._has_group = True
        self._mark = mark
        self._sweep: Sweep | None = None
        self._is_swept = False
        self._on_gone = on_gone
        self.on_unread: Callable[[bytes], object] | None = None
        self._ender: LoopTask | None = None
        self._clock = clock_here()
        self._countdown = Countdown(self._clock)
        self._exited_at = 0.0
        self._writers = 0
        self._pidfd: int | None = None
        self._exit_watch: FileWatch | LoopTask | None = None
        self._stderr_watch = FileWatch(self._stderr, self._read_stderr, name=f"read stderr of process {self.pid}")
        self._discarding = FileWatch(self._stdout, self._discard_output, name=f"discard output of process {self.pid}")
        self._loop_end = LoopEnd(self._on_end_of_loop, name=f"keep process {self.pid}")
        try:
            self._loop_end.begin()
            self._stderr_watch.begin()
            self._watch_exit()
        except BaseException:  # for one, the event loop is ending
            self.kill_now()
            raise

    @property
    def is_ours(self) -> bool:
        """False in a fork of the process that started the child."""
        return os.getpid() == self._host_pid

    # Watching

    def _watch_exit(self) -> None:
        name = f"watch process {self.pid}"
        with contextlib.suppress(AttributeError, OSError):
            self._pidfd = os.pidfd_open(self.pid)
        if self._pidfd is None:
            self._exit_watch = LoopTask.spawn(self._wait_in_thread, name=name)
        else:
            self._exit_watch = FileWatch(self._pidfd, self._on_exit, name=name)
            self._exit_watch.begin()

    def _unwatch_exit(self) -> None:
        watch, self._exit_watch = self._exit_watch, None
        if watch is not None and self._loop.is_current:
            if isinstance(watch, FileWatch):
                watch.end()
            else:
                watch.cancel()
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            os.close(pidfd)

    async def _wait_in_thread(self) -> None:
        # Closing ensures that the child ends. The limiter is its own: with the shared one it would wait for the threads of other children.
        await anyio.to_thread.run_sync(self._block_until_exit, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        self._on_exit()

    def _block_until_exit(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._popen.wait()

    def _on_exit(self) -> None:
        if not self.has_exited():
            return
        self._unwatch_exit()
        if self.inflow.is_awaited:
            # its reader waits with a limit from now on; in a callback anyio may not find the loop, but then `wake()` has done its part
            with contextlib.suppress(RuntimeError):
                self.inflow.wake()

    def _on_end_of_loop(self) -> None:
        if not self.closing:
            self.kill_now()

    @property
    def drain_seconds(self) -> float:
        """Seconds in which the output may still end by itself, when the child has exited."""
        grace = ENDED_DRAIN_GRACE if self.input_closed else DRAIN_GRACE
        return self._exited_at + grace - self._clock()

    async def writable(self) -> None:
        """Wait until the input may take more, or `close_input()` is called."""
        self._writers += 1
        try:
            with contextlib.suppress(anyio.ClosedResourceError):
                await anyio.wait_writable(self.stdin)
        finally:
            self._writers -= 1

    def _read_stderr(self) -> None:
        data = self._read_now(self._stderr)
        if data:
            self.tail.feed(data)
        elif data is not None:
            self._stderr_watch.end()
            self.tail.finish()

    def drain_stderr_now(self) -> None:
        """Read what standard error holds, without waiting. After the child's exit that is all it ever wrote."""
        for _ in range(_PIPE_READS):
            data = self._read_now(self._stderr)
            if not data:
                break
            self.tail.feed(data)

    def _read_now(self, fd: int) -> bytes | None:
        """Return what a pipe holds: None when it is empty, b"" at its end or when the child is gone."""
        if self._gone:
            return b""  # the number may belong to another file by now
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _peek(self) -> ExitStatus | None:
        """Return how the child ended, None while it runs. Where the system allows it, the child is not collected."""
        if self._popen.returncode is None and hasattr(os, "waitid"):
            try:
                result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return ExitStatus()  # other code has collected it, and its status is lost
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
        if not self.exited.is_set() and self._loop.is_current:
            self._exited_at = self._clock()
            self.exited.set()

    def has_exited(self) -> bool:
        """Look whether the child has ended. Sets `exited` then."""
        if not self.exited.is_set() and self._peek() is not None:
            self._note_exit()
        return self.exited.is_set()

    # Closing

    def close_input(self) -> None:
        """Close the child's standard input. A task that waits to write is woken."""
        if not self.input_closed:
            self.input_closed = True
            self._countdown.note_end_of_input()
            self._close_file(0, is_here=self._loop.is_current)

    def begin_end(self, *, timeout: float) -> LoopTask | None:
        """Start to end the child, in at most `timeout` seconds and one more. Return the task that does it; None when the child is gone."""
        if self._ender is not None or self._gone:
            return self._ender
        self.closing = True
        if not self._loop.is_current or not self.is_ours:
            self.kill_now()  # the event loop in which it could be awaited is over
            return None
        if self._end_at_once():
            return None
        try:
            self._countdown.begin(timeout)
            self._ender = LoopTask.spawn(self._end, name=f"end process {self.pid}", at_end=self.kill_now)
        except RuntimeError:  # the loop is ending and takes no new task
            self.kill_now()
        return self._ender

    def hurry(self, seconds: float) -> None:
        """Have ending the child take `seconds` from now at most, also when it is under way. Call it in the child's event loop."""
        if not self._gone:
            self._countdown.hurry(seconds)

    def abandon(self, *, timeout: float) -> None:
        """End the child from a finaliser, in any thread: gracefully while its event loop runs, else at once."""
        if self.closing or not self.is_ours:
            return
        if self._loop.is_paused:
            # The selector still knows the files, so they stay open until the loop runs again. The process need not wait for that.
            self._kill()
        if not self._loop.call_soon(lambda: self.begin_end(timeout=timeout)):
            self.kill_now()

    def _end_at_once(self) -> bool:
        """Release everything when the child has exited and left nothing. Returns False when that takes time."""
        if not self.has_exited():
            return False
        self.close_input()
        self._note_unread(self.inflow.close())
        if self.on_unread is not None:
            self._note_rest()
        self.drain_stderr_now()
        self._reap()
        self._has_group = self._signal_group(0, count=False)
        if self._has_group or not sweeper.is_clean(self._mark):
            return False
        self._is_swept = True
        guard.release(self._mark)
        self.kill_now()
        return True

    async def _end(self) -> None:
        # now, because later their parents may be gone; after the exit there are none, and the id may belong to another process
        suspects = {} if self.exited.is_set() else descendants(self.pid)
        self.close_input()
        self._note_unread(self.inflow.close())
        # a child that is blocked on a full pipe never exits (docs/reference/protocol.md#a-full-pipe)
        self._discarding.begin()
        try:
            await self._end_process()
        finally:
            self._discarding.end()
        self._note_rest()
        self.drain_stderr_now()
        await self._end_group(min(_GROUP_GRACE, max(self._countdown.left, self._countdown.last_step)))
        over = anyio.Event()
        sweep = self._begin_sweep(suspects, then=lambda: self._loop.call_soon(over.set))
        if not await set_or_seen(over, seconds=self._countdown.left + OVERTIME, look=lambda: sweep.is_over):
            logger.warning("what process %d left behind is still looked for after it was closed", self.pid)
            self._is_swept = True  # or will be
            sweeper.give_up(sweep)

    def _discard_output(self) -> None:
        data = self._read_now(self._stdout)
        if data == b"":
            self._discarding.end()
        self._note_unread(data)

    def _note_unread(self, data: bytes | None) -> bool:
        """Hand on what no task will read. Return whether there is anything."""
        if data and self.on_unread is not None:
            try:
                self.on_unread(data)
            except Exception:
                logger.exception("on_unread of process %d failed", self.pid)
        return bool(data)

    def _note_rest(self) -> None:
        """Hand on what the pipe still holds."""
        for _ in range(_PIPE_READS):
            if not self._note_unread(self._read_now(self._stdout)):
                break

    async def _end_process(self) -> None:
        for step, signum in enumerate((signal.SIGTERM, signal.SIGKILL)):
            if await self._countdown.reached(step, self.exited, look=self.has_exited):
                return
            self._signal_group(signum)
        # the system may be slow to end it: wait here, and not in `_reap()`, which blocks the event loop
        await set_or_seen(self.exited, seconds=self._countdown.left + OVERTIME / 2, look=self.has_exited)

    async def _end_group(self, grace: float) -> None:
        """End the other processes of the group: SIGTERM, and after `grace` seconds SIGKILL."""
        if not self.exited.is_set():
            return  # the leader survived even SIGKILL; kill_now() logs that
        self._reap()
        if not self._has_group or not self._signal_group(signal.SIGTERM, count=False):
            return  # usually the group is empty
        with anyio.move_on_after(grace):
            # they are no children of this process, so their exit can only be polled
            while self._signal_group(0, count=False):  # noqa: ASYNC110 - see above
                await anyio.sleep(0.01)
            return
        self._signal_group(signal.SIGKILL, count=False)

    def kill_now(self) -> None:
        """Kill the whole group and release everything, without awaiting. Does nothing when that was done already."""
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
        self._unwatch_exit()
        is_here = self._loop.is_current
        if is_here:
            self._stderr_watch.end()
            self._discarding.end()
            self._loop_end.release()
        for index in range(3):
            self._close_file(index, is_here=is_here)
        if self._on_gone is not None:
            self._on_gone()

    def _leave_to_the_host(self) -> None:
        """In a fork of the host: close the copies of the files. The process and the event loop's state belong to the host."""
        self._popen.returncode = 0  # so that `Popen` neither waits nor warns
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()

    def _begin_sweep(self, suspects: Mapping[int, int], *, then: Callable[[], object]) -> Sweep:
        """Start to kill what has left the group. The CLI's tool shells lead sessions of their own, and survive its SIGKILL."""

        def after() -> None:
            guard.release(self._mark)
            then()

        self._sweep = sweeper.begin(self._mark, suspects=suspects, then=after)
        return self._sweep

    def _sweep_now(self) -> None:
        """Sweep without awaiting: block for at most `_LAST_RESORT` seconds."""
        if sys.is_finalizing():  # no other thread runs any more; when this process has ended, the guard ends what is left
            if guard.pid is None:
                kill_marked(self._mark)
            return
        if not self._is_swept:
            sweeper.wait(self._sweep or self._begin_sweep({}, then=lambda: None), _LAST_RESORT)

    def _kill(self) -> None:
        if self._popen.returncode is None:
            self._signal_group(signal.SIGKILL, count=self._peek() is None)
            self._reap()

    def _reap(self) -> None:
        try:
            self._popen.wait(timeout=_LAST_RESORT)
        except subprocess.TimeoutExpired:
            logger.exception("process %d did not end, not even after SIGKILL; it may be blocked inside the system", self.pid)
        else:
            if self.status is None:
                self.status = ExitStatus.of_returncode(self._popen.returncode)

    def _signal_group(self, signum: int, *, count: bool = True) -> bool:
        """Send a signal to every process of the group. Return False when the group is empty. `count` sets `killed`."""
        try:
            os.killpg(self.pid, signum)
        except (ProcessLookupError, PermissionError):
            return False  # macOS says EPERM for a group that has only zombies
        self.killed = self.killed or (count and signum != 0)
        return True

    def _close_file(self, index: int, *, is_here: bool) -> None:
        """Close one of the pipes: the input, the output or standard error. `is_here` says whether this is the event loop of the child."""
        file = self._files[index]
        if file.closed:
            return
        if index == 0:
            self.input_room.close()
        elif index == 1:
            self.inflow.give_back()
        if is_here:
            # The loop must forget the number before the system gives it to another file. In a callback of an asyncio loop that is ending,
            # anyio may not find the loop; then all waiting tasks have been cancelled and nothing more is opened.
            with contextlib.suppress(RuntimeError):
                if index == 1:
                    self.inflow.close()
                elif index == 0 and self._writers:
                    anyio.notify_closing(file)
        with contextlib.suppress(OSError):  # a broken pipe: the child is gone
            file.close()


def end_unowned(popen: subprocess.Popen[bytes], *, mark: str) -> None:
    """Kill a process for which no `Child` was made, kill what it started, and close its pipes."""
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


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: its exit code or the signal that killed it. Both are None when that is unknown."""

    exit_code: int | None = None
    signal: int | None = None

    @classmethod
    def of_returncode(cls, returncode: int) -> ExitStatus:
        """Return the status for a `Popen.returncode`, which is negative for signals."""
        return cls(signal=-returncode) if returncode < 0 else cls(exit_code=returncode)

    @property
    def failed(self) -> bool:
        """True when the process ended with a non-zero exit code or by a signal."""
        return bool(self.exit_code) or self.signal is not None


class StderrTail:
    """Keeps the last 64 KiB of standard error, and calls `on_line` with each line.

    Lines have no newline, and undecodable bytes are replaced. The first exception of `on_line` is logged; later lines are
    still delivered.
    """

    def __init__(self, on_line: Callable[[str], object] | None = None) -> None:
        self._on_line = on_line
        self._pieces: list[bytes] = []  # at most a few hundred
        self._size = 0
        self._line = b""
        self._complained = False

    @property
    def text(self) -> str:
        """The last 64 KiB, decoded as UTF-8 with replacement, without trailing white space."""
        return b"".join(self._pieces)[-_TAIL_BYTES:].decode("utf-8", "replace").rstrip() if self._pieces else ""

    def feed(self, data: bytes) -> None:
        """Add what was read from the pipe."""
        if self._pieces and len(self._pieces[-1]) + len(data) <= _CRUMB_BYTES:
            self._pieces[-1] += data
        else:
            self._pieces.append(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= _TAIL_BYTES:
            self._size -= len(self._pieces.pop(0))
        if self._on_line is not None:
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._call(line)
            while len(self._line) > _MAX_LINE_BYTES:
                self._call(self._line[:_MAX_LINE_BYTES])
                self._line = self._line[_MAX_LINE_BYTES:]

    def finish(self) -> None:
        """Deliver a last line that has no newline."""
        if self._line:
            self._call(self._line)
            self._line = b""

    def _call(self, line: bytes) -> None:
        if self._on_line is None:
            return
        try:
            self._on_line(line.rstrip(b"\r").decode("utf-8", "replace"))
        except Exception:  # the user's code; it must not stop reading
            if not self._complained:
                self._complained = True
                logger.exception("the stderr callback raised; further errors of it are not logged")
