"""Whether cost is linear in bytes: the same number of megabytes in lines from a hundred bytes to ten megabytes."""

from __future__ import annotations

from typing import Any

from speed import limit, ours
from speed.bench import Bench
from speed.harness import compare, spread
from speed.peers import handshake_peer, line_peer
from speed.workload import Workload, lines_of

__all__ = ["measure"]

SIZES = (300, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
_TOTAL_BYTES = 40_000_000


def measure(bench: Bench) -> dict[str, Any]:
    """By bytes of a line: µs of processor time for each megabyte, by subject; typed, through `Query`."""
    found = {}
    for size in SIZES:
        line = lines_of(size)
        work = Workload.write(bench.folder, f"{size} B", line=line, count=max(round(_TOTAL_BYTES * bench.scale / len(line)), 1))
        peer, session = line_peer(bench.folder, work.files), handshake_peer(bench.folder, work.files)
        runs = {
            "limit": lambda peer=peer, work=work: limit.read_typed(peer, work),
            "ours": bench.run(ours.query_typed, session, work),
        }
        costs = compare(runs, rounds=min(bench.rounds, 5))
        megabytes = len(line) / 1e6
        found[str(len(line))] = {name: spread([cost.cpu * 1e6 / megabytes for cost in taken]) for name, taken in costs.items()}
    return found
