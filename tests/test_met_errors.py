"""The page of the errors that users meet most shows what is printed: each error is provoked as the page says, on both event loops."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from loading import DOCS, load_generator

REFERENCE = DOCS / "reference"


generator = load_generator("met_errors")
provocations = sys.modules["met_errors"]  # the module that the generator uses
PAGE = generator.PAGE.read_text("utf-8")
CASES = {case.title: case for case in generator.CASES}
WITHOUT_LOOP = {case.title: case for case in provocations.COMMANDS if not case.loop}
COMMANDS = [case.title for case in provocations.COMMANDS]
WITH_LOOP = {title: case for title, case in CASES.items() if title not in WITHOUT_LOOP}


@pytest.fixture
def world() -> Iterator[Any]:
    with provocations.World() as made:
        yield made


ONCE = pytest.mark.one_loop  # a command is a process


@pytest.mark.parametrize("title", [pytest.param(title, marks=ONCE if title in COMMANDS else ()) for title in WITH_LOOP])
async def test_an_error_is_printed_on_both_loops_as_the_page_shows_it(title: str, world: Any, anyio_backend_name: str) -> None:
    case = WITH_LOOP[title]
    printed = await provocations.provoke(case, world, backend=anyio_backend_name)
    assert generator.entry(case, printed) in PAGE, "run: python docs/generate_met_errors.py"


@pytest.mark.parametrize("title", WITHOUT_LOOP)
def test_a_mistake_on_the_command_line_is_printed_as_the_page_shows_it(title: str, world: Any) -> None:
    case = WITHOUT_LOOP[title]
    printed = provocations.run(case, world, "", {})
    assert generator.entry(case, printed) in PAGE, "run: python docs/generate_met_errors.py"


def test_the_page_has_sixty_errors_and_nothing_else() -> None:
    assert len(CASES) == len(generator.CASES) == 60
    shown = dict(re.findall(r"^### (.*)\n(?:.*\n)*?```text\n((?:.*\n)*?)```$", PAGE, re.MULTILINE))
    assert list(shown) == list(CASES)
    assert generator.render(shown) == PAGE


@pytest.mark.parametrize("title", CASES)
def test_an_entry_has_the_code_under_which_it_is_listed(title: str) -> None:
    case = CASES[title]
    said = PAGE.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
    assert f"[{case.code}]" in said or f"\ncode='{case.code}', " in said


@pytest.mark.parametrize("title", COMMANDS)
def test_a_command_ends_with_what_to_do(title: str) -> None:
    """Below the line with the code there is a line that says what to do, or the line itself says it after a colon."""
    said = PAGE.partition(f"\n### {title}\n")[2].partition("```text\n")[2].partition("\n```")[0].splitlines()
    number, message = next((number, line) for number, line in enumerate(said) if line.startswith("claude-transport: "))
    assert said[number + 1].startswith("  ") or ";" in message or ": run " in message


@pytest.mark.parametrize("page", ["errors-and-codes.md", "codes.md"])
def test_every_code_of_an_entry_is_linked_from_the_pages_of_codes(page: str) -> None:
    text = (REFERENCE / page).read_text("utf-8")
    for code, titles in generator.index().items():
        assert f"(met-errors.md#{generator.anchor(titles[0])})" in text, code


def test_no_secret_of_a_provocation_is_on_the_page() -> None:
    assert provocations.KEY["ANTHROPIC_API_KEY"] not in PAGE
    assert "a-token-of-her-own" not in PAGE
