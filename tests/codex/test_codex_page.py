"""The reference page of Codex is what the code says."""

from __future__ import annotations

from pathlib import Path

from codex_recordings import NAMES, lines_of, object_on
from loading import load_generator

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_generator_writes() -> None:
    generator = load_generator("codex")
    assert generator.PAGE.read_text("utf-8") == generator.render()


def test_every_recorded_method_and_item_is_on_the_page() -> None:
    page = load_generator("codex").render()
    said = [value for name in NAMES if name.startswith("app_") for line in lines_of(name) if (value := object_on(line)) is not None]
    named = {value["method"] for value in said if "method" in value}
    items = {value["params"]["item"]["type"] for value in said if "item" in value.get("params", {})}
    assert {name for name in named | items if f"| `{name}` |" not in page} == set()
