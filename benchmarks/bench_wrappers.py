"""What wrappers cost: seconds of processor time per message, against the same transport without them.

    python benchmarks/bench_wrappers.py                    tables: each wrapper idle and at work, and stacks of 0 to 6
    python benchmarks/bench_wrappers.py --check            exit 1 when a bound is exceeded
    python benchmarks/bench_wrappers.py --trio --source memory --json

The transport reads small messages (270 bytes, like partial messages) from a child process (`cat` of a file), or from a stream in memory,
where the system costs nothing and all the rest weighs more. Both views are measured: dicts, one by one (`read_messages`), and undecoded
lines in batches (`read_lines`), which `Query` uses.

A wrapped read and a bare one take turns, first one, then the other, and each pair gives a ratio; the figure is the median of all
ratios, and the spread their quartiles. The figures are processor time of the reading thread, which a busy machine
changes less. Garbage is collected before each run, and not during it.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable
from opentelemetry.trace import NoOpTracerProvider

from claude_transport.transport import Transport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import MetricsTransport
from claude_transport.wrappers.recording import RecordingTransport
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

Wrap: TypeAlias = Callable[[Transport], Transport]

CHUNK_BYTES = 65536
MESSAGE = {
    "type": "stream_event",
    "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a word "}},
    "session_id": "0b0fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11",
    "parent_tool_use_id": None,
    "uuid": "7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e6f",
    "api_message_id": "msg_01",
}

# The bounds: how much more reading small messages as dicts may cost, as a share. An idle wrapper must be cheap enough to stay in place.
BOUNDS = {"idle": 0.05, "all idle": 0.20, "MetricsTransport, at work": 0.10}


class FileStream(ByteStream, ByteStreamConnectable):
    """A byte stream that returns `data` again and again, without a system call."""

    def __init__(self, data: bytes) -> None:
        self._chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)][::-1]

    async def connect(self) -> FileStream:
        return self

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        await anyio.lowlevel.checkpoint()
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop()

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()


class Bench:
    """Reads the messages of one source, and measures it."""

    def __init__(self, *, messages: int, source: str, view: str, folder: Path) -> None:
        self.messages = messages
        self.view = view
        self._source = source
        self._data = (msgspec.json.encode(MESSAGE) + b"\n") * messages
        self._file = folder / "messages.ndjson"
        self._file.write_bytes(self._data)

    def bare(self) -> Transport:
        if self._source == "process":
            return SubprocessTransport(command=["cat", str(self._file)])
        return StreamTransport(FileStream(self._data))

    async def run(self, wrap: Wrap) -> float:
        """Return the seconds of processor time per message."""
        count = 0
        transport = wrap(self.bare())
        async with transport:
            gc.collect()
            gc.disable()
            started = time.thread_time()
            if self.view == "dicts":
                async for _ in transport.read_messages():
                    count += 1
            else:
                async for lines in transport.read_lines():
                    count += len(lines)
            taken = time.thread_time() - started
            gc.enable()
        assert count == self.messages, (count, self.messages)
        return taken / count

    async def compare(self, wraps: Mapping[str, Wrap], *, rounds: int) -> dict[str, dict[str, Any]]:
        """Measure each of them, in microseconds and as ratios of pairs. The pairs of all wrappers take turns."""
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in wraps}
        await self.run(unwrapped)  # makes everything that is made on first use
        for number in range(rounds):
            for name, wrap in wraps.items():
                if number % 2:
                    wrapped, bare = await self.run(wrap), await self.run(unwrapped)
                else:
                    bare, wrapped = await self.run(unwrapped), await self.run(wrap)
                samples[name].append((bare, wrapped))
        return {name: summarise(pairs) for name, pairs in samples.items()}


def summarise(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    ratios = sorted(wrapped / bare for bare, wrapped in pairs)
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return {
        "bare_us": statistics.median(bare for bare, _ in pairs) * 1e6,
        "wrapped_us": statistics.median(wrapped for _, wrapped in pairs) * 1e6,
        "more": statistics.median(ratios) - 1,
        "more_quartiles": [quartiles[0] - 1, quartiles[2] - 1],
        "pairs": [[bare * 1e6, wrapped * 1e6] for bare, wrapped in pairs],
    }


def unwrapped(transport: Transport) -> Transport:
    return transport


def nest(wraps: list[Wrap]) -> Wrap:
    """Return one wrapper of all of them, the first one innermost."""

    def nested(transport: Transport) -> Transport:
        for wrap in wraps:
            transport = wrap(transport)
        return transport

    return nested


def idle_wraps() -> dict[str, Wrap]:
    """Return wrappers without work."""
    return {
        "TransportWrapper": TransportWrapper,
        "LoggingTransport": lambda transport: LoggingTransport(transport, logger=quiet_logger(logging.WARNING)),
        "RetryingTransport": RetryingTransport,
        "StatefulTransport": StatefulTransport,
        "FaultyTransport": lambda transport: FaultyTransport(transport, ()),
        "TracingTransport": TracingTransport,  # without a tracer provider, as in a program that does not trace
    }


def active_wraps(folder: Path) -> dict[str, Wrap]:
    """Return wrappers that work while a healthy transport is read."""
    return {
        "RetryingTransport": RetryingTransport,  # has no work while nothing fails
        "StatefulTransport": lambda transport: StatefulTransport(transport, on_change=lambda _old, _new: None),
        "MetricsTransport": MetricsTransport,
        "TracingTransport": lambda transport: TracingTransport(transport, tracer_provider=NoOpTracerProvider()),
        "LoggingTransport": lambda transport: LoggingTransport(transport, logger=quiet_logger(logging.DEBUG)),
        "RecordingTransport": lambda transport: RecordingTransport(transport, folder / "tape.ndjson"),
    }


def quiet_logger(level: int) -> logging.Logger:
    """Return a logger that formats nothing and has no output."""
    logger = logging.Logger("bench", level)  # noqa: LOG001 - a logger without a parent
    logger.addHandler(logging.NullHandler())
    return logger


def stacks(wraps: Mapping[str, Wrap]) -> dict[str, Wrap]:
    """Return stacks of the first one, the first two, …: by number, and the name of the outermost."""
    made = list(wraps.values())
    return {"0 (bare)": unwrapped} | {f"{number} (+ {name})": nest(made[:number]) for number, name in enumerate(wraps, start=1)}


async def measure(options: argparse.Namespace, view: str, folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return figures by table and row."""
    idle, active = idle_wraps(), active_wraps(folder)
    bench = Bench(messages=options.messages, source=options.source, view=view, folder=folder)
    return {
        "idle, one at a time": await bench.compare(idle, rounds=options.rounds),
        "idle, stacked": await bench.compare(stacks(idle), rounds=options.rounds),
        "at work, one at a time": await bench.compare(active, rounds=options.rounds),
        "at work, stacked": await bench.compare(stacks(active), rounds=max(options.rounds // 3, 1)),
    }


def broken_bounds(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Return a sentence for each bound that is exceeded (only dicts have bounds)."""
    asked = {f"{name}, idle": (row, BOUNDS["idle"]) for name, row in found["idle, one at a time"].items()}
    name, row = list(found["idle, stacked"].items())[-1]
    asked[f"{name}, all idle"] = (row, BOUNDS["all idle"])
    asked["MetricsTransport, at work"] = (found["at work, one at a time"]["MetricsTransport"], BOUNDS["MetricsTransport, at work"])
    return [f"{name}: {row['more']:+.1%}, more than {bound:.0%}" for name, (row, bound) in asked.items() if row["more"] > bound]


def print_tables(view: str, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    for table, rows in found.items():
        print(f"\n{view}: {table:<34}{'bare µs':>9}{'with µs':>9}{'more':>8}{'quartiles':>16}")
        for name, row in rows.items():
            low, high = row["more_quartiles"]
            print(f"  {name:<39}{row['bare_us']:>9.3f}{row['wrapped_us']:>9.3f}{row['more']:>+8.1%}{low:>+8.1%}{high:>+8.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=50_000, help="messages of a run (default 50000)")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of runs (default 15)")
    parser.add_argument("--source", choices=["process", "memory"], default="process", help="where the messages come from (default process)")
    parser.add_argument("--view", choices=["dicts", "lines", "both"], default="both", help="how they are read (default both)")
    parser.add_argument("--trio", action="store_true", help="on trio instead of asyncio")
    parser.add_argument("--json", action="store_true", help="print JSON with every pair")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound is exceeded")
    options = parser.parse_args()
    if options.rounds < 1 or options.messages < 1:
        parser.error("at least one round, and one message")
    backend = "trio" if options.trio else "asyncio"
    views = ["dicts", "lines"] if options.view == "both" else [options.view]
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for view in views:
            found[view] = anyio.run(measure, options, view, Path(folder), backend=backend)
    about: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    about |= {
        "load": os.getloadavg()[0],
        "backend": backend,
        "source": options.source,
        "rounds": options.rounds,
        "messages": options.messages,
    }
    if options.json:
        print(json.dumps({"about": about, "bounds": BOUNDS, "views": found}))
    else:
        print(", ".join(f"{name} {value}" for name, value in about.items()))
        for view, tables in found.items():
            print_tables(view, tables)
    broken = broken_bounds(found["dicts"]) if "dicts" in found else []
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
