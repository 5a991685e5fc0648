"""Carry undecoded lines: from one pipe into another, and written one by one."""

from __future__ import annotations

import functools

from speed import limit, official, ours
from speed.bench import Bench, Table, Tables
from speed.peers import Sink, line_peer
from speed.workload import SHAPES, Workload

__all__ = ["tables"]

_SHARES = {"delta, 263 B": 0.1, "assistant, 2.3 KB": 0.25, "tool result, 87 KB": 1.0, "tool result, 1.3 MB": 1.0}
"""Share of the lines of each shape. The official SDK decodes and encodes each line, so small ones take ten times as long as reading."""

_RATIOS = {"official / ours": ("official", "ours"), "limit / ours": ("limit", "ours")}


def tables(bench: Bench) -> Tables:
    """Return the tables: forwarding (per megabyte), and writing (per line of 263 bytes)."""
    forwarding = {f"forward, {shape}": functools.partial(_forward, bench, shape) for shape in _SHARES}
    return {**forwarding, "write, 263 B": functools.partial(_write, bench)}


def _forward(bench: Bench, shape: str) -> Table:
    work = Workload.of_shape(bench.folder, shape, scale=bench.scale * _SHARES[shape])
    peer, end = line_peer(bench.folder, work.files), Sink(bench.folder)
    runs = {
        "limit": lambda: limit.forward(peer, end, work),
        "ours": bench.run(ours.forward, peer, end, work),
        "official": bench.run(official.forward, peer, end, work),
    }
    found = bench.compare(runs, ratios=_RATIOS, unit="MB")
    # 1000 / (microseconds for a megabyte) is gigabytes per second
    speeds = {name: 1000 / row["wall_us"]["median"] for name, row in found["rows"].items()}
    return {**found, "gigabytes_a_second": {name: {"median": speed} for name, speed in speeds.items()}}


def _write(bench: Bench) -> Table:
    line, count, end = SHAPES["delta, 263 B"][1], bench.amount(20_000), Sink(bench.folder)
    runs = {
        "limit": lambda: limit.write(end, line=line, count=count),
        "ours": bench.run(ours.write, end, line=line, count=count),
        "official": bench.run(official.write, end, line=line, count=count),
    }
    return bench.compare(runs, ratios=_RATIOS, unit="write")
