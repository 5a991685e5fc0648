"""Measures a fleet on this machine: lines in a second, processor time for each, round trips, and the memory of an idle session.

`python benchmarks/bench_fleet.py` starts a redis-server, a worker process, and clients in this process. Each session runs a program that
says many lines of 290 bytes and then repeats what it is told. The bare loop beside it appends the same bytes with coredis alone, 32 lines
for each entry, and reads them. Nothing else should run on the machine: only then do the times of round trips mean anything.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import coredis

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


def used(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def start_worker(url: str, batches: int) -> subprocess.Popen[bytes]:
    """Start a worker, and wait until it serves."""
    program = [sys.executable, "-I", "-S", "-c", PROGRAM.format(batches=batches, line=LINE.decode())]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url, json.dumps(program)], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


async def measure(url: str, *, server: subprocess.Popen[bytes], sessions: int, batches: int) -> dict[str, Any]:
    """Run all sessions at once; figures by name."""
    worker = await anyio.to_thread.run_sync(start_worker, url, batches)
    try:
        transports = [FleetTransport(url) for _ in range(sessions)]
        limiter = anyio.CapacityLimiter(20)

        async def connect(transport: FleetTransport) -> None:
            async with limiter:
                await transport.connect()

        async with anyio.create_task_group() as tasks:
            for transport in transports:
                tasks.start_soon(connect, transport)
        before = (time.perf_counter(), time.process_time(), used(worker), used(server))
        async with anyio.create_task_group() as tasks:
            for transport in transports:
                tasks.start_soon(read_all, transport, 32 * batches)
        after = (time.perf_counter(), time.process_time(), used(worker), used(server))
        lines = sessions * 32 * batches
        wall, *costs = (now - then for now, then in zip(after, before, strict=True))
        figures: dict[str, Any] = {"lines_per_second": round(lines / wall)}
        figures |= {
            f"{name}_us_per_line": round(cost / lines * 1e6, 2) for name, cost in zip(("client", "worker", "broker"), costs, strict=True)
        }
        trips: list[float] = []
        async with anyio.create_task_group() as tasks:
            for transport in transports:
                tasks.start_soon(ping, transport, trips)
        trips.sort()
        figures |= {"trip_p50_ms": round(trips[len(trips) // 2] * 1e3, 2), "trip_p99_ms": round(trips[int(len(trips) * 0.99)] * 1e3, 2)}
        figures["idle_bytes"] = await idle_bytes(url, str(transports[0].session))
        async with anyio.create_task_group() as tasks:
            for transport in transports:
                tasks.start_soon(transport.close)
        return figures
    finally:
        worker.terminate()
        worker.wait()


async def read_all(transport: FleetTransport, count: int) -> None:
    """Let the program begin, and read its lines."""
    await transport.write("{}")
    async for batch in transport.read_lines():
        count -= len(batch)
        if count <= 0:
            return


async def ping(transport: FleetTransport, trips: list[float]) -> None:
    """Measure ten round trips, two in a second."""
    lines = transport.read_lines()
    for _ in range(10):
        began = time.perf_counter()
        await transport.write("{}")
        await anext(lines)
        trips.append(time.perf_counter() - began)
        await anyio.sleep(0.5)


async def idle_bytes(url: str, session: str) -> int:
    """Bytes in the broker of a session without traffic."""
    await anyio.sleep(1)
    async with coredis.Redis.from_url(url) as client:
        sizes = [await client.memory_usage(f"{{claude-fleet:{session}}}:{part}") or 0 for part in ("meta", "in", "out", "setup")]
    return sum(sizes)


async def bare(url: str, *, sessions: int, batches: int) -> dict[str, Any]:
    """The same bytes with coredis alone: one task for each stream appends, one reads, in one process."""
    async with coredis.Redis.from_url(url) as writer, coredis.Redis.from_url(url) as reader:

        async def append(stream: str) -> None:
            for _ in range(batches):
                await writer.xadd(stream, {"d": LINE * 32})

        async def read(stream: str) -> None:
            cursor, left = "0-0", batches
            while left:
                found = await reader.xread({stream: cursor}, count=64, block=1000)
                for entries in (found or {}).values():
                    left -= len(entries)
                    last = entries[-1].identifier
                    cursor = last.decode() if isinstance(last, bytes) else last

        began = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as tasks:
            for number in range(sessions):
                tasks.start_soon(append, f"bare-{number}")
                tasks.start_soon(read, f"bare-{number}")
        wall, cost = time.perf_counter() - began[0], time.process_time() - began[1]
    lines = sessions * batches * 32
    return {"lines_per_second": round(lines / wall), "client_us_per_line": round(cost / lines * 1e6, 2)}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--batches", type=int, default=100, help="32 lines each, for each session")
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

            async def both() -> dict[str, Any]:
                return {"fleet": await measure(url, server=server, **size), "bare": await bare(url, **size)}

            found = anyio.run(both, backend=asked.backend)
        finally:
            server.kill()
            server.communicate()
    found["children_seconds"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, 1)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
