"""The how-to "From your own `claude -p`" reads the tables of the options backwards, and leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from claude_transport.launch.argv import FLAGS, RESERVED_FLAGS
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import PAYLOADS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-claude-p.md"
SECTION = PAGE.read_text("utf-8").partition("## The flags")[2].partition("\n## ")[0]
ROWS = [line.strip("| ").split(" | ", 1) for line in SECTION.splitlines() if line.startswith("| `-")]
BY_FLAG = {flag: said for flags, said in ROWS for flag in re.findall(r"`(-[^`]+)`", flags)}
OPTIONS = sorted({(row.flag, row.option) for row in (*FLAGS, *PAYLOADS) if row.flag})


@pytest.mark.parametrize(("flag", "option"), OPTIONS)
def test_a_flag_leads_to_its_option(flag: str, option: str) -> None:
    assert f"`{option}=" in BY_FLAG[flag]


def test_each_option_of_a_row_exists() -> None:
    named = {name for said in BY_FLAG.values() for name in re.findall(r"`(\w+)=", said)}
    assert named - set(ClaudeOptions.__struct_fields__) == {"system"}, "`system` is an argument of complete()"


@pytest.mark.parametrize("flag", [name for name in RESERVED_FLAGS if name not in ("sdk-url", "init-only")])
def test_a_flag_that_options_may_not_name_is_explained(flag: str) -> None:
    assert f"`--{flag}`" in SECTION


def test_no_flag_has_two_rows() -> None:
    flags = [flag for flags, _ in ROWS for flag in re.findall(r"`(-[^`]+)`", flags)]
    assert sorted(set(flags)) == sorted(flags)


def test_a_name_of_a_flag_is_more_than_dashes() -> None:
    named = [flag for flags, _ in ROWS for flag in re.findall(r"`([^`]*)`", flags)]
    assert [flag for flag in named if not re.fullmatch(r"-[a-z]|--[a-zA-Z][\w-]+", flag)] == []


def test_the_readme_links_the_page_first() -> None:
    readme = (PAGE.parents[2] / "README.md").read_text("utf-8")
    first = re.search(r"(?<!!)\[[^\]]+\]\(([^)]+)\)", readme)
    assert first is not None
    assert first[1] == "docs/how-to/from-claude-p.md"
