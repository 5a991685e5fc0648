"""The marks of a child, by which everything it started is found again, wherever it has gone.

The CLI starts each tool shell in a session of its own, and SIGKILL leaves those shells behind with init for a parent: neither
the process group nor the tree of parents leads to them any more (docs/reference/protocol.md#signals). So a child carries two marks,
which processes inherit:

* a random value in its environment, from the moment it is started. A program that clears its environment loses it.
* a number that is made of the same value, as the soft limit of a resource (`RLIMIT_RTTIME`). It has no effect: it is years of processor
  time for programs with real-time priority. No change of environment, session, group or parent takes it away. It can be set only after
  the start, so what the child starts in its first millisecond may not have it.

Only Linux lets other processes read them; elsewhere the process group is all there is. This module sets and reads marks. `sweeping` looks
for the processes that carry them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable

__all__ = [
    "MARK_VARIABLE",
    "SPARED_VARIABLE",
    "carried_limit",
    "descendants",
    "environment_marks",
    "find_marked",
    "is_running",
    "is_spared",
    "kill_marked",
    "limit_of",
    "mark_limits",
    "new_mark",
    "read_file",
]

MARK_VARIABLE = "CLAUDE_TRANSPORT_CHILD"
"""The variable that holds the mark of a child."""

SPARED_VARIABLE = "CLAUDE_TRANSPORT_ENDER"
"""A process with this variable ends other processes, such as the guard of another host. It is not killed for the number it inherited."""

_FIRST_LIMIT = 2**61
"""The smallest of our numbers: 73,000 years in microseconds, and still a number that every tool can read."""

_LIMITS = 2**60 - 93
"""How many numbers there are: a prime, so that every bit of the mark counts."""

_MOST_DESCENDANTS = 1_000
"""Descendants that are looked up through their parents. A fork bomb must not keep its host from closing."""

_MOST_BYTES = 8 * 2**20
"""Bytes of a file that are read. Linux allows 6 MiB at most, for arguments and environment together."""

_READ_BYTES = 32 * 2**10


def new_mark() -> str:
    """Make a mark that no other child has."""
    return os.urandom(16).hex()


def read_file(path: str) -> bytes:
    """Return what a file of `/proc` holds. An environment is empty when there is none, and while the process is inside `execve`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(fd, _READ_BYTES)]
        while chunks[-1] and len(chunks) * _READ_BYTES < _MOST_BYTES:
            chunks.append(os.read(fd, _READ_BYTES))
    finally:
        os.close(fd)
    return b"".join(chunks)


def environment_marks(environ: bytes) -> list[str]:
    """Return the marks in an environment: none, or one as a rule."""
    key = f"{MARK_VARIABLE}=".encode()
    if key not in environ:
        return []
    return [entry[len(key) :].decode("ascii", "replace") for entry in environ.split(b"\0") if entry.startswith(key)]


def is_spared(environ: bytes) -> bool:
    """Return True for the environment of a process that ends others."""
    return f"\0{SPARED_VARIABLE}=".encode() in b"\0" + environ


# --------------------------------------------------------------------------------------------------------- the number in a limit


def limit_of(mark: str) -> int:
    """Return the number that stands for `mark` as a resource limit."""
    return _FIRST_LIMIT + int.from_bytes(mark.encode(), "big") % _LIMITS


def carried_limit(pid: int) -> int | None:
    """Return the number of ours that the process carries; None when it has none, or when the system does not say."""
    found = _limits(pid)
    return found[0] if found is not None and found[0] >= _FIRST_LIMIT else None


def mark_limits(pid: int, mark: str) -> bool:
    """Set the number on the process and on what it has started already. Return False where the system or a limit in use forbids it."""
    if not _set_limit(pid, limit_of(mark)):
        return False
    for descendant in descendants(pid):
        _set_limit(descendant, limit_of(mark))
    return True


def _limits(pid: int) -> tuple[int, int] | None:
    try:
        import resource  # not on Windows

        return resource.prlimit(pid, resource.RLIMIT_RTTIME) if sys.platform == "linux" else None
    except (ImportError, AttributeError, OSError, ValueError, OverflowError):
        return None


def _set_limit(pid: int, number: int) -> bool:
    limits = _limits(pid)
    if limits is None or sys.maxsize < number or 0 <= limits[0] < _FIRST_LIMIT:
        return False  # a limit that small was set on purpose
    import resource

    try:
        if sys.platform == "linux":
            resource.prlimit(pid, resource.RLIMIT_RTTIME, (number, limits[1]))
    except (OSError, ValueError):
        return False
    return True


# ------------------------------------------------------------------------------------------------------------- finding them


def descendants(pid: int, *, proc: str = "/proc") -> dict[int, int]:
    """Return the processes that lead back to `pid` through their parents at this moment, with the inodes that identify them in `/proc`."""
    found: dict[int, int] = {}
    parents = [pid]
    while parents and len(found) < _MOST_DESCENDANTS:
        for child in _children(f"{proc}/{parents.pop()}/task"):
            with contextlib.suppress(OSError):
                if child not in found:
                    found[child] = os.stat(f"{proc}/{child}").st_ino  # noqa: PTH116 - a Path costs as much as the call
                    parents.append(child)
    return found


def _children(tasks: str) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError, ValueError):  # it has ended, or this kernel does not list children
        for task in os.listdir(tasks):  # noqa: PTH208 - as above
            children += map(int, read_file(f"{tasks}/{task}/children").split())
    return children


def find_marked(mark: str, *, proc: str = "/proc", platform: str = sys.platform, read: Callable[[str], bytes] = read_file) -> list[int]:
    """Return the process ids of everything that carries `mark`; empty where that cannot be read. Looks at every process of the machine."""
    found: list[int] = []
    if not platform.startswith("linux"):
        return found
    with contextlib.suppress(OSError), os.scandir(proc) as processes:
        for process in processes:
            # other users' processes cannot be read, and processes end while they are looked at: neither is ours to signal
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = read(f"{process.path}/environ")
                    by_limit = carried_limit(int(process.name)) == limit_of(mark) and not is_spared(environ)
                    if (by_limit or mark in environment_marks(environ)) and is_running(process.path):
                        found.append(int(process.name))
    return found


def is_running(process: str) -> bool:
    """Return False for a process that has ended, also when its parent has not collected it."""
    try:
        return read_file(f"{process}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def kill_marked(mark: str) -> int:
    """Kill everything that carries `mark`, and return how many processes that were. For the rare case that no `Sweeper` can work."""
    killed = 0
    for pid in find_marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed
