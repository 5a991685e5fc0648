"""The pages about the two paths are what the tables say, and they say everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport import errors
from claude_transport.completion.resolution import LAYERS, MATRIX

SEED_CODES = ("binary_not_found", "auth_failed", "timeout", "protocol_error", "permission_denied", "exited")


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("transport_choice")


def test_the_committed_pages_are_what_the_generator_writes(generator: Any) -> None:
    remedy = "run: python docs/generate_transport_choice.py"
    assert generator.CHOICE_PAGE.read_text("utf-8") == generator.render_choice(), remedy
    assert generator.ERRORS_PAGE.read_text("utf-8") == generator.render_errors(), remedy


def test_main_writes_both_pages(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "CHOICE_PAGE", tmp_path / "choice.md")
    monkeypatch.setattr(generator, "ERRORS_PAGE", tmp_path / "errors.md")
    generator.main()
    assert (tmp_path / "choice.md").read_text("utf-8") == generator.render_choice()
    assert (tmp_path / "errors.md").read_text("utf-8") == generator.render_errors()


def test_s1_2_every_row_and_every_layer_is_on_the_page(generator: Any) -> None:
    page = generator.render_choice()
    assert len([line for line in page.splitlines() if line.startswith(("| yes |", "| no |"))]) == len(MATRIX)
    assert all(f"| `{layer}` |" in page for layer in LAYERS)


@pytest.mark.parametrize("code", SEED_CODES)
def test_s4_5_every_code_of_the_seed_is_in_the_table(generator: Any, code: str) -> None:
    assert f"`exec.cli.{code}`" in generator.render_errors()


@pytest.mark.parametrize("name", [name for name in errors.__all__ if not name.endswith("Warning")])
def test_every_class_of_error_has_a_row_with_its_code(generator: Any, name: str) -> None:
    assert f"| `{name}` | `{getattr(errors, name).code}` |" in generator.render_errors()


def test_every_row_of_a_table_has_the_columns_of_its_head(generator: Any) -> None:
    for page in (generator.render_choice(), generator.render_errors()):
        for block in page.split("\n\n"):
            rows = [line for line in block.splitlines() if line.startswith("|")]
            assert len({row.replace("\\|", "").count("|") for row in rows}) <= 1
