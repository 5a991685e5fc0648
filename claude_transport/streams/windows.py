"""`WindowsChild`: a running child process on Windows, ended in every case. `ProcessStream` uses it as it uses `Child` elsewhere.

What is different there, and what is done about it:

* Pipes cannot be watched, only read with overlapped calls, which anyio's processes do on the Proactor loop of asyncio and on trio. So two
  tasks of a child read its output and its standard error. They read ahead by at most 64 KiB more than the event loop does by itself.
* There are no process groups for ending a tree. The child is started suspended, put into a Job Object, and resumed. Whatever it starts is
  in the job. When the host ends, however that comes, the system closes the job and ends the tree. A host that is killed within the
  millisecond between the two calls leaves one suspended process behind.
* There is no SIGTERM. Closing has the same steps within the same total time: close the input, wait, send CTRL_BREAK, end the job. The
  child has a hidden console of its own, so a small helper process, which joins that console, has to send CTRL_BREAK.
* A child that is killed has the exit code 1, and no signal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import anyio.abc
import anyio.lowlevel

from claude_transport.errors import ConfigurationError, SpawnError
from claude_transport.launch import windows
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop, LightEvent, Wakeup, asyncio_loop_here, clock_here
from claude_transport.platform.jobs import Job
from claude_transport.streams.reaping import DRAIN_GRACE, ENDED_DRAIN_GRACE, OVERTIME, ExitStatus, StderrTail
from claude_transport.streams.room import READ_BYTES
from claude_transport.streams.schedule import Countdown, set_or_seen

logger: logging.Logger = logger_for(__name__)

_LAST_RESORT = 1.0
"""Seconds for the pipes of a process to be closed, when every process that could hold them has been ended."""

_BREAK_SECONDS = 2.0
"""Seconds for the helper that sends CTRL_BREAK: ten times what starting a Python takes."""

_SEND_BREAK = (
    "import ctypes, sys; k = ctypes.WinDLL('kernel32'); pid = int(sys.argv[1]); k.FreeConsole(); "
    "sys.exit(not (k.AttachConsole(pid) and k.GenerateConsoleCtrlEvent(1, pid)))"
)
"""The helper: it joins the console of the process, and sends CTRL_BREAK to the group that the process leads."""


async def start_child(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    tail: StderrTail,
    on_gone: Callable[[], object] | None,
    on_unread: Callable[[bytes], object] | None = None,
) -> WindowsChild:
    """Start `command` hidden, in a process group, a console and a job of its own.

    Raises:
        ConfigurationError: the event loop cannot start processes, or the program is a batch file with arguments that are not safe.
        SpawnError: the command line is too long, or the system has no job for it.
        OSError: the system cannot start the program.
    """
    _check_loop()
    environment = windows.environment_of(os.environ if env is None else env, inherited=os.environ)
    argv = [windows.program_path(command[0], cwd=cwd, env=environment), *command[1:]]
    windows.check_batch_file(argv, platform="win32")
    windows.check_length(argv)
    job = Job()
    try:
        process = await _open_suspended(argv, cwd=cwd, env=environment)
    except BaseException:
        job.close()
        raise
    try:
        job.adopt(process.pid)
        return WindowsChild(process, job=job, tail=tail, on_gone=on_gone, on_unread=on_unread)
    except BaseException as exc:
        job.close()
        with anyio.CancelScope(shield=True):  # bounded: it kills a process that has not run yet
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.aclose()
        if isinstance(exc, OSError):
            raise SpawnError(f"{command[0]!r} cannot be put into a job of its own: {exc}", path=command[0]) from exc
        raise


async def _open_suspended(argv: Sequence[str], *, cwd: str | os.PathLike[str] | None, env: Mapping[str, str]) -> anyio.abc.Process:
    """Start a process that does not run yet. A cancelled start would leave it without an owner, so it cannot be cancelled."""
    flags = windows.creation_flags("win32") | windows.CREATE_SUSPENDED
    pipe = subprocess.PIPE
    try:
        with anyio.CancelScope(shield=True):
            return await anyio.open_process(argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=env, creationflags=flags)
    except NotImplementedError as exc:
        raise _unsupported_loop(str(exc) or "this event loop cannot start processes") from exc
    raise RuntimeError("nothing cancels this scope")  # pragma: no cover - for type checkers


def _check_loop() -> None:
    loop = asyncio_loop_here()
    for kind in () if loop is None else type(loop).__mro__:
        refusal = windows.event_loop_refusal(kind.__name__, platform="win32")
        if refusal is not None:
            raise _unsupported_loop(refusal)


def _unsupported_loop(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="loop_factory", code="config.unsupported_event_loop")


async def send_break(pid: int) -> None:
    """Have a helper send CTRL_BREAK to the group that the process leads. Does nothing where no Python can be started for it."""
    python = windows.helper_python(sys.executable, is_frozen=hasattr(sys, "frozen"))
    if python is None:
        return
    with anyio.move_on_after(_BREAK_SECONDS), contextlib.suppress(OSError):
        await anyio.run_process(
            [python, "-I", "-S", "-c", _SEND_BREAK, str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            creationflags=windows.DETACHED_PROCESS,
        )


class WindowsChild:
    """A running child process with pipes on its three standard streams. The attributes are those of `streams.reaping.Child`."""

    def __init__(
        self,
        process: anyio.abc.Process,
        *,
        job: Job,
        tail: StderrTail,
        on_gone: Callable[[], object] | None = None,
        on_unread: Callable[[bytes], object] | None = None,
        ask_to_end: Callable[[int], Awaitable[object]] = send_break,
    ) -> None:
        """Take over a process that was just started and is in `job`. Raises `RuntimeError` when the event loop is ending.

        `ask_to_end` gets the process id when the end of its input was not enough.
        """
        self._ask_to_end = ask_to_end
        self._process = process
        self._job = job
        self._loop = HostLoop()
        self._clock = clock_here()
        self._countdown = Countdown(self._clock)
        self._on_gone = on_gone
        self._ender: LoopTask | None = None
        self._exited_at = 0.0
        self._gone = False
        self._writing: anyio.CancelScope | None = None
        self._stderr_over = LightEvent()
        self.pid: int = process.pid
        self.tail: StderrTail = tail
        self.inflow: PumpedInflow = PumpedInflow(on_unread)
        self.exited: LightEvent = LightEvent()
        self.status: ExitStatus | None = None
        self.input_closed: bool = False
        self.cut: bool = False
        self.closing: bool = False
        self.killed: bool = False
        self.is_ours: bool = True
        self._keeper = LoopTask.spawn(self._keep, name=f"keep process {self.pid}", at_end=self._let_go)

    # Watching

    async def _keep(self) -> None:
        """Read the pipes and wait for the exit, until `_end()` or the end of the loop cancels this. Then end what is left."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_output)
                tasks.start_soon(self._read_stderr)
                tasks.start_soon(self._watch_exit)
                tasks.start_soon(anyio.sleep_forever)  # what the child has started lives on until the child is closed
        finally:
            self._job.close()
            with anyio.move_on_after(_LAST_RESORT, shield=True):
                await self._process.aclose()
            self._note_exit()

    async def _read_output(self) -> None:
        await self.inflow.fill(_reader(self._process.stdout))

    async def _read_stderr(self) -> None:
        receive = _reader(self._process.stderr)
        try:
            while True:
                self.tail.feed(await receive(READ_BYTES))
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # each of them is the end of the pipe
        finally:
            self.tail.finish()
            self._stderr_over.set()

    async def _watch_exit(self) -> None:
        await self._process.wait()
        self._note_exit()
        self.inflow.wake()  # its reader waits with a limit from now on

    def _note_exit(self) -> None:
        returncode = self._process.returncode
        if self.status is None and returncode is not None:
            self.status = ExitStatus(exit_code=returncode)
        if not self.exited.is_set() and returncode is not None and self._loop.is_current:
            self._exited_at = self._clock()
            self.exited.set()

    def has_exited(self) -> bool:
        """Look whether the child has ended. Sets `exited` then."""
        self._note_exit()
        return self.exited.is_set()

    @property
    def drain_seconds(self) -> float:
        """Seconds in which the output may still end by itself, when the child has exited."""
        grace = ENDED_DRAIN_GRACE if self.input_closed else DRAIN_GRACE
        return self._exited_at + grace - self._clock()

    async def stderr_read(self) -> None:
        """Wait until standard error is read to its end, for a second at most after the exit: another process may hold it open."""
        with anyio.move_on_after(max(self.drain_seconds, 0.0)):
            await self._stderr_over.wait()

    def drain_stderr_now(self) -> None:
        """Do nothing: `stderr_read()` waits for the task that reads it."""

    # Writing

    async def write(self, data: bytes) -> None:
        """Write all of `data` to the child's input. Raises `ClosedResourceError` when `close_input()` is called meanwhile."""
        stdin = self._process.stdin
        if stdin is None:  # pragma: no cover - it was started with a pipe
            raise anyio.ClosedResourceError
        with anyio.CancelScope() as scope:
            self._writing = scope
            try:
                await stdin.send(data)
            finally:
                self._writing = None
        if scope.cancelled_caught:
            raise anyio.ClosedResourceError

    def close_input(self) -> None:
        """Close the child's standard input, behind what was written before. A task that waits to write is woken."""
        if self.input_closed:
            return
        self.input_closed = True
        self._countdown.note_end_of_input()
        if self._writing is not None:
            self._writing.cancel()
        if self._loop.is_current and self._process.stdin is not None:
            with contextlib.suppress(RuntimeError):  # the loop is ending: the keeper closes the pipe
                LoopTask.spawn(self._process.stdin.aclose, name=f"close input of process {self.pid}")

    # Closing

    def begin_end(self, *, timeout: float) -> LoopTask | None:
        """Start to end the child, in at most `timeout` seconds and one more. Return the task that does it; None when the child is gone."""
        if self._ender is not None or self._gone:
            return self._ender
        self.closing = True
        if not self._loop.is_current:
            self.kill_now()
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
        if self.closing:
            return
        if self._loop.is_paused:
            self._kill()
        if not self._loop.call_soon(lambda: self.begin_end(timeout=timeout)):
            self.kill_now()

    async def _end(self) -> None:
        self.close_input()
        self.inflow.close()  # it goes on reading: a child that is blocked on a full pipe never exits
        if not await self._countdown.reached(0, self.exited, look=self.has_exited):
            self.killed = True
            asking = LoopTask.spawn(lambda: self._ask_to_end(self.pid), name=f"ask process {self.pid} to end")
            if not await self._countdown.reached(1, self.exited, look=self.has_exited):
                self._kill()
            asking.cancel()
            await set_or_seen(self.exited, seconds=self._countdown.left + OVERTIME / 2, look=self.has_exited)
        self._job.terminate()  # what the child has left behind
        if self.exited.is_set():
            with anyio.move_on_after(max(self._countdown.left + OVERTIME, 0.1)):
                await self._stderr_over.wait()
        else:
            logger.error("process %d did not end, not even with its job; it may be blocked inside the system", self.pid)
        self._keeper.cancel()
        await self._keeper.join()

    def kill_now(self) -> None:
        """End the whole job, without awaiting. The pipes are closed in the event loop. Does nothing when that was done already."""
        if self._gone:
            return
        self.closing = True
        self._kill()
        if self._loop.is_current:
            self.inflow.close()
            self._keeper.cancel()
        else:
            self._loop.call_soon(self._keeper.cancel)

    def _kill(self) -> None:
        self.killed = self.killed or self._process.returncode is None
        self._job.terminate()

    def _let_go(self) -> None:
        """Note that the process is gone and its pipes are closed. The keeper calls it once, at its end, whatever ended it."""
        self._gone = True
        self.closing = True
        self._job.close()
        self._note_exit()
        self.inflow.close()
        self._stderr_over.set()
        self.tail.finish()
        if self._on_gone is not None:
            self._on_gone()


