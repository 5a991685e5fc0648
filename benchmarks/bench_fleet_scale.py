"""Where a fleet stops scaling: sessions and workers in virtual time, without faults. Each process of the broker does one call at a time.

    python benchmarks/bench_fleet_scale.py                           the table, in about a minute
    python benchmarks/bench_fleet_scale.py --sessions 100000 --capacity 60 --shards 1 6 24       a broker, and two clusters
    python benchmarks/bench_fleet_scale.py --sessions 1000 4000      other sizes
    python benchmarks/bench_fleet_scale.py --think 2                 a turn every two seconds, instead of every 30
    python benchmarks/bench_fleet_scale.py --placing                 what it costs to look at the queue, by the number of workers
    python benchmarks/bench_fleet_scale.py --burst 200               sessions that all begin within a second

Every client and every worker runs the real machines. The broker is the model of the tests, whose one thread needs `--call-us` microseconds
for a call. It counts every call that a real worker or client makes, but none for output that the broker tells without being asked.
Waiting is in virtual time, so it does not depend on this machine. Processor time does: it is that of the machines and of the model.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "fleet"))

from simulated_ends import BEAT, Line, Manner, Worker, encode_line  # type: ignore[import-not-found]
from simulated_machines import Connection, Machine, Server, World  # type: ignore[import-not-found]
from simulated_program import ClientDriver, Ledger, Program  # type: ignore[import-not-found]

from claude_transport.fleet.answers import decode_node
from claude_transport.fleet.placement import Node, Wanted, rank_nodes
from claude_transport.fleet.roster import CANDIDATES

BEGINS = 2500
"""The most sessions that begin in a second, in the tables. `--burst` shows more."""


class Steady(Program):  # type: ignore[misc]
    """A program that begins a turn every `think` seconds or so."""

    think = 30.0

    def advance(self, driver: ClientDriver) -> None:
        if driver is not self.driver or self.world.now < self._asleep_until or self._open:
            return
        self._asleep_until = self.world.now + self.world.rng.expovariate(1 / self.think)
        driver.machine.after(self._asleep_until - self.world.now + 0.001, driver.kick)
        data = encode_line(Line("user", n=len(self.ledger.lines))) + b"\n"
        driver.end.writer.put(data)
        self.ledger.sent(driver.end, is_prompt=True, size=len(data))
        self._open += 1
        driver.append()


class Fleet:
    """Sessions on workers that take `capacity` sessions each. By default there are a fifth more workers than are needed."""

    def __init__(
        self, sessions: int, *, call_us: float, think: float, capacity: int, shards: int = 1, workers: int = 0, burst: bool = False
    ) -> None:
        self.world = World(sessions)
        self.counts: Counter[str] = Counter()
        self.server = Server(self.world, journal=False, call_seconds=call_us / 1e6, shards=shards, counts_all=True)
        self.ledgers: dict[str, Ledger] = {}
        self.sessions = sessions
        self.ramp = max(10.0, sessions / BEGINS)
        numbers = count(1)
        self.workers = [
            Worker(
                machine := Machine(self.world, f"w{number}"),
                Connection(machine, self.server),
                capacity=capacity,
                ledger_of=lambda name: (self.ledgers[name], self.ledgers[name].manner),
                numbers=lambda: next(numbers),
                wakes_others=True,
                first_beat=BEAT,
            )
            for number in range(workers or max(2, sessions * 6 // (5 * capacity)))
        ]
        for worker in self.workers:  # until all are there no worker looks at the queue: that is measured with `--burst`
            worker.draining = not burst
        self.world.at(5 + self.ramp, self._look_from_now_on)
        Steady.think = think
        for number in range(sessions):
            if burst:  # the workers find them in the queue
                self.world.at(self.world.rng.uniform(4, 5), self._begin, f"s{number}")
            else:  # each begins on a worker that is chosen here
                begin = self.world.rng.uniform(4, 4 + self.ramp)
                self.world.at(begin, self._begin, f"s{number}")
                self.world.at(begin + 0.003, self.workers[number % len(self.workers)].claim, f"s{number}", Wanted())

    def _look_from_now_on(self) -> None:
        for worker in self.workers:
            worker.draining = False

    def _begin(self, name: str) -> None:
        self.ledgers[name] = ledger = Ledger(self.world, name, Manner(), self.counts)
        machine = Machine(self.world, f"c{name}")
        connection = Connection(machine, self.server)
        Steady(self.world, name, ledger.manner, ledger, wanted=Wanted()).begin(machine, connection)

    def pass_time(self, seconds: float) -> None:
        self.world.run(lambda: False, before=self.world.now + seconds)

    @property
    def running(self) -> int:
        return sum(len(worker.hosted) for worker in self.workers)


def measure(sessions: int, *, call_us: float, think: float, seconds: float, capacity: int, shards: int) -> dict[str, Any]:
    """Let a fleet begin, then watch it for some virtual seconds."""
    fleet = Fleet(sessions, call_us=call_us, think=think, capacity=capacity, shards=shards)
    fleet.pass_time(10 + fleet.ramp)
    processes, turns = fleet.server.shards, fleet.counts["turns"]
    for shard in processes:
        shard.reset()
        shard.latencies = []
    before = time.process_time()
    fleet.pass_time(seconds)
    spent = time.process_time() - before
    latencies = [each for shard in processes for each in shard.latencies or ()]
    waits = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
    calls = sum(shard.calls for shard in processes)
    return {
        "shards": shards,
        "sessions": sessions,
        "workers": len(fleet.workers),
        "running": fleet.running,
        "turns_s": (fleet.counts["turns"] - turns) / seconds,
        "calls_s": calls / seconds,
        "calls_per_session": calls / seconds / sessions,
        "mb_s": sum(shard.bytes for shard in processes) / seconds / 1e6,
        "busiest": max(shard.busy_seconds for shard in processes) / seconds,
        "p50_ms": waits[49] * 1000,
        "p99_ms": waits[98] * 1000,
        "queue_p99": waits[98] / call_us * 1e6,
        "cpu_us": spent / seconds / sessions * 1e6,
    }


def show_fleets(options: argparse.Namespace) -> None:
    print(f"a call takes {options.call_us:g} us of the broker; a turn every {options.think:g} s in each session")
    print("shards  sessions  workers  running  turns/s  calls/s  per session   MB/s  busiest  wait p50  p99 ms  calls before, p99   cpu us")
    for sessions in options.sessions:
        for shards in options.shards:
            size = {"capacity": options.capacity, "shards": shards}
            row = measure(sessions, call_us=options.call_us, think=options.think, seconds=options.seconds, **size)
            print(
                f"{shards:6} {row['sessions']:9} {row['workers']:8} {row['running']:8} {row['turns_s']:8.0f} {row['calls_s']:8.0f} "
                f"{row['calls_per_session']:12.2f} {row['mb_s']:6.1f} {row['busiest']:8.0%} {row['p50_ms']:9.2f} {row['p99_ms']:7.2f} "
                f"{row['queue_p99']:18.1f} {row['cpu_us']:8.0f}",
                flush=True,
            )


def show_burst(options: argparse.Namespace) -> None:
    shards = options.shards[0]
    size = {"capacity": options.capacity, "shards": shards, "workers": options.workers}
    fleet = Fleet(options.burst, call_us=options.call_us, think=options.think, burst=True, **size)
    processes = fleet.server.shards
    print(f"{options.burst} sessions begin within a second on {len(fleet.workers)} workers\nafter s  running  calls/s  broker busy")
    fleet.pass_time(5)
    for _ in range(6):
        for shard in processes:
            shard.reset()
        fleet.pass_time(2)
        calls, busy = sum(shard.calls for shard in processes) / 2, max(shard.busy_seconds for shard in processes) / 2
        print(f"{fleet.world.now - 5:7.0f} {fleet.running:8} {calls:8.0f} {busy:12.0%}", flush=True)


def show_placing() -> None:
    print("workers that are read  decode us  rank us (for each waiting session)")
    for workers in (10, 32, CANDIDATES + 64):
        nodes = [Node(id=f"worker-{each:04}", capacity=25, load=each % 25, labels=("linux",), seen=1.0) for each in range(workers)]
        records = [msgspec.json.encode(node) for node in nodes]
        rounds = max(3, 3000 // workers)
        began = time.process_time()
        for _ in range(rounds):
            for data in records:
                decode_node(data)
        decoded = time.process_time()
        for _ in range(rounds):
            rank_nodes(nodes, Wanted(labels=("linux",)), now=2.0, session="s")
        ranked = time.process_time()
        print(f"{workers:21} {(decoded - began) / rounds * 1e6:10.0f} {(ranked - decoded) / rounds * 1e6:9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000])
    parser.add_argument("--think", type=float, default=30.0)
    parser.add_argument("--call-us", type=float, default=25.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--capacity", type=int, default=25, help="sessions of one worker")
    parser.add_argument("--workers", type=int, default=0, help="with --burst: how many there are")
    parser.add_argument("--shards", type=int, nargs="+", default=[1], help="primaries of the broker; more than one is a cluster")
    parser.add_argument("--placing", action="store_true")
    parser.add_argument("--burst", type=int)
    options = parser.parse_args()
    gc.disable()  # it would search the millions of objects of the model again and again
    if options.burst:
        show_burst(options)
    elif options.placing:
        show_placing()
    else:
        show_fleets(options)


if __name__ == "__main__":
    main()
