"""The end of a child process, in every way it can come: by itself, by request, by force, with its children or without.

The rules, and why they are what they are:

* The child leads its own session and process group. A Ctrl-C at the terminal reaches only the host, and one signal reaches
  everything the child started (a prefix such as `sh -c` or `docker` included).
* Closing climbs down a ladder inside one total time: end of input, a grace, SIGTERM to the group, SIGKILL to the group. The
  CLI writes its transcript between end of input and exit (~35 ms when idle, PROTOCOL (f)); SIGTERM also ends its tool
  shells, SIGKILL orphans them (recording 20e, PROTOCOL (d) 12), hence the order.
* Exit is observed without reaping (`WNOWAIT`), so that the process id, which is also the group's, cannot be given to somebody
  else while the group may still have to be signalled.
* All of it runs in tasks of its own: no cancellation of a caller can stop half-way down. When the event loop itself ends,
  what is left is killed at once, without awaiting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess

import anyio
import anyio.to_thread
import msgspec

from claude_transport.background import BackgroundTask, in_event_loop
from claude_transport.errors import UsageError
from claude_transport.streams.stderr import StderrTail

__all__ = ["Child", "CloseSchedule", "ExitStatus"]

logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 2**10
"""Bytes per read: the capacity of a pipe on Linux."""

_DRAIN_GRACE = 1.0
"""Seconds after the child's exit in which its pipes may still end by themselves. After that, whoever holds them is not the child."""

_GROUP_GRACE = 0.5
"""Seconds that what is left of the group gets between SIGTERM and SIGKILL once its leader is gone."""

