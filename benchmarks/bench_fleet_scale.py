"""Where a fleet stops scaling: sessions and workers in virtual time, without faults, against one broker that does one call at a time.

    python benchmarks/bench_fleet_scale.py                           the table, in about a minute
    python benchmarks/bench_fleet_scale.py --sessions 1000 4000      other sizes
    python benchmarks/bench_fleet_scale.py --think 2                 a turn every two seconds, instead of every 30
    python benchmarks/bench_fleet_scale.py --placing                 what it costs to look at the queue, by the number of workers
    python benchmarks/bench_fleet_scale.py --burst 200               sessions that all begin within a second

Every client and every worker runs the real machines. The broker is the model of the tests, whose one thread needs `--call-us` microseconds
for a call. Waiting is in virtual time, so it does not depend on this machine. Processor time does: it is that of the machines and of the
model together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "fleet"))

from simulated_ends import Line, Manner, Worker, encode_line  # type: ignore[import-not-found]
from simulated_machines import Connection, Machine, Server, World  # type: ignore[import-not-found]
from simulated_program import ClientDriver, Ledger, Program  # type: ignore[import-not-found]

from claude_transport.fleet.answers import decode_node
from claude_transport.fleet.placement import Node, Wanted, rank_nodes

CAPACITY = 25
"""Sessions of one worker."""


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
    """Sessions on workers that are `CAPACITY` sessions each, and a fifth more of them."""

    def __init__(self, sessions: int, *, call_us: float, think: float, burst: bool = False) -> None:
        self.world = World(sessions)
        self.counts: Counter[str] = Counter()
        self.server = Server(self.world, journal=False, call_seconds=call_us / 1e6)
        self.ledgers: dict[str, Ledger] = {}
        self.sessions = sessions
        numbers = count(1)
        self.workers = [
            Worker(
                machine := Machine(self.world, f"w{number}"),
                Connection(machine, self.server),
                capacity=CAPACITY,
                ledger_of=lambda name: (self.ledgers[name], self.ledgers[name].manner),
                numbers=lambda: next(numbers),
                wakes_others=True,
            )
            for number in range(max(2, sessions * 6 // (5 * CAPACITY)))
        ]
        Steady.think = think
        for number in range(sessions):
            if burst:  # the workers find them in the queue
                self.world.at(self.world.rng.uniform(4, 5), self._begin, f"s{number}")
            else:  # ten seconds in which they begin, each on a worker that is chosen here
                begin = self.world.rng.uniform(4, 14)
                self.world.at(begin, self._begin, f"s{number}")
                self.world.at(begin + 0.003, self.workers[number % len(self.workers)].claim, f"s{number}", Wanted())

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


def measure(sessions: int, *, call_us: float, think: float, seconds: float) -> dict[str, Any]:
    """Let a fleet begin, then watch it for some virtual seconds."""
    fleet = Fleet(sessions, call_us=call_us, think=think)
    fleet.pass_time(20)
    server, turns = fleet.server, fleet.counts["turns"]
    server.calls, server.busy_seconds, server.latencies = 0, 0.0, []
    before = time.process_time()
    fleet.pass_time(seconds)
    spent = time.process_time() - before
    waits = statistics.quantiles(server.latencies, n=100) if len(server.latencies) > 1 else [0.0] * 99
    return {
        "sessions": sessions,
        "workers": len(fleet.workers),
        "running": fleet.running,
        "turns_s": (fleet.counts["turns"] - turns) / seconds,
        "calls_s": server.calls / seconds,
        "calls_per_session": server.calls / seconds / sessions,
        "busy": server.busy_seconds / seconds,
        "p50_ms": waits[49] * 1000,
        "p99_ms": waits[98] * 1000,
        "cpu_us": spent / seconds / sessions * 1e6,
    }


def show_fleets(options: argparse.Namespace) -> None:
    print(f"a call takes {options.call_us:g} us of the broker; a turn every {options.think:g} s in each session")
    print("sessions  workers  running  turns/s  calls/s  per session  broker busy  wait p50  wait p99 ms  cpu us per session and second")
    for sessions in options.sessions:
        row = measure(sessions, call_us=options.call_us, think=options.think, seconds=options.seconds)
        print(
            f"{row['sessions']:8} {row['workers']:8} {row['running']:8} {row['turns_s']:8.0f} {row['calls_s']:8.0f} "
            f"{row['calls_per_session']:12.2f} {row['busy']:12.0%} {row['p50_ms']:9.2f} {row['p99_ms']:12.2f} {row['cpu_us']:10.0f}",
            flush=True,
        )


def show_burst(options: argparse.Namespace) -> None:
    fleet = Fleet(options.burst, call_us=options.call_us, think=options.think, burst=True)
    print(f"{options.burst} sessions begin within a second on {len(fleet.workers)} workers\nafter s  running  calls/s  broker busy")
    fleet.pass_time(5)
    for _ in range(6):
        fleet.server.calls, fleet.server.busy_seconds = 0, 0.0
        fleet.pass_time(2)
        calls, busy = fleet.server.calls / 2, fleet.server.busy_seconds / 2
        print(f"{fleet.world.now - 5:7.0f} {fleet.running:8} {calls:8.0f} {busy:12.0%}", flush=True)


def show_placing() -> None:
    print("workers  one look at the queue: decode us  rank us (for each waiting session)")
    for workers in (10, 100, 300, 1000):
        nodes = [Node(id=f"worker-{each:04}", capacity=25, load=each % 25, labels=("linux",), seen=1.0) for each in range(workers)]
        records = [msgspec.json.encode(node) for node in nodes]
        rounds = max(3, 3000 // workers)
        began = time.process_time()
        for _ in range(rounds):
            for data in records:
                decode_node(data)
        decoded = time.process_time()
        for _ in range(rounds):
            rank_nodes(nodes, Wanted(labels=("linux",)), now=2.0)
        ranked = time.process_time()
        print(f"{workers:7} {(decoded - began) / rounds * 1e6:34.0f} {(ranked - decoded) / rounds * 1e6:9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000])
    parser.add_argument("--think", type=float, default=30.0)
    parser.add_argument("--call-us", type=float, default=25.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--placing", action="store_true")
    parser.add_argument("--burst", type=int)
    options = parser.parse_args()
    if options.burst:
        show_burst(options)
    elif options.placing:
        show_placing()
    else:
        show_fleets(options)


if __name__ == "__main__":
    main()
