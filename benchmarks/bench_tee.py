"""What the tee around a claude costs: the latency that it adds to a line and its answer, the throughput of a flood, and its start.

The claude is a small program that answers each line at once, or floods. Direct and through the tee take turns; figures are of all rounds.
The host of a flood drops every byte unread (`throughput_ratio`), or decodes each line, as hosts do (`host_ratio`).

`python benchmarks/bench_tee.py [--lines 2000] [--megabytes 30] [--rounds 5]` prints JSON. `--check` fails when the 99th percentile of the
added latency is above 2 ms, or the throughput of either host below half of the direct one. Up to 64 MiB of a flood wait in memory for the
recorder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claude_transport.protocol.tape import Tape
from claude_transport.testing.stand_in import tee

MOST_ADDED_MS = 2.0
LEAST_RATIO = 0.5

ECHO = "import os\nwhile data := os.read(0, 65536): os.write(1, data)"
FLOOD = """import os, sys
line = b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"text":"word "}},"pad":"%s"}\\n'
batch = line % (b"x" * 300) * 150
left = int(sys.argv[1])
while left > 0:
    view = memoryview(batch)
    while view: view = view[os.write(1, view):]
    left -= len(batch)
"""
LINE = b'{"type":"user","message":{"role":"user","content":"' + b"x" * 200 + b'"}}\n'


def direct(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source, *arguments]


def through_tee(tape: Path, source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", tee.__file__, "--force", str(tape), "--", *direct(source, *arguments)]


def round_trips(command: list[str], count: int) -> list[float]:
    """The milliseconds of each line and its echo. The first ones warm up, while the recorder starts."""
    found: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as claude:
        assert claude.stdin is not None
        assert claude.stdout is not None
        into, out = claude.stdin.fileno(), claude.stdout.fileno()
        for number in range(count + 50):
            if number == 50:
                time.sleep(1.0)  # the start of the recorder is not what is measured here
            begin = time.perf_counter()
            os.write(into, LINE)
            left = len(LINE)
            while left:
                data = os.read(out, 65536)
                if not data:
                    raise SystemExit(f"{command} has ended: line {number} has no answer")
                left -= len(data)
            if number >= 50:
                found.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.0005)  # a host does not write without a pause
    return found


def flood(command: list[str], *, decodes: bool) -> tuple[float, int]:
    """The seconds until the last byte has come, and the bytes. A host decodes each line; without that, only the pipes are measured."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as claude:
        assert claude.stdout is not None
        total = 0
        begin = 0.0
        rest = b""
        while data := os.read(claude.stdout.fileno(), 65536):
            begin = begin or time.perf_counter()
            total += len(data)
            if decodes:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    json.loads(line)
        return time.perf_counter() - begin, total


def start(command: list[str]) -> float:
    """The milliseconds until the first line has come back."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as claude:
        assert claude.stdin is not None
        assert claude.stdout is not None
        claude.stdin.write(LINE)
        claude.stdout.readline()
        return (time.perf_counter() - begin) * 1000


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def measure(folder: Path, *, lines: int, megabytes: int, rounds: int) -> dict[str, object]:
    """All figures."""
    tape, size = folder / "tape.ndjson", str(megabytes * 2**20)
    trips: dict[str, list[float]] = {"direct": [], "tee": []}
    rates: dict[str, list[float]] = {"direct": [], "tee": []}
    decoded: dict[str, list[float]] = {"direct": [], "tee": []}
    starts: dict[str, list[float]] = {"direct": [], "tee": []}
    whole = 0
    for _ in range(rounds):
        for way in ("direct", "tee"):
            wrap = direct if way == "direct" else lambda *words: through_tee(tape, *words)
            trips[way] += round_trips(wrap(ECHO), lines // rounds)
            starts[way].append(start(wrap(ECHO)))
            for decodes, found in ((False, rates), (True, decoded)):
                seconds, total = flood(wrap(FLOOD, size), decodes=decodes)
                found[way].append(total / seconds / 2**20)
        recorded = Tape.read(tape)
        whole += sum(len(line) + 1 for line in recorded.lines("out")) == total
    added = percentile(trips["tee"], 0.99) - percentile(trips["direct"], 0.99)
    return {
        "round_trip_ms": {way: {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99)} for way, found in trips.items()},
        "added_p99_ms": added,
        "megabytes_per_second": {way: statistics.median(found) for way, found in rates.items()},
        "throughput_ratio": statistics.median(rates["tee"]) / statistics.median(rates["direct"]),
        "host_ratio": statistics.median(decoded["tee"]) / statistics.median(decoded["direct"]),
        "first_line_ms": {way: statistics.median(found) for way, found in starts.items()},
        "whole_tapes": f"{whole} of {rounds}",
    }


def main() -> int:
    """Measure and print. With `--check`, the exit code says whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), lines=given.lines, megabytes=given.megabytes, rounds=given.rounds)
    print(json.dumps(found, indent=2))
    ratios = (float(str(found[name])) for name in ("throughput_ratio", "host_ratio"))
    holds = float(str(found["added_p99_ms"])) <= MOST_ADDED_MS and min(ratios) >= LEAST_RATIO
    return 0 if holds or not given.check else 1


if __name__ == "__main__":
    sys.exit(main())
