"""A child process as a byte stream: `ProcessConnectable` starts it, `ProcessStream` reads and writes its standard streams.

How the process is watched and ended is in `streams.reaping`. A program behind a launcher such as ssh is in `streams.launched`.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import select
import subprocess
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import anyio.lowlevel

from claude_transport.errors import (
    ClaudeTransportError,
    CLINotFoundError,
    ConfigurationError,
    NotExecutableError,
    ProcessError,
    SpawnError,
    WorkingDirectoryError,
    WrongLibcError,
)
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import LightEvent
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.at_once import ClosesInATask, FactsAtOnce, OpensAtOnce, Pourable, SendsAtOnce
from claude_transport.streams.guard import MARK_VARIABLE, SPARED_VARIABLE, SafePopen, guard, new_mark
from claude_transport.streams.inflow import CooperativeYield
from claude_transport.streams.reaping import Child, ExitStatus, StderrTail, end_unowned
from claude_transport.streams.sweeping import sweeper
from claude_transport.text.printable import last_lines, redacted_tail

if TYPE_CHECKING:
    from claude_transport.streams.windows import WindowsChild

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds for closing in all. An idle CLI needs 0.04 (docs/reference/protocol.md#timing); one that still writes needs the rest."""

_WORDS_CHARS = 2**14
"""Characters of the end of standard error from which the last words are taken."""

_EXIT_GRACE = 2.0
"""Seconds that a child may live on after it closed its output. After that the stream ends without its exit status."""

_HOPELESS = frozenset({errno.E2BIG, errno.ENAMETOOLONG, errno.ELOOP})
"""Errors of the system that the same command would get again."""


