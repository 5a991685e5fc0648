"""The tables of members on the page of the link protocol have the defaults of the frames, and say which members are required."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from claude_transport.link.machine import Hello, ProcessEnd, Welcome

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "link-protocol.md").read_text("utf-8")


def told(head: str) -> dict[str, str]:
    """What the table with this head says of the default of each member."""
    rows = re.search(rf"^\| {re.escape(head)} \| default .*\n\|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert rows is not None
    cells = [row.strip("| \n").split(" | ") for row in rows[1].splitlines()]
    return {name: default.strip() for names, default, *_meaning in cells for name in re.findall(r"`(\w+)`", names)}


def shown(value: object) -> str:
    """A default as the page has it."""
    match value:
        case msgspec.NODEFAULT:
            return "required"
        case None:
            return "none"
        case bool() | dict() | str():
            return f"`{msgspec.json.encode(value).decode()}`"
        case _:
            return f"{value:,}".replace(",", " ")


@pytest.mark.parametrize(("head", "struct"), [("hello", Hello), ("welcome", Welcome), ("`X`", ProcessEnd)])
def test_the_page_tells_each_members_default(head: str, struct: type[msgspec.Struct]) -> None:
    defaults = {
        field.name: shown(field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default)
        for field in msgspec.structs.fields(struct)
    }
    page = told(head)
    assert page == {name: "as above" if page[name] == "as above" else default for name, default in defaults.items()}


def test_what_is_as_above_has_the_defaults_of_the_table_above() -> None:
    same = [name for name, default in told("welcome").items() if default == "as above"]
    assert same == ["received", "replay_from", "window"]
    hello = {field.name: field.default for field in msgspec.structs.fields(Hello)}
    welcome = {field.name: field.default for field in msgspec.structs.fields(Welcome)}
    assert [hello[name] for name in same] == [welcome[name] for name in same]
