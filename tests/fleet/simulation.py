"""A fleet in virtual time, with seeded faults: the real machines against a model of the broker, without an event loop, a clock or I/O.

    python tests/fleet/simulation.py SEED [FAULTS [KIND ...]]      one run, with what happened

`simulate()` raises `Violation`, with the seed and what happened in the session, when a promise of the fleet is broken.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count

from simulated_ends import Manner, Worker
from simulated_machines import Connection, Machine, Server, World
from simulated_program import Ledger, Program, Violation

from claude_transport.fleet.placement import Wanted

WITHIN = 400.0
"""Virtual seconds after the last fault within which every session has ended, and no worker has one."""

DRIFT = 0.08
"""How far the monotonic clock of a machine may go wrong, as a share."""

MOST_LOST = 1.8
"""Seconds that a broker with a file may lose: it writes to its disk each second, and may be late by one."""


@dataclass
class Outcome:
    """What a run has shown: how often each thing happened, how many steps it took, and how many virtual seconds."""

    seed: int
    faults: int
    counts: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    seconds: float = 0.0


class Simulation:
    """One run: `faults` faults on a fleet, all chosen by `seed`. `only` names the kinds of faults, and makes the processes slow."""

    def __init__(self, seed: int, *, faults: int, only: Collection[str] = (), workers: int = 5, sessions: int = 7) -> None:
        self.world = World(seed)
        rng = self.world.rng
        self.disk = "everysec" if only else ("always", "everysec", "none")[seed % 3]
        self.faults_left = faults
        self.counts: Counter[str] = Counter()
        self.server = Server(self.world, journal=self.disk == "everysec", call_seconds=0.00005)
        self.workers: list[Worker] = []
        self.ledgers: dict[str, Ledger] = {}
        self.programs: list[Program] = []
        self.log: list[str] = []
        self._names = count(1)
        self._numbers = count(1)
        self._looked = self._deadline = 0.0
        self._gap = rng.choice((0.3, 1.0, 3.0))
        self._faults = [getattr(self, f"_{name}") for name in only] or self._choose_faults()
        self._is_slow = bool(only)
        for _ in range(workers):
            self._add_worker()
        for _ in range(sessions):
            self.world.at(rng.uniform(0, 3), self._add_session)
        self.world.at(rng.expovariate(1 / self._gap), self._strike)

    # What there is.

    def _machine(self, kind: str) -> Machine:
        return Machine(self.world, f"{kind}{next(self._names)}", drift=DRIFT)

    def _add_worker(self) -> None:
        machine = self._machine("w")
        worker = Worker(
            machine,
            Connection(machine, self.server),
            capacity=self.world.rng.choice((2, 4, 8)),
            ledger_of=lambda name: (self.ledgers[name], self.ledgers[name].manner),
            numbers=lambda: next(self._numbers),
        )
        self.workers.append(worker)

    def _add_session(self) -> None:
        rng, name = self.world.rng, f"s{next(self._names)}"
        manner = Manner(
            stalls=rng.random() < 0.4 or self._is_slow,
            stores=rng.random() < 0.3,
            slow=self._is_slow,
            slow_start=rng.random() < 0.05,
            large=rng.random() < 0.1,
            window=rng.choice((2_000, 2**16)),
            keep_bytes=rng.choice((10_000, 2**19)),
        )
        ledger = self.ledgers[name] = Ledger(self.world, name, manner, self.counts)
        program = Program(self.world, name, manner, ledger, wanted=Wanted(workspace=rng.choice(("", "", "one", "two"))))
        self.programs.append(program)
        self._connect(program.begin)
        self.world.at(self.world.now + 1.0, self._follow, program)

    def _follow(self, program: Program) -> None:
        """Begin another session when this one is over."""
        if program.over is None:
            self.world.at(self.world.now + 1.0, self._follow, program)
        elif self.faults_left:
            self._add_session()

    def _connect(self, use: Callable[[Machine, Connection], None]) -> None:
        machine = self._machine("c")
        connection = Connection(machine, self.server)

        def when_there() -> None:
            if connection.is_up:
                connection.changed.remove(when_there)
                use(machine, connection)

        connection.changed.append(when_there)
        if connection.is_up:
            when_there()

    # Faults.

    def _choose_faults(self) -> list[Callable[[], str | None]]:
        rng = self.world.rng
        usual = [
            self._kill_worker,
            self._pause_worker,
            self._part_worker,
            self._cut_worker,
            self._drain_worker,
            self._kill_client,
            self._pause_client,
            self._part_client,
            self._cut_client,
            self._replace_client,
            self._slow_broker,
            self._refuse,
            self._kill_broker,
            self._cut_at_call,
            self._cut_at_call,
            self._part_at_call,
            self._pause_at_call,
            self._kill_at_call,
        ]
        chosen = rng.sample(usual, rng.randrange(2, len(usual) + 1))
        if self.disk == "everysec":
            return [*chosen, self._cut_power, self._fail_over]
        if self.disk == "none":
            return [*[each for each in chosen for _ in range(4)], self._wipe_broker]
        return chosen

    def _strike(self) -> None:
        fault = self.world.rng.choice(self._faults)
        told = fault()
        if told is not None:
            self.faults_left -= 1
            self.counts[f"fault: {fault.__name__.strip('_')}"] += 1
            self.log.append(f"{self.world.now:10.4f} {fault.__name__.strip('_')}: {told}")
            for program in self.programs:
                if program.over is None:
                    program.ledger.note(f"fault: {fault.__name__.strip('_')} {told}")
        if self.faults_left:
            self.world.at(self.world.now + self.world.rng.expovariate(1 / self._gap), self._strike)

    def _worker(self) -> Worker | None:
        busy = [worker for worker in self.workers if worker.hosted]
        return self.world.rng.choice(busy or self.workers) if self.workers else None

    def _client(self) -> Program | None:
        there = [program for program in self.programs if program.over is None and program.driver is not None]
        return self.world.rng.choice(there) if there else None

    def _seconds(self) -> float:
        return self.world.rng.choice((0.02, 0.5, 4.0, 12.0, 18.0, 30.0)) * self.world.rng.uniform(0.5, 1.5)

    def _kill_worker(self) -> str | None:
        if (worker := self._worker()) is None:
            return None
        self._crash(worker)
        return worker.machine.name

    def _crash(self, worker: Worker) -> None:
        worker.crash()
        self.workers.remove(worker)
        self.world.at(self.world.now + self.world.rng.uniform(0.1, 5), self._add_worker)

    def _pause_worker(self) -> str | None:
        if (worker := self._worker()) is None:
            return None
        worker.machine.pause(seconds := self._seconds())
        return f"{worker.machine.name} for {seconds:.2f} s"

    def _part_worker(self) -> str | None:
        if (worker := self._worker()) is None:
            return None
        worker.connection.part(seconds := self._seconds())
        return f"{worker.machine.name} for {seconds:.2f} s"

    def _cut_worker(self) -> str | None:
        if (worker := self._worker()) is None:
            return None
        worker.connection.hears_of_a_cut()
        return worker.machine.name

    def _drain_worker(self) -> str | None:
        if (worker := self._worker()) is None or len(self.workers) < 2 or worker.draining:
            return None
        worker.drain(timeout=self.world.rng.uniform(0, 20))
        self.world.at(self.world.now + 60, self._end_worker, worker)
        self._add_worker()
        return worker.machine.name

    def _end_worker(self, worker: Worker) -> None:
        if worker in self.workers:
            worker.crash()
            self.workers.remove(worker)

    def _kill_client(self) -> str | None:
        if (program := self._client()) is None or program.driver is None:
            return None
        program.driver.machine.dead = True
        program.driver.connection.close()
        self.world.at(self.world.now + self._seconds(), self._connect, program.come_back)
        return program.name

    def _replace_client(self) -> str | None:
        if (program := self._client()) is None:
            return None
        self._connect(program.come_back)
        return program.name

    def _pause_client(self) -> str | None:
        if (program := self._client()) is None or program.driver is None:
            return None
        program.driver.machine.pause(seconds := self._seconds())
        return f"{program.name} for {seconds:.2f} s"

    def _part_client(self) -> str | None:
        if (program := self._client()) is None or program.driver is None:
            return None
        program.driver.connection.part(seconds := self._seconds())
        return f"{program.name} for {seconds:.2f} s"

    def _cut_client(self) -> str | None:
        if (program := self._client()) is None or program.driver is None:
            return None
        program.driver.connection.hears_of_a_cut()
        return program.name

    def _at_call(self, trap: Callable[[Connection], None]) -> str | None:
        """Let something happen between one of the next calls and its answer."""
        if self.server.trap is not None:
            return None
        self.server.trap, self.server.trap_after = trap, self.world.rng.randrange(1, 12)
        return f"after {self.server.trap_after} calls"

    def _cut_at_call(self) -> str | None:
        return self._at_call(Connection.cut)

    def _part_at_call(self) -> str | None:
        seconds = self._seconds()
        return self._at_call(lambda connection: connection.part(seconds))

    def _pause_at_call(self) -> str | None:
        seconds = self.world.rng.uniform(10, 30)
        return self._at_call(lambda connection: connection.machine.pause(seconds))

    def _kill_at_call(self) -> str | None:
        def kill(connection: Connection) -> None:
            for worker in self.workers:
                if worker.connection is connection:
                    self._crash(worker)
                    return

        return self._at_call(kill)

    def _slow_broker(self) -> str:
        slower, seconds = self.world.rng.choice((20.0, 200.0, 2000.0)), self.world.rng.uniform(0.5, 6.0)
        self.server.slower = slower
        self.world.at(self.world.now + seconds, setattr, self.server, "slower", 1.0)
        return f"{slower:g} times for {seconds:.2f} s"

    def _refuse(self) -> str:
        share, seconds = self.world.rng.choice((0.3, 1.0)), self.world.rng.uniform(0.1, 4.0)
        self.server.refuses = share
        self.world.at(self.world.now + seconds, setattr, self.server, "refuses", 0.0)
        return f"{share:.0%} of the calls for {seconds:.2f} s"

    def _stop_broker(self) -> str | None:
        if not self.server.is_up:
            return None
        self.server.stop()
        seconds = self.world.rng.choice((0.1, 1.0, 6.0)) * self.world.rng.uniform(0.5, 1.5)
        self.world.at(self.world.now + seconds, self.server.start)
        return f"for {seconds:.2f} s"

    def _kill_broker(self) -> str | None:
        if self.disk == "none":
            return self._wipe_broker()
        return self._stop_broker()

    def _wipe_broker(self) -> str | None:
        if (told := self._stop_broker()) is not None:
            self.server.data.forget()
        return told

    def _lose(self, seconds: float, *, skew: float = 0.0) -> str | None:
        if (told := self._stop_broker()) is None:
            return None
        for change in self.server.lose(seconds, skew=skew):
            if change.session in self.ledgers and change.token:
                self.ledgers[change.session].lost(change)
        return f"{seconds:.2f} s are lost, {told}"

    def _cut_power(self) -> str | None:
        return self._lose(self.world.rng.uniform(0, MOST_LOST))

    def _fail_over(self) -> str | None:
        return self._lose(self.world.rng.uniform(0, 0.5), skew=self.world.rng.uniform(-0.5, 0.5))

    # The run.

    def run(self) -> Outcome:
        """Run to the end. Raises `Violation`."""
        world = self.world
        if not world.run(lambda: not self.faults_left, before=1e6):
            raise Violation("the faults did not come to an end")
        self._deadline = world.now + WITHIN
        if not world.run(self._all_over, before=self._deadline):
            held = {hosted.session for worker in self.workers for hosted in worker.hosted.values()}
            for name in held | {each.name for each in self.programs if each.over is None}:
                text = f"{WITHIN:g} s after the last fault {name} goes on" + (", and a worker has it" if name in held else "")
                self.ledgers[name].broken("no end", text, excuses=("claim", "position"))
        return Outcome(0, 0, self.counts, world.steps, world.now)

    def _all_over(self) -> bool:
        if self.world.now < self._looked + 1.0 and self.world.now < self._deadline:
            return False  # once in a virtual second is enough
        self._looked = self.world.now
        return all(each.over is not None for each in self.programs) and not any(worker.hosted for worker in self.workers)


def simulate(seed: int, *, faults: int = 50, only: Collection[str] = ()) -> Outcome:
    """Run one simulation, with the kinds of faults in `only`, or with those that the seed chooses.

    Raises:
        Violation: a promise of the fleet was broken. The text says which, and how to see it again.
    """
    simulation = Simulation(seed, faults=faults, only=only)
    try:
        outcome = simulation.run()
    except Exception as exc:
        how = f"see it again: python tests/fleet/simulation.py {seed} {faults} {' '.join(only)}".rstrip()
        raise Violation(f"seed {seed}, broker on disk: {simulation.disk}, {how}\n{type(exc).__name__}: {exc}") from exc
    outcome.seed, outcome.faults = seed, faults
    return outcome


def main() -> None:
    seed, faults = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    outcome = simulate(seed, faults=faults, only=sys.argv[3:])
    print(f"seed {seed}: {outcome.faults} faults, {outcome.seconds:.0f} virtual seconds, {outcome.steps} steps")
    for name, times in sorted(outcome.counts.items()):
        print(f"{times:8} {name}")


if __name__ == "__main__":
    main()
