"""The lines that are kept for observers: in bounded memory, whatever the lines look like, and made for observers once."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.observation import LineLog, ObservedLine
from claude_transport.protocol.redaction import Redactor

ROOM = 100_000


@contextmanager
def memory() -> Iterator[Callable[[], tuple[int, int]]]:
    """Gives the bytes that were allocated since the beginning of the block: those of now, and the most there have been."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: (tracemalloc.get_traced_memory()[0] - before, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


def made_log(*, max_bytes: int = ROOM, redactor: Callable[[], Redactor] = Redactor) -> LineLog:
    return LineLog(clock=lambda: 0.0, redactor=redactor, max_bytes=max_bytes)


def watch(log: LineLog, *, scrub: bool, events: bool) -> Iterator[ObservedLine | bytes]:
    """Read everything that is kept, as an observer does."""
    after = log.oldest - 1
    while after < log.last:
        excerpt = log.take(after, scrub=scrub, max_bytes=65536)
        yield from excerpt.events() if events else excerpt.lines()
        excerpt.share()
        after = excerpt.last


@pytest.mark.parametrize(
    ("line", "at_once"),
    [
        (b'{"n":"abcdefgh"}', 5_000),
        (b'{"n":"abcdefgh"}', 1),
        (b'{"key":"%s"}' % (b"y" * 1000), 10),
        (b"\x01" * 1000, 10),
        (b"\xff" * 500, 20),
    ],
    ids=["tiny lines in long blocks", "tiny lines", "usual lines", "control characters", "no text"],
)
def test_what_is_kept_and_what_is_made_of_it_for_observers_stays_in_bounded_memory(line: bytes, at_once: int) -> None:
    with memory() as used:
        log = made_log()
        for _ in range(2 * ROOM // (len(line) + 1) // at_once):
            log.append("out", LineBlock.of([line] * at_once))
            assert log.kept_bytes <= ROOM
        tracemalloc.reset_peak()
        for scrub in (True, False):
            for events in (True, False):
                for _ in watch(log, scrub=scrub, events=events):
                    pass
        now, most = used()
    assert now < 3 * ROOM + 100_000  # the lines, and twice as much for what was made of them
    assert most < 3 * ROOM + 500_000  # and one excerpt while it is made


def test_a_block_of_many_lines_is_read_in_parts_from_any_position() -> None:
    log = made_log(max_bytes=10**6)
    log.append_lines("in", [b"first"])
    log.append_lines("out", [b'{"n":%d}' % number for number in range(2, 5001)])
    log.append_lines("note", [b"last"])
    seen = [line for line in watch(log, scrub=True, events=False) if isinstance(line, ObservedLine)]
    assert [line.position for line in seen] == list(range(1, 5002))
    assert [json.loads(line)["n"] for line in seen[1:-1]] == list(range(2, 5001))
    for after in (0, 1, 2, 511, 512, 513, 1024, 2500, 4999, 5000):
        excerpt = log.take(after, scrub=True, max_bytes=1)
        assert excerpt.lines()[0] == seen[after]
        assert json.loads(excerpt.events()[0].partition(b"data: ")[2])["line"] == seen[after].decode()
        assert excerpt.lines()[-1].position == excerpt.last
        assert len(excerpt.lines()) < 1000


class Counting(Redactor):
    """Counts the lines that it redacts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0

    def line(self, line: bytes, **how: Any) -> bytes:
        self.lines += 1
        return super().line(line, **how)


@pytest.mark.parametrize("size", [10, 20_000, ROOM // 2])
def test_a_line_is_redacted_once_for_all_that_follow(size: int) -> None:
    counting = Counting()
    log = made_log(redactor=lambda: counting)
    after = 0
    for number in range(1, 6):
        log.append_lines("out", [b'{"key":"%s"}' % (b"y" * size)])
        excerpts = [log.take(after, scrub=True, max_bytes=65536) for _ in range(50)]
        made: list[tuple[list[ObservedLine], list[bytes]]] = []
        for excerpt in excerpts:
            assert (excerpt.unmade("events") == 0) == bool(made)
            made.append((excerpt.lines(), excerpt.events()))
            excerpt.share()
        assert all(lines[0] is made[0][0][0] for lines, _ in made)  # one object, however many hold it
        assert counting.lines == number
        after = excerpts[0].last
