"""The processes of macOS, which has no `/proc`: which children a process has, and whether a process is still the one that was seen.

The functions are those of `libproc`, called through `ctypes`. A process is identified by the time of its start, in microseconds. Where
`libproc` cannot be loaded, the program `ps` lists all processes; there, a number stands for the start, which it tells in seconds.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

_BASIC_INFO: Final = 3  # PROC_PIDTBSDINFO
_BASIC: Final = struct.Struct("=2I112x2Q")
"""Of `struct proc_bsdinfo`: flags, status, and seconds and microseconds of the start."""

_ZOMBIE: Final = 5
_MOST_CHILDREN: Final = 1_000
"""Children of one process that are listed."""

MOST_DESCENDANTS: Final = 1_000
"""Descendants that are looked up through their parents. A fork bomb must not keep its host from closing."""


_PS: Final = ("/bin/ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "state=", "-o", "lstart=")
_PS_SECONDS: Final = 2.0
"""Seconds for `ps`, which takes some hundredths of one."""

Children: TypeAlias = Callable[[int], Iterable[int]]
Started: TypeAlias = Callable[[int], "int | None"]


class Tree:
    """The processes of the machine, by their parents.

    Args:
        children: returns the ids of the children of a process.
        started: returns when a process was started; None when it has ended.
    """

    def __init__(self, *, children: Children | None = None, started: Started | None = None) -> None:
        self._functions: tuple[Children, Started] | None = None if children is None or started is None else (children, started)

    def descendants(self, pid: int) -> dict[int, int]:
        """Return the descendants that lead back to `pid` through living parents: process ids, with their starts."""
        return _below(pid, *(self._functions or _functions_here()))

    def with_descendants(self, known: dict[int, int]) -> dict[int, int]:
        """Return those of the `known` processes that still run, and what they have started meanwhile."""
        children, started = self._functions or _functions_here()
        left = {pid: start for pid, start in known.items() if started(pid) == start}
        for pid in tuple(left):
            left |= _below(pid, children, started)
        return left


def _below(pid: int, children: Children, started: Started) -> dict[int, int]:
    found: dict[int, int] = {}
    parents = [pid]
    while parents and len(found) < MOST_DESCENDANTS:
        for child in children(parents.pop()):
            start = started(child)
            if start is not None and child not in found and child != pid:
                found[child] = start
                parents.append(child)
    return found


def _functions_here() -> tuple[Children, Started]:
    """Return the functions of `libproc`; where it cannot be loaded, two that look into one listing of `ps`."""
    try:
        _library()
    except (OSError, AttributeError):
        return functions_of_ps(_run_ps())
    return list_children, read_start


def functions_of_ps(listing: bytes) -> tuple[Children, Started]:
    """Return what `Tree` needs, from lines with process id, parent, state and start. A zombie has ended. Other lines are left out."""
    children: dict[int, list[int]] = {}
    starts: dict[int, int] = {}
    for line in listing.splitlines():
        fields = line.split(None, 3)
        if len(fields) == 4 and fields[0].isdigit() and fields[1].isdigit() and not fields[2].startswith(b"Z"):
            pid = int(fields[0])
            children.setdefault(int(fields[1]), []).append(pid)
            starts[pid] = zlib.crc32(b" ".join(fields[3].split()))
    return lambda pid: children.get(pid, ()), starts.get


def _run_ps() -> bytes:
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # in another language or time zone, the same start would be another text
        env = {"LC_ALL": "C", "TZ": "UTC"}
        done = subprocess.run(_PS, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PS_SECONDS, check=False)
        return done.stdout
    return b""


def list_children(pid: int) -> list[int]:
    """Return the ids of the children of a process; none when it has ended."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        buffer = (ctypes.c_int * _MOST_CHILDREN)()
        count = _library().proc_listchildpids(pid, buffer, ctypes.sizeof(buffer))
        return [child for child in buffer[: max(count, 0)] if child > 0]
    return []


def read_start(pid: int) -> int | None:
    """Return when a process was started, in microseconds since 1970. None when it has ended, collected by its parent or not."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        buffer = ctypes.create_string_buffer(_BASIC.size)
        if _library().proc_pidinfo(pid, _BASIC_INFO, ctypes.c_uint64(0), buffer, len(buffer)) == len(buffer):
            return decode_start(buffer.raw)
    return None


def decode_start(info: bytes) -> int | None:
    """Return the start in a `struct proc_bsdinfo`; None for a process that has ended and was not collected."""
    _, status, seconds, microseconds = _BASIC.unpack(info)
    return None if status == _ZOMBIE else int(seconds) * 1_000_000 + int(microseconds)


@functools.cache
def _library() -> Any:
    import ctypes

    library: Any = ctypes.CDLL("/usr/lib/libproc.dylib", use_errno=True)
    _ = library.proc_listchildpids, library.proc_pidinfo  # without them, `ps` is asked
    return library
