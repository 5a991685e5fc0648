"""The reference has every public name, every page of it is in a table of contents, and every table of it has an author that is tested."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = DOCS / "reference"
PAGES = {path.stem: path.read_text("utf-8") for path in sorted(REFERENCE.glob("*.md"))}
# A function or a constant has its entry on the page, a class of the list `.. classes::` on a page of its own.
ENTRY = re.compile(r"^(?:\.\. auto(?:function|data):: |   )(claude_transport[\w.]*)\.(\w+)$", re.MULTILINE)
DOCUMENTED = [entry for page in PAGES.values() for entry in ENTRY.findall(page)]


GENERATOR = load_generator("names")
DOORS = sorted(
    {GENERATOR.name_of(path) for path in GENERATOR.doors()}
    | {"claude_transport.errors", "claude_transport.testing.replies", "claude_transport.testing.steps", "claude_transport.wrappers.faults"}
)
# Names of modules, and the shared base of the steps, whose fields each step shows
NO_ENTRY = {"claude_transport.testing": {"faults"}, "claude_transport.testing.steps": {"BaseStep"}}

# The pages with a table that no generator writes, and the test that holds each.
HELD = {
    "compatibility": "release/test_supported_versions.py",
    "agents": "plugin/test_plugins.py",
    "link-protocol": "protocol/test_link_transcripts.py",
    "ports": "test_ports_page.py",
    "promises": "test_promises_page.py",
    "program": "app/test_program_page_fields.py",
    "protocol": "protocol/test_protocol_page.py",
    "proven-on-the-real-cli": "test_proven_page.py",
    "schema": "wire/test_wire_schemas.py",
    "sessions": "sessions/test_differences_page.py",
    "pythons": "test_release.py",
    "windows": "test_windows_page.py",
}


def what_is(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("door", DOORS)
def test_every_public_name_is_on_a_page(door: str) -> None:
    names = set(importlib.import_module(door).__all__) - NO_ENTRY.get(door, set())
    # a name may have its entry under another door: the same object, then
    shown = {name for module, name in DOCUMENTED if name in names and what_is(module, name) is what_is(door, name)}
    assert sorted(names - shown) == []


def test_every_entry_has_the_path_from_which_a_program_imports_the_name() -> None:
    top = importlib.import_module("claude_transport")
    lower = [(module, name) for module, name in DOCUMENTED if module != top.__name__ and getattr(top, name, None) is what_is(module, name)]
    assert lower == []  # names of the top level are shown as `claude_transport.X`


def test_no_name_has_two_entries() -> None:
    assert [entry for entry, count in Counter(DOCUMENTED).items() if count > 1] == []


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = [
        line
        for block in re.findall(r"\{toctree\}\n(.*?)```", PAGES["index"], re.DOTALL)
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    assert sorted(set(PAGES) - set(listed)) == ["index"]
    assert len(listed) == len(set(listed))


def test_every_table_is_written_by_a_generator_or_held_by_a_test() -> None:
    tables = {
        name for name, page in PAGES.items() if re.search(r"^\|[ -]+\|", page, re.MULTILINE) or re.search(r"^\|---", page, re.MULTILINE)
    }
    written = {name for name, page in PAGES.items() if re.search(r"^<!-- (Written|Generated) by docs/generate_\w+\.py", page, re.MULTILINE)}
    assert tables - written - set(HELD) == set()
    for name, test in HELD.items():
        assert (Path(__file__).parent / test).is_file(), name


def test_whatever_claims_to_be_written_by_a_generator_names_one_that_is_there() -> None:
    named = {name for page in PAGES.values() for name in re.findall(r"docs/(generate_\w+\.py)", page)}
    assert named
    assert [name for name in sorted(named) if not (REFERENCE.parent / name).is_file()] == []