class ProcessConnectable(OpensAtOnce):
    """Starts `command` as a child process in a session of its own.

    Args:
        command: program and arguments. No shell is involved.
        cwd: working directory. None: the host's.
        env: the whole environment of the child. None: the host's.
        user: user to run the child as. None: the host's.
        on_stderr: called with each line of the child's standard error.
        close_timeout: seconds for `ProcessStream.aclose()`.
        diagnose: may replace the `ProcessError` of a failed exit by a more specific one.
        on_gone: called once, when the process has ended and its pipes are closed.
        on_unread: called with what the process says while it is closed, and with what was not read before.
        confidential: secrets, such as options. They and those in `env` are removed from the standard error that an error's note shows.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        on_stderr: Callable[[str], object] | None = None,
        close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
        diagnose: Callable[[ProcessError], Awaitable[ProcessError]] | None = None,
        on_gone: Callable[[], object] | None = None,
        on_unread: Callable[[bytes], object] | None = None,
        confidential: object = None,
    ) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._env = env
        self._user = user
        self._on_stderr = on_stderr
        self._close_timeout = close_timeout
        self._diagnose = diagnose
        self._on_gone = on_gone
        self._on_unread = on_unread
        self._confidential = confidential

    async def connect(self) -> ProcessStream:
        """Start the process, and return its streams.

        Raises:
            CLINotFoundError: the program does not exist.
            ConfigurationError: the user does not exist. On Windows: there is a user, the event loop cannot start processes, or the program
                is a batch file with arguments that are not safe.
            WorkingDirectoryError, NotExecutableError, WrongLibcError, SpawnError: the program exists, but cannot be started.
        """
        await anyio.lowlevel.checkpoint()
        return await self._connect_on_windows() if os.name == "nt" else self.connect_now()

    def connect_now(self) -> ProcessStream:
        """Do what `connect()` does, without a checkpoint. Not on Windows."""
        mark = new_mark()
        popen: subprocess.Popen[bytes] | None = None
        child: Child | None = None
        # There is no await below: no cancellation can come before the new process has an owner. Starting it blocks the loop
        # for about a millisecond, as asyncio's own subprocesses do.
        try:
            sweeper.learn()
            popen = self._spawn(mark)
            sweeper.watch(mark, popen.pid)  # first, because the child may start processes at once
            guard.watch(mark, popen.pid)
            sweeper.overlook(guard.pid)
            child = Child(popen, mark=mark, tail=StderrTail(self._on_stderr), on_gone=self._on_gone)
            child.on_unread = self._on_unread
            return self._stream_of(PipeStream, child)
        except BaseException:
            # Ctrl-C, for one, may come between any two lines
            if child is not None:
                child.kill_now()
            elif popen is not None:
                end_unowned(popen, mark=mark)
            raise

    async def _connect_on_windows(self) -> ProcessStream:
        if self._user is not None:
            raise ConfigurationError("a process of another user cannot be started on Windows: leave the option out", option="user")
        from claude_transport.streams.windows import start_child  # elsewhere it would cost an import

        try:
            child = await start_child(
                self._command,
                cwd=self._cwd,
                env=self._env,
                tail=StderrTail(self._on_stderr),
                on_gone=self._on_gone,
                on_unread=self._on_unread,
            )
        except ValueError as exc:
            raise self._unusable_command(exc) from exc
        except OSError as exc:
            raise self._spawn_error(exc) from exc
        return self._stream_of(PumpedStream, child)

    def _stream_of(self, kind: type[_Stream], child: Any) -> _Stream:
        return kind(child, command=self._command, close_timeout=self._close_timeout, diagnose=self._diagnose, last_words=self._last_words)

    def _spawn(self, mark: str) -> subprocess.Popen[bytes]:
        environment = {**(os.environ if self._env is None else self._env), MARK_VARIABLE: mark}
        environment.pop(SPARED_VARIABLE, None)  # only for processes that end other processes
        try:
            return SafePopen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._cwd,
                env=environment,
                user=self._user,
                start_new_session=True,
            )
        except KeyError as exc:
            raise ConfigurationError(f"there is no user {self._user!r} on this system", option="user") from exc
        except ValueError as exc:
            raise self._unusable_command(exc) from exc
        except OSError as exc:
            raise self._spawn_error(exc) from exc

    def _unusable_command(self, exc: ValueError) -> SpawnError:
        return SpawnError(f"{self._command[0]!r} cannot be started: {exc}", path=self._command[0], retryable=False)

    def _spawn_error(self, exc: OSError) -> ClaudeTransportError:
        """Return the typed error for an error of the operating system."""
        path, cwd = self._command[0], self._cwd
        if cwd is not None and not Path(cwd).is_dir():
            return WorkingDirectoryError(
                f"the working directory {os.fspath(cwd)!r} does not exist or is not a directory. Make it, or correct cwd.", path=path
            )
        if cwd is not None and not os.access(cwd, os.X_OK):
            return WorkingDirectoryError(f"the working directory {os.fspath(cwd)!r} cannot be entered", path=path)
        if isinstance(exc, FileNotFoundError):
            if self._is_there():
                return WrongLibcError(
                    f"{path!r} exists, but the loader or interpreter it names does not: a build for another libc (musl or glibc)?",
                    path=path,
                )
            return CLINotFoundError(f"there is no program {path!r}", searched=[path], advice="install it, or give the full path")
        if exc.errno == errno.EPERM and self._user is not None:
            return SpawnError(f"{path!r} cannot be started as user {self._user!r}: {exc.strerror}", path=path, retryable=False)
        if isinstance(exc, PermissionError) or exc.errno == errno.ENOEXEC:
            return NotExecutableError(f"{path!r} is not an executable program", path=path)
        return SpawnError(f"{path!r} cannot be started: {exc.strerror}", path=path, retryable=exc.errno not in _HOPELESS)

    def _last_words(self, said: str) -> str:
        environment = os.environ if self._env is None else self._env
        # redacted before it is cut: half a key does not look like one
        return redacted_tail(said, redactor_knowing([os.environ, environment], confidential=self._confidential).text, at_most=_WORDS_CHARS)

    def _is_there(self) -> bool:
        """Return True when the program exists: on the child's PATH for a bare name, else as a path from its working directory."""
        # not `shutil.which()`: importing `shutil` needs a file descriptor, and perhaps none is free

        program = self._command[0]
        if os.path.basename(program) != program:  # noqa: PTH119 - Path("./claude") forgets the dot that makes it a path
            return Path(self._cwd or "", program).exists()
        folders = (os.environ if self._env is None else self._env).get("PATH", os.defpath).split(os.pathsep)
        return any(os.path.isfile(found) and os.access(found, os.X_OK) for found in (os.path.join(folder, program) for folder in folders))  # noqa: PTH113, PTH118


class ChildProcess(Protocol):
    """What a stream needs of its child: `reaping.Child`, or `windows.WindowsChild`."""

    pid: int
    tail: StderrTail
    exited: LightEvent
    status: ExitStatus | None
    input_closed: bool
    cut: bool
    closing: bool
    killed: bool

    @property
    def is_ours(self) -> bool: ...
    @property
    def inflow(self) -> ChildOutput: ...
    @property
    def drain_seconds(self) -> float: ...
    def has_exited(self) -> bool: ...
    def drain_stderr_now(self) -> None: ...
    def close_input(self) -> None: ...
    def begin_end(self, *, timeout: float) -> LoopTask | None: ...
    def hurry(self, seconds: float) -> None: ...
    def abandon(self, *, timeout: float) -> None: ...


