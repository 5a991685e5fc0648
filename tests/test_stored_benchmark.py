"""`benchmarks/bench_stored.py` runs, and measures something: very little of it, so that a change that breaks it is seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk")

BENCH = Path(__file__).parent.parent / "benchmarks" / "bench_stored.py"
ROW = re.compile(r"^ {0,2}(?P<what>\S.*?) {2,}(?P<figures>(?: *[0-9.]+){4})$")


def test_the_benchmark_of_stored_sessions_runs_and_keeps_its_promises_with_a_hundred() -> None:
    ran = subprocess.run([sys.executable, str(BENCH), "--quick", "--check"], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    found = [match for line in ran.stdout.splitlines()[1:] if (match := ROW.match(line))]
    assert len(found) == len(ran.stdout.splitlines()) - 1 == 10
    assert [match["what"] for match in found][:3] == ["100 short sessions", "the latest twenty", "20 long sessions"]
    assert all(float(figure) >= 0 for match in found for figure in match["figures"].split())
