"""Measure small messages of a hundred sessions while ten others of the same process stream lines of 1.3 MB without a pause."""

from __future__ import annotations

import functools
from typing import Any

from speed.bench import Bench, Table, Tables
from speed.harness import spread
from speed.worker import run_worker

__all__ = ["tables"]

_STREAMS = 10
_SECONDS = 1.5


def tables(bench: Bench) -> Tables:
    """Return the one table: latencies of the small messages, and what the streams read meanwhile."""
    size, streams = (100, _STREAMS) if bench.scale >= 0.1 else (3, 1)
    return {f"{size} beside {streams}": functools.partial(_measure, bench, size, streams)}


def _measure(bench: Bench, size: int, streams: int) -> Table:
    """Return medians by subject, and the latencies of the official SDK divided by ours."""
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "official": []}
    seconds = max(_SECONDS * min(bench.scale, 1.0), 1.0 if size >= 100 else 0.3)  # the streams need a while to get going
    for number in range(max(bench.rounds, 1)):
        for subject in sorted(runs, reverse=number % 2 == 0):
            asked = {"subject": subject, "backend": bench.backend, "size": size, "seconds": seconds, "streams": streams}
            runs[subject].append(run_worker("sessions", **asked))
    pairs = list(zip(runs["official"], runs["ours"], strict=True))
    ratios = {f"official / ours, {name}": spread([one[key] / other[key] for one, other in pairs]) for key, name in _RATIOS.items()}
    rows = {name: {key: spread([run[key] for run in taken]) for key in taken[0]} for name, taken in runs.items()}
    return {"rows": rows, "ratios": ratios}


_RATIOS = {"p50_ms": "p50", "p99_ms": "p99"}
