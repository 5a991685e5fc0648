"""What the resumable link costs: messages a second over loopback TCP, bare and over the link.

The other side is a process of its own, with the same code in both cases: `NetworkTransport` reads dicts from it, or writes lines to it.
Bare and linked take turns; a ratio is the median of the rounds.

`python benchmarks/bench_link.py [--lines 200000] [--size 263] [--rounds 5]` prints the rates and their ratio for each direction and event
loop, by the clock and by this process's own processor time. `bench_network.py` has the same link to a gateway, in every medium.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import anyio
from anyio.abc import ByteStream, SocketAttribute

from claude_transport import NetworkTransport
from claude_transport.testing.conformance.socket_peer import LinkPeer

BATCH = 248
"""Lines in one write: as many small messages as 64 KiB hold."""


class Sink(LinkPeer):
    """A peer that counts bytes and keeps none."""

    def take(self, data: bytes) -> None:
        del data


def batches(count: int, size: int) -> Iterator[bytes]:
    line = b'{"type":"keep_alive","pad":"' + b"x" * (size - 31) + b'"}\n'
    for start in range(0, count, BATCH):
        yield line * min(BATCH, count - start)


# The other side.


async def serve_plain(stream: ByteStream, count: int, size: int) -> None:
    if count:
        for batch in batches(count, size):
            await stream.send(batch)
        await stream.send_eof()
    else:
        try:
            while True:
                await stream.receive()
        except anyio.EndOfStream:
            await stream.aclose()


async def serve_link(stream: ByteStream, count: int, size: int) -> None:
    peer = Sink(window=4 * 2**20, replay_bytes=8 * 2**20)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.serve, stream)
        if count:
            for batch in batches(count, size):
                await peer.send(batch)
            await peer.finish()


async def serve(way: str, count: int, size: int) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        print(listener.extra(SocketAttribute.local_port), flush=True)

        async def attend(stream: ByteStream) -> None:
            await (serve_link if way == "link" else serve_plain)(stream, count, size)
            tasks.cancel_scope.cancel()

        await listener.serve(attend)


# This side.


async def read(transport: NetworkTransport, count: int) -> None:
    got = 0
    async for _ in transport.read_messages():
        got += 1
    assert got == count, (got, count)


async def write(transport: NetworkTransport, count: int, size: int) -> None:
    for batch in batches(count, size):
        await transport.write(batch)
    await transport.end_input()
    async for _ in transport.read_lines():
        pass


async def carry(port: int, way: str, direction: str, count: int, size: int) -> tuple[float, float]:
    async with NetworkTransport(f"tcp://127.0.0.1:{port}", resume=way == "link") as transport:
        wall, processor = time.perf_counter(), time.process_time()
        if direction == "read":
            await read(transport, count)
        else:
            await write(transport, count, size)
        return count / (time.perf_counter() - wall), count / (time.process_time() - processor)


def measure(way: str, direction: str, count: int, size: int, *, backend: str) -> tuple[float, float]:
    """Return messages per second, by the clock and by processor time."""
    command = [sys.executable, __file__, "--serve", way, "--lines", str(count if direction == "read" else 0), "--size", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        return anyio.run(carry, int(server.stdout.readline()), way, direction, count, size, backend=backend)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=263, help="bytes of a line, with its newline")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        anyio.run(serve, given.serve, given.lines, given.size, backend_options={"use_uvloop": False})
        return
    print("thousand messages a second: by the clock, and by this process's processor time")
    for backend in ("asyncio", "trio"):
        for direction in ("read", "write"):
            rates = [
                [measure(way, direction, given.lines, given.size, backend=backend) for way in ("plain", "link")]
                for _ in range(given.rounds)
            ]
            for clock, name in enumerate(("clock", "cpu")):
                plain, link = (statistics.median(each[way][clock] for each in rates) / 1000 for way in (0, 1))
                ratio = statistics.median(each[1][clock] / each[0][clock] for each in rates)
                print(f"{backend:8} {direction:6} {name:6} plain {plain:6.0f}   link {link:6.0f}   link/plain {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
