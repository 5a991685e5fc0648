"""Many sessions in one process, each with a child of its own that sends a hundred messages a second.

One pacer writes all messages, each into the output of the child that should have sent it: four hundred children that woke up for each
message would leave the reader little of the machine. A message carries the time at which it was written, which gives its latency (all
processes of a machine share CLOCK_MONOTONIC).
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from speed.bench import Bench, Table, Tables
from speed.harness import spread
from speed.peers import endless_peer, lent_peer
from speed.worker import resident_mb, run_worker
from speed.workload import Workload, delta

__all__ = ["FILES_EACH", "allow_files", "tables", "work"]

RATE = 100  # messages a second of each session
SECONDS = {1: 1.0, 25: 1.0, 100: 1.5, 400: 1.5}
"""By number of sessions: for how many seconds they talk."""

FILES_EACH = 8  # three pipes, two descriptors that watch them, and one of the pacer

_SLOTS = 10  # the sessions are spread over the 10 ms between two messages of one

# argv: seconds to run, then the files to write to. Prints by how much the latest slot was late, in ms.
_PACER = r"""
import os, sys, time
seconds, rate, slots, before, after = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *(a.encode() for a in sys.argv[4:6])
pipes = [os.open(path, os.O_WRONLY) for path in sys.argv[6:]]
parts = [pipes[slot::slots] for slot in range(slots)]
start, late = time.monotonic() + 0.2, 0.0
for tick in range(int(seconds * rate) * slots):
    due = start + tick / (rate * slots)
    wait = due - time.monotonic()
    if wait > 0:
        time.sleep(wait)
    else:
        late = max(late, -wait)
    for pipe in parts[tick % slots]:
        os.write(pipe, before + b"%d" % time.monotonic_ns() + after)
print(late * 1000)
"""


def tables(bench: Bench) -> Tables:
    """Return the tables by number of sessions."""
    sizes = SECONDS if bench.scale >= 0.1 else (1, 100) if bench.scale >= 0.01 else (3,)
    return {str(size): functools.partial(_measure, bench, size) for size in sizes}


def _measure(bench: Bench, size: int) -> Table:
    """Return medians by subject, and processor time per message of the official SDK divided by ours."""
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "official": []}
    seconds = max(SECONDS.get(size, 2.0) * min(bench.scale, 1.0), 1.0 if size >= 100 else 0.3)  # many sessions need a longer run
    for number in range(max(bench.rounds, 1)):
        for subject in sorted(runs, reverse=number % 2 == 0):
            runs[subject].append(run_worker("sessions", subject=subject, backend=bench.backend, size=size, seconds=seconds))
    ratios = [one["cpu_us"] / other["cpu_us"] for one, other in zip(runs["official"], runs["ours"], strict=True)]
    rows = {name: {key: spread([run[key] for run in taken]) for key in taken[0]} for name, taken in runs.items()}
    return {"rows": rows, "ratios": {"official / ours": spread(ratios)}}


def work(*, subject: str, backend: str, size: int, seconds: float, streams: int = 0) -> dict[str, Any]:
    """Measure in a process of its own. Return µs of processor time per message, MB per session, latencies in ms, and the kept rate.

    With `streams`, so many more sessions read lines of 1.3 MB without a pause; `streamed_mb` is what they read in a second.
    """
    allow_files((size + streams) * FILES_EACH + 256)
    if streams:
        logging.disable(logging.ERROR)  # these processes are killed at the end
        # Ours runs each child in a session of its own. Where Linux gives each session the same share of the processors, that alone would
        # decide who waits here.
        anyio.open_process = functools.partial(anyio.open_process, start_new_session=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        outputs = [Path(folder, f"output-{number}") for number in range(size)]
        peers = [lent_peer(output) for output in outputs]
        large = Workload.of_shape(Path(folder), "tool result, 1.3 MB", scale=0.2 if streams else 0.0)
        endless = [endless_peer(Path(folder), large.files[0])] * streams
        return anyio.run(_converse, subject, peers, [str(output) for output in outputs], seconds, endless, len(large.line), backend=backend)


def allow_files(least: int) -> None:
    """Allow this process and its children that many open files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < least:
        hard = least  # only root may raise it; for other users the next line fails with an error
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))


