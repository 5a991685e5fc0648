"""The words in which the inspector shows figures: `2.5 s`, `12 KiB`, `$0.01`."""

from __future__ import annotations

_SECOND = 1.0
_MINUTE = 60.0
_HOUR = 3600.0


def seconds_text(seconds: float) -> str:
    """Write a duration: `340 ms`, `2.4 s`, `3 min 05 s`, `2 h 07 min`."""
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
    """Write a size: `812 B`, `3.4 kB`, `52.1 MB`."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def count_text(number: int) -> str:
    """Write a whole number with commas between the thousands."""
    return f"{number:,}"


def dollars_text(cost: float) -> str:
    """Write a cost: `$1.25`, `$0.0038`, `$0`."""
    if cost <= 0:
        return "$0"
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}" if cost >= 0.0001 else f"${cost:.6f}"


def plural(number: int, noun: str) -> str:
    """Write a number with its noun: `1 turn`, `2 turns`."""
    return f"{count_text(number)} {noun}{'' if number == 1 else 's'}"
