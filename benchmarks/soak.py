"""Thousands of sessions with a misbehaving claude: nothing is left over, memory stays flat, every failure is typed.

    python benchmarks/soak.py                              2 000 sessions, half on asyncio, half on trio; a table
    python benchmarks/soak.py --json                       the same as JSON
    python benchmarks/soak.py --seed 7 --sessions 200      another seed, and fewer sessions
    python benchmarks/soak.py --concurrency 32             more at a time

Each session is a real child process (`FakeClaude`) with one of the faults of `soak_faults.py`, through `Query`, `query()` or the bare
transport. Some sessions leave early, some are cancelled. After each half and at the end these must be gone: processes (the children,
their children, and the guard), file descriptors, threads (but for those that an event loop keeps), tasks, temporary files. Other problems
are errors that are no `ClaudeTransportError`, logged errors, warnings, and sessions that hang. Problems are printed, and the exit code is
1. No session begins after `--seconds`.

Linux only: it counts in /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import ctypes
import functools
import gc
import json
import logging
import os
import platform
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import trio
from soak_faults import FAULTS, MAX_LINE_BYTES, Fault

import claude_transport as ct
from claude_transport.testing import FakeClaude

VARIANTS = 3  # scenarios per fault: sessions share their files, since making them costs more than a session
ENDINGS = ("read to the end", "read to the end", "read to the end", "leave early", "cancelled")
HANG_SECONDS = 60.0  # a session leaves by itself long before, see `Fault.patience`
CLOSE_SECONDS = 0.5  # closing time, short so that stubborn children do not fill the three minutes
FLAT_MB = 12.0  # allowed growth of the resident memory; the allocator alone takes 3 to 5, for 800 sessions and for 2 400
MARK = "CLAUDE_TRANSPORT_SOAK"


# What is left over.


def marked_processes() -> list[str]:
    """Return the processes with this run's mark, whatever their parent, and all direct children; not this process."""
    mark, host = f"{MARK}={os.environ[MARK]}".encode(), os.getpid()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            ours = parent == host or mark in (folder / "environ").read_bytes().split(b"\0")
            if ours and int(folder.name) != host:
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()[:80]!r}")
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def own_threads() -> list[str]:
    """Count the threads, without those that event loops keep: anyio's workers and trio's cache end when they are idle."""
    reused = ("AnyIO worker thread", "Trio thread")
    return [thread.name for thread in threading.enumerate() if not thread.name.startswith(reused)]


def tasks_alive(backend: str) -> int:
    return trio.lowlevel.current_statistics().tasks_living if backend == "trio" else len(asyncio.all_tasks())


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Soak:
    """One run: its arguments, its outcomes, and its problems."""

    seed: int
    deadline: float
    fakes: dict[str, list[FakeClaude]]
    outcomes: dict[str, collections.Counter[str]] = field(default_factory=lambda: collections.defaultdict(collections.Counter))
    problems: list[str] = field(default_factory=list)
    halves: list[dict[str, Any]] = field(default_factory=list)
    sessions: int = 0

    def expect(self, what: str, *, left: object) -> None:
        if left:
            self.problems.append(f"{what}: {left}")


# One session.


@dataclass(frozen=True)
class Plan:
    """What one session does. It depends only on the seed and the session's number."""

    fault: Fault
    fake: FakeClaude
    way: str
    ending: str
    messages: int  # after which an early leaver leaves
    seconds: float  # after which a cancelled one is cancelled
    prompt: str

    @classmethod
    def draw(cls, soak: Soak, number: int) -> Plan:
        rng = random.Random(f"{soak.seed}:{number}")
        fault = FAULTS[number % len(FAULTS)]
        return cls(
            fault=fault,
            fake=rng.choice(soak.fakes[fault.name]),
            way=rng.choice(list(TALKS)),
            ending=rng.choice(ENDINGS),
            messages=rng.randint(0, 4),
            seconds=rng.uniform(0, rng.choice([0.02, 0.1])),
            prompt="p" * rng.choice([1, 100, 300_000 if fault.name == "reads no input" else 1000]),
        )

    @property
    def patience(self) -> float:
        return self.seconds if self.ending == "cancelled" else self.fault.patience

    def transport(self) -> ct.SubprocessTransport:
        return ct.SubprocessTransport(command=self.fake.command, max_line_bytes=MAX_LINE_BYTES, close_timeout=CLOSE_SECONDS)

    def has_enough(self, seen: int) -> bool:
        return self.ending == "leave early" and seen > self.messages


