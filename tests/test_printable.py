"""What comes from outside is shown on one line, printable and bounded; so is every error's message."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from typing import Any

import pytest
from hostile_words import HOSTILE, assert_lines_are_safe
from hypothesis import given
from hypothesis import strategies as st

from claude_transport import errors
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.text.printable import printable, printable_lines

ANY_TEXT = st.text(st.characters(), max_size=300)


@given(ANY_TEXT, st.integers(1, 400))
def test_any_text_comes_out_as_one_printable_line_of_bounded_length(text: str, at_most: int) -> None:
    shown = printable(text, at_most=at_most)
    assert shown.isprintable()
    assert len(shown) <= at_most + len("… (300 more characters)")
    if text.isprintable() and len(text) <= at_most:
        assert shown == text


@given(ANY_TEXT)
def test_any_text_of_several_lines_keeps_them_indented(text: str) -> None:
    lines = printable_lines(text).split("\n")
    assert all(line.startswith("  ") and line.isprintable() for line in lines)
    assert len(lines) == text.rstrip("\n").count("\n") + 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("naïve 😀 漢字", "naïve 😀 漢字"),
        ("a\nb\r\t\x1b[0m\x00", r"a\nb\r\t\x1b[0m\x00"),
        ("\u202e\u2028\x85\ud800\U000e0041", r"\u202e\u2028\x85\ud800\U000e0041"),
        (ValueError("x\ny"), r"x\ny"),
        (12, "12"),
        ("", ""),
        ("x" * 1001, "x" * 1000 + "… (1 more characters)"),
    ],
)
def test_examples(text: object, shown: str) -> None:
    assert printable(text) == shown


def test_of_too_many_lines_the_last_are_kept() -> None:
    lines = printable_lines("\n".join(map(str, range(10_000)))).split("\n")
    assert lines[0] == "  (9800 lines before)"
    assert lines[1:] == [f"  {number}" for number in range(9800, 10_000)]


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_the_message_of_every_error_is_one_line(words: str) -> None:
    kinds: list[Any] = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.ClaudeTransportError)]
    assert len(kinds) > 40
    assert_lines_are_safe([str(TurnedAway("options", words))], longest=600)
    for kind in kinds:
        error = kind(f"the peer said: {words}")
        for shown in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert_lines_are_safe([str(shown), *"".join(traceback.format_exception_only(shown)).rstrip("\n").split("\n")])
            assert str(shown).startswith("the peer said: ")
        assert error.args == (f"the peer said: {words}",)


def test_a_newline_at_the_end_makes_no_line_of_its_own() -> None:
    assert printable_lines("one\n\ntwo\n") == "  one\n  \n  two"
