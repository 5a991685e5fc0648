"""What a hostile peer may say in place of a name, a reason or a number, and what must be true of every line that quotes it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

HOSTILE = {
    "a line feed": "x\n2026-01-01 00:00:00 INFO session of alice: FORGED",
    "a carriage return": "x\rFORGED",
    "a terminal escape": "x\x1b[2J\x1b]0;FORGED\x07",
    "a control of the second set": "x\x9b2J\x85FORGED",
    "a bidi override": "x\u202eDEGROF\u2066",
    "a line separator": "x\u2028FORGED\u2029",
    "invisible characters": "x\u200b\ufeff\U000e0041",
    "a megabyte": "x" * 1_000_000,
    "a megabyte of controls": "\x1b" * 1_000_000,
}

SHORTER = {kind: text[:5000] for kind, text in HOSTILE.items()}
"""The same, where a line of 64 KiB is all that is read."""

LONGEST = 5000
"""Characters of one line of a log."""


def assert_lines_are_safe(lines: Iterable[str], *, longest: int = LONGEST) -> None:
    """Fail for a line that is not printable, or longer than a log should hold."""
    for line in lines:
        assert line.isprintable(), ascii(line[:300])
        assert len(line) <= longest, (len(line), line[:100])


def assert_records_are_safe(records: Iterable[logging.LogRecord]) -> None:
    """Fail for a record with more than one line, or one that is not safe to look at. A traceback may have more, each of them indented."""
    for record in records:
        first, *more = record.getMessage().split("\n")
        assert_lines_are_safe([first, *more])
        assert all(line.startswith("  ") for line in more), more[:3]
        assert not record.exc_info, "an unexpected error"
        fields = [value for name, value in vars(record).items() if name.startswith(("gateway_", "claude_")) and isinstance(value, str)]
        assert_lines_are_safe(fields)
