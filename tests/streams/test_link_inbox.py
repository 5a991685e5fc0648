"""`LinkInbox`: lines become bytes again, and a line counts as taken with its last byte."""

from __future__ import annotations

import pytest

from claude_transport.protocol.framing import LineFramer
from claude_transport.protocol.oversized import OversizedLine
from claude_transport.streams.link_inbox import LinkInbox


def take_all(inbox: LinkInbox, size: int) -> list[tuple[bytes, int]]:
    """What came out piece by piece, and up to which number all was taken after each."""
    taken: list[tuple[bytes, int]] = []
    while inbox:
        taken.append((inbox.take(size), inbox.taken))
    return taken


def test_lines_that_came_at_once_are_taken_at_once() -> None:
    inbox = LinkInbox()
    inbox.put_lines([b"a", b"", b"c"], last=3)
    inbox.put_bytes(b"tail", number=4)
    assert take_all(inbox, 100) == [(b"a\n\nc\n", 3), (b"tail", 4)]
    assert not inbox


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_is_taken_in_parts_is_done_with_at_its_last_byte(size: int) -> None:
    inbox = LinkInbox()
    inbox.put_lines([b"abc"], last=1)
    inbox.put_lines([b"de"], last=2)
    taken = take_all(inbox, size)
    assert b"".join(data for data, _ in taken) == b"abc\nde\n"
    assert max(len(data) for data, _ in taken) == size
    assert [number for data, number in taken if data.endswith(b"\n")] == [1, 2]
    assert [number for data, number in taken if not data.endswith(b"\n")] == sorted(n for data, n in taken if not data.endswith(b"\n"))
    assert taken[0][1] == (0 if size < 4 else 1)


@pytest.mark.parametrize("size", [1000, 65536, 10**6])
def test_a_line_over_the_limit_is_as_long_as_it_was_and_takes_no_memory(size: int) -> None:
    inbox = LinkInbox()
    inbox.put_lines([OversizedLine(b'{"head":1', size=300_000, limit=100_000)], last=1)
    inbox.put_lines([b"{}"], last=2)
    framer = LineFramer(max_line_bytes=100_000)
    lines: list[bytes] = []
    while inbox:
        data = inbox.take(size)
        assert len(data) <= min(size, 65536)
        lines += framer.feed(data)
    large, small = lines
    assert isinstance(large, OversizedLine)
    assert (large.size, large[:9], small, inbox.taken) == (300_000, b'{"head":1', b"{}", 2)
