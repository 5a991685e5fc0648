"""A program whose Nth system call fails: it does what a host does, and says how each step went and what it left.

`fault_host.py BACKEND WORKLOAD FIRST STEP` runs the workload again and again, in forks: first call number FIRST fails, then the one that is
STEP later, until there are no more calls. The calls are those that Python code makes through `os`, `subprocess`, `select`, `open()` and
`threading`, in any thread, from the moment in which the workload begins.

With STEP 0 nothing fails by itself: each run says `ready` with its process id and waits, while `strace_faults.py` attaches to it.

Calls that no system lets fail for a child of one's own are left alone: kill, wait. After a failed kill there would be something left.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import gc
import importlib
import io
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

import claude_transport as ct
from claude_transport.testing.conformance.census import LASTING, Census

ANSWER = r'{"type":"control_response","response":{"subtype":"success","request_id":"\1","response":{}}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}'
CLAUDE = ["sed", "-u", "-n", "-e", rf's/.*"request_id": *"\([^"]*\)".*/{ANSWER}/p', "-e", rf's/.*"type": *"user".*/{RESULT}/p']
LINE = '{"token":"sk-ant-api03-abcdefgh"}'
FAILURES = {
    "open": errno.EMFILE,
    "pipe": errno.EMFILE,
    "pidfd_open": errno.EMFILE,
    "scandir": errno.EMFILE,
    "listdir": errno.EMFILE,
    "set_blocking": errno.EBADF,
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "close": errno.EIO,
    "mkdir": errno.ENOSPC,
    "rmdir": errno.EBUSY,
    "unlink": errno.EACCES,
    "chmod": errno.EPERM,
    "fstat": errno.EIO,
}
"""The functions of `os` that fail, and how."""

TIMES = 2
"""Calls that are counted for each place: one that looks at every process of the machine would be counted thousands of times."""

Workload = Callable[[Path], Awaitable[None]]
WORKLOADS: dict[str, Workload] = {}


def workload(function: Workload) -> Workload:
    WORKLOADS[function.__name__] = function
    return function


def say(name: str, value: object) -> None:
    line = (json.dumps([name, value]) + "\n").encode()
    try:
        os.write(1, line)
    except OSError:  # this was the call that failed
        os.write(1, line)


def wait_for_strace() -> None:
    say("ready", os.getpid())
    with contextlib.suppress(OSError):  # the read may be the call that fails
        os.read(0, 1)


class Faults:
    """Makes call number `at` fail, counted over all the functions and threads."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0
        self.failed = ""
        self._seen: Counter[str] = Counter()
        self._armed = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def look(self, name: str, number: int) -> None:
        """Count one call; raise when it is the one."""
        with self._lock:
            if not self._armed:
                return
            place = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_stack(sys._getframe(2))[:-7:-1])
            self._seen[place] += 1
            if self._seen[place] > TIMES:
                return
            self.calls += 1
            if self.calls != self.at:
                return
            self.failed = f"{name} in {place}"
        raise OSError(number, os.strerror(number))

    def install(self) -> None:
        for name, number in FAILURES.items():
            if hasattr(os, name):
                setattr(os, name, self._failing(getattr(os, name), name, number))
        builtins.open = io.open = self._failing_open(io.open)  # type: ignore[assignment]
        threading._start_new_thread = self._failing_thread(threading._start_new_thread)  # type: ignore[attr-defined]
        subprocess._fork_exec = self._failing(subprocess._fork_exec, "fork_exec", errno.EAGAIN)  # type: ignore[attr-defined]
        if hasattr(select, "epoll"):
            select.epoll = functools.partial(Epoll, self, select.epoll)  # type: ignore[assignment,misc]

    def _failing(self, function: Callable[..., Any], name: str, number: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "close":  # the system closes it in any case
                function(*args, **kwargs)
                self.look(name, number)
                return None
            if name != "write" or args[0] != 1:
                self.look(name, number)
            return function(*args, **kwargs)

        return call

    def _failing_thread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            try:
                self.look("start of a thread", errno.EAGAIN)
            except OSError as exc:
                raise RuntimeError("can't start new thread") from exc
            return function(*args)

        return call

    def _failing_open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(file, int):
                self.look("open()", errno.EMFILE)
            return function(file, *args, **kwargs)

        return call


class Epoll:
    """An epoll whose `register` may fail, as it does when a user watches too much."""

    def __init__(self, faults: Faults, make: Callable[..., Any], *args: Any) -> None:
        self._faults = faults
        self._epoll = make(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def register(self, *args: Any) -> None:
        self._faults.look("epoll.register", errno.ENOSPC)
        self._epoll.register(*args)


async def attempt(name: str, what: Callable[[], Awaitable[Any]]) -> Any:
    """Do it, and say how it went unless it went well."""
    try:
        with anyio.fail_after(20):
            return await what()
    except ct.ClaudeTransportError as exc:
        say(name, f"{type(exc).__name__} {exc.code} <- {exc.__cause__!r}")
    except BaseException as exc:  # noqa: BLE001 - that is what is looked for
        say(name, "UNTYPED " + "".join(traceback.format_exception(exc)))
    return None


async def converse(transport: ct.Transport, closes: bool = True) -> None:
    await attempt("connect", transport.connect)
    if transport.is_ready():
        await attempt("write", lambda: transport.write(LINE))
        if transport.is_ready():
            await attempt("read", lambda: anext(transport.read_messages()))
    if closes:
        await attempt("close", transport.close)


@workload
async def a_session(_: Path) -> None:
    await converse(ct.SubprocessTransport(command=["cat"]))


@workload
async def a_stubborn_child(_: Path) -> None:
    command = ["sh", "-c", "trap '' TERM HUP; setsid sleep 100 & sleep 100 & while :; do read -r line; echo \"$line\"; sleep 0.1; done"]
    await converse(ct.SubprocessTransport(command=command, close_timeout=0.3))


@workload
async def a_session_with_files(folder: Path) -> None:
    options = ct.ClaudeOptions(
        cli_path=str(folder / "claude"), system_prompt="x" * 300_000, mcp_servers={"a": {"command": "b"}}, isolated_config=True
    )
    await converse(ct.SubprocessTransport(options))


@workload
async def a_tape(folder: Path) -> None:
    transport = ct.RecordingTransport(ct.MockTransport([{"n": 1}]), folder / "tape")
    await converse(transport)


@workload
async def a_conversation(_: Path) -> None:
    query = ct.Query(ct.SubprocessTransport(command=CLAUDE))
    await attempt("start", query.start)
    turn = await attempt("send", lambda: query.send("Hello"))
    if turn is not None:
        await attempt("result", turn.result)
    await attempt("close", query.aclose)


class Said(logging.Handler):
    """Say what is logged as an error."""

    def emit(self, record: logging.LogRecord) -> None:
        say("logged", f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


def run(name: str, backend: str, at: int) -> bool:
    """Run a workload whose call number `at` fails; whether it has so many."""
    faults = Faults(at)
    folder = Path(tempfile.mkdtemp(prefix="host-"))
    (folder / "claude").write_text("#!/bin/sh\nexec cat\n")
    (folder / "claude").chmod(0o755)
    sys.unraisablehook = lambda unraisable: say("unraisable", repr(unraisable.exc_value))
    threading.excepthook = lambda args: say("thread", repr(args.exc_value))

    async def main() -> None:
        await anyio.to_thread.run_sync(int)  # a worker thread, and what anyio makes once
        before = await Census.rested()
        if at == 0:
            wait_for_strace()
        with faults.armed():
            await WORKLOADS[name](folder)
        say("done", name)
        if growth := await before.growth(patience=5, of=LASTING):
            say("left", growth)

    faults.install()
    anyio.run(main, backend=backend)
    gc.collect()
    say("failed", faults.failed)
    return bool(faults.failed)


def fork(name: str, backend: str, at: int) -> int:
    """Return the exit code: 0 when a call failed, 1 when there was none with this number."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    failed = True
    try:
        failed = run(name, backend, at)
    except BaseException as exc:  # noqa: BLE001 - the fork must not go on as its parent
        say("UNTYPED end", "".join(traceback.format_exception(exc)))
    sys.exit(not failed)  # not `os._exit()`: what is deleted at the interpreter's exit is deleted


def main() -> None:
    backend, name, first, step = sys.argv[1:]
    assert all((ct.Query, ct.SubprocessTransport, ct.RecordingTransport, ct.MockTransport, ct.ClaudeOptions))
    importlib.import_module(f"anyio._backends._{backend}")  # before the forks, which would each do it
    logging.getLogger().addHandler(Said(logging.ERROR))
    folder = Path(tempfile.gettempdir())
    for at in range(int(first), 1000, int(step)) if int(step) else iter(lambda: len(os.read(0, 1)) - 1, -1):
        say("at", at)
        status = fork(name, backend, at)
        if left := sorted(path.name for path in folder.glob("claude-transport-*")):
            say("left", left)
            for path in left:
                shutil.rmtree(folder / path)
        if at and status:
            say("end", status)
            break
        say("over", status)


if __name__ == "__main__":
    main()
