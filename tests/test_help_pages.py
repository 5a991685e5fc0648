"""The pages for those who are stuck: every beginning of a code has its row, and the glossary is in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
CODES = (DOCS / "reference" / "codes.md").read_text("utf-8")
TROUBLE = (DOCS / "how-to" / "troubleshoot.md").read_text("utf-8")
GLOSSARY = (DOCS / "reference" / "glossary.md").read_text("utf-8")

KNOWN = sorted(re.findall(r"^\| `([a-z_.]+)(?:…)?` \| `", CODES, re.MULTILINE))
ROWS = {
    beginning for row in re.findall(r"^\| ((?:`[a-z_.]+`(?:, )?)+) \|", TROUBLE, re.MULTILINE) for beginning in re.findall(r"[a-z_.]+", row)
}


def test_every_code_begins_with_one_of_the_rows_and_every_row_is_the_beginning_of_a_code() -> None:
    assert len(KNOWN) > 80
    assert [code for code in KNOWN if not any(code == row or code.startswith(f"{row}.") for row in ROWS)] == []
    assert sorted(row for row in ROWS if not any(code == row or code.startswith(f"{row}.") for code in KNOWN)) == []


@pytest.mark.parametrize("code", sorted(set(re.findall(r"`((?:usage|result|config|connect|exec\.cli)\.[a-z_.]+)`", TROUBLE))))
def test_a_code_that_the_page_names_is_there(code: str) -> None:
    assert code in KNOWN


def test_the_glossary_is_in_order_and_says_something_of_each_word() -> None:
    words = re.findall(r"^(\w[\w -]*)\n  \S", GLOSSARY, re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(words, key=str.lower)
    assert len(words) == len(set(words)) == len(re.findall(r"^\w[\w -]*$", GLOSSARY, re.MULTILINE))
