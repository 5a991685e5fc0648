"""The report as Markdown: the part of the page in the docs that is made of figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speed.targets import TARGETS

__all__ = ["write_figures"]


def write_figures(report: dict[str, Any], path: Path) -> None:
    """All tables, for both event loops."""
    lines = [*_about(report["about"]), *_targets(report)]
    for section in (_costs, _sessions, _memory, _curve):
        for backend, tables in report["backends"].items():
            lines += ["", *section(backend, tables)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _about(about: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    yield f"{about['python']}, {about['system']}, {about['cpus']} CPUs, load {about['load_before']} before the run; {versions}."
    scale = "the full amounts" if about["scale"] == 1 else f"{about['scale']:g} times the amounts named below"
    yield f"{about['rounds']} rounds, {scale}."


def _targets(report: dict[str, Any]) -> Iterator[str]:
    backends = list(report["backends"])
    yield from ("", "## Targets", "", f"| what | target | {' | '.join(backends)} | |", "|---|---|" + "---|" * (len(backends) + 1))
    for target in TARGETS:
        figures = [target.figure(report["backends"][backend]) for backend in backends]
        kept = "kept" if min(figures) >= target.least else "within the slack" if min(figures) >= target.floor else "missed"
        yield f"| {target.what} | {target.least:.2f} | {' | '.join(f'{figure:.2f}' for figure in figures)} | {kept} |"


def _costs(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (f"## Costs, {backend}", "", "Medians in microseconds of processor time (by the clock), for one unit.")
    flat = {**tables["reading"], **tables["carrying"], **tables["conversing"], **tables["importing"]}
    for name, table in flat.items():
        yield from ("", f"**{name}** (per {table['unit']})", "", "| | processor | clock |", "|---|---|---|")
        for row, costs in table["rows"].items():
            yield f"| {row} | {_number(costs['cpu_us']['median'])} | {_number(costs['wall_us']['median'])} |"
        yield from ("", "| ratio | median | quartiles | by the clock |", "|---|---|---|---|")
        for row, ratio in table["ratios"].items():
            yield f"| {row} | {ratio['median']:.2f} | {ratio['low']:.2f} to {ratio['high']:.2f} | {ratio['wall']['median']:.2f} |"


def _sessions(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (f"## Many sessions, {backend}", "", "Each says 100 messages a second; *rate* is the share of that which was delivered.", "")
    yield "| sessions | | µs a message | cores | rate | p50 ms | p99 ms | MB a session | writer late by, ms |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for size, found in tables["sessions"].items():
        for subject, row in found["rows"].items():
            yield (
                f"| {size} | {subject} | {row['cpu_us']:.1f} | {row['cores']:.2f} | {row['kept_rate']:.0%} | {row['p50_ms']:.2f} "
                f"| {row['p99_ms']:.2f} | {row['session_mb']:.2f} | {row['pacer_late_ms']:.0f} |"
            )
    yield ""
    for size, found in tables["sessions"].items():
        ratio = found["ratios"]["official / ours"]
        yield f"* {size}: official / ours {ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _memory(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"## Memory, {backend}",
        "",
        "| | messages | resident MB at each tenth | growth over the last eight tenths, MB |",
        "|---|---|---|---|",
    )
    for subject, row in tables["memory"].items():
        samples = ", ".join(f"{sample:.1f}" for sample in row["samples_mb"])
        yield f"| {subject} | {row['messages']} | {samples} | {row['grew_mb']:.2f} |"


def _curve(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (f"## Microseconds for a megabyte, {backend}", "", "| bytes of a line | limit | ours |", "|---|---|---|")
    for size, row in tables["curve"].items():
        yield f"| {int(size):,} | {_number(row['limit']['median'])} | {_number(row['ours']['median'])} |"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
