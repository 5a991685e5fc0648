"""How much memory a process holds, where the system says so in a file."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["read_rss_bytes"]


def read_rss_bytes(pid: int) -> int | None:
    """The resident memory of a process in bytes; None when it is gone, or where there is no `/proc` (anywhere but Linux)."""
    try:
        # statm holds pages: size, resident, shared, ... (proc_pid_statm(5)). Read at every hand-out: a file of thirty bytes in memory.
        resident = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError, AttributeError):
        return None
