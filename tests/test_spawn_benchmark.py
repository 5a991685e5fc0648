"""The figures and the chart of `benchmarks/bench_spawn.py`; the measuring itself is run for docs/benchmarks/spawn.md."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest
from loading import load_file

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module, which finds its chart beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load_file(BENCHMARKS / "bench_spawn.py", "bench_spawn")


def test_mean_median_percentile_deviation_and_delta_are_what_they_are_called(bench: ModuleType) -> None:
    hundred = [float(n) for n in range(101)]
    summary = {name: bench.summarise(hundred) for name in ("cli, cold", "cli, warm")}
    summary |= {name: bench.summarise([value / 2 for value in hundred]) for name in ("api, cold", "api, warm")}
    row = summary["cli, cold"]
    assert (row["mean"], row["median"], row["p95"]) == (50, 50, 95)
    assert row["stddev"] == pytest.approx(29.3, abs=0.01)
    assert bench.deltas(summary)["cli - api, warm"] == {"mean": 25, "median": 25, "p95": 47.5}


def test_the_chart_is_svg_with_a_dot_for_each_sample_and_a_name_for_each_row(bench: ModuleType) -> None:
    samples = {"cli, cold": [400.0, 410.0, 500.0], "api, warm": [30.0, 31.0, 32.0]}
    drawn = bench.draw(samples, {name: bench.summarise(values) for name, values in samples.items()}, title="A < B")
    picture = ET.fromstring(drawn)
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert tags.count("circle") == 6
    assert {"A < B", "cli, cold", "api, warm", "410 ms", "31 ms"} <= set(texts)


def test_fewer_than_ten_runs_are_refused() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / "bench_spawn.py"), "--runs", "9"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert "fewer than 10" in ran.stderr


def test_the_page_shows_the_chart_and_every_row_of_the_table() -> None:
    page = (BENCHMARKS.parent / "docs" / "benchmarks" / "spawn.md").read_text("utf-8")
    assert "spawn.svg" in page
    for row in ("cli, cold", "api, cold", "cli, warm", "api, warm", "session, warm", "cli - api, cold", "cli - api, warm"):
        assert f"\n{row}  " in page