async def _converse(
    subject: str, peers: list[str], outputs: list[str], seconds: float, endless: list[str], line_bytes: int
) -> dict[str, Any]:
    opened, stamp = (_ours if subject == "ours" else _official)()
    latencies: list[int] = []
    streamed, expected = 0, int(seconds * RATE) * len(peers)
    async with AsyncExitStack() as stack:
        before = resident_mb()
        sessions = [await stack.enter_async_context(opened(peer)) for peer in peers]
        each = (resident_mb() - before) / len(peers)
        streams = [await stack.enter_async_context(opened(peer)) for peer in endless]
        stack.callback(_kill_endless, endless)
        async with anyio.create_task_group() as tasks:

            async def consume(messages: AsyncIterator[Any]) -> None:
                nonlocal cpu, wall, streamed
                async for message in messages:
                    if not latencies:
                        cpu, wall, streamed = time.process_time(), time.perf_counter(), 0
                    latencies.append(time.monotonic_ns() - stamp(message))
                    if len(latencies) == expected:
                        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                        tasks.cancel_scope.cancel()

            async def swallow(messages: AsyncIterator[Any]) -> None:
                nonlocal streamed
                async for _ in messages:
                    streamed += 1
                    if streamed == 2 * len(streams):
                        streaming.set()

            cpu = wall = 0.0
            streaming = anyio.Event()
            for session in streams:
                tasks.start_soon(swallow, _messages_of(session))
                await (session.send("go") if subject == "ours" else session.query("go"))
            for session in sessions:
                tasks.start_soon(consume, _messages_of(session))
            if streams:
                with anyio.fail_after(60):
                    await streaming.wait()
            head, tail = _around_the_time()
            gc.collect()
            gc.freeze()  # as in every run: older objects are not scanned again
            pacer = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
                [sys.executable, "-ISE", "-c", _PACER, str(seconds), str(RATE), str(_SLOTS), head, tail, *outputs], stdout=subprocess.PIPE
            )
        late, _ = pacer.communicate(timeout=60)
    figures = _figures(latencies, cpu=cpu, wall=wall, each=each, late=float(late), rate=RATE * len(peers))
    return {**figures, **({"streamed_mb": streamed * line_bytes / wall / 1e6} if endless else {})}


def _messages_of(session: Any) -> AsyncIterator[Any]:
    messages: AsyncIterator[Any] = session.messages() if hasattr(session, "messages") else session.receive_messages()
    return messages


def _kill_endless(endless: list[str]) -> None:
    for path in {Path(peer).parent for peer in endless}:
        for named in path.glob("pid-*"):
            os.kill(int(named.name.removeprefix("pid-")), signal.SIGKILL)


def _figures(latencies: list[int], *, cpu: float, wall: float, each: float, late: float, rate: int) -> dict[str, Any]:
    latencies.sort()
    return {
        "messages": len(latencies),
        "cpu_us": cpu / len(latencies) * 1e6,
        "cores": cpu / wall,
        "kept_rate": len(latencies) / wall / rate,
        "p50_ms": latencies[len(latencies) // 2] / 1e6,
        "p99_ms": latencies[len(latencies) * 99 // 100] / 1e6,
        "session_mb": each,
        "pacer_late_ms": late,
    }


def _around_the_time() -> tuple[str, str]:
    """Return the text of a partial message before and after the place of the time."""
    import json

    head, tail = json.dumps(delta("@")).split("@")
    return head, tail + "\n"


def _ours() -> tuple[Callable[[str], Any], Callable[[Any], int]]:
    from speed.ours import query_over

    return query_over, lambda message: int(message.event["delta"]["text"])


def _official() -> tuple[Callable[[str], Any], Callable[[Any], int]]:
    from speed.official import client_over

    return client_over, lambda message: int(message.event["delta"]["text"])
