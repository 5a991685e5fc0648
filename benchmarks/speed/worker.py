"""Measurements that need a process of their own, because they are about its memory: run by name, with the answer on stdout as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["resident_mb", "run_worker"]

_SCRIPT = Path(__file__).parent.parent / "bench_speed.py"


def run_worker(name: str, **arguments: Any) -> dict[str, Any]:
    """What `name` answers, from a fresh interpreter."""
    command = [sys.executable, str(_SCRIPT), "--worker", json.dumps({"name": name, **arguments})]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def resident_mb() -> float:
    """Resident memory of this process, in megabytes (Linux; 0 elsewhere)."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
