"""`any_word` finds what a search for each word finds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.protocol.redaction import Redactor, any_word, redactor_knowing

WORDS = st.lists(st.text("ab.|(é", min_size=1, max_size=4), min_size=1, max_size=6)


@given(WORDS, st.text("ab.|(éx", max_size=30))
def test_it_matches_where_one_of_the_words_stands(words: list[str], text: str) -> None:
    assert bool(re.search(any_word(words), text)) is any(word in text for word in words)


@given(WORDS, st.text("ab.|(éx", max_size=30))
def test_its_bytes_match_the_bytes_of_the_text(words: list[str], text: str) -> None:
    pattern = re.compile(any_word(words).encode())
    assert bool(pattern.search(text.encode())) is any(word in text for word in words)


@pytest.mark.parametrize(
    "secret", ["sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", "ghp_" + "a1" * 18, "https://u:hunter2@example.com/x"]
)
@pytest.mark.parametrize("around", [('{"text":"', '"}'), ("", ""), ("the word is ", ".")])
def test_a_redactor_finds_keys_wherever_they_stand(secret: str, around: tuple[str, str]) -> None:
    line = secret.join(around)
    assert secret not in redactor_knowing([]).text(line)
    assert secret.encode() not in Redactor().line(line.encode())
