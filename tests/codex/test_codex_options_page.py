"""The reference page of Codex's options is what the tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport.codex import CodexOptions
from claude_transport.codex.environ import NESTING, NOT_SUBSCRIPTION


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("codex_options")


def test_the_committed_page_of_codex_is_what_the_generator_writes(generator: Any) -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "run: python docs/generate_codex_options.py"


def test_main_writes_the_page_of_codex(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "page.md")
    generator.main()
    assert (tmp_path / "page.md").read_text("utf-8") == generator.render()


def test_the_page_names_every_option_and_every_variable(generator: Any) -> None:
    page = generator.render()
    assert [name for name in (*CodexOptions.__struct_fields__, *NESTING, *NOT_SUBSCRIPTION) if f"`{name}`" not in page] == []
