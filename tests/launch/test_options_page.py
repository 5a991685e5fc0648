"""The reference page of options is what the tables say, and it says everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport.launch.argv import FLAGS
from claude_transport.launch.environ import VARIABLES
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import INITIALIZE_FIELDS, PAYLOADS


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("options")


@pytest.fixture(scope="module")
def page(generator: Any) -> str:
    """What the generator writes; it does not change while these tests run."""
    text: str = generator.render()
    return text


def test_the_committed_page_is_what_the_generator_writes(generator: Any) -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "run: python docs/generate_options.py"


def test_main_writes_the_page(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "options.md")
    generator.main()
    assert (tmp_path / "options.md").read_text("utf-8") == generator.render()


@pytest.mark.parametrize("option", ClaudeOptions.__struct_fields__)
def test_every_option_has_a_row_with_its_default_and_a_meaning(generator: Any, page: str, option: str) -> None:
    rows = [line for line in page.splitlines() if line.startswith(f"| `{option}` |")]
    assert rows
    assert all(generator.shown_default(option) in row and len(row.rsplit("|", 2)[1]) > 10 for row in rows)


def test_every_flag_field_and_variable_is_named(generator: Any) -> None:
    page = generator.render()
    wanted = (
        [row.flag for row in FLAGS]
        + [row.flag for row in PAYLOADS]
        + [row.field for row in INITIALIZE_FIELDS]
        + [row.name for row in VARIABLES]
    )
    assert [name for name in wanted if name not in page] == []


def test_every_row_of_a_table_has_the_columns_of_its_head(generator: Any) -> None:
    blocks = [[line for line in block.splitlines() if line.startswith("|")] for block in generator.render().split("\n\n")]
    for rows in filter(None, blocks):
        assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_a_bar_and_a_line_break_stay_inside_their_cell(generator: Any) -> None:
    assert generator.cell("a | b\n  c") == "a \\| b c"