async def talk_by_query(plan: Plan) -> None:
    query = ct.Query(plan.transport(), initialize_timeout=plan.fault.initialize_timeout)
    seen = 0
    try:
        await query.start()
        messages = query.messages()
        await query.send(plan.prompt)
        async for message in messages:
            seen += 1
            if plan.has_enough(seen):
                return
            if isinstance(message, ct.ResultMessage):
                await query.end_input()
    finally:
        await query.aclose(timeout=CLOSE_SECONDS)


async def talk_by_one_shot(plan: Plan) -> None:
    shot = ct.query(plan.prompt, transport=plan.transport(), exit_timeout=CLOSE_SECONDS, initialize_timeout=plan.fault.initialize_timeout)
    seen = 0
    try:
        async for _ in shot:
            seen += 1
            if plan.has_enough(seen):
                return
    finally:
        await shot.aclose()


async def talk_by_transport(plan: Plan) -> None:
    seen = 0
    async with plan.transport() as transport:
        await transport.write(json.dumps({"type": "user", "message": {"role": "user", "content": plan.prompt}}))
        async for message in transport.read_messages():
            seen += 1
            if plan.has_enough(seen):
                return
            if message.get("type") == "result":
                await transport.end_input()


TALKS = {"Query": talk_by_query, "query()": talk_by_one_shot, "transport": talk_by_transport}


async def run_session(soak: Soak, number: int) -> None:
    """Run one session, and note its outcome."""
    plan = Plan.draw(soak, number)
    what = f"session {number} ({plan.fault.name}, {plan.way}, {plan.ending})"
    outcome = "hung"
    with anyio.move_on_after(HANG_SECONDS) as limit:
        try:
            with anyio.move_on_after(plan.patience) as scope:
                await TALKS[plan.way](plan)
            outcome = "left by us" if scope.cancelled_caught else "well"
        except ct.ClaudeTransportError as error:
            outcome = type(error).__name__
        except Exception:  # noqa: BLE001 - exactly these are what is looked for
            outcome = "untyped"
            soak.problems.append(f"{what} raised what is no ClaudeTransportError:\n{traceback.format_exc()}")
    if limit.cancelled_caught:
        soak.problems.append(f"{what} hung for {HANG_SECONDS:g} s")
    if plan.fault.harmless and plan.ending != "cancelled" and outcome != "well":
        soak.problems.append(f"{what} should have ended well, and ended with {outcome}")
    soak.outcomes[plan.fault.name][outcome] += 1
    soak.sessions += 1


# One half, and all.


