"""Write the report as Markdown: the figures of the page in the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speed.figures import about_lines, number, target_lines

from wire.targets import TARGETS

__all__ = ["write_figures"]

_BARE = "bare socket"

_TITLES = {
    "downstream": "Messages downstream, as dicts",
    "downstream, undecoded": "The same lines, undecoded",
    "round trip": "Round trips",
}


def write_figures(report: dict[str, Any], path: Path) -> None:
    """Write all tables, for both event loops."""
    lines = [*about_lines(report["about"]), *target_lines(report, TARGETS)]
    for name, title in _TITLES.items():
        for backend, tables in report["backends"].items():
            lines += ["", f"## {title}, {backend}", "", *_table(tables[name])]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _table(table: dict[str, Any]) -> Iterator[str]:
    thousands = f"thousand {table['unit']}s a second"
    yield f"| | µs of processor time, for one {table['unit']} | times the {_BARE} | {thousands}, by the clock | quartiles |"
    yield "|---|---|---|---|---|"
    for name, row in table["rows"].items():
        times = table["ratios"].get(f"{name} / {_BARE}")
        rate = {key: number(value / 1000) for key, value in table["rates"][name].items()}
        shown = "" if times is None else f"{times['median']:.2f} ({times['low']:.2f} to {times['high']:.2f})"
        yield f"| {name} | {number(row['cpu_us']['median'])} | {shown} | {rate['median']} | {rate['low']} to {rate['high']} |"
    pairs = {name: ratio for name, ratio in table["ratios"].items() if not name.endswith(_BARE)}
    if pairs:
        yield from ("", "| processor time of one / of another | median | quartiles | by the clock |", "|---|---|---|---|")
    for name, ratio in pairs.items():
        yield f"| {name} | {ratio['median']:.2f} | {ratio['low']:.2f} to {ratio['high']:.2f} | {ratio['wall']['median']:.2f} |"
