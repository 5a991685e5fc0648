"""The picture of the floors is what the table of floors says."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from loading import load_generator

DOCS = Path(__file__).parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("floors")


@pytest.fixture(scope="module")
def picture(generator: Any) -> str:
    return str(generator.render())


def test_the_committed_picture_is_what_the_table_of_floors_says(generator: Any, picture: str) -> None:
    assert generator.PICTURE.read_text("utf-8") == picture, "run: python docs/generate_floors.py"


def test_main_writes_the_picture_of_floors(generator: Any, picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PICTURE", tmp_path / "floors.svg")
    generator.main()
    assert (tmp_path / "floors.svg").read_text("utf-8") == picture


def test_every_unit_is_drawn_once_and_the_higher_the_higher_its_floor(generator: Any, picture: str) -> None:
    texts = [node for node in ET.fromstring(picture).iter(f"{SVG}text") if node.get("class") == "unit"]
    height = {str(node.text): float(node.attrib["y"]) for node in texts}
    floors = generator.read_floors()
    assert len(texts) == len(height)
    assert set(height) == set(floors) == set(generator.WORDS)
    assert floors["errors"] < floors["client"] < floors["app"]
    assert sorted(floors, key=lambda unit: (floors[unit], unit)) == sorted(floors, key=lambda unit: (-height[unit], unit))


def test_what_knows_no_event_loop_is_marked(generator: Any) -> None:
    assert {"errors", "protocol", "launch"} <= set(generator.read_pure()) <= set(generator.read_floors())


def test_a_table_that_is_not_there_is_an_error(generator: Any) -> None:
    with pytest.raises(ValueError, match="has no table ATTICS"):
        generator.read_table("ATTICS")