class ChildOutput(Protocol):
    """What a stream needs of its child's output: `Inflow`, or `windows.PumpedInflow`."""

    read_bytes: int

    @property
    def is_dry(self) -> bool: ...
    def take(self, max_bytes: int) -> bytes | None: ...
    async def arrival(self) -> None: ...
    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool: ...


class ProcessStream(SendsAtOnce, ClosesInATask, Pourable):
    """Standard input and output of a running child process.

    After the last byte, `receive()` raises `EndOfStream` when the program ended well and `ProcessError` when it did not. Standard
    error is read all the time; its last 64 KiB are kept.
    """

    def __init__(
        self,
        child: ChildProcess,
        *,
        command: Sequence[str],
        close_timeout: float,
        diagnose: Callable[[ProcessError], Awaitable[ProcessError]] | None = None,
        last_words: Callable[[str], str],
    ) -> None:
        self._child = child
        self._last_words = last_words
        self._name = os.path.basename(command[0])  # noqa: PTH119 - for messages; a Path costs ten times as much
        self._close_timeout = close_timeout
        self._diagnose = diagnose
        self._started_at = dt.datetime.now(dt.UTC)
        self._output_over = False
        self._pace = CooperativeYield(heeds_load=True)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte of the child's output, and return at most `max_bytes`."""
        child = self._child
        inflow = child.inflow
        # A checkpoint before the read and not after it: a cancellation must not lose bytes. A wait is a checkpoint.
        if inflow.is_dry and not (child.cut or child.closing or self._output_over):
            await self._arrival()
        else:
            await self._pace.step(inflow.read_bytes)
        while not self._output_over:
            if child.closing:
                raise anyio.ClosedResourceError
            data = inflow.take(max_bytes)
            if data:
                return data
            if data is not None or child.cut:
                break
            await self._arrival()  # closing wakes it without data
        self._output_over = True
        raise await self._how_it_ended()

    async def _arrival(self) -> None:
        """Wait for output. Once the child has exited, what it started may hold the pipe open: then the wait is short, and the last one."""
        child = self._child
        if not child.exited.is_set():
            await child.inflow.arrival()  # the exit wakes it, too
            return
        with anyio.move_on_after(child.drain_seconds) as limit:
            await child.inflow.arrival()
        child.cut = limit.cancelled_caught

    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Wait, and have each chunk handed to `hand_on` until it returns True (see `Pourable`).

        Returns False when `receive()` has data or an error.
        """
        child = self._child
        if child.closing or self._output_over or child.exited.is_set():
            return False
        return await child.inflow.pour(hand_on)

    async def send_eof(self) -> None:
        """Close the child's input."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._child.close_input()

    def send_whole_now(self, item: bytes) -> bool:
        """Return False: nothing was sent."""
        return False

    def send_eof_now(self) -> None:
        """Close the child's input without waiting."""
        self._child.close_input()

    async def aclose(self) -> None:
        """End the process and everything it started, also when this call is cancelled.

        Takes `close_timeout` seconds, and at most one second more.
        """
        ender = self.begin_close()
        if ender is not None:
            await ender.join()
        else:
            await anyio.lowlevel.checkpoint()

    def begin_close(self) -> LoopTask | None:
        """Begin what `aclose()` does, and return the task that does it. Returns None when it is done already."""
        return self._child.begin_end(timeout=self._close_timeout)

    def hurry(self, seconds: float) -> None:
        """Have `aclose()` take `seconds` from now at most, also when it is under way."""
        self._child.hurry(seconds)

    async def _how_it_ended(self) -> BaseException:
        child = self._child
        if not child.has_exited():
            with anyio.move_on_after(_EXIT_GRACE):
                await child.exited.wait()
        if child.closing:
            return anyio.ClosedResourceError()
        child.drain_stderr_now()
        status = child.status
        if status is None or not status.failed:
            return anyio.EndOfStream()
        how = f"exit code {status.exit_code}" if status.signal is None else f"signal {status.signal}"
        error = ProcessError(
            f"{self._name} ended with {how}", exit_code=status.exit_code, signal=status.signal, stderr_tail=child.tail.text
        )
        self.add_last_words(error)
        return error if self._diagnose is None else await self._diagnose(error)

    def add_last_words(self, error: ProcessError) -> None:
        """Make the end of standard error the reason of `error`. Known secrets are removed."""
        if error.stderr_tail:
            error.reason = last_lines(self._last_words(error.stderr_tail))

    async def _cause_of(self, broken_pipe: BrokenPipeError) -> BaseException:
        cause = await self._how_it_ended()
        return cause if isinstance(cause, ClaudeTransportError) else broken_pipe

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return _Facts(self._child, self._started_at)

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is None or child.closing or not child.is_ours:
            return
        # before the warning: with `-W error` it is an exception
        child.abandon(timeout=self._close_timeout)
        warnings.warn(f"process {child.pid} was never closed", ResourceWarning, source=self, stacklevel=1)


