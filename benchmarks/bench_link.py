"""Lines per second over loopback TCP, bare and over the resumable link, with the other side in a process of its own.

`python benchmarks/bench_link.py [--lines 200000] [--size 263]` prints one row for each way of carrying, direction and event loop.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketAttribute

from claude_transport.streams.link import LinkConnectable
from claude_transport.testing.conformance.link_peer import LinkPeer
from claude_transport.transports.stream import Connectable, StreamTransport

BATCH = 250
"""Lines in one write: what a 64 KiB chunk of small messages holds."""


class Dial:
    """Opens connections to a port on loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", self._port)


class Sink(LinkPeer):
    """A peer that counts what arrives instead of keeping it."""

    def take(self, data: bytes) -> None:
        del data


def batches(count: int, size: int) -> Iterator[bytes]:
    line = b'{"type":"keep_alive","pad":"' + b"x" * (size - 31) + b'"}\n'
    for start in range(0, count, BATCH):
        yield line * min(BATCH, count - start)


# ------------------------------------------------------------------------------------------------------- the other side


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


# -------------------------------------------------------------------------------------------------------------- this side


async def read(transport: StreamTransport, count: int, size: int) -> None:
    got = 0
    async for batch in transport.read_lines():
        got += len(batch)
    assert got == count, (got, count, size)


async def write(transport: StreamTransport, count: int, size: int) -> None:
    for batch in batches(count, size):
        await transport.write(batch)
    await transport.end_input()
    async for _ in transport.read_lines():
        pass


async def carry(make: Callable[[int], Connectable], port: int, direction: str, count: int, size: int) -> float:
    async with StreamTransport(make(port)) as transport:
        start = time.perf_counter()
        await (read if direction == "read" else write)(transport, count, size)
        return count / (time.perf_counter() - start)


def measure(make: Callable[[int], Connectable], way: str, direction: str, count: int, size: int, *, backend: str) -> float:
    """Lines per second."""
    command = [sys.executable, __file__, "--serve", way, "--lines", str(count if direction == "read" else 0), "--size", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        return anyio.run(carry, make, int(server.stdout.readline()), direction, count, size, backend=backend)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=263, help="bytes of a line, with its newline")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        anyio.run(serve, given.serve, given.lines, given.size, backend_options={"use_uvloop": False})
        return
    ways: dict[str, Callable[[int], Any]] = {"plain": Dial, "link": lambda port: LinkConnectable(Dial(port))}
    for backend in ("asyncio", "trio"):
        for direction in ("read", "write"):
            for way, make in ways.items():
                rate = measure(make, way, direction, given.lines, given.size, backend=backend)
                print(f"{backend:8} {direction:6} {way:6} {rate / 1000:8.0f} k lines/s", flush=True)


if __name__ == "__main__":
    main()
