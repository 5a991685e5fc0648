"""`benchmarks/bench_layers.py` runs and says what each layer costs; the measuring itself is for a quiet machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent / "benchmarks" / "bench_layers.py"

pytestmark = pytest.mark.one_loop


def run(*arguments: str) -> dict[str, Any]:
    ran = subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, Any] = json.loads(ran.stdout[: ran.stdout.rindex("}") + 1])
    return found


def test_it_compares_each_layer_with_the_bare_transport_on_both_loops() -> None:
    found = run("--lines", "300", "--rounds", "2")
    assert list(found) == ["asyncio", "trio"]
    for rows in found.values():
        assert list(rows) == ["on_lines that does nothing", "RecordingTransport", "LoggingTransport with bodies"]
        for row in rows.values():
            assert row.keys() == {"bare_us", "us", "times", "processor_us", "processor_times", "closed_us"}
            assert all(figure > 0 for figure in row.values())


def test_it_measures_the_memory_of_a_session_under_a_stack_of_five() -> None:
    for sizes in run("--memory", "--sessions", "3").values():
        assert 0 < sizes["bare_kib"] < sizes["stack_kib"]
