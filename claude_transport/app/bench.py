"""`claude-transport bench`: how fast this installation reads, beside the least that reading can take here."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from functools import partial
from importlib.metadata import version
from typing import Final

import msgspec

from claude_transport.app.backend import run_on
from claude_transport.app.bench_run import MESSAGE_BYTES, Bench, Row
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.interruption import run_interruptibly
from claude_transport.app.progress import open_progress
from claude_transport.app.terminal import Look, choose_look
from claude_transport.app.writing import write_out
from claude_transport.errors import ConfigurationError


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, and where. `load`: the machine's load average before, which says how far to trust it; None on Windows."""

    version: str
    python: str
    platform: str
    cpus: int
    load: float | None
    backend: str
    rounds: int
    messages: int
    message_bytes: int
    rows: list[Row]


_EXPLANATION: Final = (
    "x: times as long as the loop without the library took, in the same round;",
    "*: as long as SubprocessTransport, dicts, without the wrapper.",
)
MOST_MESSAGES: Final = 1_000_000
"""Of a run: the loop without the library cannot be interrupted, and should not be for longer than a second or two."""


def run(args: argparse.Namespace) -> int:
    """Measure, print the figures, and return the exit code. Raises what a transport raises when no child can be run."""
    if args.messages > MOST_MESSAGES:
        raise ConfigurationError(f"--messages is {MOST_MESSAGES} at most", option="messages")
    return run_on(args.backend, partial(_measure, args))


async def _measure(args: argparse.Namespace) -> int:
    bench = Bench(messages=args.messages)
    return await run_interruptibly(partial(_report, bench, args), give_up=bench.give_up)


async def _report(bench: Bench, args: argparse.Namespace) -> int:
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with open_progress("Measuring", stream=sys.stderr, look=look, plain=args.plain, unit="runs", scale=1) as progress:
        rows = await bench.run(on_progress=progress.update)
    report = BenchReport(
        version=version("claude-transport"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cpus=os.cpu_count() or 1,
        load=load,
        backend=args.backend,
        rounds=bench.rounds,
        messages=bench.messages,
        message_bytes=MESSAGE_BYTES,
        rows=rows,
    )
    if args.json:
        write_out(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        write_out("\n".join(_lines(report, look)))
    return EXIT_OK


def _lines(report: BenchReport, look: Look) -> list[str]:
    """The report as text of at most 80 columns."""
    load = "" if report.load is None else f", load {report.load:.1f}"
    lines = [
        f"claude-transport {report.version}, Python {report.python}, {report.platform}, {report.cpus} CPUs{load}",
        f"{report.backend}, {report.messages:,} messages of {report.message_bytes} bytes from a child process",
        f"processor time of the reading thread, median of {report.rounds} rounds",
        "",
        f"{'':<34}{'messages/s':>12}{'µs each' if look.unicode else 'us each':>10}",
    ]
    for row in report.rows:
        figures = f"{row.name:<34}{row.messages_per_second:>12,.0f}{row.us_per_message:>10.2f}"
        lines.append(figures if row.ratio is None else f"{figures}   x {row.ratio:.2f}{_of(row)}")
    lines += ["", *_EXPLANATION]
    return lines


def _of(row: Row) -> str:
    return " *" if row.against is not None and row.against.startswith("Sub") else ""
