"""The table of refusals on the page of the link protocol has the gateway's reasons and the client's errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport.serving.turned_away import REASONS

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = Path(__file__).parents[2] / "claude_transport"


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("refusals")


@pytest.fixture(scope="module")
def page(generator: Any) -> str:
    return str(generator.PAGE.read_text("utf-8"))


def test_the_committed_table_is_what_the_gateway_says(generator: Any, page: str) -> None:
    assert generator.render(page) == page, "run: python docs/generate_refusals.py"


def test_main_repairs_the_table_and_leaves_the_rest(generator: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(page.replace("| `draining` | 503 |", "| `draining` | 200 |"), "utf-8")
    monkeypatch.setattr(generator, "PAGE", copy)
    generator.main()
    assert copy.read_text("utf-8") == page


def test_a_page_without_a_place_for_the_table_is_an_error(generator: Any, page: str) -> None:
    with pytest.raises(ValueError, match="no place"):
        generator.render(page.replace("<!-- end -->", ""))


def test_every_reason_that_the_gateway_gives_is_in_the_table(page: str) -> None:
    sources = "".join(path.read_text("utf-8") for room in ("gateway", "serving") for path in sorted((PACKAGE / room).glob("*.py")))
    given = set(re.findall(r"TurnedAway\(\"(\w+)\"", sources))
    assert given == set(REASONS)
    assert [code for code in given if f"\n| `{code}` | {REASONS[code][0]} |" not in page] == []


def test_the_how_to_names_every_reason_too() -> None:
    table = (DOCS / "how-to" / "serve.md").read_text("utf-8").partition("| code | meaning |")[2].partition("\n\n")[0]
    named = [code for row in table.splitlines() for code in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert sorted(named) == sorted(REASONS)
