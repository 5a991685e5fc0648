"""The moving picture of the landing page shows what the program prints today."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from built_docs import DOCS, load

GENERATOR = load("generate_terminal")


def test_the_picture_is_what_the_program_writes_on_a_terminal() -> None:
    assert GENERATOR.PICTURE.read_text("utf-8") == GENERATOR.picture(), "run python docs/generate_terminal.py"


def test_the_picture_is_small_needs_nothing_else_and_says_in_words_what_it_shows() -> None:
    text = GENERATOR.PICTURE.read_text("utf-8")
    root = ET.fromstring(text)
    assert len(text) < 10_000
    assert "href" not in text
    assert "url(" not in text
    assert "@media (prefers-reduced-motion:reduce)" in text
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert GENERATOR.COMMAND in (title.text or "")


def test_the_picture_is_on_the_landing_page_and_in_the_readme() -> None:
    assert "_static/terminal.svg" in (DOCS / "index.md").read_text("utf-8")
    assert "docs/_static/terminal.svg" in (DOCS.parent / "README.md").read_text("utf-8")
