"""The processes of macOS, which has no `/proc`: which children a process has, and whether a process is still the one that was seen.

The functions are those of `libproc`, called through `ctypes`. A process is identified by the time of its start, in microseconds.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

_BASIC_INFO: Final = 3  # PROC_PIDTBSDINFO
_BASIC: Final = struct.Struct("=2I112x2Q")
"""Of `struct proc_bsdinfo`: flags, status, and seconds and microseconds of the start."""

_ZOMBIE: Final = 5
_MOST_CHILDREN: Final = 1_000
"""Children of one process that are listed."""

MOST_DESCENDANTS: Final = 1_000
"""Descendants that are looked up through their parents. A fork bomb must not keep its host from closing."""


class Tree:
    """The processes of the machine, by their parents.

    Args:
        children: returns the ids of the children of a process.
        started: returns when a process was started; None when it has ended.
    """

    def __init__(
        self, *, children: Callable[[int], Iterable[int]] | None = None, started: Callable[[int], int | None] | None = None
    ) -> None:
        self._children = children or list_children
        self.started: Callable[[int], int | None] = started or read_start

    def descendants(self, pid: int) -> dict[int, int]:
        """Return the descendants that lead back to `pid` through living parents: process ids, with their starts."""
        found: dict[int, int] = {}
        parents = [pid]
        while parents and len(found) < MOST_DESCENDANTS:
            for child in self._children(parents.pop()):
                started = self.started(child)
                if started is not None and child not in found and child != pid:
                    found[child] = started
                    parents.append(child)
        return found

    def with_descendants(self, known: dict[int, int]) -> dict[int, int]:
        """Return those of the `known` processes that still run, and what they have started meanwhile."""
        left = {pid: started for pid, started in known.items() if self.started(pid) == started}
        for pid in tuple(left):
            left |= self.descendants(pid)
        return left


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

    return ctypes.CDLL("/usr/lib/libproc.dylib", use_errno=True)
