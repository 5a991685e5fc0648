"""Measures a fleet on this machine: lines in a second, processor time for each, round trips, and the memory of an idle session.

`python benchmarks/bench_fleet.py` starts a redis-server, a worker process, and clients in this process. Each session runs a program that
says many lines of 290 bytes and then repeats what it is told; a round trip goes there and back, once in each `--period`. Beside it
the same sessions through a gateway, and a bare loop: one process appends the same bytes with coredis alone, 32 lines for each entry, and
this one reads them. Nothing else should run on the machine: only then do the times of round trips mean anything.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import coredis

from claude_transport import NetworkTransport, Transport
from claude_transport.fleet import FleetTransport

LINE = b'{"n":"' + b"x" * 280 + b'"}\n'
PROGRAM = """
import sys
sys.stdin.readline()
for _ in range({batches}): sys.stdout.write({line!r} * 32); sys.stdout.flush()
for line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()
"""
WORKER = """
import sys, anyio, json
from claude_transport.fleet import FleetWorker
from claude_transport.gateway import GatewayLimits
async def main():
    limits = GatewayLimits(sessions=1000, starts_per_minute=None)
    worker = FleetWorker(sys.argv[1], command=json.loads(sys.argv[2]), capacity=500, limits=limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await worker.started.wait()
        print("ready", flush=True)
anyio.run(main)
"""


GATEWAY = """
import sys, anyio, json
from claude_transport.gateway import Gateway, GatewayLimits
async def main():
    limits = GatewayLimits(sessions=1000, total_sessions=1000, connections=1000, half_open=1000, half_open_per_address=1000,
                           starts_per_minute=None)
    async with Gateway(command=json.loads(sys.argv[2]), listen=["tcp://127.0.0.1:0"], limits=limits) as gateway:
        print(gateway.urls[0], flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""

APPENDING = """
import sys, anyio, coredis
async def main():
    url, sessions, batches, data = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
    async with coredis.Redis.from_url(url) as writer:
        async def append(stream):
            for _ in range(batches):
                await writer.xadd(stream, {"d": data})
        await writer.ping()
        print("ready", flush=True)
        sys.stdin.read()
        async with anyio.create_task_group() as tasks:
            for number in range(sessions):
                tasks.start_soon(append, f"bare-{number}")
anyio.run(main)
"""


def used(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def start(script: str, url: str, batches: int) -> tuple[subprocess.Popen[bytes], str]:
    """Start what runs the programs, and return it with the first line that it says: it serves then."""
    program = [sys.executable, "-I", "-S", "-c", PROGRAM.format(batches=batches, line=LINE.decode())]
    process = subprocess.Popen([sys.executable, "-c", script, url, json.dumps(program)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, process.stdout.readline().decode().strip()


async def fleet(url: str, *, server: subprocess.Popen[bytes], sessions: int, batches: int, period: float) -> dict[str, Any]:
    """Return the figures of the sessions on a fleet."""
    worker, _ = await anyio.to_thread.run_sync(start, WORKER, url, batches)
    try:
        transports = [FleetTransport(url) for _ in range(sessions)]
        async with connected(transports):
            figures = await measure(transports, {"worker": worker, "broker": server}, batches=batches, period=period)
            return {**figures, "idle_bytes": await idle_bytes(url, str(transports[0].session))}
    finally:
        worker.terminate()
        worker.wait()


async def gateway(*, sessions: int, batches: int, period: float) -> dict[str, Any]:
    """Return the figures of the same sessions through a gateway on the same machine."""
    process, url = await anyio.to_thread.run_sync(start, GATEWAY, "", batches)
    try:
        transports = [NetworkTransport(url) for _ in range(sessions)]
        async with connected(transports):
            return await measure(transports, {"gateway": process}, batches=batches, period=period)
    finally:
        process.terminate()
        process.wait()


@contextlib.asynccontextmanager
async def connected(transports: Sequence[Transport]) -> AsyncIterator[None]:
    """Connect all of them, twenty at once, and close them after the block."""
    limiter = anyio.CapacityLimiter(20)

    async def connect(transport: Transport) -> None:
        async with limiter:
            await transport.connect()

    async with anyio.create_task_group() as tasks:
        for transport in transports:
            tasks.start_soon(connect, transport)
    yield
    async with anyio.create_task_group() as tasks:
        for transport in transports:
            tasks.start_soon(transport.close)


async def measure(
    transports: Sequence[Transport], processes: dict[str, subprocess.Popen[bytes]], *, batches: int, period: float
) -> dict[str, Any]:
    """Let all programs say their lines at once, then ping all of them; figures by name."""
    trips: list[float] = []

    def read() -> list[float]:
        return [time.perf_counter(), time.process_time(), *map(used, processes.values())]

    times = [read()]
    async with anyio.create_task_group() as tasks:
        for transport in transports:
            tasks.start_soon(read_all, transport, 32 * batches)
    times.append(read())
    await anyio.sleep(1)  # what was read is told to the broker
    times.append(read())
    async with anyio.create_task_group() as tasks:
        for number, transport in enumerate(transports):
            tasks.start_soon(ping, transport, trips, period, period * number / len(transports))
    times.append(read())
    lines = len(transports) * 32 * batches
    figures: dict[str, Any] = {"lines_per_second": round(lines / (times[1][0] - times[0][0]))}
    for what, count, (before, after) in (("line", lines, times[:2]), ("trip", len(trips), times[2:])):
        for name, then, now in zip(("client", *processes), before[1:], after[1:], strict=True):
            figures[f"{name}_us_per_{what}"] = round((now - then) / count * 1e6, 2)
    trips.sort()
    return figures | {"trip_p50_ms": round(trips[len(trips) // 2] * 1e3, 2), "trip_p99_ms": round(trips[int(len(trips) * 0.99)] * 1e3, 2)}


async def read_all(transport: Transport, count: int) -> None:
    """Let the program begin, and read its lines."""
    await transport.write("{}")
    async for batch in transport.read_lines():
        count -= len(batch)
        if count <= 0:
            return


async def ping(transport: Transport, trips: list[float], period: float, delay: float) -> None:
    """Measure ten round trips. Sessions do not talk at the same moment: each begins after its own delay."""
    lines = transport.read_lines()
    await anyio.sleep(delay)
    for _ in range(10):
        began = time.perf_counter()
        await transport.write("{}")
        await anext(lines)
        trips.append(time.perf_counter() - began)
        await anyio.sleep(period)


async def idle_bytes(url: str, session: str) -> int:
    """Bytes in the broker of a session without traffic."""
    await anyio.sleep(1)
    async with coredis.Redis.from_url(url) as client:
        sizes = [await client.memory_usage(f"{{claude-fleet:{session}}}:{part}") or 0 for part in ("meta", "in", "out", "setup")]
    return sum(sizes)


async def bare(url: str, *, sessions: int, batches: int) -> dict[str, Any]:
    """The same bytes with coredis alone: a process appends, this one reads, with a task for each stream."""
    async with coredis.Redis.from_url(url) as reader:

        async def read(stream: str) -> None:
            cursor, left = "0-0", batches
            while left:
                found = await reader.xread({stream: cursor}, count=64, block=1000)
                for entries in (found or {}).values():
                    left -= len(entries)
                    last = entries[-1].identifier
                    cursor = last.decode() if isinstance(last, bytes) else last

        command = [sys.executable, "-c", APPENDING, url, str(sessions), str(batches), (LINE * 32).decode()]
        writer = await anyio.to_thread.run_sync(functools.partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert writer.stdin is not None
        assert writer.stdout is not None
        await anyio.to_thread.run_sync(writer.stdout.readline)  # it is connected
        began = time.perf_counter(), time.process_time()
        writer.stdin.close()
        async with anyio.create_task_group() as tasks:
            for number in range(sessions):
                tasks.start_soon(read, f"bare-{number}")
        wall, cost = time.perf_counter() - began[0], time.process_time() - began[1]
        writer.wait()
    lines = sessions * batches * 32
    return {"lines_per_second": round(lines / wall), "client_us_per_line": round(cost / lines * 1e6, 2)}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--batches", type=int, default=100, help="32 lines each, for each session")
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two round trips of a session")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    asked = parser.parse_args()
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("redis-server is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--port", str(port), "--save", "", "--appendonly", "yes", "--dir", folder]
        server = subprocess.Popen([program, *settings], stdout=subprocess.PIPE)
        assert server.stdout is not None
        while b"Ready to accept" not in server.stdout.readline():
            pass
        url = f"redis://127.0.0.1:{port}/0"
        try:
            size = {"sessions": asked.sessions, "batches": asked.batches}

            async def all_three() -> dict[str, Any]:
                found = {"fleet": await fleet(url, server=server, period=asked.period, **size)}
                found["gateway"] = await gateway(period=asked.period, **size)
                found["bare"] = await bare(url, **size)
                speeds = {name: figures["lines_per_second"] for name, figures in found.items()}
                ratios = {f"fleet / {name}": round(speeds["fleet"] / speeds[name], 2) for name in ("gateway", "bare")}
                return {**found, "lines_per_second": ratios}

            found = anyio.run(all_three, backend=asked.backend)
        finally:
            server.kill()
            server.communicate()
    found["children_seconds"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, 1)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
