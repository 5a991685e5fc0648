"""Measure the memory of the host for each session that is open and idle: what its resident memory grows by, divided by the sessions."""

from __future__ import annotations

import contextlib
import functools
import gc
import resource
from pathlib import Path
from typing import Any

import anyio

from speed.bench import Bench, Table, Tables
from speed.harness import spread
from speed.peers import idle_peer
from speed.worker import resident_mb, run_worker

__all__ = ["tables", "work"]

_SIZES = {0.5: (100, 200, 300, 400), 0.01: (20, 60, 100), 0.0: (2, 4)}
"""The numbers of sessions, by the least scale of the run."""

_RUNS = 3
_SETTLE_SECONDS = 0.5
_FILES = 8192  # each session has three pipes, and something that tells the end of its process


def tables(bench: Bench) -> Tables:
    """Return the one table: kilobytes for each session, by subject."""
    return {"idle sessions": functools.partial(_measure, bench)}


def _measure(bench: Bench) -> Table:
    sizes = next(sizes for least, sizes in _SIZES.items() if bench.scale >= least)
    samples: dict[str, list[list[float]]] = {"ours": [], "official": []}
    for _ in range(min(max(bench.rounds, 1), _RUNS)):
        for subject, taken in samples.items():
            answer = run_worker("idle", subject=subject, backend=bench.backend, folder=str(bench.folder), sizes=sizes)
            taken.append(answer["samples_mb"])
    rows = {name: {"kb_a_session": spread([_slope(sizes, each) for each in taken]), "samples_mb": taken} for name, taken in samples.items()}
    return {"unit": "session", "sizes": sizes, "rows": rows}


def _slope(sizes: tuple[int, ...], samples_mb: list[float]) -> float:
    return (samples_mb[-1] - samples_mb[0]) * 1024 / (sizes[-1] - sizes[0])


def work(*, subject: str, backend: str, folder: str, sizes: list[int]) -> dict[str, Any]:
    """Open sessions in a process of its own, and return its resident memory at each of the sizes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(_FILES, hard)), hard))
    return {"samples_mb": anyio.run(_open, subject, idle_peer(Path(folder)), sizes, backend=backend)}


async def _open(subject: str, peer: str, sizes: list[int]) -> list[float]:
    if subject == "ours":
        from speed.ours import query_over as opened
    else:
        from speed.official import client_over as opened  # type: ignore[assignment]
    samples, count = [], 0
    async with contextlib.AsyncExitStack() as stack:
        for size in sizes:
            while count < size:
                await stack.enter_async_context(opened(peer))
                count += 1
            await anyio.sleep(_SETTLE_SECONDS)
            gc.collect()
            samples.append(round(resident_mb(), 3))
    return samples
