"""Draw the ratios of a report as a bar chart in SVG, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["COLOURS", "draw"]

_ROW, _LEFT, _WIDTH, _TOP = 20, 380, 400, 46
COLOURS = {"asyncio": "#4c78a8", "trio": "#f58518"}


def draw(report: dict[str, Any]) -> str:
    """Return the chart: processor time of the official SDK divided by ours, on a logarithmic axis."""
    bars = list(_bars(report))
    lowest = math.floor(math.log2(min(1.0, *(ratio for _, _, ratio in bars))))
    highest = math.log2(max(2.0, *(ratio for _, _, ratio in bars)))
    height = _TOP + _ROW * len(bars) + 20

    def at(ratio: float) -> float:
        return _LEFT + _WIDTH * (math.log2(ratio) - lowest) / (highest - lowest)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 60}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<text x="10" y="20" font-weight="bold">Processor time of the official SDK, as a multiple of ours</text>',
    ]
    for power in range(lowest, int(highest) + 1):
        x, colour = at(2**power), "#888888" if power == 0 else "#cccccc"
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP - 8}" y2="{height - 16}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.0f}" y="{_TOP - 12}" text-anchor="middle">{2**power:g}</text>')
    for number, (name, backend, ratio) in enumerate(bars):
        y = _TOP + _ROW * number
        left, right = sorted((at(1.0), at(max(ratio, 2**lowest))))
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}, {backend}</text>')
        bar = f'x="{left:.0f}" y="{y + 2}" width="{max(right - left, 1):.0f}" height="{_ROW - 6}" fill="{COLOURS[backend]}"'
        parts.append(f"<rect {bar}/>")
        parts.append(f'<text x="{right + 5:.0f}" y="{y + 13}">{ratio:.1f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(report: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Return name, event loop and ratio; both loops of a benchmark are neighbours."""
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
        yield f"a message, sessions: {size}", table
