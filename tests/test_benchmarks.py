"""The benchmarks run: very little of each, so that a change that breaks one is seen before somebody needs its figures."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk")

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "benchmarks" / "bench_speed.py"
NAMES = ("reading", "carrying", "conversing", "sessions", "importing", "memory", "curve")


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Gives the modules of the benchmarks by name: they are scripts, not a package that is installed."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return lambda name: importlib.import_module(f"speed.{name}")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_every_benchmark_runs_and_measures_something(backend: str) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--backend", backend]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    found: dict[str, Any] = json.loads(ran.stdout)["backends"][backend]
    assert tuple(found) == NAMES
    for name in NAMES[:5]:
        assert all(ratio["median"] > 0 for table in found[name].values() for ratio in table["ratios"].values())
    assert all(row["samples_mb"] for row in found["memory"].values())
    assert all(row["ours"]["median"] > 0 for row in found["curve"].values())


def test_every_target_is_about_a_figure_of_the_published_report_and_has_a_floor_below_it(speed: Callable[[str], Any]) -> None:
    report = json.loads((ROOT / "docs" / "benchmarks" / "speed.json").read_text("utf-8"))
    for backend in ("asyncio", "trio"):
        for target in speed("targets").TARGETS:
            assert target.figure(report["backends"][backend]) > 0
            assert target.floor < target.least


def test_the_page_and_the_chart_are_made_of_the_published_report(tmp_path: Path, speed: Callable[[str], Any]) -> None:
    docs = ROOT / "docs" / "benchmarks"
    report = json.loads((docs / "speed.json").read_text("utf-8"))
    speed("figures").write_figures(report, tmp_path / "figures")
    assert (tmp_path / "figures").read_text("utf-8") == (docs / "speed-figures.inc").read_text("utf-8")
    assert speed("chart").draw(report) == (docs / "speed.svg").read_text("utf-8")
