"""Write the report as Markdown: the figures of the page in the docs, and every sentence that depends on one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from speed.targets import TARGETS, Target

__all__ = ["about_lines", "number", "target_lines", "verdicts", "write_figures", "write_summary"]

_LEAST_ROUNDS = 7
"""With fewer rounds, the page says that its medians are rough."""


def write_figures(report: dict[str, Any], path: Path) -> None:
    """Write all tables, for both event loops."""
    lines = [
        *about_lines(report["about"]),
        *_circumstances(report["about"]),
        *target_lines(report, TARGETS),
        *_dearer(report),
        *_growth(report),
    ]
    for section in (_costs, _waking, _sessions, _mixed, _gateway, _memory, _idle, _curve):
        for backend, tables in report["backends"].items():
            lines += ["", *section(backend, tables)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def write_summary(report: dict[str, Any], path: Path) -> None:
    """Write the sentences with which the page begins."""
    path.write_text("\n".join(_summary(report)) + "\n", "utf-8")


def _summary(report: dict[str, Any]) -> Iterator[str]:
    def each(*place: str, inverse: bool = False, unit: str = "") -> str:
        """Return the figure at `place` for each event loop: both, or one where they are the same."""
        figures = []
        for tables in report["backends"].values():
            found: Any = tables
            for key in place:
                found = found[key]
            figures.append(f"{1 / found['median'] if inverse else found['median']:.2f}{unit}")
        return " and ".join(dict.fromkeys(figures))

    def ratio(part: str, table: str, name: str, **how: Any) -> str:
        place = (part, table, "ratios", name)
        return f"{each(*place, **how)} times the processor time ({each(*place, 'wall', **how)} times by the clock)"

    typed, ours = "official / ours, Query, typed", "official / ours"
    yield f"Two figures are for {' and '.join(report['backends'])}, in this order."
    yield ""
    yield f"1. For small typed messages, the official SDK takes {ratio('reading', 'delta, 263 B', typed)} of this library."
    yield (
        f"2. For messages of 2.3 KB it takes {ratio('reading', 'assistant, 2.3 KB', typed)}; "
        f"for messages of 1.3 MB, {ratio('reading', 'tool result, 1.3 MB', typed)}."
    )
    yield (
        "3. In a program with 100 sessions, a message costs "
        f"{each('sessions', '100', 'ratios', ours, inverse=True)} of what it costs with the official SDK. With 400 sessions, 99 % of the "
        f"messages arrive within {each('sessions', '400', 'rows', 'ours', 'p99_ms', unit=' ms')}."
    )
    yield (
        "4. For a control request and its answer, this library takes "
        f"{ratio('conversing', 'control round trip', ours, inverse=True)} of the official SDK; to open and close a session, "
        f"{ratio('conversing', 'connect and close', ours, inverse=True)}."
    )
    yield (
        f"5. A gateway with 100 clients carries lines at {each('gateway', '100', 'ratios', 'relay / gateway')} of the speed of a relay "
        "that only copies bytes; it delays a line that comes alone by "
        f"{each('gateway', '100', 'alone', 'gateway', 'added_p50_ms', unit=' ms')}."
    )


def verdicts(report: dict[str, Any]) -> Iterator[str]:
    """Return one line for each target on each event loop, for a terminal."""
    for backend, tables in report["backends"].items():
        for target in TARGETS:
            yield f"{_verdict(target, target.figure(tables)):24}{backend:9}{target.what}: {target.shown(tables)}, target {target.wanted}"


def about_lines(about: dict[str, Any]) -> Iterator[str]:
    """Describe the machine and the amounts of the report."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    yield f"{about['python']}, {about['system']}, {about['cpus']} CPUs, load {about['load_before']} before the run; {versions}."
    scale = "the full amounts" if about["scale"] == 1 else f"{about['scale']:g} times the amounts named above"
    yield f"{about['rounds']} rounds, {scale}."


def _circumstances(about: dict[str, Any]) -> Iterator[str]:
    again = about["sittings"] - 1
    went = f"was stopped and resumed {again} times" if again else f"took {about['seconds'] / 60:.0f} minutes"
    loads = [part["load_before"] for part in about["parts"].values()]
    yield f"All of it is from one run, begun on {about['started']}; it {went}."
    yield f"The load before each of its {len(loads)} parts was {min(loads)} to {max(loads)}; much of that is its own."
    if about["scale"] < 1 or about["rounds"] < _LEAST_ROUNDS:
        yield from ("", "**This run was a short one.** It shows that everything runs; fixed costs weigh too much for more than that.")
    elif about["load_before"] > about["cpus"] / 2:
        yield from ("", "**The machine was busy when it began.** Starved peers make small batches, and clocks say little then.")


