"""The page "Build middleware": each program is one screen, and says what it is for, the rule, and clauses that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest

from claude_transport.testing.conformance import CLAUSES, WRAPPER_CLAUSES

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "how-to" / "build-middleware.md"
SCREENS = {part.partition("\n")[0]: part.partition("\n")[2] for part in PAGE.read_text("utf-8").split("\n## ")[1:]}
INCLUDE = re.compile(
    r"^```\{literalinclude\} (?P<path>\S+)\n:language: \w+\n(?::pyobject: (?P<name>\S+)\n)?(?::dedent: 4\n)?```$", re.MULTILINE
)

SCREEN = 45
WIDTH = 100
"""Characters of prose in a line of the screen."""


def included(path: Path, name: str | None) -> list[str]:
    """The lines of a file, or of a function or class in it."""
    lines = path.read_text("utf-8").splitlines()
    shown_lines = lines
    body: list[ast.stmt] = ast.parse("\n".join(lines)).body if name else []
    for part in name.split(".") if name else ():
        (found,) = (each for each in body if getattr(each, "name", None) == part)
        body, shown_lines = getattr(found, "body", []), lines[found.lineno - 1 : found.end_lineno]
    return shown_lines


def shown(screen: str) -> Iterator[str]:
    """The lines of a screen, as a reader sees them."""
    for match in INCLUDE.finditer(screen):
        yield from included((PAGE.parent / match["path"]).resolve(), match["name"])
    for line in filter(None, INCLUDE.sub("", screen).splitlines()):
        yield from [line] * ceil(len(line) / WIDTH)


@pytest.mark.parametrize("title", SCREENS)
def test_a_program_is_one_screen(title: str) -> None:
    assert len([*shown(SCREENS[title])]) <= SCREEN


@pytest.mark.parametrize("title", SCREENS)
def test_a_program_says_its_rule_and_which_clauses_hold_it(title: str) -> None:
    parts = [part.partition("\n\n")[0] for part in re.split(r"^\*\*(?:The rule|The kit)\.\*\* ", SCREENS[title], flags=re.MULTILINE)]
    assert len(parts) == 3
    named = set(re.findall(r"`((?:connect|write|read|lines|end|close|terms|prompts|own)\.[a-z-]+)`", parts[2]))
    assert named <= {clause.id for clause in CLAUSES + WRAPPER_CLAUSES}
    assert named or title in {"Two named pipes", "A stack of five"}


def test_every_program_is_on_the_page_and_its_table_leads_to_each() -> None:
    programs = {path.name for path in (PROJECT / "examples" / "middleware").glob("*.py")} | {"failover.py"}
    assert {Path(match["path"]).name for match in INCLUDE.finditer(PAGE.read_text("utf-8")) if match["name"]} == programs
    links = re.findall(r"^\| [^|]+ \| \[[^]]+\]\(#([a-z-]+)\) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert links == [title.lower().replace(" ", "-") for title in SCREENS]
