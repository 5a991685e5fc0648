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
from claude_transport.protocol.observation import LineLog, ObservedLine, ScrubbedLog
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


def read_on(log: LineLog) -> bool:
    """Redact what comes next, and return whether there was something."""
    if not isinstance(log, ScrubbedLog) or not log.lags:
        return False
    log.unread(65536).run()
    log.share()
    return True


def read_all(log: LineLog) -> ScrubbedLog:
    scrubbed = log.scrubbed()
    while read_on(scrubbed):
        pass
    return scrubbed


def watch(log: LineLog, *, scrub: bool, events: bool) -> Iterator[ObservedLine | bytes]:
    """Read everything that is kept, as an observer does."""
    seen = log.scrubbed() if scrub else log
    after = seen.start(None)
    while read_on(seen) or after < seen.last:
        excerpt = seen.take(after, max_bytes=65536)
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


@pytest.mark.parametrize("scrub", [False, True])
def test_a_block_with_lines_that_are_longer_than_a_part_is_read_whole(*, scrub: bool) -> None:
    lines = [b'{"n":1}', b'{"text":"%b"}' % (b"x" * 100_000), b'{"n":2}', b'{"text":"%b"}' % (b"y" * 200_000), b'{"n":3}']
    log = made_log(max_bytes=10**6)
    log.append_lines("out", lines)
    assert [bytes(line) for line in watch(log, scrub=scrub, events=False) if isinstance(line, ObservedLine)] == lines


def test_a_block_of_many_lines_is_read_in_parts_from_any_position() -> None:
    log = made_log(max_bytes=10**6)
    log.append_lines("in", [b"first"])
    log.append_lines("out", [b'{"n":%d}' % number for number in range(2, 5001)])
    log.append_lines("note", [b"last"])
    seen = [line for line in watch(log, scrub=True, events=False) if isinstance(line, ObservedLine)]
    assert [line.position for line in seen] == list(range(1, 5002))
    assert [json.loads(line)["n"] for line in seen[1:-1]] == list(range(2, 5001))
    for after in (0, 1, 2, 511, 512, 513, 1024, 2500, 4999, 5000):
        excerpt = log.scrubbed().take(after, max_bytes=1)
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
        excerpts = [read_all(log).take(after, max_bytes=65536) for _ in range(50)]
        made: list[tuple[list[ObservedLine], list[bytes]]] = []
        for excerpt in excerpts:
            assert (excerpt.unmade("events") == 0) == bool(made)
            made.append((excerpt.lines(), excerpt.events()))
            excerpt.share()
        assert all(lines[0] is made[0][0][0] for lines, _ in made)  # one object, however many hold it
        assert counting.lines == number
        after = excerpts[0].last


def delta(text: str) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return json.dumps({"type": "stream_event", "event": event}).encode()


def said(lines: list[ObservedLine]) -> str:
    rows = [json.loads(line) for line in lines if line.direction == "out"]
    return "".join(row["event"]["delta"]["text"] for row in rows if "delta" in row.get("event", {}))


def seen_in(log: LineLog, *, after: int = 0) -> list[ObservedLine]:
    return read_all(log).take(after, max_bytes=10**6).lines()


BEGIN = b'{"type":"stream_event","event":{"type":"content_block_start","index":0}}'
KEY = ["The key is ", "sk-ant-", "api03-0123456789", "abcdef0123456789", " now", "adays"]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_a_secret_in_fragments_is_removed_however_they_lie_in_blocks(at_once: int) -> None:
    log = made_log()
    log.append_lines("in", [b'{"type":"user"}'])
    lines = [BEGIN, *map(delta, KEY)]
    for place in range(0, len(lines), at_once):
        log.append_lines("out", lines[place : place + at_once])
        read_all(log)
    log.append_lines("note", [b"input ended"])
    waiting = read_all(log)
    assert waiting.last < log.last
    log.end()
    seen = seen_in(log)
    assert [line.position for line in seen] == list(range(1, log.last + 1))
    assert [line.direction for line in seen] == ["in", *["out"] * 7, *["note"] * 3]
    assert said(seen) == "The key is [secret] nowadays"
    assert waiting.ended


def test_a_fragment_that_waits_is_the_only_one_that_does() -> None:
    log = made_log()
    log.append_lines("out", [BEGIN, delta("one "), delta("two "), delta("thr")])
    assert said(seen_in(log)) == "one two "
    log.append_lines("out", [delta("ee "), delta("fo")])
    assert said(seen_in(log)) == "one two three "


@pytest.mark.parametrize("behind", [0, 1])
def test_behind_lines_that_were_forgotten_a_text_is_hidden_until_the_next_one(behind: int) -> None:
    log = made_log(max_bytes=20_000)
    log.append_lines("out", [BEGIN, delta("The first half is sk-ant-api03-01234567")])
    if behind:
        read_all(log)
    log.append_lines("in", [b"x" * 15_000])
    log.append_lines("in", [b"x" * 15_000])
    log.append_lines("out", [delta("89abcdef and more "), BEGIN, delta("another text ")])
    seen = seen_in(log)
    assert seen[0].skipped == seen[1].position - 1
    assert [line.position for line in seen[1:]] == list(range(seen[1].position, log.last + 1))
    assert said(seen) == "[secret]another text "


def test_lines_that_two_observers_want_to_redact_are_redacted_once() -> None:
    log = made_log()
    log.append_lines("out", [BEGIN, *map(delta, KEY)])
    log.end()
    scrubbed = log.scrubbed()
    for unread in [scrubbed.unread(65536) for _ in range(2)]:
        unread.run()
        unread.run()
        assert unread.size == 0
        scrubbed.share()
    assert not scrubbed.lags
    assert said(scrubbed.take(0, max_bytes=10**6).lines()) == "The key is [secret] nowadays"
    assert scrubbed.last == log.last


@pytest.mark.parametrize(
    ("line", "at_once"),
    [(b"{}", 300), (delta("x"), 100), (b'{"to":"a@b.c"}', 300)],
    ids=["tiny lines", "a word without an end", "lines that grow"],
)
def test_what_waits_for_the_end_of_a_word_stays_in_bounded_memory(line: bytes, at_once: int) -> None:
    with memory() as used:
        log = made_log()
        log.append_lines("out", [BEGIN, delta("wo")])
        for _ in range(20):
            log.append_lines("out", [line] * at_once)
            read_all(log)
        for _ in watch(log, scrub=True, events=True):
            pass
        now, _ = used()
    assert now < 4 * ROOM + 500_000


def test_a_log_without_secrets_keeps_no_more_than_the_one_that_it_is_made_of() -> None:
    log = made_log(max_bytes=2_000)
    scrubbed = read_all(log)
    for number in range(300):
        log.append_lines("out", [b'{"type":"x","number":%d,"pad":"%s"}' % (number, b"p" * 50)])
        scrubbed = read_all(log)
    assert log.kept_bytes < 4_000
    assert scrubbed.kept_bytes < 4_000


def test_an_event_of_a_line_is_one_line_of_data() -> None:
    log = made_log()
    log.append_lines("out", [b'{"type":"x"}', b'{"type":"y"}'])
    events = log.take(0, max_bytes=10**6).events()
    assert len(events) == 2
    assert [(event.count(b"data:"), event.endswith(b"}\n\n")) for event in events] == [(1, True)] * 2