_LAST_RESORT = 1.0
"""Seconds to wait for a killed process where nothing can be awaited any more. SIGKILL takes microseconds, or for ever."""


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: one of the two is set, or neither when nobody could find out."""

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


class CloseSchedule(msgspec.Struct, frozen=True):
    """How one total closing time is divided over the rungs of the ladder, in seconds."""

    grace: float
    terminate: float
    kill: float

    @classmethod
    def within(cls, total: float) -> CloseSchedule:
        """Three fifths to leave by itself, three tenths after SIGTERM, the rest to be collected after SIGKILL."""
        total = max(total, 0.0)
        return cls(grace=total * 0.6, terminate=total * 0.3, kill=total * 0.1)


class Child:
    """A running child with pipes on its three standard streams: watched from the beginning, and ended for certain.

    `exited` is set when the process has ended, `status` says how. `cut` turns True when its output has to be considered
    over although somebody else still holds the pipe. `closing` turns True, for good, when `end()` begins.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, tail: StderrTail) -> None:
        if popen.stdin is None or popen.stdout is None or popen.stderr is None:
            raise UsageError("a Child needs a pipe on each of its standard streams")
        self._popen = popen
        self._files = (popen.stdin, popen.stdout, popen.stderr)
        self.pid = popen.pid
        self.stdin, self.stdout, self._stderr = (file.fileno() for file in self._files)
        for fd in (self.stdin, self.stdout, self._stderr):
            os.set_blocking(fd, False)
        self.tail = tail
        self.exited = anyio.Event()
        self.status: ExitStatus | None = None
        self.input_closed = False
        self.cut = False
        self.closing = False
        self.killed = False
        self._gone = False
        self._watcher = BackgroundTask.spawn(self._watch, name=f"watch process {self.pid}")
        self._ender: BackgroundTask | None = None

    # ------------------------------------------------------------------------------------------------------------ watching

    async def _watch(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drain_stderr)
                await self._wait_for_exit()
                self._note_exit()
                await anyio.sleep(_DRAIN_GRACE)
                self.cut = True
                self._wake_reader()
                tasks.cancel_scope.cancel()
        finally:
            if not self.closing:
                # Only two things get here: the end of the event loop, after which nobody could end the child any more,
                # and the cut above, after which there is nothing left to do.
                self._watch_ended()

    def _watch_ended(self) -> None:
        if not self.exited.is_set():
            self.kill_now()

    async def _drain_stderr(self) -> None:
        while True:
            try:
                data = os.read(self._stderr, _READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._stderr)
                continue
            if not data:
                return
            self.tail.feed(data)

    def drain_stderr_now(self) -> None:
        """Take what is in the pipe without waiting: after the child's exit, all it ever wrote is there."""
        if self._gone:
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._stderr, _READ_BYTES):
                self.tail.feed(data)

    async def _wait_for_exit(self) -> None:
        if self._peek() is not None:
            return
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            # no pidfd on this system: a thread blocks instead; it ends with the child, which close() guarantees
            await anyio.to_thread.run_sync(self._block_until_exit, abandon_on_cancel=True)
            return
        try:
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)

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
        self.exited.set()

    def _wake_reader(self) -> None:
        if not self._gone:
            anyio.notify_closing(self.stdout)

    # ------------------------------------------------------------------------------------------------------------- closing

    def close_input(self) -> None:
        """Close the child's standard input; a writer that waits on it is woken."""
        if not self.input_closed:
            self.input_closed = True
            self._close_file(0)

    def begin_end(self, *, timeout: float) -> BackgroundTask:
        """Start climbing down the ladder, in at most `timeout` seconds; the task's end is the child's."""
        if self._ender is None:
            self.closing = True
            self._ender = BackgroundTask.spawn(lambda: self._end(CloseSchedule.within(timeout)), name=f"end process {self.pid}")
        return self._ender

    async def _end(self, schedule: CloseSchedule) -> None:
        try:
            self.close_input()
            self._wake_reader()
            async with anyio.create_task_group() as tasks:
                # a child that is blocked on a full pipe never gets to its exit (PROTOCOL (a) 11)
                tasks.start_soon(self._discard_output)
                await self._climb_down(schedule)
                tasks.cancel_scope.cancel()
            self.drain_stderr_now()
            await self._end_group()
        finally:
            self.kill_now()

    async def _discard_output(self) -> None:
        while True:
            try:
                if not os.read(self.stdout, _READ_BYTES):
                    return
            except BlockingIOError:
                await anyio.wait_readable(self.stdout)

    async def _climb_down(self, schedule: CloseSchedule) -> None:
        with anyio.move_on_after(schedule.grace):
            await self.exited.wait()
            return
        self._signal_group(signal.SIGTERM)
        with anyio.move_on_after(schedule.terminate):
            await self.exited.wait()
            return
        self._signal_group(signal.SIGKILL)
        with anyio.move_on_after(schedule.kill):
            await self.exited.wait()

    async def _end_group(self) -> None:
        """What the child left running in its group is asked to go, then made to."""
        if not self.exited.is_set():
            return  # not even SIGKILL worked: kill_now() says so
        self._reap()
        if not self._signal_group(signal.SIGTERM, count=False):
            return  # the usual case: nobody left
        with anyio.move_on_after(_GROUP_GRACE):
            # they are not our children: there is nothing to wait on but the next look
            while self._signal_group(0, count=False):
                await anyio.sleep(0.01)
            return
        self._signal_group(signal.SIGKILL, count=False)

    def kill_now(self) -> None:
        """End the whole group without awaiting anything, and release everything; does nothing when that has been done."""
        if self._gone:
            return
        self.closing = True
        if self._popen.returncode is None:
            self._signal_group(signal.SIGKILL, count=not self.exited.is_set())
            self._reap()
        self._note_exit()
        self.tail.finish()
        self._gone = True
        self._watcher.cancel()
        for index in range(3):
            self._close_file(index)

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
        if in_event_loop():
            # the loop must forget the number before the system can give it to somebody else
            anyio.notify_closing(file)
        # a broken pipe on close: the peer is gone, which is why it is closed
        with contextlib.suppress(OSError):
            file.close()
