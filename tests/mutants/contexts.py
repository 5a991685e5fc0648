"""A plug-in of pytest that notes which test runs which line, how long it takes, and whether it fails without any mutant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

SECONDS: dict[str, float] = {}
FAILED: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the test to the measurement, also for what its threads and tasks do; all its cases are one, as they run on both loops."""
    if (measured := coverage.Coverage.current()) is not None:
        measured.switch_context(item.nodeid.partition("[")[0])
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the time of each test."""
    name = report.nodeid.partition("[")[0]
    SECONDS[name] = SECONDS.get(name, 0.0) + report.duration
    if report.failed:
        FAILED.add(name)


def pytest_unconfigure() -> None:
    """Write down what was noted."""
    Path(os.environ["MUTANTS_NOTES"]).write_text(json.dumps({"seconds": SECONDS, "failed": sorted(FAILED)}), "utf-8")