class PipeStream(ProcessStream):
    """The streams of a child whose pipes the event loop can watch."""

    _child: Child

    async def send(self, item: bytes) -> None:
        """Write all of `item` to the child's input."""
        # Not a full checkpoint: a cancellation there would look like half a line, although nothing was written.
        await anyio.lowlevel.checkpoint_if_cancelled()
        child = self._child
        rest = memoryview(item)
        waited = False
        while rest:
            if child.input_closed or child.closing:
                raise anyio.ClosedResourceError
            if child.status is not None:
                # a process that it started may hold the pipe open and take the input of the child
                raise anyio.BrokenResourceError from await self._cause_of(BrokenPipeError(errno.EPIPE, "the process has ended"))
            try:
                rest = rest[os.write(child.stdin, rest) :]
            except BlockingIOError:
                pass
            except BrokenPipeError as exc:
                raise anyio.BrokenResourceError from await self._cause_of(exc)
            if rest:  # the pipe is full
                waited = True
                child.input_room.note_full()
                await child.writable()
        if not waited:
            child.input_room.full_count = 0

    def send_whole_now(self, item: bytes) -> bool:
        """Write `item` to the child's input if the pipe takes all of it now. Returns False when nothing was written."""
        child = self._child
        # only such a short write is all or nothing: half a line could not be taken back
        if len(item) > select.PIPE_BUF or child.input_closed or child.closing or child.status is not None:
            return False
        try:
            os.write(child.stdin, item)
        except OSError:
            return False  # the pipe is full, or broken: `send()` tells
        return True


class PumpedStream(ProcessStream):
    """The streams of a child on Windows, whose pipes are read and written by overlapped calls."""

    _child: WindowsChild

    async def send(self, item: bytes) -> None:
        """Write all of `item` to the child's input."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        child = self._child
        if child.input_closed or child.closing:
            raise anyio.ClosedResourceError
        broken = BrokenPipeError(errno.EPIPE, "the process has ended")
        if child.status is not None:
            raise anyio.BrokenResourceError from await self._cause_of(broken)
        try:
            await child.write(bytes(item))
        except (anyio.BrokenResourceError, OSError) as exc:
            if child.input_closed or child.closing:
                raise anyio.ClosedResourceError from exc
            raise anyio.BrokenResourceError from await self._cause_of(exc if isinstance(exc, BrokenPipeError) else broken)

    async def _how_it_ended(self) -> BaseException:
        child = self._child
        with anyio.move_on_after(_EXIT_GRACE):
            await child.exited.wait()
        if child.exited.is_set() and not child.closing:
            await child.stderr_read()
        return await super()._how_it_ended()


_Stream = TypeVar("_Stream", bound=ProcessStream)


class _Facts(FactsAtOnce):
    """The typed attributes of a process stream. A dict of closures would take 2 KB for each session."""

    __slots__ = ("_child", "_started_at")

    def __init__(self, child: ChildProcess, started_at: dt.datetime) -> None:
        self._child = child
        self._started_at = started_at

    def __getitem__(self, attribute: Any) -> Callable[[], Any]:
        find = _FACTS[attribute]
        return lambda: find(self._child, self._started_at)

    def snapshot(self) -> dict[str, Any]:
        """Return the values that `TransportInfo` has, by its names."""
        child, status = self._child, self._child.status or ExitStatus()
        return {
            "pid": child.pid,
            "exit_code": status.exit_code,
            "signal": status.signal,
            "killed": child.killed,
            "stderr_tail": child.tail.text,
            "started_at": self._started_at,
        }

    def __contains__(self, attribute: object) -> bool:
        return attribute in _FACTS

    def __iter__(self) -> Iterator[Any]:
        return iter(_FACTS)

    def __len__(self) -> int:
        return len(_FACTS)


_FACTS: dict[Any, Callable[[ChildProcess, dt.datetime], Any]] = {
    StreamAttribute.pid: lambda child, _: child.pid,
    StreamAttribute.exit_code: lambda child, _: child.status.exit_code if child.status else None,
    StreamAttribute.signal: lambda child, _: child.status.signal if child.status else None,
    StreamAttribute.killed: lambda child, _: child.killed,
    StreamAttribute.stderr_tail: lambda child, _: child.tail.text,
    StreamAttribute.started_at: lambda _, started_at: started_at,
    StreamAttribute.ended: lambda child, _: child.closing or child.exited.is_set(),
}
