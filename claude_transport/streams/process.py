"""A child process as an anyio byte stream: its standard input and output, with its end told as it was."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.background import in_event_loop
from claude_transport.errors import (
    ClaudeTransportError,
    CLINotFoundError,
    NotExecutableError,
    ProcessError,
    SpawnError,
    WorkingDirectoryError,
    WrongLibcError,
)
from claude_transport.streams.attributes import StreamAttribute
from claude_transport.streams.reaping import Child
from claude_transport.streams.stderr import StderrTail

__all__ = ["DEFAULT_CLOSE_TIMEOUT", "ProcessConnectable", "ProcessStream"]

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds closing may take in all. An idle CLI needs 0.04 (PROTOCOL (f)); the rest is for one that still writes."""

_EXIT_GRACE = 2.0
"""Seconds a child may go on living after it closed its output, before the stream is considered over."""


class ProcessConnectable:
    """Opens `command` as a child in a session of its own: `await connect()` gives its `ProcessStream`.

    `env` is the child's whole environment (None: the host's); `user` whom to run as. `diagnose` may turn the `ProcessError`
    of a failed exit into a more telling one.
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
        diagnose: Callable[[ProcessError], ProcessError] | None = None,
    ) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._env = env
        self._user = user
        self._on_stderr = on_stderr
        self._close_timeout = close_timeout
        self._diagnose = diagnose

    async def connect(self) -> ProcessStream:
        """Start the process.

        Raises:
            CLINotFoundError: there is no such file.
            WorkingDirectoryError, NotExecutableError, WrongLibcError, SpawnError: it is there, but cannot be run.
        """
        await anyio.lowlevel.checkpoint()
        # Nothing below awaits: between the birth of the process and its owner no cancellation can come. Starting it takes
        # about a millisecond; asyncio itself does it on the loop's thread too.
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 - see above
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._cwd,
                env=self._env,
                user=self._user,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise _spawn_error(exc, self._command, self._cwd) from exc
        child = Child(popen, tail=StderrTail(self._on_stderr))
        return ProcessStream(child, command=self._command, close_timeout=self._close_timeout, diagnose=self._diagnose)


class ProcessStream(ByteStream):
    """The standard streams of a running child.

    `receive()` ends with `EndOfStream` when the program ended well, and raises `ProcessError` when it did not, after its
    last byte either way. Standard error is read all the time and kept as a tail.
    """

    def __init__(
        self,
        child: Child,
        *,
        command: Sequence[str],
        close_timeout: float,
        diagnose: Callable[[ProcessError], ProcessError] | None = None,
    ) -> None:
        self._child = child
        self._name = Path(command[0]).name
        self._close_timeout = close_timeout
        self._diagnose = diagnose
        self._started_at = dt.datetime.now(dt.UTC)
        self._output_over = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes of its output, at most `max_bytes`."""
        # Before the read, not after it: a cancellation here must not take bytes along.
        await anyio.lowlevel.checkpoint()
        child = self._child
        while not self._output_over:
            if child.closing:
                raise anyio.ClosedResourceError
            try:
                data = os.read(child.stdout, max_bytes)
            except BlockingIOError:
                if child.cut:
                    break
                # woken without data by closing and by the cut: both are looked at above
                with contextlib.suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(child.stdout)
                continue
            if data:
                return data
            break
        self._output_over = True
        raise await self._how_it_ended()

    async def send(self, item: bytes) -> None:
        """Write all of `item` to its input."""
        await anyio.lowlevel.checkpoint()
        child = self._child
        rest = memoryview(item)
        while rest:
            if child.input_closed or child.closing:
                raise anyio.ClosedResourceError
            try:
                rest = rest[os.write(child.stdin, rest) :]
            except BlockingIOError:
                with contextlib.suppress(anyio.ClosedResourceError):
                    await anyio.wait_writable(child.stdin)
            except BrokenPipeError as exc:
                raise anyio.BrokenResourceError from await self._cause_of(exc)

    async def send_eof(self) -> None:
        """Close its input."""
        await anyio.lowlevel.checkpoint()
        self._child.close_input()

    async def aclose(self) -> None:
        """End the process and everything it started, in at most `close_timeout` seconds, also when cancelled meanwhile."""
        if in_event_loop():
            await self._child.begin_end(timeout=self._close_timeout).join()

    async def _how_it_ended(self) -> BaseException:
        child = self._child
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
        if self._diagnose is not None:
            error = self._diagnose(error)
        if error.stderr_tail:
            error.add_note("its last words: " + error.stderr_tail[-500:])
        return error

    async def _cause_of(self, broken_pipe: BrokenPipeError) -> BaseException:
        cause = await self._how_it_ended()
        return cause if isinstance(cause, ClaudeTransportError) else broken_pipe

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        child = self._child
        return {
            StreamAttribute.pid: lambda: child.pid,
            StreamAttribute.exit_code: lambda: child.status.exit_code if child.status else None,
            StreamAttribute.signal: lambda: child.status.signal if child.status else None,
            StreamAttribute.killed: lambda: child.killed,
            StreamAttribute.stderr_tail: lambda: child.tail.text,
            StreamAttribute.started_at: lambda: self._started_at,
        }

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is None or child.closing:
            return
        warnings.warn(f"process {child.pid} was never closed", ResourceWarning, source=self, stacklevel=1)
        if in_event_loop():
            child.begin_end(timeout=self._close_timeout)
        else:
            child.kill_now()


def _spawn_error(exc: OSError | ValueError, command: Sequence[str], cwd: str | os.PathLike[str] | None) -> ClaudeTransportError:
    """The typed error for what the operating system said, told apart by what is there."""
    path = command[0] if command else ""
    if not isinstance(exc, OSError):
        return SpawnError(f"{path!r} cannot be started: {exc}", path=path, retryable=False)
    if cwd is not None and not Path(cwd).is_dir():
        return WorkingDirectoryError(f"the working directory {os.fspath(cwd)!r} does not exist or is no directory", path=path)
    if cwd is not None and not os.access(cwd, os.X_OK):
        return WorkingDirectoryError(f"the working directory {os.fspath(cwd)!r} cannot be entered", path=path)
    if isinstance(exc, FileNotFoundError):
        if Path(path).exists():
            return WrongLibcError(
                f"{path!r} exists, but the loader or interpreter it names does not: a build for another libc (musl or glibc)?", path=path
            )
        return CLINotFoundError(f"there is no program {path!r}", searched=[path], advice="install it, or give the full path")
    if isinstance(exc, PermissionError) or exc.errno == errno.ENOEXEC:
        return NotExecutableError(f"{path!r} is not an executable program", path=path)
    return SpawnError(f"{path!r} cannot be started: {exc.strerror}", path=path)
