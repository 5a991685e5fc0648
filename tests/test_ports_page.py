"""The page of the ports has a row for each package, and our files are as long as it says. `nox -s ports` holds the counts of tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PORTS = tomllib.loads((TESTS / "ports" / "ports.toml").read_text("utf-8"))
SUITES = tomllib.loads((TESTS / "ports" / "suites.toml").read_text("utf-8"))
PAGE = (TESTS.parent / "docs" / "reference" / "ports.md").read_text("utf-8")

EARLIER = {"llm-claude-cli": 219, "clauditor-eval": 324, "geny-executor": 45, "claude-wrapper": 132}
"""Lines of the ports that were made in the first place, to find out what the library lacks."""


def test_the_page_has_one_row_for_each_package() -> None:
    rows = [line.split("|")[1].split()[0] for line in PAGE.splitlines() if line.startswith("| ") and line.split("|")[2].strip().isdigit()]
    assert sorted(rows) == sorted([*PORTS, *SUITES])


@pytest.mark.parametrize("name", PORTS)
def test_a_port_is_as_long_as_the_page_says_and_is_fetched_by_its_hash(name: str) -> None:
    port = PORTS[name]
    lines = sum(len((TESTS / "ports" / ours).read_text("utf-8").splitlines()) for ours in port["files"])
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} {port['version']} |")]
    assert int(row.split("|")[3]) == lines < int(row.split("|")[2])
    assert len(port["sha256"]) == 64


@pytest.mark.parametrize(("name", "lines"), EARLIER.items())
def test_a_port_is_not_longer_than_the_one_before_the_library_was_made_for_it(name: str, lines: int) -> None:
    assert sum(len((TESTS / "ports" / ours).read_text("utf-8").splitlines()) for ours in PORTS[name]["files"]) <= lines


@pytest.mark.parametrize("name", PORTS)
def test_each_port_has_a_main_path(name: str) -> None:
    folder = next(iter(PORTS[name]["files"])).partition("/")[0]
    assert (TESTS / "ports" / folder / "main_path.py").is_file()


@pytest.mark.parametrize("name", SUITES)
def test_the_cases_of_a_suite_are_as_long_as_the_page_says_and_all_pass(name: str) -> None:
    suite = SUITES[name]
    lines = len((TESTS / "ports" / suite["cases"]).read_text("utf-8").splitlines())
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} {suite['version']} |")]
    before, after, passed, failed = (int(cell) for cell in row.split("|")[2:6])
    assert (after, failed) == (lines, 0)
    assert (after < before, passed > 0, len(suite["sha256"])) == (True, True, 64)
