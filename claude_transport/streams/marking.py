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
from pathlib import Path

__all__ = ["MARK_VARIABLE", "find_marked", "kill_marked", "new_mark"]

MARK_VARIABLE = "CLAUDE_TRANSPORT_CHILD"


def new_mark() -> str:
    """A mark nobody else has."""
    return os.urandom(16).hex()


def find_marked(mark: str, *, proc: str = "/proc", platform: str = sys.platform) -> list[int]:
    """Process ids of everything that carries `mark`; empty where environments cannot be read."""
    if not platform.startswith("linux"):
        return []
    entry = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(proc) as processes:
        for process in processes:
            # other users' processes cannot be read, and processes end while they are looked at: neither is ours to signal
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    if entry in Path(process.path, "environ").read_bytes().split(b"\0"):
                        found.append(int(process.name))
    return found


def kill_marked(mark: str) -> int:
    """Kill everything that carries `mark`; how many there were. For when the one that could have ended them is gone."""
    killed = 0
    for _ in range(10):  # something may be born while we look; each round leaves less to be born from
        pids = find_marked(mark)
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed
