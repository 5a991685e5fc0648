"""The reference page of messages is what the Structs and the recordings say, and it says everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport import control, messages
from claude_transport.protocol.messages import SYSTEM_SUBTYPES


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("messages")


@pytest.fixture(scope="module")
def page(generator: Any) -> str:
    return str(generator.render())


def test_the_committed_page_is_what_the_structs_say(generator: Any, page: str) -> None:
    assert generator.PAGE.read_text("utf-8") == page, "run: python docs/generate_messages.py"


def test_main_writes_the_page_of_messages(generator: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "page.md")
    generator.main()
    assert (tmp_path / "page.md").read_text("utf-8") == page


def test_every_type_and_every_subtype_has_a_row_with_its_class(generator: Any, page: str) -> None:
    classes = {str(cls.__struct_config__.tag): cls for cls in generator.message_classes()} | SYSTEM_SUBTYPES
    assert {"assistant", "result", "control_request", "rate_limit_event", "init"} <= set(classes)
    assert [name for name, cls in classes.items() if f"\n| `{name}` | `{cls.__name__}` |" not in page] == []


def test_every_class_whose_name_a_program_may_want_is_at_a_public_door(generator: Any) -> None:
    names = {cls.__name__ for cls in generator.message_classes()} | {cls.__name__ for cls in SYSTEM_SUBTYPES.values()}
    assert sorted(name for name in names if not any(hasattr(door, name) for door in (control, messages))) == []


def test_every_message_that_a_recording_holds_is_on_the_page(generator: Any, page: str) -> None:
    shown = [kind or name for name, kind in generator.sightings() if name != "block" and f"\n| `{kind or name}` |" in page]
    assert {"stream_event", "task_started", "transcript_mirror"} <= set(shown)
    unknown = {name for name, kind in generator.sightings() if name != "block" and f"\n| `{kind or name}` |" not in page}
    assert unknown <= {"", "None", "totally_unknown"}, unknown


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ('{"type":"system","subtype":"init","cwd":"/ho', {"type": "system", "subtype": "init"}),
        ('{"type": "control_response", "resp', {"type": "control_response", "subtype": ""}),
        ("not JSON", {}),
        ("[1]", {}),
    ],
)
def test_a_line_that_was_cut_is_known_by_its_head(generator: Any, line: str, frame: dict[str, str]) -> None:
    assert generator.read_frame(line) == frame
