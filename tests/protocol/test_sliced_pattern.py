"""`SlicedPattern` finds what `re` finds, and never gives `re` more than a slice and its margin unless a match is longer."""

from __future__ import annotations

import re
import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.protocol.redaction import Redactor
from claude_transport.text.sliced_pattern import MARGIN_CHARS, SLICE_CHARS, SlicedPattern

SOURCES = (r"(?<![a-z])ab+", r"a(?=b)", r"b\w++a", r"\ba+", r"a[^b]{0,3}b")


@given(text=st.text(alphabet="ab -", max_size=60), source=st.sampled_from(SOURCES), size=st.integers(1, 9))
def test_it_replaces_what_re_replaces_wherever_the_slices_end(text: str, source: str, size: int) -> None:
    sliced = SlicedPattern(source, size=size, margin=60)
    assert sliced.sub(r"<\g<0>>", text) == re.sub(source, r"<\g<0>>", text)
    assert sliced.sub(lambda match: match[0].upper(), text) == re.sub(source, lambda match: match[0].upper(), text)


@given(before=st.integers(0, 12), length=st.integers(1, 50), after=st.integers(0, 12))
def test_a_match_that_is_longer_than_slice_and_margin_is_found_whole(before: int, length: int, after: int) -> None:
    text = "-" * before + "a" * length + "-" * after
    assert SlicedPattern("a++", size=4, margin=2).sub("x", text) == "-" * before + "x" + "-" * after


def test_re_never_gets_more_than_a_slice_and_its_margin() -> None:
    found = SlicedPattern("needle", size=100, margin=10).search("x" * 5000 + "needle" + "x" * 5000)
    assert found is not None
    assert found.start() == 5000
    assert found.endpos - found.pos <= 110


@pytest.mark.parametrize("off", [-30, -1, 0, 1, MARGIN_CHARS])
@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-0123456789abcdef",
        "password=hunter22",
        "https://me:hunter22hunter22@host/",
        "-----BEGIN PRIVATE KEY-----\nhunter22\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter22",
        "/home/hunter22/x",
        "hunter22@corp.org",
        "KNOWN-hunter22",
    ],
)
def test_a_secret_across_the_end_of_a_slice_is_removed(secret: str, off: int) -> None:
    text = " " * (SLICE_CHARS + off) + secret + " " * SLICE_CHARS
    cleaned = Redactor(secrets=["KNOWN-hunter22"]).text(text)
    assert "hunter22" not in cleaned
    assert "0123456789abcdef" not in cleaned


def test_no_expression_gets_a_long_text_at_once() -> None:
    whole: list[str] = []

    def note(_frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and isinstance(getattr(called, "__self__", None), re.Pattern):
            whole.append(getattr(called, "__name__", ""))

    redactor = Redactor(secrets=["known secret"], users=["alice"], homes=["/srv/people/alice"])
    text = "token @ " * SLICE_CHARS  # 8 slices
    sys.setprofile(note)
    try:
        redactor.text(text)
    finally:
        sys.setprofile(None)
    assert whole.count("sub") == 0
    assert whole.count("search") >= 8 * 10
