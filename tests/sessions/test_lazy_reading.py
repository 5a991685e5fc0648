"""Lists and pages read no more than they must: counted in files and bytes, and weighed in memory, not timed."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from shelf import Shelf, assistant, session, talk, user

from claude_transport.sessions import get_session_info, get_session_messages, list_sessions

KIB = 1024
END = 64 * KIB


@dataclass
class Reads:
    """What was asked of the operating system."""

    files: int = 0
    bytes: int = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Counts the files that are opened, and the bytes that are read from them."""
    counted = Reads()

    def counting(name: str, *, files: int) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **arguments: Any) -> Any:
            given = real(*args, **arguments)
            counted.files += files
            counted.bytes += len(given) if isinstance(given, bytes) else 0
            return given

        return call

    monkeypatch.setattr(os, "open", counting("open", files=1))
    monkeypatch.setattr(os, "read", counting("read", files=0))
    return counted


@contextmanager
def peak() -> Iterator[Callable[[], int]]:
    """Measures the most memory that was held at once, in bytes."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def long_talk(size: int) -> list[Any]:
    """A talk of about so many bytes."""
    return [*talk(), *(assistant(n, "x" * 20_000, parent=n - 1) for n in range(3, size // 20_000 + 3))]


def test_a_list_reads_both_ends_of_each_file_and_no_more(shelf: Shelf, reads: Reads) -> None:
    for number in range(20):
        shelf.put(number, long_talk(400 * KIB))
    assert len(list_sessions()) == 20
    assert (reads.files, reads.bytes) == (20, 20 * 2 * END)


def test_a_short_file_is_read_once(shelf: Shelf, reads: Reads) -> None:
    path = shelf.put(1)
    assert get_session_info(session(1)) is not None
    assert (reads.files, reads.bytes) == (1, path.stat().st_size)


def test_a_page_opens_only_the_files_that_it_shows_and_skips(shelf: Shelf, reads: Reads) -> None:
    for number in range(50):
        shelf.put(number)
    assert [info.session_id for info in list_sessions(limit=3, offset=2)] == [session(number) for number in (47, 46, 45)]
    assert reads.files == 5


def test_the_memory_of_a_list_does_not_grow_with_its_files(shelf: Shelf) -> None:
    for number in range(60):
        shelf.put(number, long_talk(200 * KIB))
    list_sessions()  # whatever is loaded or cached at first use
    with peak() as most:
        assert len(list_sessions()) == 60
        assert most() < 4 * END + 60 * 2 * KIB


def test_the_memory_of_a_page_of_messages_does_not_grow_with_the_transcript(shelf: Shelf) -> None:
    shelf.put(1, long_talk(4000 * KIB))
    get_session_messages(session(1), limit=1)
    with peak() as most:
        assert len(get_session_messages(session(1), limit=2, offset=100)) == 2
        assert most() < 500 * KIB


def test_a_project_that_is_not_asked_for_is_not_opened(shelf: Shelf, reads: Reads) -> None:
    shelf.put(1)
    shelf.put(2, [user(1)], cwd="/other")
    assert [info.session_id for info in list_sessions("/other")] == [session(2)]
    assert reads.files == 1
