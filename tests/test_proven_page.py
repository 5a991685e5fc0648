"""The page that maps each area to the test that shows it on the real CLI names tests that are there, and leaves no module out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from claude_transport.app.doctor import TESTED_VERSION
from claude_transport.protocol.hooks import INPUTS

PROJECT = Path(__file__).parent.parent
E2E = PROJECT / "tests" / "e2e"
PAGE = (PROJECT / "docs" / "reference" / "proven-on-the-real-cli.md").read_text("utf-8")
NAMED = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)

ELSEWHERE = {"test_readme.py"}
"""What of the folder needs the binary's neighbourhood, but does not run it."""


def names_in(module: str) -> set[str]:
    path = E2E / module
    tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
    return {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_")}


def test_every_test_that_is_named_is_there() -> None:
    assert NAMED
    assert [f"{module}::{name}" for module, name in NAMED if name not in names_in(module)] == []


def test_every_module_is_named() -> None:
    named = {module for module, _name in NAMED}
    assert sorted({path.name for path in E2E.glob("test_*.py")} - named - ELSEWHERE) == []


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    told = re.search(
        r"\((\d+\.\d+\.\d+) at the moment\)[\s\S]*?\n(\d+) of the (\d+) events .*\n.*?\n?forgotten\)\. (.*) could not be observed", PAGE
    )
    assert told is not None
    unobserved = re.split(r", | and ", told[4])
    assert (told[1], int(told[2]), int(told[3])) == (TESTED_VERSION, len(INPUTS) - len(unobserved), len(INPUTS))
    assert set(unobserved) <= set(INPUTS)
