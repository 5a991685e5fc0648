"""Figures as people read them: durations, sizes, counts, dollars. The terminal and the page say them in the same words."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "dollars_text", "plural", "seconds_text"]

_SECOND = 1.0
_MINUTE = 60.0
_HOUR = 3600.0


def seconds_text(seconds: float) -> str:
    """`340 ms`, `2.4 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < _SECOND:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 or seconds <= 0 else f"{seconds * 1000:.1f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        whole = int(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = int(seconds // _MINUTE)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def bytes_text(size: int) -> str:
    """`812 B`, `3.4 kB`, `52.1 MB`."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def count_text(number: int) -> str:
    """A whole number, with commas between the thousands."""
    return f"{number:,}"


def dollars_text(cost: float) -> str:
    """`$1.25`, `$0.0038`, `$0`."""
    if cost <= 0:
        return "$0"
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}" if cost >= 0.0001 else f"${cost:.6f}"


def plural(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{count_text(number)} {noun}{'' if number == 1 else 's'}"
