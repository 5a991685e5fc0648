"""The program's page: its tables of options are what the parser says, and what else it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport.app.arguments import COMMANDS


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("program")


@pytest.fixture(scope="module")
def page(generator: Any) -> str:
    return str(generator.PAGE.read_text("utf-8"))


def test_the_committed_page_is_what_the_generator_writes(generator: Any, page: str) -> None:
    assert generator.render(page) == page, "run: python docs/generate_program.py"


def test_main_repairs_a_table_and_leaves_the_rest(generator: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "program.md"
    copy.write_text(page.replace("| `--offline` |", "| `--online` |"), "utf-8")
    monkeypatch.setattr(generator, "PAGE", copy)
    generator.main()
    assert copy.read_text("utf-8") == page


def test_a_command_without_a_table_is_an_error(generator: Any, page: str) -> None:
    with pytest.raises(ValueError, match="'replay'"):
        generator.render(page.replace("options of replay:", "options of no-command:"))


def test_every_command_has_its_section_and_its_table_is_inside_of_it(page: str) -> None:
    sections = re.split(r"^## `(.*)`$", page, flags=re.MULTILINE)
    assert sorted(sections[1::2]) == sorted(str(command.name) for command in COMMANDS)
    for name, text in zip(sections[1::2], sections[2::2], strict=True):
        assert f"<!-- options of {name}:" in text


def test_every_option_that_the_page_names_is_one_of_the_program(page: str) -> None:
    real = {flag for command in COMMANDS for param in command.params for flag in param.opts}
    assert set(re.findall(r"(?<![\w<-])--[a-z][a-z-]+", page)) - real - {"--version"} == set()


def test_every_row_of_a_table_has_the_columns_of_its_head(generator: Any) -> None:
    for command in COMMANDS:
        rows = generator.table(command).splitlines()
        assert {row.replace("\\|", "").count("|") for row in rows} == {3}
        assert all(len(row.split(" | ")[1].strip("| ")) > 3 for row in rows[2:])
