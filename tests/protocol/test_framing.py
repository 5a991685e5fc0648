"""Framing: whatever the cuts, the same lines; whatever the peer, bounded memory."""

from __future__ import annotations

import copy
import itertools
import pickle
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.protocol.framing import LineFramer, OversizedLine

PIECES = st.sampled_from(
    [b"\n", b"\n\n", b"{}", b'{"a":1}', b"\r\n", b" ", b"\x00", b"\xff", "é\u2028".encode(), b"x" * 40, b"y" * 700, b"z" * 2000]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 400) | st.integers(0, 30_000))
LIMITS = st.integers(1, 60) | st.integers(1000, 5000)


def fed(framer: LineFramer, data: bytes, cuts: list[int]) -> list[tuple[bytes, int]]:
    """Every line of `data` fed in pieces, the unfinished one last, each with its true size."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    lines = [line for start, end in itertools.pairwise(edges) for line in framer.feed(data[start:end])]
    if tail := framer.finish():
        lines.append(tail)
    return [(bytes(line), line.size if isinstance(line, OversizedLine) else len(line)) for line in lines]


@given(data=STREAMS, cuts=CUTS)
def test_any_split_of_the_bytes_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    assert fed(LineFramer(), data, cuts) == [(line, len(line)) for line in data.split(b"\n") if line]


def kept(line: bytes, limit: int) -> tuple[bytes, int]:
    """What must come of a line: all of it, or its head, and its true size."""
    return line if len(line) <= limit else line[: min(limit, 1024)], len(line)


@given(data=STREAMS, cuts=CUTS, limit=LIMITS)
def test_any_split_gives_the_same_lines_also_where_lines_are_too_long(data: bytes, cuts: list[int], limit: int) -> None:
    assert fed(LineFramer(max_line_bytes=limit), data, cuts) == [kept(line, limit) for line in data.split(b"\n") if line]


@given(data=STREAMS, limit=LIMITS)
def test_small_chunks_never_hold_more_than_the_limit(data: bytes, limit: int) -> None:
    framer = LineFramer(max_line_bytes=limit)
    for index in range(0, len(data), 7):
        framer.feed(data[index : index + 7])
        assert framer.buffered_bytes <= limit


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_a_newline_ends_a_line(character: str) -> None:
    line = f'{{"text":"before{character}after"}}'.encode()
    assert LineFramer().feed(line + b"\n") == [line]


def test_the_limit_counts_bytes_and_not_characters() -> None:
    line = "ä".encode() * 5
    assert LineFramer(max_line_bytes=10).feed(line + b"\n") == [line]
    (oversized,) = LineFramer(max_line_bytes=9).feed(line + b"\n")
    assert isinstance(oversized, OversizedLine)
    assert (oversized.size, oversized.limit) == (10, 9)


def test_a_line_over_the_limit_costs_that_line_and_no_other() -> None:
    framer = LineFramer(max_line_bytes=4)
    one, two, three = framer.feed(b"good\n" + b"x" * 1000 + b"\nfine\n")
    assert (one, three) == (b"good", b"fine")
    assert isinstance(two, OversizedLine)
    assert two.size == 1000


def test_a_line_over_the_limit_is_delivered_once_when_it_came_in_many_chunks() -> None:
    framer = LineFramer(max_line_bytes=1500)
    assert [line for _ in range(100) for line in framer.feed(b"y" * 1000)] == []
    (oversized, following) = framer.feed(b"y\nnext\n")
    assert isinstance(oversized, OversizedLine)
    assert oversized.size == 100_001
    assert oversized == b"y" * 1024
    assert following == b"next"


def test_what_is_left_at_the_end_is_given_out_once() -> None:
    framer = LineFramer()
    framer.feed(b"a\nrest")
    assert framer.finish() == b"rest"
    assert framer.finish() == b""
    assert framer.feed(b"new\n") == [b"new"]


def test_blank_lines_are_left_out() -> None:
    assert LineFramer().feed(b"\n\na\n\n\nb\n\n") == [b"a", b"b"]


def test_a_line_that_dribbles_in_costs_memory_in_proportion_to_its_size() -> None:
    framer = LineFramer()
    count = 100_000
    tracemalloc.start()
    try:
        for number in range(count):
            framer.feed(b"%02d" % (number % 100))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.buffered_bytes == 2 * count
    assert peak < 4 * framer.buffered_bytes


class CountedChunk(bytes):
    """A chunk that counts the bytes that were searched in it."""

    searched = 0

    def split(self, *args: object, **kwargs: object) -> list[bytes]:  # type: ignore[override]
        CountedChunk.searched += len(self)
        return bytes(self).split(*args, **kwargs)  # type: ignore[arg-type]

    def find(self, what: bytes, start: int = 0) -> int:  # type: ignore[override]
        found = bytes(self).find(what, start)
        CountedChunk.searched += (len(self) if found < 0 else found + len(what)) - start
        return found


def test_every_byte_is_searched_once_however_long_the_line_grows() -> None:
    framer = LineFramer()
    CountedChunk.searched = 0
    for _ in range(1000):
        assert framer.feed(CountedChunk(b"z" * 100)) == []
    (line,) = framer.feed(CountedChunk(b"\n"))
    assert len(line) == 100_000
    assert CountedChunk.searched == 100_001


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_line_bytes"):
        LineFramer(max_line_bytes=0)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda line: pickle.loads(pickle.dumps(line))])
def test_an_oversized_line_survives_copying_with_its_facts(duplicate: object) -> None:
    line = OversizedLine(b"head", size=99, limit=10)
    again = duplicate(line)  # type: ignore[operator]
    assert isinstance(again, OversizedLine)
    assert (again, again.size, again.limit) == (line, 99, 10)
    assert "size=99" in repr(again)


@given(data=STREAMS, cuts=CUTS, limit=LIMITS)
def test_blocks_hold_the_lines_that_feed_returns_however_the_bytes_are_cut(data: bytes, cuts: list[int], limit: int) -> None:
    one, other = LineFramer(max_line_bytes=limit), LineFramer(max_line_bytes=limit)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        lines, block = one.feed(data[start:end]), other.feed_block(data[start:end])
        assert (block is None) is not bool(lines)
        if block is not None:
            assert bytes(block) == b"".join(block.pieces) == b"".join(line + b"\n" for line in lines)
            assert (block.size, block.count) == (len(bytes(block)), len(lines))
            assert all(block.has(line) for line in lines)
            assert block.has(lines[-1][-9:], tail=10)
            assert not block.has(b"not there")
    assert one.finish() == other.finish()


def test_what_a_block_holds_ends_where_its_last_line_ends() -> None:
    framer = LineFramer()
    assert framer.feed_block(b'{"type":') is None
    block = framer.feed_block(b'"user"}\n{"type":"result"')
    assert block is not None
    assert block.has(b'"type":"user"')
    assert block.has(b'"user"')
    assert not block.has(b"result")
    assert not block.has(b'{"type":"result"')
    assert not block.has(b'"}{"')
    assert block.has(b'user"}', tail=7)
    assert not block.has(b'"type"', tail=7)
    first = LineFramer().feed_block(b'{"a":1}\n{"b":')
    assert first is not None
    assert (bytes(first), b"".join(first.pieces), first.has(b"b")) == (b'{"a":1}\n', b'{"a":1}\n', False)
    assert bytes(block) == b"".join(block.pieces) == b'{"type":"user"}\n'


class Sliced(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        if isinstance(part, bytes) and len(part) < len(self):  # the whole of `bytes` is no copy
            Sliced.copied += len(part)
        return part


@pytest.mark.parametrize("chunk_bytes", [64 * 2**10, 256 * 2**10])
def test_a_long_line_is_copied_once(chunk_bytes: int) -> None:
    lines = [bytes([number]) * 1_300_000 for number in range(65, 75)]
    stream = b"\n".join([*lines, b""])
    framer, got = LineFramer(), []
    Sliced.copied = 0
    for start in range(0, len(stream), chunk_bytes):
        got += framer.feed(Sliced(stream[start : start + chunk_bytes]))
    assert got == lines
    # joining the pieces of a line is one copy; only an end that is too short for a view is cut out of its chunk before
    assert Sliced.copied < len(lines) * 2 * 16 * 2**10


LONG_PIECES = st.sampled_from([b"\n", b"{}\n", b"x" * 700, b"y" * 17_000, b"z" * 70_000 + b"\n", b"w" * 300_000])


@given(pieces=st.lists(LONG_PIECES, max_size=12), chunk_bytes=st.sampled_from([20_000, 65_536, 262_144, 1_000_000]))
def test_long_lines_are_the_same_for_every_size_of_the_chunks(pieces: list[bytes], chunk_bytes: int) -> None:
    stream = b"".join(pieces)
    framer = LineFramer()
    lines = [line for start in range(0, len(stream), chunk_bytes) for line in framer.feed(stream[start : start + chunk_bytes])]
    lines.append(framer.finish())
    assert [line for line in lines if line] == [line for line in stream.split(b"\n") if line]
    assert {type(line) for line in lines} == {bytes}
