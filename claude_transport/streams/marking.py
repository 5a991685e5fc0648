"""A mark in the environment of a child, by which everything it started can be found again, wherever it has gone.

The CLI starts each tool shell in a session of its own, and SIGKILL leaves those shells behind with init for a parent: neither
the process group nor the tree of parents leads to them any more (PROTOCOL (d) 12). Environments are inherited, so a random
mark in the child's finds them all. Only Linux lets others read it; elsewhere the process group is all there is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

__all__ = ["MARK_VARIABLE", "find_marked", "kill_marked", "new_mark"]

MARK_VARIABLE = "CLAUDE_TRANSPORT_CHILD"

_PATIENCE = 1.0
"""Seconds in which a process that is just being started is waited for: under load, 0.3 were seen."""

_PAUSE = 0.005
"""Seconds between two looks."""

_KERNEL_THREADS = "2"
"""The parent of all kernel threads, which never have an environment."""


def new_mark() -> str:
    """A mark nobody else has."""
    return os.urandom(16).hex()


def find_marked(mark: str, *, proc: str = "/proc", platform: str = sys.platform) -> list[int]:
    """Process ids of everything that carries `mark`; empty where environments cannot be read."""
    return _look_for(mark, proc, platform)[0]


def kill_marked(mark: str) -> int:
    """Kill everything that carries `mark`; how many there were. For when the one that could have ended them is gone."""
    killed = 0
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            pids, is_sure = _look_for(mark, "/proc", sys.platform)
        except OSError:
            pids, is_sure = [], False  # no file descriptor is free, for one: perhaps there is one a moment later
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if time.monotonic() > deadline or (is_sure and not pids):
            return killed
        time.sleep(_PAUSE)


def _look_for(mark: str, proc: str, platform: str) -> tuple[list[int], bool]:
    """Who carries the mark, and whether nobody can have been missed."""
    if not platform.startswith("linux"):
        return [], True
    entry = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    is_sure = True
    with contextlib.suppress(FileNotFoundError), os.scandir(proc) as processes:
        for process in processes:
            # other users' processes cannot be read, and processes end while they are looked at: neither is ours to signal
            if process.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    environment = Path(process.path, "environ").read_bytes()
                    if entry in environment.split(b"\0"):
                        found.append(int(process.name))
                    elif not environment and _is_being_born(process.path, proc):
                        is_sure = False
    return found, is_sure


def _is_being_born(process: str, proc: str) -> bool:
    """Whether a process without an environment may yet get one: while it is inside `execve`, its environment reads as empty."""
    fields = Path(process, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    state, parent, started = fields[0], fields[1], int(fields[19])  # fields 3, 4 and 22 of proc(5)
    if state in "ZX" or parent == _KERNEL_THREADS:
        return False
    age = float(Path(proc, "uptime").read_text().split()[0]) - started / os.sysconf("SC_CLK_TCK")
    return age < _PATIENCE