def _verdict(target: Target, figure: float) -> str:
    return "met" if figure >= target.least else "missed, but not by 15 %" if figure >= target.nearly else "missed"


def target_lines(report: dict[str, Any], targets: Sequence[Target]) -> Iterator[str]:
    """Yield each target with its figures, and whether it is met on every event loop."""
    backends = report["backends"]
    yield from ("", "## Targets", "", f"| what | at least | {' | '.join(backends)} | |", "|---|---|" + "---|" * (len(backends) + 1))
    for target in targets:
        found = {backend: target.figure(tables) for backend, tables in backends.items()}
        said = {_verdict(target, figure) for figure in found.values()}
        worst = _verdict(target, min(found.values()))
        verdict = worst if len(said) == 1 else "; ".join(f"{backend}: {_verdict(target, figure)}" for backend, figure in found.items())
        shown = " | ".join(target.shown(tables) for tables in backends.values())
        yield f"| {target.what} | {target.wanted} | {shown} | {verdict} |"


def _ratios(report: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield event loop, name of the comparison, and the official SDK's cost divided by ours."""
    for backend, tables in report["backends"].items():
        for part in ("reading", "carrying", "conversing", "importing", "sessions"):
            for name, table in tables[part].items():
                for ratio, found in table["ratios"].items():
                    if ratio.startswith("official"):
                        view = ratio.partition(", ")[2]
                        yield backend, f"a message, sessions: {name}" if part == "sessions" else f"{name}, {view}" if view else name, found


def _dearer(report: dict[str, Any]) -> Iterator[str]:
    """Say first where ours is slower."""
    lost: dict[str, list[str]] = {}
    for backend, name, found in _ratios(report):
        if found["median"] < 1:
            lost.setdefault(name, []).append(f"{1 / found['median']:.2f} times as much on {backend}")
    yield from ("", "## Where the official SDK takes less processor time", "")
    yield from (f"* {name}: ours takes {' and '.join(times)}." for name, times in lost.items())
    if not lost:
        yield "Nowhere in this run."


def _growth(report: dict[str, Any]) -> Iterator[str]:
    """Say in sentences whether costs are linear."""
    yield from ("", "## How costs grow", "", "![Processor time by length of a line and by number of sessions](speed-curves.svg)", "")
    for backend, tables in report["backends"].items():
        long = {int(size): _for_a_megabyte(int(size), table, "ours") for size, table in tables["curve"].items() if int(size) > 5000}
        per_message = {size: table["rows"]["ours"]["cpu_us"]["median"] for size, table in tables["sessions"].items()}
        yield (
            f"* {backend}: in lines of {min(long):,} to {max(long):,} bytes, a megabyte takes {min(long.values()):,.0f} to "
            f"{max(long.values()):,.0f} µs. A message takes "
            + ", ".join(f"{cost:.0f} µs with {size}" for size, cost in per_message.items())
            + " sessions that say 100 a second each."
        )


def _costs(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (f"## Costs, {backend}", "", "Medians in microseconds of processor time (by the clock), for one unit.")
    flat = {**tables["reading"], **tables["carrying"], **tables["conversing"], **tables["importing"]}
    for name, table in flat.items():
        yield from ("", f"**{name}** (per {table['unit']})", "", "| | processor | clock |", "|---|---|---|")
        for row, costs in table["rows"].items():
            yield f"| {row} | {number(costs['cpu_us']['median'])} | {number(costs['wall_us']['median'])} |"
        yield from ("", "| ratio | median | quartiles | by the clock |", "|---|---|---|---|")
        for row, ratio in table["ratios"].items():
            yield f"| {row} | {ratio['median']:.2f} | {ratio['low']:.2f} to {ratio['high']:.2f} | {ratio['wall']['median']:.2f} |"
        if "gigabytes_a_second" in table:
            speeds = ", ".join(f"{row} {speed['median']:.2f}" for row, speed in table["gigabytes_a_second"].items())
            yield from ("", f"Gigabytes a second, by the clock: {speeds}.")
        if "added_ms" in table:
            added = "; ".join(f"{row} {figures['median']:.1f}" for row, figures in table["added_ms"].items())
            yield from ("", f"Milliseconds of processor time that it adds: {added}.")


def _waking(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"## Wake-ups of the reader, {backend}",
        "",
        "| | messages | wake-ups | messages for each | batches read |",
        "|---|---|---|---|---|",
    )
    for table in tables["waking"].values():
        for subject, row in table["rows"].items():
            figures = [number(row[key]["median"]) if key in row else "" for key in ("messages", "wakeups", "messages_a_wakeup", "batches")]
            yield f"| {subject} | {' | '.join(figures)} |"


def _sessions(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"## Many sessions, {backend}",
        "",
        "Each says 100 messages a second; *rate* is the share of that which was delivered. Medians.",
        "",
    )
    yield "| sessions | | µs a message | cores | rate | p50 ms | p99 ms | MB a session | writer late by, ms |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for size, found in tables["sessions"].items():
        for subject, taken in found["rows"].items():
            row = {key: figures["median"] for key, figures in taken.items()}
            yield (
                f"| {size} | {subject} | {row['cpu_us']:.1f} | {row['cores']:.2f} | {row['kept_rate']:.0%} | {row['p50_ms']:.2f} "
                f"| {row['p99_ms']:.2f} | {row['session_mb']:.2f} | {row['pacer_late_ms']:.0f} |"
            )
    yield ""
    for size, found in tables["sessions"].items():
        ratio = found["ratios"]["official / ours"]
        yield f"* {size}: official / ours {ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _mixed(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (f"## Small messages beside streams of large ones, {backend}", "")
    yield "| | p50 ms | p99 ms | cores | small messages, rate | large lines, MB a second | writer late by, ms |"
    yield "|---|---|---|---|---|---|---|"
    for found in tables["mixed"].values():
        for subject, taken in found["rows"].items():
            row = {key: figures["median"] for key, figures in taken.items()}
            yield (
                f"| {subject} | {row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['cores']:.2f} | {row['kept_rate']:.0%} "
                f"| {row['streamed_mb']:.0f} | {row['pacer_late_ms']:.0f} |"
            )
        yield ""
        for name, ratio in found["ratios"].items():
            yield f"* {name}: {ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _gateway(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (f"## The gateway as a proxy, {backend}", "", "Lines in bulk, and lines that come alone. Medians.", "")
    columns = ["clients", "", "µs a line", "by the clock", "lines a second", "relay / this", "by the clock"]
    columns += ["alone: µs", "p50 ms", "p99 ms", "added p50", "added p99"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for size, found in tables["gateway"].items():
        for subject, alone in found["alone"].items():
            yield f"| {size} | {subject} | {' | '.join(_proxy_row(found, subject, alone))} |"


def _proxy_row(found: dict[str, Any], subject: str, alone: dict[str, Any]) -> Iterator[str]:
    costs, ratio = found["rows"].get(subject), found["ratios"].get(f"relay / {subject}")
    if costs is None:
        yield from [""] * 6
    else:
        wall = costs["wall_us"]["median"]
        yield from (f"{costs['cpu_us']['median']:.2f}", f"{wall:.2f}", f"{1e6 / wall:,.0f}")
        yield from [f"{figures['median']:.2f}" for figures in (ratio, ratio["wall"])] if ratio else ["", ""]
        yield f"{alone['cpu_us']['median']:.0f}"
    for key in ("p50_ms", "p99_ms", "added_p50_ms", "added_p99_ms"):
        yield f"{alone[key]['median']:.2f}" if key in alone else ""


def _memory(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"## Memory, {backend}",
        "",
        "| | messages | resident MB at each tenth | growth over the last eight tenths, MB |",
        "|---|---|---|---|",
    )
    for subject, row in tables["memory"].items():
        samples = ", ".join(f"{sample:.1f}" for sample in row["samples_mb"])
        yield f"| {subject} | {row['messages']:,} | {samples} | {row['grew_mb']:.2f} |"


def _idle(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    for table in tables["idle"].values():
        sizes = ", ".join(map(str, table["sizes"]))
        yield from (
            f"## Memory of idle sessions, {backend}",
            "",
            f"| | KB a session | resident MB with {sizes} sessions |",
            "|---|---|---|",
        )
        for subject, row in table["rows"].items():
            samples = ", ".join(f"{sample:.1f}" for sample in row["samples_mb"][-1])
            yield f"| {subject} | {row['kb_a_session']['median']:.1f} | {samples} |"


def _curve(backend: str, tables: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"## Microseconds for a megabyte, {backend}",
        "",
        "| bytes of a line | limit | ours | official | official / ours |",
        "|---|---|---|---|---|",
    )
    for size, table in tables["curve"].items():
        figures = " | ".join(number(_for_a_megabyte(int(size), table, subject)) for subject in ("limit", "ours", "official"))
        ratio = table["ratios"]["official / ours"]
        yield f"| {int(size):,} | {figures} | {ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) |"


def _for_a_megabyte(size: int, table: dict[str, Any], subject: str) -> float:
    cost: float = table["rows"][subject]["cpu_us"]["median"]
    return cost / size * 1e6


def number(value: float) -> str:
    """Format a number, with two decimals while it is small."""
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
