"""Whichever system call fails, in whatever part of a session: the error is a typed one, and nothing is left.

Here some of the calls fail. `nox -s faults` lets every call fail, and then those of the system itself (`strace_faults.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOST = Path(__file__).parent / "fault_host.py"
PATIENCE = 600.0  # seconds; a hang fails instead of hanging the suite
STEP = int(os.environ.get("FAULT_STEP", "13"))
WORKLOADS = ["a_session", "a_stubborn_child", "a_session_with_files", "a_tape", "a_conversation"]


def runs_of(said: str) -> list[list[tuple[str, Any]]]:
    """What the host said, by run."""
    runs: list[list[tuple[str, Any]]] = []
    for name, value in map(json.loads, said.splitlines()):
        if name == "at":
            runs.append([])
        runs[-1].append((name, value))
    return runs


def is_wrong(name: str, value: Any) -> bool:
    """True for what a run must not say. A failure may be logged once it can be told to nobody."""
    return "UNTYPED" in f"{name} {value}" or name in ("left", "unraisable", "thread")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each run is a fork")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_call_that_fails_is_a_typed_error_and_leaves_nothing(workload: str, backend: str, tmp_path: Path) -> None:
    first = 1 + (WORKLOADS.index(workload) + (backend == "trio")) % STEP
    command = [sys.executable, HOST, backend, workload, str(first), str(STEP)]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    runs = runs_of(done.stdout)
    assert runs[-1][-1] == ("end", 1), "it ends when there are no more calls"
    assert len(runs) > 5 / STEP
    assert [run for run in runs if any(is_wrong(*step) for step in run)] == []
