"""The benchmark of the tee runs, and the tapes of its floods are whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "benchmarks" / "bench_tee.py"


@pytest.mark.skipif(os.name != "posix", reason="the tee is a POSIX program")
def test_the_tee_is_measured_beside_a_direct_claude_and_its_tapes_are_whole() -> None:
    command = [sys.executable, str(BENCH), "--rounds", "1", "--lines", "50", "--megabytes", "2"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)
    assert found["whole_tapes"] == "1 of 1"
    assert {"added_p99_ms", "throughput_ratio", "host_ratio"} < set(found)
