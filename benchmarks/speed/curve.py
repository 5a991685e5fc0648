"""Measure whether cost is linear in bytes: the same amount in lines from three hundred bytes to ten megabytes."""

from __future__ import annotations

import functools

from speed import limit, official, ours
from speed.bench import Bench, Table, Tables
from speed.peers import handshake_peer, line_peer
from speed.workload import Workload, lines_of

__all__ = ["tables"]

SIZES = (300, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
_TOTAL_BYTES = 30_000_000


def tables(bench: Bench) -> Tables:
    """Return the tables by bytes of a line: processor time for each typed message through `Query`."""
    return {str(len(lines_of(size))): functools.partial(_measure, bench, size) for size in SIZES}


def _measure(bench: Bench, size: int) -> Table:
    line = lines_of(size)
    work = Workload.write(bench.folder, f"{size} B", line=line, count=max(round(_TOTAL_BYTES * bench.scale / len(line)), 1))
    peer, session = line_peer(bench.folder, work.files), handshake_peer(bench.folder, work.files)
    runs = {
        "limit": lambda: limit.read_typed(peer, work),
        "ours": bench.run(ours.query_typed, session, work),
        "official": bench.run(official.query_typed, session, work),
    }
    ratios = {"official / ours": ("official", "ours"), "limit / ours": ("limit", "ours")}
    return bench.compare(runs, ratios=ratios, unit="message")
