"""The reference page of Codex is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from codex_recordings import NAMES, lines_of, object_on

DOCS = Path(__file__).parents[2] / "docs"


def load_generator() -> Any:
    """Load `docs/generate_codex.py`, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("generate_codex", DOCS / "generate_codex.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_generator_writes() -> None:
    generator = load_generator()
    assert generator.PAGE.read_text("utf-8") == generator.render()


def test_every_recorded_method_and_item_is_on_the_page() -> None:
    page = load_generator().render()
    said = [value for name in NAMES if name.startswith("app_") for line in lines_of(name) if (value := object_on(line)) is not None]
    named = {value["method"] for value in said if "method" in value}
    items = {value["params"]["item"]["type"] for value in said if "item" in value.get("params", {})}
    assert {name for name in named | items if f"| `{name}` |" not in page} == set()
