"""Measure resident memory while a million small messages are read and forgotten."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import anyio

from speed.bench import Bench, Table, Tables
from speed.peers import handshake_peer
from speed.worker import resident_mb, run_worker
from speed.workload import SHAPES, Workload

__all__ = ["tables", "work"]

_MESSAGES = 1_000_000
_SAMPLES = 10
_WARM = 2  # samples until everything that is made once exists


def tables(bench: Bench) -> Tables:
    """Return by subject: messages, megabytes after each tenth, and the growth over the last eight tenths."""
    return {subject: functools.partial(_measure, bench, subject) for subject in ("ours", "official")}


def _measure(bench: Bench, subject: str) -> Table:
    count = bench.amount(_MESSAGES, least=2000)
    answer = run_worker("memory", subject=subject, backend=bench.backend, folder=str(bench.folder), count=count)
    samples = answer["samples_mb"]
    return {"messages": count, "samples_mb": samples, "grew_mb": round(samples[-1] - samples[_WARM - 1], 2)}


def work(*, subject: str, backend: str, folder: str, count: int) -> dict[str, Any]:
    """Measure in a process of its own, and return the samples."""
    load = Workload.write(Path(folder), "memory", line=SHAPES["delta, 263 B"][1], count=count, files=10)
    peer = handshake_peer(Path(folder), load.files)
    samples = anyio.run(_ours if subject == "ours" else _official, peer, load.count, backend=backend)
    return {"samples_mb": samples}


async def _ours(peer: str, count: int) -> list[float]:
    from speed.ours import query_over

    samples, seen = [], 0
    async with query_over(peer) as query:
        messages = query.messages()
        await query.send("go")
        async for _ in messages:
            seen += 1
            if seen % (count // _SAMPLES) == 0:
                samples.append(round(resident_mb(), 2))
            if seen == count:
                break
    return samples


async def _official(peer: str, count: int) -> list[float]:
    from speed.official import client_over

    samples, seen = [], 0
    async with client_over(peer) as client:
        await client.query("go")
        async for _ in client.receive_messages():
            seen += 1
            if seen % (count // _SAMPLES) == 0:
                samples.append(round(resident_mb(), 2))
            if seen == count:
                break
    return samples
