"""What `benchmarks/bench_close.py` makes of what it measures; the measuring itself is for a quiet machine."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claude_transport.streams.guard import descendants

ROOT = Path(__file__).parent.parent


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module: it is a script, not a package that is installed."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("bench_close")


def row(others: int, cpu: float, *, listing: float, subject: str = "ours") -> dict[str, Any]:
    return {"others": others, "subject": subject, "cpu": cpu, "listing": listing}


def test_median_and_percentile_are_of_each_clock(bench: Any) -> None:
    summary = bench.summarise([[float(n), float(10 * n)] for n in range(101)])
    assert summary == {"cpu": 50, "cpu p95": 95, "clock": 500, "clock p95": 950}


def test_a_close_that_costs_more_than_is_promised_is_said_with_its_figure(bench: Any) -> None:
    quiet, kept = row(0, 2.0, listing=0.1), row(2_000, 6.0, listing=1.0)
    broken, official = row(5_000, 11.0, listing=4.0), row(5_000, 99.0, listing=4.0, subject="official")
    assert bench.broken_promises([quiet, kept, official]) == []
    assert bench.broken_promises([quiet, kept, broken, official]) == [
        "5000 others: 5.0 ms above a quiet close and one listing, more than 3 ms"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc")
def test_the_other_processes_last_as_long_as_the_block(bench: Any) -> None:
    before = {*descendants(os.getpid())}
    with bench.crowd(3):
        crowd = {*descendants(os.getpid())} - before
        assert len(crowd) == 4
    assert {*descendants(os.getpid())} & crowd == set()


@pytest.mark.one_loop
@pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_measures_a_few_closes(backend: str, tmp_path: Path) -> None:
    report = tmp_path / "close.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_close.py"), "--closes", "2", "--others", "0", "5"]
    ran = subprocess.run([*command, "--backend", backend, "--json", str(report)], capture_output=True, text=True, check=True, timeout=120)
    said = json.loads(report.read_text())
    names = ["0 others, ours", "0 others, official", "5 others, ours", "5 others, official"]
    assert list(said["samples"]) == names
    assert all(len(samples) == 2 and min(map(min, samples)) > 0 for samples in said["samples"].values())
    assert [line.partition("  ")[0] for line in ran.stdout.splitlines()[2:]] == names


def test_the_page_shows_every_row_on_both_event_loops() -> None:
    page = (ROOT / "docs" / "benchmarks" / "close.md").read_text("utf-8")
    for others in (0, 2_000, 5_000):
        for subject in ("ours", "official"):
            assert len(re.findall(rf"^{others} others, {subject}  ", page, re.MULTILINE)) == 2
