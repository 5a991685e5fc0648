"""`claude-transport bench`: how fast this installation reads, compared with the least that reading can cost here.

`Measurement` reads the same messages from the same child process in every way the library has, in turns. The figure is processor time of
the reading thread: waiting for the child, or for a busy machine, is not a cost of the library.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Final

import anyio
import msgspec

from claude_transport.app.event_loop import run_interruptibly, run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.standard_streams import write_out
from claude_transport.app.terminal import Look, choose_look, open_progress
from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError, TruncatedStream
from claude_transport.protocol.messages import ResultMessage
from claude_transport.transport import Transport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import MetricsTransport
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

_BUDGET: Final = 8.0
"""Seconds after which no new round begins. A round that has begun is finished."""
_ROUNDS: Final = 7
_CHUNK_BYTES: Final = 65536
_DELTA: Final = (
    b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a word "}},'
    b'"session_id":"0b0fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11","parent_tool_use_id":null,"uuid":"7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e6f"}\n'
)
MESSAGE_BYTES: Final = len(_DELTA)
"""The size of each message: a word of an answer, as claude sends it with partial messages."""
_RESULT: Final = (
    b'{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"duration_api_ms":1,"num_turns":1,"result":"",'
    b'"session_id":"0b0fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11","total_cost_usd":0,"usage":{},"uuid":"1c1fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11"}\n'
)
_PROMPT: Final = b'{"type":"user","message":{"role":"user","content":"go"}}\n'
_READY: Final = b'{"type":"control_request","request_id":"ready","request":{"subtype":"initialize"}}\n'
"""The first request, so that the clock starts when the child has started. `Query` sends the same."""
_CHILD: Final = """
import json, os, sys
count, delta, result = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].encode()
block, rest = memoryview(delta * 200), memoryview(delta * (count % 200) + result)
def write(data):
    while data:
        data = data[os.write(1, data):]
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message["type"] == "user":
        for _ in range(count // 200):
            write(block)
        write(rest)
    elif message["type"] == "control_request":
        answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
        write(json.dumps({"type": "control_response", "response": answer}).encode() + b"\\n")
"""
"""The stand-in for claude: it answers a request with an empty object, and a prompt with the messages and a result."""
_EXPLANATION: Final = (
    "x: the time as a multiple of the loop without the library, in the same round;",
    "*: as a multiple of SubprocessTransport, dicts, without the wrapper.",
)
MOST_MESSAGES: Final = 1_000_000
"""The limit for one run: the loop without the library cannot be interrupted, so it must not take longer than a second or two."""

Wrap = Callable[[Transport], Transport]


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way of reading, in processor time of the reading thread.

    `ratio` is its time as a multiple of the time of the row named `against`: the median over the rounds. None for the first row.
    """

    name: str
    us_per_message: float
    messages_per_second: float
    against: str | None
    ratio: float | None


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, and where. `load` is the load average before: a busy machine measures badly. None on Windows."""

    version: str
    python: str
    platform: str
    cpus: int
    load: float | None
    backend: str
    rounds: int
    messages: int
    message_bytes: int
    rows: list[BenchRow]


def run(args: SimpleNamespace) -> int:
    """Measure, print the figures, and return the exit code. Raises the error of the transport if no child process can be run."""
    if args.messages > MOST_MESSAGES:
        raise ConfigurationError(f"--messages {args.messages} is too many: {MOST_MESSAGES} at most", option="messages")
    return run_on(args.backend, partial(_measure, args))


async def _measure(args: SimpleNamespace) -> int:
    bench = Measurement(messages=args.messages)
    return await run_interruptibly(partial(_report, bench, args), give_up=bench.give_up)


async def _report(bench: Measurement, args: SimpleNamespace) -> int:
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with open_progress("Measuring", stream=sys.stderr, look=look, plain=args.plain, unit="runs", scale=1) as progress:
        rows = await bench.run(on_progress=progress.update)
    report = BenchReport(
        version=version("claude-transport"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cpus=os.cpu_count() or 1,
        load=load,
        backend=args.backend,
        rounds=bench.rounds,
        messages=bench.messages,
        message_bytes=MESSAGE_BYTES,
        rows=rows,
    )
    if args.json:
        write_out(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        write_out("\n".join(_lines(report, look)))
    return EXIT_OK


def _lines(report: BenchReport, look: Look) -> list[str]:
    """Return the report as text of at most 80 columns."""
    load = "" if report.load is None else f", load {report.load:.1f}"
    lines = [
        f"claude-transport {report.version}, Python {report.python}, {report.platform}, {report.cpus} CPUs{load}",
        f"{report.backend}, {report.messages:,} messages of {report.message_bytes} bytes from a child process",
        f"processor time of the reading thread, median of {report.rounds} rounds",
        "",
        f"{'':<34}{'messages/s':>12}{'µs each' if look.unicode else 'us each':>10}",
    ]
    for row in report.rows:
        figures = f"{row.name:<34}{row.messages_per_second:>12,.0f}{row.us_per_message:>10.2f}"
        lines.append(figures if row.ratio is None else f"{figures}   x {row.ratio:.2f}{_of(row)}")
    lines += ["", *_EXPLANATION]
    return lines


def _of(row: BenchRow) -> str:
    return " *" if row.against is not None and row.against.startswith("Sub") else ""


class Measurement:
    """The measurement. `messages` is how many each run reads, `rounds` how many rounds there were."""

    def __init__(self, *, messages: int) -> None:
        self.messages: int = messages
        self.rounds: int = 0
        self._transport: Transport | None = None
        self._command = [sys.executable, "-I", "-S", "-c", _CHILD, str(messages), _DELTA.decode(), _RESULT.decode()]
        self._ways: dict[str, tuple[str | None, Callable[[], Awaitable[float]]]] = {
            "os.read and msgspec, no library": (None, self._bare),
            "SubprocessTransport, lines": ("os.read and msgspec, no library", self._lines),
            "SubprocessTransport, dicts": ("os.read and msgspec, no library", partial(self._dicts, _unwrapped)),
            "Query, typed messages": ("os.read and msgspec, no library", self._query),
        }
        for wrap in (
            TransportWrapper,
            LoggingTransport,
            RetryingTransport,
            MetricsTransport,
            StatefulTransport,
            partial(FaultyTransport, faults=()),
            TracingTransport,
        ):
            name = wrap.func.__name__ if isinstance(wrap, partial) else wrap.__name__
            self._ways[f"{name}, idle, dicts"] = ("SubprocessTransport, dicts", partial(self._dicts, wrap))

    async def run(self, *, on_progress: Callable[[float, float], None]) -> list[BenchRow]:
        """Measure every way, in rounds, for a few seconds.

        Args:
            on_progress: Called with the number of runs done, and the number of all.

        Returns:
            One row for each way. Raises the error of the transport if the child cannot be run.
        """
        taken: dict[str, list[float]] = {name: [] for name in self._ways}
        started = time.monotonic()
        while self.rounds < _ROUNDS and (not self.rounds or time.monotonic() - started < _BUDGET):
            for done, (name, (_, way)) in enumerate(self._ways.items()):
                on_progress(self.rounds * len(self._ways) + done, _ROUNDS * len(self._ways))
                taken[name].append(await way())
            self.rounds += 1
        return [self._row(name, against, taken) for name, (against, _) in self._ways.items()]

    async def give_up(self) -> None:
        """End the child at once."""
        if self._transport is not None:
            await self._transport.close()

    def _row(self, name: str, against: str | None, taken: dict[str, list[float]]) -> BenchRow:
        seconds = statistics.median(taken[name])
        return BenchRow(
            name=name,
            us_per_message=seconds / self.messages * 1e6,
            messages_per_second=self.messages / seconds,
            against=against,
            ratio=None if against is None else statistics.median(a / b for a, b in zip(taken[name], taken[against], strict=True)),
        )

    def _open(self, wrap: Wrap) -> Transport:
        self._transport = wrap(SubprocessTransport(command=self._command))
        return self._transport

    async def _bare(self) -> float:
        await anyio.lowlevel.checkpoint()
        return _read_bare(self._command, self.messages + 1)

    async def _lines(self) -> float:
        async with self._open(_unwrapped) as transport:
            started = -1.0
            missing = self.messages + 2
            await transport.write(_READY)
            async for lines in transport.read_lines():
                if started < 0:
                    started = time.thread_time()
                    await transport.write(_PROMPT)
                missing -= len(lines)
                if missing <= 0:
                    break
            return time.thread_time() - started

    async def _dicts(self, wrap: Wrap) -> float:
        async with self._open(wrap) as transport:
            started = -1.0
            missing = self.messages + 2
            await transport.write(_READY)
            async for _ in transport.read_messages():
                if started < 0:
                    started = time.thread_time()
                    await transport.write(_PROMPT)
                missing -= 1
                if missing <= 0:
                    break
            return time.thread_time() - started

    async def _query(self) -> float:
        async with Query(self._open(_unwrapped)) as query:
            started = time.thread_time()
            turn = await query.send("go")
            async for message in turn:
                if isinstance(message, ResultMessage):
                    break
            return time.thread_time() - started


def _unwrapped(transport: Transport) -> Transport:
    return transport


def _read_bare(command: Sequence[str], missing: int) -> float:
    """Return the seconds that the least possible work takes: read, split, decode."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None  # noqa: S101 - for type checkers: they are pipes
        assert child.stdout is not None  # noqa: S101
        os.write(child.stdin.fileno(), _READY)
        if not os.read(child.stdout.fileno(), _CHUNK_BYTES):
            raise TruncatedStream("the stand-in for claude ended at once")
        started = time.thread_time()
        os.write(child.stdin.fileno(), _PROMPT)
        rest = b""
        while missing:
            chunk = os.read(child.stdout.fileno(), _CHUNK_BYTES)
            if not chunk:
                raise TruncatedStream(f"the stand-in for claude ended with {missing} messages missing")
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                decoder.decode(line)
            missing -= len(lines)
        taken = time.thread_time() - started
        child.stdin.close()
    return taken
