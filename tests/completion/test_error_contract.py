"""One contract for every class of error: the page, the attributes of the class, the retry ladder and `complete()` say the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from call_errors import Waits

import claude_transport as ct
from claude_transport import errors

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ERRORS_PAGE, CODES_PAGE = ((REFERENCE / name).read_text("utf-8") for name in ("errors-and-codes.md", "codes.md"))
LADDERS = {"no": [], "`transport`, 1": [1], "`connection`, 1": [1], "`rate_limit`, 3": [1, 2, 4], "`overloaded`, 3": [1, 2, 4]}
"""What the column of retries says, and the seconds (give or take a quarter) that `complete()` waits before each further attempt."""


def rows_of(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table under this heading: the first cell without its backticks, and the other cells."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in cells}


EVERY_CLASS = rows_of(ERRORS_PAGE, "Every class")
PROGRAM = rows_of(ERRORS_PAGE, "What happens to the program")


class Failing(ct.MockTransport):
    """A transport whose `connect()` raises `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def connect(self) -> None:
        raise self._error


def told_as(name: str) -> tuple[str, str]:
    """The class that `complete()` raises for this one, and the retries before, as the page says."""
    again = EVERY_CLASS[name][3]
    renamed = re.fullmatch(r"as `(\w+)`", again)
    return (renamed[1], EVERY_CLASS[renamed[1]][3]) if renamed else (name, again)


def test_the_page_has_a_row_for_every_class_and_no_other() -> None:
    assert list(EVERY_CLASS) == [name for name in errors.__all__ if not name.endswith("Warning")]


@pytest.mark.parametrize("name", [name for name in errors.__all__ if not name.endswith("Warning")])
def test_the_attributes_of_a_class_are_those_on_both_pages(name: str) -> None:
    cls = getattr(errors, name)
    code, category, retryable = (cell.strip("`") for cell in EVERY_CLASS[name][:3])
    for one in (cls, cls("words")):
        assert (one.code, one.category, one.retryable) == (code, category, retryable == "yes")
    assert f"\n| `{code}` | `{name}` | `{category}` | {retryable} | " in CODES_PAGE


@pytest.mark.parametrize("name", [name for name in errors.__all__ if not name.endswith("Warning")])
async def test_complete_raises_and_retries_every_class_as_the_page_says(name: str, waits: Waits) -> None:
    raised, again = told_as(name)
    made: list[Failing] = []

    def fail(_options: ct.ClaudeOptions) -> Failing:
        made.append(Failing(getattr(errors, name)("words")))
        return made[-1]

    with anyio.fail_after(60), pytest.raises(ct.ClaudeTransportError) as caught:
        await ct.complete("Hi", transport="cli", make_transport=fail, sleep=waits)
    error, there = caught.value, ct.completion.partial_completion(caught.value)
    assert type(error).__name__ == raised
    code, category, retryable = (cell.strip("`") for cell in EVERY_CLASS[raised][:3])
    assert (error.code, error.category, error.retryable) == (code, category, retryable == "yes")
    assert waits.follow(LADDERS[again]), (waits.seconds, again)
    assert there is not None
    assert (there.attempts, there.category, len(made)) == (1 + len(LADDERS[again]), category, 1 + len(LADDERS[again]))


@pytest.mark.parametrize("name", PROGRAM)
def test_the_table_of_the_program_agrees_with_the_table_of_classes(name: str) -> None:
    code, category, again = PROGRAM[name][:3]
    assert [code, category] == EVERY_CLASS[name][:2]
    assert again == EVERY_CLASS[name][3]


async def test_a_binary_that_is_not_there_is_one_attempt_with_the_attributes_of_its_class(
    cli_options: Callable[..., ct.ClaudeOptions], waits: Waits
) -> None:
    with pytest.raises(ct.CLINotFoundError) as caught:
        await ct.complete("Hi", transport="cli", options=cli_options(cli_path="/nowhere/claude"), sleep=waits)
    error, there, cls = caught.value, ct.completion.partial_completion(caught.value), ct.CLINotFoundError
    assert (error.code, error.category, error.retryable) == (cls.code, cls.category, cls.retryable) == (cls.code, "transport", False)
    assert str(error) == (
        "Claude CLI not found. Install Claude Code, or name its program with cli_path or CLAUDE_CLI_PATH. "
        f"Reason: {error.reason} (transport=cli, category=transport)"
    )
    assert error.reason.startswith("cli_path names '/nowhere/claude', which does not exist.")
    assert "/nowhere/claude" in error.searched[0]
    assert waits.seconds == []
    assert there is not None
    assert (there.attempts, there.category, there.text) == (1, "transport", "")
    assert 0 < there.duration < 60
