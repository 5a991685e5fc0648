"""Children for the tests: tiny programs, and what can be asked about processes from outside."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
from polling import a_moment

import claude_transport as ct
from claude_transport.streams.guard import guard

CAT = ["cat"]
SILENT = ["sleep", "1000"]
STUBBORN = ["sh", "-c", 'trap "" TERM HUP INT; echo "{}"; while :; do sleep 1000; done']
"""Says one thing, then ignores the end of its input and every polite signal."""


def python(code: str) -> list[str]:
    """A child that runs this code, with nothing imported that it does not import."""
    return [sys.executable, "-I", "-S", "-c", dedent(code)]


def shell(code: str) -> list[str]:
    """A child that runs this shell code."""
    return ["sh", "-c", code]


def alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    """Returns when the condition is true; looks at it in every round of the event loop."""
    with anyio.fail_after(seconds):
        while not condition():
            await a_moment()


async def gone(pid: int, *, seconds: float = 30) -> None:
    """Returns when the process does not run any more."""
    await until(lambda: not alive(pid), seconds=seconds)


async def read_all(transport: ct.Transport) -> list[dict[str, Any]]:
    """Every message until the end."""
    return [message async for message in transport.read_messages()]


async def read_one(transport: ct.Transport) -> dict[str, Any]:
    """The next message."""
    return await anext(aiter_of(transport))


def aiter_of(transport: ct.Transport) -> AsyncIterator[dict[str, Any]]:
    """A new iterator over the messages."""
    return aiter(transport.read_messages())


def pid_of(transport: ct.Transport) -> int:
    """The child's process id."""
    pid = transport.info.pid
    assert pid is not None
    return pid


def command_line_of(transport: ct.Transport) -> bytes:
    """The child's arguments, as everybody on the machine can see them."""
    path = Path(f"/proc/{pid_of(transport)}/cmdline")
    for _ in range(1_000_000):  # empty while the child is inside execve, which under load is a while
        if line := path.read_bytes():
            return line
    raise AssertionError("the child never got a command line")


def forget(keep: list[ct.SubprocessTransport]) -> None:
    """Drop the last reference."""
    keep.clear()
    gc.collect()


def open_files() -> int:
    """How many file descriptors this process has open, without the pipe and the file of its guard, which stays a moment longer."""
    return len(list(Path("/proc/self/fd").iterdir())) - 2 * (guard.pid is not None)
