"""The benchmarks of warm sessions and of what an agent takes run on the real CLI, with very little work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "arguments", "option"), [("bench_pool.py", ("1",), "--cli"), ("bench_claude.py", ("--sessions", "1"), "--claude")]
)
def test_a_benchmark_of_the_agent_runs_to_its_end(
    script: str, arguments: tuple[str, ...], option: str, claude_cli: str, tmp_path: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments, option, claude_cli],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert any(character.isdigit() for character in ran.stdout)
