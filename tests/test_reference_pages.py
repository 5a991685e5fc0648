"""The reference has every public name, every page of it is in a table of contents, and every table of it has an author that is tested."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
PAGES = {path.stem: path.read_text("utf-8") for path in sorted(REFERENCE.glob("*.md"))}
DIRECTIVE = re.compile(r"^\.\. auto(module|class|function|data|exception):: claude_transport\.([\w.]+)(\n   :no-members:)?", re.MULTILINE)

PUBLIC = (
    "claude_transport",
    "claude_transport.testing",
    "claude_transport.inspection",
    "claude_transport.interop.agent_sdk",
    "claude_transport.wrappers.faults",
)

# The pages with a table that no generator writes, and the test that holds each.
HELD = {
    "link-protocol": "protocol/test_link_transcripts.py",
    "program": "app/test_program_page_fields.py",
    "protocol": "protocol/test_protocol_page.py",
    "proven-on-the-real-cli": "test_proven_page.py",
}


def documented() -> set[str]:
    """Every name that a page documents: alone, or with its module."""
    names: set[str] = set()
    for page in PAGES.values():
        for kind, name, alone in DIRECTIVE.findall(page):
            names.add(name.rpartition(".")[2])
            if kind == "module" and not alone:
                module = importlib.import_module(f"claude_transport.{name}")
                defined = [
                    name for name, value in vars(module).items() if getattr(value, "__module__", "") in {"", "typing", module.__name__}
                ]
                names.update(getattr(module, "__all__", defined))
    return names


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_on_a_page(package: str) -> None:
    module = importlib.import_module(package)
    submodules = {name for name in module.__all__ if f"{package}.{name}".removeprefix("claude_transport.") in PAGES}
    assert sorted(set(module.__all__) - submodules - documented() - {"__version__"}) == []


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = [
        line
        for name in ("index", "modules")
        for block in re.findall(r"\{toctree\}\n(.*?)```", PAGES[name], re.DOTALL)
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
