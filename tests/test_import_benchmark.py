"""What `benchmarks/bench_import.py` makes of what it measures; the measuring itself is for a quiet machine."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

REPORT = """import time: self [us] | cumulative | imported package
import time:       367 |       7200 |   claude_transport.errors
import time:       250 |       8250 | claude_transport
a line of something else
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module: it is a script, not a package that is installed."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("bench_import")


def summary(**medians: float) -> dict[str, dict[str, float]]:
    return {name.replace("_", " "): {"median": median} for name, median in medians.items()}


def test_a_report_of_the_interpreter_is_read_in_milliseconds(bench: Any) -> None:
    assert bench.parse_importtime(REPORT) == {"claude_transport.errors": (0.367, 7.2), "claude_transport": (0.25, 8.25)}


@pytest.mark.parametrize(
    ("official", "cumulative", "broken"),
    [(700.0, 8.0, []), (50.0, 8.0, ["import: the official SDK takes 5.0 times"]), (700.0, 81.0, ["takes 81.0 ms, more than 80 ms"])],
)
def test_a_promise_that_is_not_kept_is_said_with_its_figure(bench: Any, official: float, cumulative: float, broken: list[str]) -> None:
    measured = {**summary(**{"import": 10.0, "conversation": 80.0}), "importtime, cumulative": {"median": cumulative}}
    found: list[str] = bench.broken_promises({**measured, "import, official": {"median": official}})
    assert len(found) == len(broken)
    assert all(part in sentence for part, sentence in zip(broken, found, strict=True))


def test_without_the_official_sdk_only_our_own_time_is_checked(bench: Any) -> None:
    assert bench.broken_promises({**summary(**{"import": 10.0, "conversation": 80.0}), "importtime, cumulative": {"median": 8.0}}) == []
