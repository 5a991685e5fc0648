"""The page of versions is what the table of features says, and no kind of feature is missing from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport.launch.features import FEATURES, NEWEST_CLI, OLDEST_CLI


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("cli_versions")


def test_the_committed_page_is_what_the_table_says(generator: Any) -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "run: python docs/generate_cli_versions.py"


def test_the_page_has_the_range_and_each_feature(generator: Any) -> None:
    page = generator.render()
    assert f"{OLDEST_CLI} to {NEWEST_CLI}" in page
    assert [feature.name for feature in FEATURES if f"| {feature.name} |" not in page and f"| `{feature.name}` |" not in page] == []


def test_main_writes_the_page(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "cli-versions.md")
    generator.main()
    assert (tmp_path / "cli-versions.md").read_text("utf-8") == generator.render()
