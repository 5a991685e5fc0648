"""Draw samples in rows as SVG: a dot for every sample, a line for the median, a tick for the 95th percentile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["draw"]

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 130, 90, 56, 46
COLOURS = {"cli": "#b4552d", "api": "#2d6cb4", "session": "#3f8f4f"}


def draw(samples: Mapping[str, Sequence[float]], summary: Mapping[str, Mapping[str, float]], *, title: str) -> str:
    """Return the SVG; `samples` and `summary` (median and p95) are milliseconds by row, `way, temperature`."""
    longest = max(max(values) for values in samples.values())
    step = next(step for step in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**9) if longest / step <= 8)
    end = (int(longest / step) + 1) * step
    bottom = TOP + ROW * len(samples)

    def at(milliseconds: float) -> float:
        return round(LEFT + milliseconds / end * (WIDTH - LEFT - RIGHT), 1)

    described = "; ".join(f"{name}: median {row['median']:.0f} ms" for name, row in summary.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title><desc>{escape(described)}</desc>",
        f'<rect width="{WIDTH}" height="{bottom + 40}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="{LEFT}" y="42" fill="#666666">dots: single calls, line: median, tick: 95th percentile; milliseconds</text>',
    ]
    for tick in range(0, end + 1, step):
        parts.append(f'<line x1="{at(tick)}" y1="{TOP}" x2="{at(tick)}" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{at(tick)}" y="{bottom + 18}" text-anchor="middle" fill="#666666">{tick}</text>')
    for number, (name, values) in enumerate(samples.items()):
        colour, middle = COLOURS.get(name.partition(",")[0], "#555555"), TOP + ROW * number + ROW // 2
        median, p95 = at(summary[name]["median"]), at(summary[name]["p95"])
        parts.append(f'<text x="{LEFT - 10}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>')
        for index, value in enumerate(values):  # shifted a little, so that equal samples can be seen
            parts.append(f'<circle cx="{at(value)}" cy="{middle + (index % 5 - 2) * 3}" r="3" fill="{colour}" fill-opacity="0.45"/>')
        parts.append(f'<line x1="{median}" y1="{middle - 14}" x2="{median}" y2="{middle + 14}" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<line x1="{p95}" y1="{middle - 7}" x2="{p95}" y2="{middle + 7}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{middle + 4}" fill="{colour}">{summary[name]["median"]:.0f} ms</text>')
    return "\n".join([*parts, "</svg>\n"])
