"""`claude-transport sessions`: lists the sessions and the workers of a fleet, and stops a session."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Final

import msgspec

from claude_transport.app.event_loop import run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.terminal import TerminalOutput, json_for_terminals, one_line
from claude_transport.app.worker import broker_of

_WIDEST: Final = 64
"""Columns of one cell."""


def run(args: SimpleNamespace) -> int:
    """List, or stop, and return the exit code. Raises what `failures` can report."""
    return run_on(args.backend, partial(_run, args, broker_of(args)))


async def _run(args: SimpleNamespace, url: str) -> int:
    from claude_transport.fleet.registry import FleetRegistry

    output = TerminalOutput(sys.stdout)
    async with FleetRegistry(url) as registry:
        if args.stop is not None:
            await registry.stop(args.stop)
            return EXIT_OK
        nodes = await registry.nodes()
        sessions = await registry.sessions()
        waiting = await registry.queue_length()
    if args.json:
        found = {"sessions": sessions, "workers": nodes, "waiting": waiting}
        await output.write_bytes(json_for_terminals(msgspec.json.encode(found)) + b"\n")
        return EXIT_OK
    rows = [("SESSION", "STATE", "WORKER", "OWNERS", "CLIENT", "TURNS", "UNREAD")]
    rows += [
        (each.id, each.state, each.worker or "-", f"{each.epoch}", "there" if each.client else "away", f"{each.turns}", f"{each.unread}")
        for each in sessions
    ]
    workers = [("WORKER", "STATE", "LOAD", "LABELS", "LIBRARY")]
    workers += [
        (
            each.name,
            "gone" if not each.alive else "draining" if each.draining else "serving",
            f"{each.load}/{each.capacity}",
            ",".join(each.labels) or "-",
            each.library or "-",
        )
        for each in nodes
    ]
    await output.write("".join([*_table(rows), "\n", *_table(workers), f"\n{waiting} waiting\n"]))
    return EXIT_OK


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    clean = [[one_line(cell, width=_WIDEST) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in clean) for column in range(len(clean[0]))]
    for row in clean:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
