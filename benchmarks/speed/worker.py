"""Run a measurement by name in a process of its own, which prints its result as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["resident_mb", "run_worker"]

_SCRIPT = Path(__file__).parent.parent / "bench_speed.py"


def run_worker(name: str, *, timeout: float = 300, in_group: bool = True, **arguments: Any) -> dict[str, Any]:
    """Run `name` in a fresh interpreter, and return its result. Outside this process's group, everything it started is killed with it."""
    command = [sys.executable, str(_SCRIPT), "--worker", json.dumps({"name": name, **arguments})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=not in_group) as child:
        try:
            output, _ = child.communicate(timeout=timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                child.kill() if in_group else os.killpg(child.pid, signal.SIGKILL)
            raise
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    answer: dict[str, Any] = json.loads(output)
    return answer


def resident_mb() -> float:
    """Return the resident memory of this process in megabytes (Linux; 0 elsewhere)."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