class PumpedInflow:
    """The output of a child that a task reads, for the one task that takes it: what `Inflow` is for a pipe that can be watched.

    `on_unread` is called with what comes after `close()`, and with what was not taken before.
    """

    def __init__(self, on_unread: Callable[[bytes], object] | None = None) -> None:
        self._on_unread = on_unread
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._over = False
        self._closed = False
        self._is_waited_for = False
        self._woken = Wakeup()
        self._room = Wakeup()
        self.read_bytes: int = READ_BYTES

    @property
    def is_dry(self) -> bool:
        """True when nothing has arrived that was not taken, and the pipe has not ended."""
        return not self._chunks and not self._over

    async def fill(self, receive: Callable[[int], Awaitable[bytes]]) -> None:
        """Read to the end of the pipe. At most 64 KiB, and one read, wait to be taken; after `close()` the rest is dropped.

        The end of the pipe, or cancelling the caller, ends it.
        """
        try:
            while True:
                chunk = await receive(READ_BYTES)
                if self._closed:
                    self._note_unread(chunk)
                    continue
                self._chunks.append(chunk)
                self._size += len(chunk)
                self._woken.fire()
                while self._size > READ_BYTES:  # `close()` sets it to zero
                    await self._room.wait()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # each of them is the end of the pipe
        finally:
            self._over = True
            self._woken.fire()

    def take(self, max_bytes: int) -> bytes | None:
        """Return at most `max_bytes` bytes without waiting: b"" at the end of the pipe, None when there is nothing yet."""
        if not self._chunks:
            return b"" if self._over else None
        chunk = self._chunks.popleft()
        if len(chunk) > max_bytes:
            self._chunks.appendleft(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        self._size -= len(chunk)
        self._room.fire()
        return chunk

    async def arrival(self) -> None:
        """Wait until `take()` may return something, or until `wake()` is called. Always a checkpoint.

        Raises:
            anyio.BusyResourceError: another task waits already.
            anyio.ClosedResourceError: `close()` was called.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        if self._is_waited_for:
            raise anyio.BusyResourceError("reading from")
        if not self.is_dry:
            await anyio.lowlevel.checkpoint()
            return
        self._is_waited_for = True
        try:
            await self._woken.wait()
        finally:
            self._is_waited_for = False

    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Wait for something to take, and return False: the caller has to take it."""
        await self.arrival()
        return False

    def wake(self) -> None:
        """Wake the task that waits, although nothing may have arrived."""
        self._woken.fire()

    def close(self) -> None:
        """Wake the task that waits. What was not taken, and what will come, is not kept."""
        self._closed = True
        while self._chunks:
            self._note_unread(self._chunks.popleft())
        self._size = 0
        self._woken.fire()
        self._room.fire()

    def _note_unread(self, chunk: bytes) -> None:
        if self._on_unread is not None:
            try:
                self._on_unread(chunk)
            except Exception:
                logger.exception("on_unread of a process failed")


def _reader(stream: anyio.abc.ByteReceiveStream | None) -> Callable[[int], Awaitable[bytes]]:
    if stream is None:  # pragma: no cover - it was started with pipes
        raise SpawnError("a child process has no pipe on its output")
    return stream.receive
