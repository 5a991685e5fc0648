"""The reference page of control requests is what the classes say, and it says everything."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport.client.controls import Asking, Controls
from claude_transport.protocol import answers
from claude_transport.protocol.hooks import HookEvent

METHODS = [name for name, member in inspect.getmembers(Controls, inspect.iscoroutinefunction) if not name.startswith("_")]


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("controls")


def test_the_committed_page_is_what_the_generator_writes(generator: Any) -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "run: python docs/generate_controls.py"


def test_main_writes_the_page(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "page.md")
    generator.main()
    assert (tmp_path / "page.md").read_text("utf-8") == generator.render()


@pytest.mark.parametrize("name", [name for name in METHODS if name not in vars(Asking)])
def test_every_method_has_a_row_with_its_wire_name(generator: Any, name: str) -> None:
    (row,) = [line for line in generator.render().splitlines() if line.startswith(f"| `{name}(")]
    assert f"| `{generator.subtype_of(getattr(Controls, name))}` |" in row


def test_every_answer_and_every_event_has_a_row(generator: Any) -> None:
    page = generator.render()
    wanted = [*(name for name, value in vars(answers).items() if is_answer(value)), *HookEvent]
    assert [name for name in wanted if f"\n| `{name}` |" not in page] == []


def is_answer(value: object) -> bool:
    """Tell whether `value` is an answer or a part of one, defined in `answers`."""
    return getattr(value, "__module__", "") == answers.__name__ and value is not answers.Answer


def test_every_row_of_a_table_has_the_columns_of_its_head(generator: Any) -> None:
    blocks = [[line for line in block.splitlines() if line.startswith("|")] for block in generator.render().split("\n\n")]
    for rows in filter(None, blocks):
        assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_a_method_that_asks_for_nothing_is_an_error(generator: Any) -> None:
    with pytest.raises(ValueError, match="pairs asks for nothing"):
        generator.subtype_of(pairs)


def pairs() -> list[str]:
    return []
