"""`LinkInbox`: bytes come out in order, and `taken` counts them."""

from __future__ import annotations

import tracemalloc

import hypothesis.strategies as st
import pytest
from hypothesis import given

from claude_transport.link.carrier import LinkInbox


def take_all(inbox: LinkInbox, size: int) -> list[tuple[bytes, int]]:
    """Take everything, and return the pieces with the value of `taken` after each."""
    taken: list[tuple[bytes, int]] = []
    while inbox:
        taken.append((inbox.take(size), inbox.taken))
    return taken


def test_what_came_in_pieces_is_taken_at_once() -> None:
    inbox = LinkInbox()
    for piece in (b"a\n", b"b" * 2000, b"c"):
        inbox.put(piece)
    assert take_all(inbox, 65536) == [(b"a\n" + b"b" * 2000 + b"c", 2003)]
    assert not inbox


def test_of_large_pieces_as_many_are_taken_as_fit_in_whole() -> None:
    inbox = LinkInbox()
    for letter in (b"a", b"b", b"c"):
        inbox.put(letter * 2000)
    assert take_all(inbox, 5000) == [(b"a" * 2000 + b"b" * 2000, 4000), (b"c" * 2000, 6000)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_more_is_taken_than_was_asked_for(size: int) -> None:
    inbox = LinkInbox()
    inbox.put(b"abc\n")
    inbox.put(b"de\n")
    taken = take_all(inbox, size)
    assert b"".join(data for data, _ in taken) == b"abc\nde\n"
    assert max(len(data) for data, _ in taken) == size
    assert [at for _, at in taken] == [sum(len(data) for data, _ in taken[: number + 1]) for number in range(len(taken))]


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=9), st.sampled_from([b"x" * 1024, b"y" * 5000]))), st.integers(1, 6000))
def test_whatever_is_put_in_comes_out_in_order(pieces: list[bytes], size: int) -> None:
    inbox = LinkInbox()
    taken = b""
    for number, piece in enumerate(pieces):
        inbox.put(piece)
        if number % 3 == 2:
            taken += inbox.take(size)
    taken += b"".join(data for data, _ in take_all(inbox, size))
    assert taken == b"".join(pieces)
    assert inbox.taken == len(taken)


def test_bytes_that_come_two_by_two_cost_not_much_more_than_their_size() -> None:
    inbox = LinkInbox()
    tracemalloc.start()
    try:
        for _ in range(50_000):
            inbox.put(bytes((1, 2)))
        assert tracemalloc.get_traced_memory()[0] < 250_000
    finally:
        tracemalloc.stop()
    assert sum(len(data) for data, _ in take_all(inbox, 65536)) == 100_000
