"""The picture and the table of a prompt's states are what the transition table says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from loading import load_generator

from claude_transport.protocol.conversation import TURN_TRANSITIONS, TurnState

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("conversation")


def test_the_committed_picture_and_table_are_what_the_generator_writes(generator: Any) -> None:
    assert generator.PICTURE.read_text("utf-8") == generator.render_picture(), "run: python docs/generate_conversation.py"
    assert generator.TABLE.read_text("utf-8") == generator.render_table(), "run: python docs/generate_conversation.py"


def test_main_writes_both(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PICTURE", tmp_path / "picture.svg")
    monkeypatch.setattr(generator, "TABLE", tmp_path / "table.md")
    generator.main()
    assert (tmp_path / "picture.svg").read_text("utf-8") == generator.render_picture()
    assert (tmp_path / "table.md").read_text("utf-8") == generator.render_table()


def test_the_picture_has_every_state_once_and_an_arrow_for_every_step(generator: Any) -> None:
    picture = ET.fromstring(generator.render_picture())
    texts = [(text.get("class"), text.text) for text in picture.iter(f"{SVG}text")]
    assert sorted(str(text) for kind, text in texts if kind == "state") == sorted(TurnState)
    events = [event for kind, text in texts if kind == "event" for event in str(text).split(", ")]
    assert sorted(events) == sorted(event for _, event in TURN_TRANSITIONS)
    arrows = [path for path in picture.iter(f"{SVG}path") if path.get("class") == "arrow"]
    assert len(arrows) == len({(before, after) for (before, _), after in TURN_TRANSITIONS.items()})


def test_no_two_words_of_the_picture_stand_in_the_same_place(generator: Any) -> None:
    words = re.findall(r'<text class="(\w+)" x="([\d.]+)" y="([\d.]+)">([^<]*)<', generator.render_picture())
    boxes = [(float(x), float(y), (9 if kind == "state" else 7) * len(word)) for kind, x, y, word in words]  # generous widths, in px
    for index, (x, y, width) in enumerate(boxes):
        for other_x, other_y, other_width in boxes[index + 1 :]:
            assert abs(y - other_y) >= 14 or abs(x - other_x) >= (width + other_width) / 2


def test_the_table_has_a_row_for_every_state_with_a_future(generator: Any) -> None:
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|(.*)\|$", generator.render_table(), re.MULTILINE)
    steps = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    assert set(steps) == {before for before, _ in TURN_TRANSITIONS}
    for before, cells in steps.items():
        expected = [after for (state, _), after in TURN_TRANSITIONS.items() if state == before]
        assert sorted(cell for cell in cells if cell != "-") == sorted(expected)
