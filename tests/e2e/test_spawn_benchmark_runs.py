"""`benchmarks/bench_spawn.py` runs to its end on the real CLI and a loopback API: table, chart and figures are complete."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_spawn.py"
PATIENCE = 900.0  # seconds for some forty processes on a machine with much else to do; 170 were measured under load
FEWEST = 10
MEASURED = ("cli, cold", "api, cold", "cli, warm", "api, warm", "session, warm")
DELTAS = ("cli - api, cold", "cli - api, warm")


def test_s1_9_the_spawn_benchmark_measures_every_row_as_often_as_it_was_told(claude_cli: str, tmp_path: Path) -> None:
    home, temporary, figures, chart = (tmp_path / name for name in ("home", "t", "spawn.json", "spawn.svg"))
    home.mkdir()
    temporary.mkdir()
    ran = subprocess.run(
        [sys.executable, str(BENCHMARK), "--runs", str(FEWEST), "--cli-path", claude_cli, "--json", str(figures), "--svg", str(chart)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(temporary)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")

    report = json.loads(figures.read_text("utf-8"))
    samples = report["samples"]
    assert sorted(samples) == sorted(report["summary"]) == sorted(MEASURED)
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(MEASURED, FEWEST)
    assert all(math.isfinite(value) and value > 0 for values in samples.values() for value in values)
    assert (report["unit"], report["machine"]["runs"], report["machine"]["backend"]) == ("ms", FEWEST, "asyncio")
    for name, row in report["summary"].items():
        assert row["mean"] == pytest.approx(statistics.fmean(samples[name]))
        assert row["median"] == pytest.approx(statistics.median(samples[name]))
        assert row["stddev"] == pytest.approx(statistics.stdev(samples[name]))
        assert min(samples[name]) <= row["p95"] <= max(samples[name])
    assert sorted(report["delta"]) == sorted(DELTAS)
    for name, row in report["delta"].items():
        temperature = name.partition(", ")[2]
        more, less = report["summary"][f"cli, {temperature}"], report["summary"][f"api, {temperature}"]
        assert row == pytest.approx({each: more[each] - less[each] for each in ("mean", "median", "p95")})

    machine, head, *rows = ran.stdout.splitlines()
    assert machine.endswith(f"runs {FEWEST}")
    assert head.split() == ["ms", "mean", "median", "p95", "stddev"]
    printed = {row[:18].strip(): [float(number) for number in re.findall(r"-?\d+\.\d", row[18:])] for row in rows}
    told = {**report["summary"], **report["delta"]}
    assert printed == {name: [round(row[each], 1) for each in head.split()[1:] if each in row] for name, row in told.items()}

    picture = ET.fromstring(chart.read_text("utf-8"))
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    assert tags.count("circle") == FEWEST * len(MEASURED)
    assert set(MEASURED) <= {element.text for element in picture.iter() if element.tag.endswith("text")}
    assert list(temporary.iterdir()) == [], "its clean world is gone"
