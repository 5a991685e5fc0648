"""The how-to "See what is on a tape" shows a tape that is made again here, and what the program says of it today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from loading import load_generator

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/generate_inspected.py, as a module."""
    return load_generator("inspected")


def test_the_tape_of_the_page_is_the_one_that_the_command_makes(generator: ModuleType) -> None:
    assert (DOCS / "examples" / "checkout.ndjson").read_bytes() == generator.make_tape().encode(), "run python docs/generate_inspected.py"


def test_the_page_shows_what_the_program_prints_of_that_tape(generator: ModuleType) -> None:
    assert (DOCS / "examples" / "checkout_inspected.txt").read_text("utf-8") == generator.sample(), "run python docs/generate_inspected.py"
    assert "examples/checkout_inspected.txt" in (DOCS / "how-to" / "inspect-a-tape.md").read_text("utf-8")


def test_the_command_that_the_page_names_measures_a_row_for_each_kind_of_tape() -> None:
    command = [sys.executable, str(DOCS.parent / "benchmarks" / "bench_inspect.py"), "--megabytes", "1", "--no-browser"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows = ran.stdout.splitlines()
    assert rows[0] in (DOCS / "how-to" / "inspect-a-tape.md").read_text("utf-8")
    assert [row.split(",")[0] for row in rows[2:]] == ["| 1 MB of short messages", "| 1 MB of large tool results"]
