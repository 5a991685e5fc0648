"""`StderrTail`: bounded, decoded, delivered line by line."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.streams.reaping import StderrTail

CHUNKS = st.lists(st.binary(max_size=200) | st.sampled_from([b"\n", b"line\n", "ä\n".encode(), b"x" * 20_000]), max_size=20)


@given(chunks=st.lists(st.sampled_from([b"", b"a", b"\n", b"line\n", b"two\nlines", b"x" * 20_000]), max_size=20))
def test_every_byte_is_handed_on_in_order_whatever_the_chunks(chunks: list[bytes]) -> None:
    lines: list[str] = []
    tail = StderrTail(lines.append)
    for chunk in chunks:
        tail.feed(chunk)
    tail.finish()
    assert "".join(lines) == b"".join(chunks).replace(b"\n", b"").decode()
    assert not any("\n" in line for line in lines)


@given(chunks=CHUNKS)
def test_the_text_is_the_end_of_what_came(chunks: list[bytes]) -> None:
    tail = StderrTail()
    for chunk in chunks:
        tail.feed(chunk)
    assert tail.text == b"".join(chunks)[-65536:].decode("utf-8", "replace").rstrip()


def test_only_the_last_64_kib_are_kept() -> None:
    tail = StderrTail()
    for _ in range(1000):
        tail.feed(b"x" * 1000)
    tail.feed(b"the end")
    assert len(tail.text) == 65536
    assert tail.text.endswith("the end")


@pytest.mark.parametrize("size", [1, 2, 33, 700, 1025])
def test_what_came_in_small_pieces_takes_no_more_memory_than_twice_its_bytes(size: int) -> None:
    tracemalloc.start()
    try:
        tail = StderrTail()
        for number in range(200_000 // size):
            tail.feed(b"%d" % (10 ** (size - 1) + number % 10))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tail.text) == 65536
    assert held < 2 * 65536


def test_a_line_without_an_end_is_handed_on_in_pieces() -> None:
    lines: list[str] = []
    tail = StderrTail(lines.append)
    for _ in range(100):
        tail.feed(b"y" * 1000)
    assert lines
    assert sum(map(len, lines)) >= 100_000 - 16 * 1024
    tail.finish()
    tail.finish()
    assert "".join(lines) == "y" * 100_000


def test_the_last_line_needs_no_newline_and_comes_once() -> None:
    lines: list[str] = []
    tail = StderrTail(lines.append)
    tail.feed(b"first\r\nlast")
    assert lines == ["first"]
    tail.finish()
    tail.finish()
    assert lines == ["first", "last"]


def test_a_callback_that_raises_is_logged_once_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        raise ValueError("broken")

    tail = StderrTail(on_line)
    tail.feed(b"one\ntwo\nthree\n")
    assert lines == ["one", "two", "three"]
    assert len(caplog.records) == 1
