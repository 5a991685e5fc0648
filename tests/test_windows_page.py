"""The page on Windows names what the tests do: the files that try it, the media of the kit, the clauses left out, and every skip."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs/reference/windows.md").read_text("utf-8")
KIT = ast.parse((TESTS / "windows/test_windows_kit.py").read_text("utf-8"))


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(name)]


def assigned(name: str) -> Any:
    (value,) = (node.value for node in KIT.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
    return ast.literal_eval(value)


def test_each_file_that_tries_it_is_there() -> None:
    table = PAGE.partition("## How it was tried")[2].partition("\n## ")[0]
    named = re.findall(r"`(tests/[\w/.]+)`", table)
    assert len(named) == 5
    assert all((TESTS.parent / path).exists() for path in named)


def test_each_medium_and_each_clause_that_is_left_out_is_on_the_page() -> None:
    media = {ast.unparse(call.func).removeprefix("media.") for call in calls(KIT, "media.")}
    shown = PAGE.partition("## What was tested, item by item")[2].partition("\n## ")[0]
    assert {name for name in media if name not in shown} == set()
    assert {clause for clause in assigned("OF_A_RESET") if f"`{clause}`" not in shown} == set()


def test_each_test_that_wine_skips_is_on_the_page() -> None:
    reasons = []
    for path in (TESTS / "windows").glob("test_*.py"):
        reasons += [ast.unparse(call.keywords[0].value) for call in calls(ast.parse(path.read_text("utf-8")), "pytest.mark.skipif")]
    assert len(reasons) == 1
    assert "| CTRL_BREAK | no: wine 8 refuses it for a console without a window |" in PAGE


def test_the_tests_of_launching_that_fail_under_wine_add_up() -> None:
    found = re.search(r"Under wine, ([\d,]+) of ([\d,]+) pass. The other (\d+):", PAGE)
    assert found is not None
    passed, all_of_them, others = found.groups()
    table = PAGE.partition("| tests | reason |\n")[2].partition("\n\n")[0]
    assert sum(map(int, re.findall(r"^\| (\d+) ", table, re.MULTILINE))) == int(others)
    assert int(passed.replace(",", "")) + int(others) == int(all_of_them.replace(",", ""))
