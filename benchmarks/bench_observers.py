"""What observers cost a session, in processor time and memory.

    python benchmarks/bench_observers.py             a table, in about half a minute
    python benchmarks/bench_observers.py --quick     very little of everything
    python benchmarks/bench_observers.py --trio      on trio

The rounds of what is compared take turns, and medians are shown. Processor time is that of the whole process with its threads.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from claude_transport.inspection.page import LiveTimeline
from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.observation import LineLog, ObservedLine, ScrubbedLog
from claude_transport.protocol.redaction import Redactor
from claude_transport.serving.following import LocalObservation

USUAL = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "some words of an answer " * 20}]}}).encode()
TINY = b"{}"


def processor_time(work: Callable[[], object]) -> float:
    """Return the seconds of processor time of `work()`."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def medians(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median of each work, after rounds in which they take turns."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(processor_time(work))
    return {name: statistics.median(times) for name, times in found.items()}


def new_log() -> LineLog:
    """Return an empty log with a clock of its own."""
    return LineLog(clock=time.monotonic, redactor=Redactor)


def append(blocks: int) -> None:
    """Keep blocks of one line."""
    log, block = new_log(), LineBlock.of([USUAL])
    for _ in range(blocks):
        log.append("out", block)


async def follow(lines: int, observers: int) -> None:
    """Say lines, while observers follow. The session waits for the event loop after each line, as it does for its process."""
    log = new_log()

    async def watch() -> None:
        async for _ in LocalObservation(log, since=0, scrub=True):
            pass

    async with anyio.create_task_group() as tasks:
        for _ in range(observers):
            tasks.start_soon(watch)
        for _ in range(lines):
            log.append_lines("out", [USUAL])
            await anyio.lowlevel.checkpoint()
        log.end()


def run(lines: int, observers: int, backend: str) -> None:
    """Run `follow()` on this event loop."""
    anyio.run(follow, lines, observers, backend=backend)


def watched_memory(line: bytes, at_once: int, kept: int) -> int:
    """Return the bytes of a full log that was read in every form."""
    gc.collect()
    tracemalloc.start()
    log = LineLog(clock=time.monotonic, redactor=Redactor, max_bytes=kept)
    for _ in range(2 * kept // (len(line) + 1) // at_once):
        log.append("out", LineBlock.of([line] * at_once))
    for scrub in (True, False):
        seen = log.scrubbed() if scrub else log
        after = seen.start(None)
        while after < log.last:
            if isinstance(seen, ScrubbedLog):
                seen.unread(65536).run()
                seen.share()
            excerpt = seen.take(after, max_bytes=65536)
            excerpt.lines()
            excerpt.events()
            excerpt.share()
            after = excerpt.last
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used


def long_session(turns: int) -> LiveTimeline:
    """Return the timeline of a session of many turns."""
    live = LiveTimeline()
    position = 0

    def said(direction: Any, row: dict[str, Any]) -> ObservedLine:
        nonlocal position
        position += 1
        return ObservedLine(json.dumps(row).encode(), position=position, t=position / 100, direction=direction)

    def turn(number: int) -> Iterator[ObservedLine]:
        yield said("in", {"type": "user", "message": {"role": "user", "content": f"prompt {number}"}, "uuid": f"u{number}"})
        for step in range(10):
            message = {"id": f"m{number}-{step}", "role": "assistant", "content": [{"type": "text", "text": "some words " * 20}]}
            yield said("out", {"type": "assistant", "message": message})
        yield said("out", {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "ok"})

    for number in range(turns):
        live.read(turn(number))
    return live


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="very little of everything")
    parser.add_argument("--trio", action="store_true", help="run on trio")
    args = parser.parse_args()
    rounds, blocks, lines, kept = (1, 1000, 100, 20_000) if args.quick else (7, 100_000, 2000, 256 * 2**10)
    backend = "trio" if args.trio else "asyncio"

    found = medians({"append": partial(append, blocks)}, rounds)
    print(f"keep a block of one line                {found['append'] / blocks * 1e6:8.2f} µs")
    works = {str(count): partial(run, lines, count, backend) for count in (0, 1, 50)}
    for count, seconds in medians(works, rounds).items():
        print(f"a line of {len(USUAL)} bytes, {count:>2} observers       {seconds / lines * 1e6:8.1f} µs")
    for turns in (10, 100, 1000) if not args.quick else (10,):
        live = long_session(turns)
        found = medians({"step": partial(live.changes, live.revision - 1), "all": partial(live.changes, 0)}, rounds)
        print(f"an update of all live pages, {turns:>4} turns  {found['step'] * 1e3:8.2f} ms")
        print(f"the first update of a page, {turns:>4} turns   {found['all'] * 1e3:8.2f} ms")
    for name, line, at_once in (("usual", USUAL, 10), ("tiny", TINY, 1000)):
        print(f"{kept / 2**10:.0f} KiB of {name + ' lines, watched':<28}{watched_memory(line, at_once, kept) / 2**10:8.0f} KiB")


if __name__ == "__main__":
    main()