async def run_half(soak: Soak, backend: str, *, numbers: range, concurrency: int) -> None:
    """Run the sessions `numbers` on this backend. Count what is there after the warm-up and at the end."""
    started = time.perf_counter()
    warm = numbers[: max(2 * len(FAULTS), len(numbers) // 5)]
    await run_many(soak, warm, concurrency)
    before = look_around(backend)
    await run_many(soak, numbers[len(warm) :], concurrency)
    after = look_around(backend)
    for name, allowed in (("open files", 0), ("own threads", 0), ("tasks", 0), ("memory, MB", FLAT_MB)):
        soak.expect(f"{backend}: {name} grew", left=after[name] - before[name] > allowed and (before[name], after[name]))
    soak.expect(f"{backend}: processes left over", left=marked_processes())
    soak.halves.append({"backend": backend, "seconds": time.perf_counter() - started, "before": before, "after": after})


def look_around(backend: str) -> dict[str, float]:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # glibc keeps what was freed: without this, the peak of sixteen huge lines at once would count as a leak
    return {
        "open files": open_files(),
        "own threads": len(own_threads()),
        "tasks": tasks_alive(backend),
        "memory, MB": resident_mb(),
        "objects": len(gc.get_objects()),
        "processes": len(marked_processes()),
    }


async def run_many(soak: Soak, numbers: range, concurrency: int) -> None:
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            if time.perf_counter() > soak.deadline:
                return
            await run_session(soak, number)

    async with anyio.create_task_group() as workers:
        for _ in range(concurrency):
            workers.start_soon(work)


class Complaints(logging.Handler):
    """Turn logged errors, and exceptions that Python cannot raise, into problems."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        self._problems.append(f"logged: {self.format(record)}")

    def unraisable(self, args: Any) -> None:
        self._problems.append(f"{args.err_msg or 'ignored'}: {args.exc_value!r} in {args.object!r}")


@contextmanager
def surroundings(problems: list[str]) -> Iterator[Path]:
    """Mark everything that is started, use a temporary folder, and collect complaints, inside the block."""
    complaints = Complaints(problems)
    logging.getLogger().addHandler(complaints)
    logging.getLogger("claude_transport").setLevel(logging.ERROR)  # bad lines are expected here
    hook, sys.unraisablehook = sys.unraisablehook, complaints.unraisable
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ[MARK] = Path(folder).name
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            del os.environ["TMPDIR"]
            tempfile.tempdir, sys.unraisablehook = None, hook
            logging.getLogger().removeHandler(complaints)


def run(*, seed: int, sessions: int, concurrency: int, seconds: float) -> Soak:
    soak = Soak(seed=seed, deadline=time.perf_counter() + seconds, fakes={})
    rng = random.Random(seed)
    with surroundings(soak.problems) as folder:
        files = open_files()
        with ExitStack() as stack:
            for fault in FAULTS:
                soak.fakes[fault.name] = [stack.enter_context(FakeClaude(fault.build(rng))) for _ in range(VARIANTS)]
            for backend, numbers in (("asyncio", range(sessions // 2)), ("trio", range(sessions // 2, sessions))):
                anyio.run(functools.partial(run_half, soak, backend, numbers=numbers, concurrency=concurrency), backend=backend)
        gc.collect()
        soak.expect("temporary files left over", left=[path.name for path in folder.iterdir()])
        soak.expect("processes left over", left=marked_processes())
        soak.expect("threads left over", left=own_threads()[1:])
        soak.expect("open files left over", left=open_files() > files and (files, open_files()))
    soak.expect("sessions that found no time", left=sessions - soak.sessions)
    return soak


# The report.


def as_dict(soak: Soak, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "seed": options.seed,
        "concurrency": options.concurrency,
        "sessions": soak.sessions,
        "seconds": round(seconds, 1),
        "outcomes": {name: dict(counter.most_common()) for name, counter in soak.outcomes.items()},
        "halves": soak.halves,
        "problems": soak.problems,
    }


def print_table(report: dict[str, Any]) -> None:
    print(f"Python {report['python']}, {report['system']}, {report['cpus']} CPUs, load {report['load']:.1f}, seed {report['seed']}")
    print(f"{report['sessions']} sessions, {report['concurrency']} at a time, in {report['seconds']} s\n")
    print(f"{'fault':<34}{'sessions':>9}  outcomes")
    for fault in FAULTS:
        counter = report["outcomes"].get(fault.name, {})
        print(f"{fault.name:<34}{sum(counter.values()):>9}  " + ", ".join(f"{name} {count}" for name, count in counter.items()))
    print(f"\n{'after warm-up → end':<34}" + "".join(f"{half['backend']:>20}" for half in report["halves"]))
    for name in ("memory, MB", "objects", "open files", "own threads", "tasks", "processes"):
        cells = [f"{half['before'][name]:.6g} → {half['after'][name]:.6g}" for half in report["halves"]]
        print(f"{name:<34}" + "".join(f"{cell:>20}" for cell in cells))
    print(f"\nproblems: {len(report['problems'])}")
    for problem in report["problems"][:20]:
        print(f"* {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of early leaving (default 1)")
    parser.add_argument("--sessions", type=int, default=2000, help="half of them on each backend (default 2000)")
    parser.add_argument("--concurrency", type=int, default=16, help="sessions at a time (default 16)")
    parser.add_argument("--seconds", type=float, default=170.0, help="after which no session is begun any more (default 170)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.sessions < 4 * len(FAULTS) or options.concurrency < 1:
        parser.error(f"at least {4 * len(FAULTS)} sessions, one at a time")
    started = time.perf_counter()
    soak = run(seed=options.seed, sessions=options.sessions, concurrency=options.concurrency, seconds=options.seconds)
    report = as_dict(soak, options, time.perf_counter() - started)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_table(report)
    return 1 if soak.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
