"""The benchmarks run, with very little work: a script that a change has broken is seen. Measuring is for a quiet machine.

Those that need a real agent, or that write a page, have tests of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

SCRIPTS = {
    "bench_fleet.py": ("--sessions", "3", "--batches", "2"),
    "bench_fleet_scale.py": ("--sessions", "20", "--workers", "2", "--seconds", "5"),
    "bench_inspect.py": ("--megabytes", "1", "--no-browser"),
    "bench_lines.py": ("--rounds", "1", "--scale", "0.001"),
    "bench_link.py": ("--lines", "500", "--rounds", "1"),
    "bench_network.py": ("--quick",),
    "bench_observers.py": ("--quick",),
    "bench_step.py": ("--rounds", "1", "--count", "300"),
    "bench_tee.py": ("--lines", "20", "--megabytes", "1", "--rounds", "1"),
    "bench_tricks.py": ("--rounds", "0", "--scale", "0.01", "--sessions", "3"),
    "bench_wrappers.py": ("--messages", "200", "--rounds", "1"),
}
ELSEWHERE = {
    "bench_claude.py": "tests/e2e/test_agent_benchmarks_run.py",
    "bench_close.py": "tests/test_close_benchmark.py",
    "bench_import.py": "tests/test_import_benchmark.py",
    "bench_layers.py": "tests/test_layers_benchmark.py",
    "bench_pool.py": "tests/e2e/test_agent_benchmarks_run.py",
    "bench_spawn.py": "tests/e2e/test_spawn_benchmark_runs.py",
    "bench_speed.py": "tests/test_benchmarks.py",
    "bench_stored.py": "tests/test_stored_benchmark.py",
}


SLOW = {"bench_fleet.py", "bench_lines.py"}
"""Half a minute each, however little they measure."""


@pytest.mark.parametrize("script", [pytest.param(name, marks=[pytest.mark.nightly] if name in SLOW else []) for name in SCRIPTS])
def test_a_benchmark_runs_to_its_end_and_prints_figures(script: str) -> None:
    command = [sys.executable, str(BENCHMARKS / script), *SCRIPTS[script]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert any(character.isdigit() for character in ran.stdout)


def test_each_benchmark_is_run_by_a_test_or_named_here() -> None:
    assert {path.name for path in BENCHMARKS.glob("bench_*.py")} == {*SCRIPTS, *ELSEWHERE}
    assert [path for path in ELSEWHERE.values() if not (BENCHMARKS.parent / path).exists()] == []
