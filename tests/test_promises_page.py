"""Every promise of the README stands on the page of promises, beside tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from proof_map import TESTS, find_test

ROOT = TESTS.parent
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def rows_below(path: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = path.read_text("utf-8").partition(heading)[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


def sentences(cell: str) -> list[str]:
    return [sentence.rstrip(".") + "." for sentence in re.split(r"(?<=\.) ", LINK.sub(r"\1", cell))]


PROMISED = [sentence for row in rows_below(ROOT / "README.md", "## What it promises") for sentence in sentences(row[1])]
SHOWN = {row[0]: re.findall(r"`([^`]+)`", row[1]) for row in rows_below(ROOT / "docs/reference/promises.md", "# What is promised")}


def test_each_promise_of_the_readme_is_on_the_page_and_no_other() -> None:
    assert sorted(SHOWN) == sorted(set(PROMISED))


@pytest.mark.parametrize("promise", SHOWN)
def test_each_promise_names_tests_that_exist(promise: str) -> None:
    assert SHOWN[promise]
    assert [test for test in SHOWN[promise] if not exists(test)] == []


def exists(test: str) -> bool:
    return find_test(test) is not None if "::" in test else (TESTS / test).is_file()
