"""The page of every code is what the source says, and no code that the source gives to an error is missing from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport import errors

PROJECT = Path(__file__).parent.parent
SOURCES = "".join(path.read_text("utf-8") for path in sorted((PROJECT / "claude_transport").rglob("*.py")))
INTERNAL = {"gateway.refused", "testing.http.bad_request", "testing.http.peer_gone"}
"""Codes of errors that never leave the library: of the base of a refusal, and of the HTTP server behind the fake API."""


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("codes")


@pytest.fixture(scope="module")
def page(generator: Any) -> str:
    return str(generator.render())


def test_the_committed_page_is_what_the_source_says(generator: Any, page: str) -> None:
    assert generator.PAGE.read_text("utf-8") == page, "run: python docs/generate_codes.py"


def test_main_writes_the_page_of_codes(generator: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "codes.md")
    generator.main()
    assert (tmp_path / "codes.md").read_text("utf-8") == page


@pytest.mark.parametrize("name", [name for name in errors.__all__ if not name.endswith("Warning")])
def test_every_class_has_a_row_under_its_code(page: str, name: str) -> None:
    cls = getattr(errors, name)
    assert re.search(rf"^\| `{re.escape(cls.code)}` \| `{name}` \| `{cls.category}` \|", page, re.MULTILINE)


def test_every_code_that_stands_in_the_source_has_a_row(page: str) -> None:
    given = set(re.findall(r"\bcode(?:: str)? ?= ?\"([a-z.]+\.[a-z_.]+)\"", SOURCES))
    given |= set(re.findall(r"\"([a-z]+\.[a-z_.]+)\" (?:if|else) ", SOURCES)) | set(re.findall(r" else \"([a-z]+\.[a-z_]+)\"", SOURCES))
    assert {"connect.refused", "protocol.websocket", "connect.forbidden", "exec.cli.timeout", "pool.exhausted"} <= given
    prefixes = {code.partition(".")[0] for code in re.findall(r"^\| `([a-z]+\.[a-z_.]+)` ", page, re.MULTILINE)}
    codes = {code for code in given if code.partition(".")[0] in prefixes | {"gateway"}}
    assert sorted(code for code in codes - INTERNAL if f"\n| `{code}` |" not in page) == []


def test_every_reason_that_ends_a_session_of_a_gateway_is_named(generator: Any) -> None:
    named = set(re.findall(r"(?:_note_end|\.close)\(\"(\w+)\"\)", SOURCES))
    named.remove("drained")  # the client learns `closed_by_server`, which has a row of its own
    assert named == set(generator.ENDINGS)


def test_a_code_without_words_and_words_without_a_code_are_errors(generator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = dict(generator.MEANINGS)
    monkeypatch.setattr(generator, "MEANINGS", {**words, "connect.nowhere": "x"})
    with pytest.raises(ValueError, match=r"words for nothing: \['connect.nowhere'\]"):
        generator.render()
    monkeypatch.setattr(generator, "MEANINGS", {code: text for code, text in words.items() if code != "pool.exhausted"})
    with pytest.raises(ValueError, match=r"without words: \['pool.exhausted'\]"):
        generator.render()


def test_every_row_of_a_table_has_the_columns_of_its_head(page: str) -> None:
    for block in page.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.replace("\\|", "").count("|") for row in rows}) <= 1
