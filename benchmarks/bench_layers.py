"""What a layer costs in a conversation: wall time and processor time of a line that a `Query` reads, beside the same without the layer.

    python benchmarks/bench_layers.py                figures for asyncio and for trio, as JSON
    python benchmarks/bench_layers.py --check        exit 1 when a bound is exceeded
    python benchmarks/bench_layers.py --memory       how much memory a session under a stack of five takes

A peer in memory sends one turn of 30,000 small messages (270 bytes, like partial messages). Each layer and the bare transport take turns,
and each pair gives a ratio; the figure is the median. Garbage is collected before each run, and not during it. A tape is written to the
disk by a thread of its own, which goes on after the turn: `closed_us` is the time of a line until everything is closed.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable
from bench_wrappers import MESSAGE

import claude_transport as ct
from claude_transport.transport import Transport
from claude_transport.transports.stream import StreamTransport
from claude_transport.wrappers import LoggingTransport, MetricsTransport, RecordingTransport, RetryingTransport, StatefulTransport
from claude_transport.wrappers.base import ObservingWrapper

Wrap: TypeAlias = Callable[[Transport], Transport]
Sample: TypeAlias = tuple[float, float, float]

BOUNDS = {"on_lines that does nothing": 1.15, "RecordingTransport": 2.0, "LoggingTransport with bodies": 5.0}
"""How many times the wall time of the bare transport a layer may take."""

MOST_KIB = 80
"""Memory of a session under the stack."""

CHUNK_BYTES = 65536
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done", "session_id": MESSAGE["session_id"]}


class Claude(ByteStream, ByteStreamConnectable):
    """Answers `initialize`, and sends `data` and a result for each prompt."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._chunks: deque[bytes] = deque()
        self._news = anyio.Event()
        self._is_over = False

    async def connect(self) -> Claude:
        return self

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._chunks:
            if self._is_over:
                raise anyio.EndOfStream
            self._news = anyio.Event()
            await self._news.wait()
        return self._chunks.popleft()

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        for line in item.splitlines():
            frame = msgspec.json.decode(line)
            if frame["type"] == "control_request":
                answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
                self._say(msgspec.json.encode({"type": "control_response", "response": answer}) + b"\n")
            elif frame["type"] == "user":
                for start in range(0, len(self._data), CHUNK_BYTES):
                    self._chunks.append(self._data[start : start + CHUNK_BYTES])
                self._say(msgspec.json.encode(RESULT) + b"\n")

    def _say(self, line: bytes) -> None:
        self._chunks.append(line)
        self._news.set()

    async def send_eof(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._is_over = True
        self._news.set()
        await anyio.lowlevel.checkpoint()


class Audit(ObservingWrapper):
    """An observer of a program that does nothing yet."""

    def on_lines(self, lines: Sequence[bytes]) -> None:
        pass


def layers(folder: Path) -> dict[str, Wrap]:
    logger = logging.Logger("bench", logging.DEBUG)  # noqa: LOG001 - a logger without a parent
    logger.addHandler(logging.NullHandler())
    names = iter(range(10**6))
    return {
        "on_lines that does nothing": Audit,
        "RecordingTransport": lambda transport: RecordingTransport(transport, folder / f"{next(names)}.ndjson"),
        "LoggingTransport with bodies": lambda transport: LoggingTransport(transport, logger=logger, bodies=True),
    }


async def run(wrap: Wrap, data: bytes, lines: int) -> Sample:
    """Return the microseconds for each line of a turn: wall time and processor time of the turn, and wall time until all is closed."""
    async with ct.Query(wrap(StreamTransport(Claude(data)))) as query:
        gc.collect()
        gc.disable()
        begin, processor = time.perf_counter(), time.process_time()
        count = 0
        async for _ in await query.send("go"):
            count += 1
        wall, processor = time.perf_counter() - begin, time.process_time() - processor
    until_closed = time.perf_counter() - begin  # a tape is whole then
    gc.enable()
    assert count >= lines, (count, lines)
    return wall * 1e6 / lines, processor * 1e6 / lines, until_closed * 1e6 / lines


async def compare(lines: int, rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    data = (msgspec.json.encode(MESSAGE) + b"\n") * lines
    wraps = layers(folder)
    pairs: dict[str, list[tuple[Sample, Sample]]] = {name: [] for name in wraps}
    await run(bare, data, lines)  # makes everything that is made on first use
    for number in range(rounds):
        for name, wrap in wraps.items():
            first, second = (wrap, bare) if number % 2 else (bare, wrap)
            one, other = await run(first, data, lines), await run(second, data, lines)
            pairs[name].append((other, one) if number % 2 else (one, other))
    return {name: summary(found) for name, found in pairs.items()}


def bare(transport: Transport) -> Transport:
    return transport


def summary(pairs: list[tuple[Sample, Sample]]) -> dict[str, float]:
    return {
        "bare_us": statistics.median(one[0] for one, _ in pairs),
        "us": statistics.median(other[0] for _, other in pairs),
        "times": statistics.median(other[0] / one[0] for one, other in pairs),
        "processor_us": statistics.median(other[1] for _, other in pairs),
        "processor_times": statistics.median(other[1] / one[1] for one, other in pairs),
        "closed_us": statistics.median(other[2] for _, other in pairs),
    }


def stack_of_five(folder: Path, number: int) -> Wrap:
    def wrap(transport: Transport) -> Transport:
        recording = RecordingTransport(transport, folder / f"stack-{number}.ndjson")
        return RetryingTransport(MetricsTransport(StatefulTransport(LoggingTransport(recording))))

    return wrap


async def memory(sessions: int, folder: Path, stacked: bool) -> float:
    """Return the KiB of each of `sessions` that are open and have had one turn."""
    data = (msgspec.json.encode(MESSAGE) + b"\n") * 10
    queries = []

    async def open_one(number: int) -> None:
        wrap = stack_of_five(folder, number) if stacked else bare
        query = ct.Query(wrap(StreamTransport(Claude(data))))
        await query.start()
        await (await query.send("go")).result()
        queries.append(query)

    await open_one(10**6)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(sessions):
        await open_one(number)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for query in queries:
        await query.aclose(timeout=0)
    return used / sessions / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", type=int, default=30_000, help="of a turn (default 30000)")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs (default 7)")
    parser.add_argument("--sessions", type=int, default=50, help="for --memory (default 50)")
    parser.add_argument("--memory", action="store_true", help="measure the memory of a session")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound is exceeded")
    options = parser.parse_args()
    found: dict[str, dict[str, object]] = {}
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        for backend in ("asyncio", "trio"):
            folder = Path(name) / backend
            folder.mkdir()
            if options.memory:
                sizes = [anyio.run(memory, options.sessions, folder, stacked, backend=backend) for stacked in (False, True)]
                found[backend] = {"bare_kib": sizes[False], "stack_kib": sizes[True]}
                if sizes[True] > MOST_KIB:
                    broken.append(f"{backend}: a session under the stack takes {sizes[True]:.0f} KiB, more than {MOST_KIB}")
                continue
            rows = anyio.run(compare, options.lines, options.rounds, folder, backend=backend)
            found[backend] = dict(rows)
            broken += [
                f"{backend}: {layer} takes {row['times']:.2f} times the bare transport, more than {BOUNDS[layer]}"
                for layer, row in rows.items()
                if row["times"] > BOUNDS[layer]
            ]
    print(json.dumps(found, indent=1))
    for sentence in broken:
        print(sentence)
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
