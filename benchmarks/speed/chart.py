"""The ratios of a report as a bar chart: SVG, written by hand, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["draw"]

_ROW, _LEFT, _WIDTH, _TOP = 20, 330, 420, 46
_COLOURS = {"asyncio": "#4c78a8", "trio": "#f58518"}


def draw(report: dict[str, Any]) -> str:
    """How many times as much processor time the official SDK takes, on a logarithmic axis."""
    bars = list(_bars(report))
    highest = max(2.0, *(ratio for _, _, ratio in bars))
    height = _TOP + _ROW * len(bars) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 60}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<text x="10" y="20" font-weight="bold">Processor time of the official SDK, as a multiple of ours</text>',
    ]
    x = _LEFT
    for number in range(int(math.log2(highest)) + 1):
        x = _LEFT + _length(2**number, highest)
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP - 8}" y2="{height - 16}" stroke="#cccccc"/>')
        parts.append(f'<text x="{x:.0f}" y="{_TOP - 12}" text-anchor="middle">{2**number}</text>')
    for number, (name, backend, ratio) in enumerate(bars):
        y = _TOP + _ROW * number
        length = max(_length(ratio, highest), 1)
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}, {backend}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y + 2}" width="{length:.0f}" height="{_ROW - 6}" fill="{_COLOURS[backend]}"/>')
        parts.append(f'<text x="{_LEFT + length + 5:.0f}" y="{y + 13}">{ratio:.1f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(report: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Name, event loop, ratio; the same benchmark on both loops stands together."""
    rows: dict[str, list[tuple[str, float]]] = {}
    for backend, tables in report["backends"].items():
        for name, table in _tables(tables):
            for ratio, found in table["ratios"].items():
                if ratio.startswith("official"):
                    view = ratio.partition(", ")[2]
                    rows.setdefault(f"{name}, {view}" if view else name, []).append((backend, found["median"]))
    for name, ratios in rows.items():
        for backend, ratio in ratios:
            yield name, backend, ratio


def _tables(tables: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for bench in ("reading", "carrying", "conversing", "importing"):
        yield from tables[bench].items()
    for size, table in tables["sessions"].items():
        yield f"{size} sessions, a message", table


def _length(ratio: float, highest: float) -> float:
    return _WIDTH * math.log2(max(ratio, 1.0)) / math.log2(highest)
