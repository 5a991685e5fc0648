"""Lines carried without a look at them: from one pipe into another, and written one by one."""

from __future__ import annotations

from speed import limit, official, ours
from speed.bench import Bench, Table
from speed.peers import line_peer, sink
from speed.workload import SHAPES, Workload

__all__ = ["measure"]


def measure(bench: Bench) -> dict[str, Table]:
    """Forwarding (per megabyte), and writing (per line of 263 bytes)."""
    tables = {f"forward, {shape}": _forward(bench, shape) for shape in ("assistant, 2.3 KB", "tool result, 87 KB")}
    return {**tables, "write, 263 B": _write(bench)}


def _forward(bench: Bench, shape: str) -> Table:
    work = Workload.of_shape(bench.folder, shape, scale=bench.scale)
    peer, end = line_peer(bench.folder, work.files), sink(bench.folder)
    runs = {
        "limit": lambda: limit.forward(peer, end, work),
        "ours": bench.run(ours.forward, peer, end, work),
        "official": bench.run(official.forward, peer, end, work),
    }
    return bench.compare(runs, ratios={"official / ours": ("official", "ours"), "limit / ours": ("limit", "ours")}, unit="MB")


def _write(bench: Bench) -> Table:
    line, count, end = SHAPES["delta, 263 B"][1], bench.amount(20_000), sink(bench.folder)
    runs = {
        "limit": lambda: limit.write(end, line=line, count=count),
        "ours": bench.run(ours.write, end, line=line, count=count),
        "official": bench.run(official.write, end, line=line, count=count),
    }
    return bench.compare(runs, ratios={"official / ours": ("official", "ours"), "limit / ours": ("limit", "ours")}, unit="write")
