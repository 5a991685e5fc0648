"""Draw costs by length of a line and by number of sessions. Both axes are logarithmic: linear growth is a line at 45 degrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from speed.chart import COLOURS

__all__ = ["draw_curves"]

_SIZE, _LEFT, _TOP, _GAP = 320, 70, 60, 110
_DASHES = {"limit": "2 4", "ours": "", "official": "8 4"}

Curve = tuple[str, str, list[tuple[float, float]]]
"""Event loop, subject, points."""


def draw_curves(report: dict[str, Any]) -> str:
    """Return two panels: processor time of a message by its bytes, and busy cores by number of sessions."""
    width, height = 2 * (_LEFT + _SIZE) + _GAP, _TOP + _SIZE + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_panel(_LEFT, "µs of processor time for a message", "bytes of its line", list(_by_bytes(report))),
        *_panel(_LEFT + _SIZE + _GAP, "cores busy", "sessions, each 100 messages a second", list(_by_sessions(report))),
    ]
    x = _LEFT
    for backend, colour in COLOURS.items():
        for subject, dashes in _DASHES.items():
            parts.append(_line([(x, height - 14), (x + 26, height - 14)], colour, dashes))
            parts.append(f'<text x="{x + 31}" y="{height - 10}">{subject}, {backend}</text>')
            x += 130
    return "\n".join([*parts, "</svg>"]) + "\n"


def _by_bytes(report: dict[str, Any]) -> Iterator[Curve]:
    for backend, tables in report["backends"].items():
        for subject in _DASHES:
            points = [(float(size), float(table["rows"][subject]["cpu_us"]["median"])) for size, table in tables["curve"].items()]
            yield backend, subject, points


def _by_sessions(report: dict[str, Any]) -> Iterator[Curve]:
    for backend, tables in report["backends"].items():
        for subject in ("ours", "official"):
            yield (
                backend,
                subject,
                [(float(size), float(one["rows"][subject]["cores"]["median"])) for size, one in tables["sessions"].items()],
            )


def _panel(left: int, title: str, below: str, curves: list[Curve]) -> Iterator[str]:
    x_of, x_ticks = _axis([x for _, _, points in curves for x, _ in points], left, left + _SIZE)
    y_of, y_ticks = _axis([y for _, _, points in curves for _, y in points], _TOP + _SIZE, _TOP)
    yield f'<text x="{left}" y="{_TOP - 24}" font-weight="bold">{title}</text>'
    yield f'<text x="{left + _SIZE / 2:.0f}" y="{_TOP + _SIZE + 34}" text-anchor="middle">{below}</text>'
    for tick in x_ticks:
        yield f'<line x1="{x_of(tick):.0f}" x2="{x_of(tick):.0f}" y1="{_TOP}" y2="{_TOP + _SIZE}" stroke="#dddddd"/>'
        yield f'<text x="{x_of(tick):.0f}" y="{_TOP + _SIZE + 16}" text-anchor="middle">{_name(tick)}</text>'
    for tick in y_ticks:
        yield f'<line x1="{left}" x2="{left + _SIZE}" y1="{y_of(tick):.0f}" y2="{y_of(tick):.0f}" stroke="#dddddd"/>'
        yield f'<text x="{left - 6}" y="{y_of(tick) + 4:.0f}" text-anchor="end">{_name(tick)}</text>'
    for backend, subject, points in curves:
        yield _line([(x_of(x), y_of(y)) for x, y in points], COLOURS[backend], _DASHES[subject])


def _axis(values: list[float], first: float, last: float) -> tuple[Callable[[float], float], list[float]]:
    """Return a function for the position of a value between `first` and `last`, and the powers of ten to label."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def place(value: float) -> float:
        return first + (last - first) * (math.log10(value) - low) / (high - low)

    return place, [10.0**power for power in range(low, high + 1)]


def _name(tick: float) -> str:
    return f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"


def _line(points: list[tuple[float, float]], colour: str, dashes: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
