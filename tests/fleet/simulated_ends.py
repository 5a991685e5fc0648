"""Both ends of the sessions of a simulated fleet: the real machines, driven as the real shells do, and processes on the workers."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from simulated_broker import SimulatedBroker
from simulated_machines import Connection, Machine, Server, World

from claude_transport.errors import ClaudeTransportError, ReplayGap
from claude_transport.fleet.answers import decode_node
from claude_transport.fleet.ends import LEASE_SECONDS, Claimed, FleetEnd, WorkerEnd
from claude_transport.fleet.messages import Append, Call, Entry, Kind, Owner, Reply, SessionEnd, Side, StreamArrival, Sync, Synced, Take
from claude_transport.fleet.placement import NODE_SECONDS, Node, Placing, Wanted
from claude_transport.fleet.roster import CANDIDATES
from claude_transport.fleet.scripts import PUSHED_BYTES

CLIENT_LEASE = 60.0
TAKEOVER_SECONDS = 60.0
START_SECONDS = 60.0
BEAT = NODE_SECONDS / 5
LAST_WORDS = 20.0
LAST_WRITE = 1.0
"""Seconds of the real shells (`fleet/stream.py`, `fleet/worker.py`, `fleet/hosted.py`)."""


class Line(msgspec.Struct, gc=False):
    """A line, either way: the number `n` of the prompt, or of the claim `w` the output number `k`, which may be the result of `n`."""

    type: str
    n: int = 0
    w: int = 0
    k: int = 0
    pad: str = ""


encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(Line).decode


BYTES = {"small": 80, "tell": 280, "look": 200, "held": 25, "claim": 900, "record": 150, "wake": 120}
"""Bytes of calls to the broker with their answers, nearly; a look has `held` more for each session that it holds, a search a `record` more
for each worker that it reads."""


def size_of(call: Call) -> int:
    """Return the bytes of a call and its answer, and of what its reader is told, nearly."""
    if not isinstance(call, Append):
        return 260 if not isinstance(call, Sync) else 320
    told = sum(len(data) + 30 for _, data in call.entries)
    return 230 + told + (told + 70 if told <= PUSHED_BYTES else 70)


def find_nodes_at(server: Server, labels: Collection[str], *, near: Collection[str], count: int) -> list[Node]:
    """Look for workers, and count the calls where all are counted."""

    def asked(name: str, key: str, rows: int) -> None:
        if server.counts_all:
            server.charge(1, key, size=100 + rows * (BYTES["record"] if name == "hmget" else BYTES["held"]))

    return server.data.find_nodes(labels, near=near, count=count, asked=asked)


class Watch(Protocol):
    """What notes what happens, and checks it. See `Ledger`."""

    def skipped(self, taken: int) -> None: ...
    def claimed(self, hosted: Hosted) -> None: ...
    def fed(self, hosted: Hosted, line: Line) -> None: ...
    def synced(self, token: str, *, at: float) -> None: ...
    def stepped(self, end: FleetEnd) -> None: ...
    def note(self, text: str) -> None: ...
    def end_over(self, end: FleetEnd, how: str) -> None: ...
    def given_back(self, hosted: Hosted, owed: int, *, taken: int) -> None: ...


class Driver:
    """Carries out the calls of one end, as `Carrier` and the shells around it do."""

    def __init__(self, machine: Machine, connection: Connection, session: str, end: FleetEnd, watch: Watch, *, patience: float) -> None:
        self.machine = machine
        self.world: World = machine.world
        self.connection = connection
        self.session = session
        self.end = end
        self.watch = watch
        self.over: str | None = None
        self._patience = patience
        self._generation = connection.generation
        self._asked: set[str] = set()
        self._refused: set[str] = set()
        self._polls = False
        self._lost_at: float | None = None
        connection.changed.append(self.kick)

    @property
    def broker(self) -> SimulatedBroker:
        return self.connection.server.data

    def finish(self, how: str) -> None:
        """This end is over."""
        if self.over is None:
            self.over = how
            found = self.broker.sessions.get(self.session)
            if found is None or found.fields[self.end.side.value + "e"] != self.end.token:
                self.watch.note(f"{self.end.token} was replaced")
            self.watch.end_over(self.end, how)
            if self.kick in self.connection.changed:
                self.connection.changed.remove(self.kick)

    def kick(self) -> None:
        """Ask whatever can be asked now."""
        if self.over is not None or self.machine.dead:
            return
        if not self._is_current:
            self._compare()
            return
        self._append()
        self._take()
        self._read()

    @property
    def _is_current(self) -> bool:
        return self.connection.is_up and self._generation == self.connection.generation

    # Recovering.

    def _compare(self) -> None:
        if self._lost_at is None:
            self._lost_at = self.machine.clock()
            self.machine.after(self._patience, self._give_up, self._lost_at)
        if self.connection.is_up and "sync" not in self._asked:
            self._sync(self.connection.generation)

    def _compare_again(self) -> None:
        if self._refused and self.over is None:
            self._compare()

    def _give_up(self, lost_at: float) -> None:
        if self._lost_at == lost_at and self.over is None:
            self.finish("broker_lost")

    def _sync(self, generation: int) -> None:
        def compared() -> None:
            self._generation, self._lost_at = generation, None
            self._refused.clear()

        self._ask("sync", self.end.sync_call(), compared, again=self.kick)

    def _ask(self, kind: str, call: Call, after: Callable[[], None], *, again: Callable[[], None] | None = None) -> None:
        self._asked.add(kind)
        asked_at = self.machine.clock()
        carried_out_at = math.inf

        def done(reply: Reply) -> None:
            self._asked.discard(kind)
            if self.over is not None:
                return
            try:
                self.end.answered(call, reply, asked_at=asked_at, now=self.machine.clock())
            except ClaudeTransportError as exc:
                self.finish(exc.code or type(exc).__name__)
                return
            if isinstance(reply, Synced):
                self.watch.synced(self.end.token, at=carried_out_at)
            self.watch.stepped(self.end)
            after()
            self.kick()

        def cut() -> None:
            self._asked.discard(kind)
            self.end.unanswered(call)
            if self.connection.is_up and self.over is None:  # refused: the streams are compared, then it goes on
                self._refused.add(kind)
                self.machine.after(0.05, self._compare_again)

        session, broker, server = self.session, self.broker, self.connection.server

        def work() -> Reply:
            nonlocal carried_out_at
            carried_out_at = self.world.now
            reply = broker.carry_out(session, call)
            if isinstance(call, Append) and call.entries:
                server.appended(session, call.side.value)
            return reply

        self.connection.ask(work, done, cut, key=session, size=size_of(call) if server.counts_all else 0)

    # The usual work.

    def append(self) -> None:
        """Append what can be appended now."""
        if self._is_current and self.over is None:
            self._append()

    def _append(self) -> None:
        if "append" in self._asked or "append" in self._refused:
            return
        call = self.end.append_call()
        if call is not None:
            self._ask("append", call, _nothing)
        elif self.end.writer.waits_for_reader and not self._polls:
            self._polls = True
            self.machine.after(0.1, self._poll)

    def _poll(self) -> None:
        self._polls = False
        if self.over is None and self._is_current and "sync" not in self._asked and self.end.writer.waits_for_reader:
            self._ask("sync", self.end.sync_call(polls=True), _nothing)
        else:
            self.kick()

    def _take(self) -> None:
        if "take" not in self._asked and "take" not in self._refused and (call := self.end.take_call()) is not None:  # type: ignore[attr-defined]
            self._ask("take", call, _nothing)

    def may_read(self) -> bool:
        """Whether there is room for more."""
        return True

    def _read(self) -> None:
        if {"read", "gap"} & self._asked or not self.may_read():
            return
        self._asked.add("read")
        generation, writer = self._generation, Side.WORKER if self.end.side == Side.CLIENT else Side.CLIENT
        cursor, session, broker = self.end.reader.cursor, self.session, self.broker

        def done(entries: list[Entry]) -> None:
            self._asked.discard("read")
            if self.over is not None:
                return
            if generation == self.connection.generation:
                try:
                    self.heard(self.end.arrived(entries))  # type: ignore[attr-defined]
                except ReplayGap as exc:
                    how = exc.code or ""
                    self._ask("gap", self.end.renew_call(CLIENT_LEASE), lambda: self.finish(how))
                    return
                except ClaudeTransportError as exc:
                    self.finish(exc.code or type(exc).__name__)
                    return
                self.watch.stepped(self.end)
            self.kick()

        self.connection.read(session, writer.value, lambda: broker.read(session, writer, cursor), done, lambda: self._asked.discard("read"))

    def heard(self, arrivals: Sequence[StreamArrival]) -> None:
        raise NotImplementedError


def _nothing() -> None:
    """Do nothing more."""


def _ignore(_: object) -> None:
    """Do nothing with an answer."""


class Hosted(Driver):
    """A session on a worker, as `HostedSession`, and its process."""

    end: WorkerEnd

    def __init__(self, node: Worker, session: str, claimed: Claimed, watch: Watch, *, asked_at: float, number: int, manner: Manner) -> None:
        end = WorkerEnd(claimed, asked_at=asked_at, window=manner.window, keep_bytes=manner.keep_bytes)
        super().__init__(node.machine, node.connection, session, end, watch, patience=LEASE_SECONDS)
        self.node = node
        self.claimed = claimed
        self.number = number
        self.said: list[tuple[int, int]] = []  # (entry, output number)
        self._manner = manner
        self._output: deque[tuple[bytes, int]] = deque()
        self._spoken = 0
        self._turns: deque[int] = deque()
        self._running = False
        self._writing = False
        self._eof = self._bye = self._ending = self.leaving = False
        self._started = False
        self._asked_for = 0  # the last entry that a take has named, whatever became of the take
        self._owed = 0  # the last entry that was taken, or asked for, when the worker was told to let the session go
        self.machine.after(end.lease.renew_at - self.machine.clock(), self._renew)

    def start(self) -> None:
        """The process runs."""
        if self.over is not None:
            return
        self._started = True
        self.watch.claimed(self)
        claimed = self.claimed
        self.end.begin(
            Owner(
                node=f"{self.machine.name}#{self.number}", taken=claimed.in_taken, takeover=claimed.is_takeover, uncertain=claimed.uncertain
            )
        )
        self.kick()

    def kick(self) -> None:
        if not self._started:
            return
        super().kick()
        self._feed()
        self._say()

    def finish(self, how: str) -> None:
        super().finish(how)
        self.node.forget(self)

    # Input.

    def may_read(self) -> bool:
        return self.end.waiting_bytes < 2**20

    def _ask(self, kind: str, call: Call, after: Callable[[], None], *, again: Callable[[], None] | None = None) -> None:
        if isinstance(call, Take):
            self._asked_for = max(self._asked_for, call.upto)
        super()._ask(kind, call, after, again=again)

    def heard(self, arrivals: Sequence[StreamArrival]) -> None:
        for each in arrivals:
            if each.kind == Kind.BYE:
                self.machine.after(0.01, self.close)

    def _feed(self) -> None:
        if self._writing or self._bye or self.over is not None or (self._running and self._manner.stalls):
            return
        batch = self.end.to_feed(self.machine.clock())
        if batch:
            self._writing = True
            self.world.at(self.world.now + self._manner.write_seconds(self.world), self._received, list(batch))

    def _received(self, batch: list[StreamArrival]) -> None:
        """The process has received a write that had begun, also when its worker stands still."""
        if self.over is not None or self._bye or self.machine.dead:
            return
        for each in batch:
            if each.kind == Kind.EOF:
                self._eof = True
            elif each.kind == Kind.DATA:
                for data in each.data.splitlines():
                    line = decode_line(data)
                    self.watch.fed(self, line)
                    if line.type == "user":
                        self._turns.append(line.n)
        self.machine.run(self._fed, ())

    def _fed(self) -> None:
        self._writing = False
        if self.over is not None or self._bye:
            return
        self.end.fed()
        self._next_turn()
        self.kick()

    # The process.

    def _next_turn(self) -> None:
        if self._running or self.over is not None or self._bye:
            return
        if self._turns:
            self._running = True
            if self._manner.stores:
                self.end.hold_turns(unstored=True)
            self._speak(self._turns.popleft(), self._manner.lines(self.world))
        elif self._eof:
            self.close()

    def _speak(self, turn: int, left: int) -> None:
        if self.over is not None or self._bye:
            return
        if self._output:  # the pipe is full
            self.machine.after(0.05, self._speak, turn, left)
            return
        self._spoken += 1
        pad = "x" * self._manner.output_bytes(self.world)
        line = Line("assistant" if left else "result", n=turn, w=self.number, k=self._spoken, pad=pad)
        self._output.append((encode_line(line) + b"\n", self._spoken))
        self._say()
        if left:
            self.machine.after(self._manner.pace(self.world), self._speak, turn, left - 1)
            return
        if self._manner.stores:
            self.machine.after(self.world.rng.uniform(0, 0.5), self._stored)
        self.machine.after(0, self._turn_over)

    def _turn_over(self) -> None:
        self._running = False
        self._next_turn()
        self.kick()

    def _stored(self) -> None:
        if not self._running:
            self.end.hold_turns(unstored=False)
        self.kick()

    def _say(self) -> None:
        if self._ending:
            return
        while self._output and (self.end.writer.has_room or self._bye):  # what a process that is ended has said has to go out
            data, number = self._output.popleft()
            self.end.say(data)
            self.said.append((self.end.writer.last, number))
        self.watch.stepped(self.end)
        self.append()
        if self._bye and not self._output:
            self._end()

    # Its lease and its end.

    def _renew(self) -> None:
        if self.over is not None:
            return
        left = self.end.lease.renew_at - self.machine.clock()
        if left > 0:
            self.machine.after(left, self._renew)
            return
        if self._is_current and not {"renew"} & (self._asked | self._refused):
            self._ask("renew", self.end.renew_call(LEASE_SECONDS), self._renewed)
        self.machine.after(0.25, self._renew)

    def _renewed(self) -> None:
        if self.end.should_stop or self.end.others_lease < 0:
            self._ended_by = "stopped" if self.end.should_stop else "lease"
            self.close()

    _ended_by = ""

    def close(self) -> None:
        """End the process. What it has said goes out."""
        if not self._bye:
            self._bye = True
            self._say()

    def leave(self) -> None:
        """Let another worker have the session. The process gets what is taken, and nothing after it."""
        if not self.leaving:
            self.leaving = True
            self._owed = max(self._asked_for, self._taken_in_broker)
            self.end.stop_taking()
            self._close_when_fed(self.world.now + LAST_WRITE)

    @property
    def _taken_in_broker(self) -> int:
        """How far this worker has taken its input, also by a comparison after the broker had lost what was read."""
        found = self.broker.sessions.get(self.session)
        return 0 if found is None or found.fields["we"] != self.end.token else int(found.fields["wi"])

    def _close_when_fed(self, until: float) -> None:
        if self.end.owes_feeding and self.world.now < until and self.over is None:
            self.kick()
            self.machine.after(0.05, self._close_when_fed, until)
        else:
            self.close()

    @property
    def is_quiet(self) -> bool:
        return not self.end.busy

    def _end(self) -> None:
        if self._ending or self.over is not None:
            return
        self._ending = True
        if not self.leaving:
            end = SessionEnd(code=self._ended_by) if self._ended_by else SessionEnd(exit_code=0, taken=self.end.fed_number)
            self.end.say_end(end)
        self.machine.after(LAST_WORDS, self.finish, "no last words")
        self.kick()
        self._release()

    def _release(self) -> None:
        if self.over is not None:
            return
        if self.end.writer.has_unsaid or "append" in self._asked or self._refused or not self._is_current:
            self.machine.after(0.05, self._release)
            return
        state, broker, session, token = "live" if self.leaving else "ended", self.broker, self.session, self.end.token

        def work() -> None:
            if broker.release(session, token, state, 3_600_000)[0] == "OK":
                if state == "live":
                    self.watch.given_back(self, max(self._owed, self.claimed.in_taken), taken=broker.sessions[session].fields["wi"])
                broker.set_in(broker.waiting, session, 0.0 if state == "live" else None)

        self.connection.ask(work, lambda _: self.finish(state), lambda: self.finish(state), key=self.session)


class Manner:
    """How the process of a session behaves, and how much may be in flight."""

    def __init__(
        self,
        *,
        stalls: bool = False,
        stores: bool = False,
        slow_start: bool = False,
        large: bool = False,
        slow: bool = False,
        window: int = 2**16,
        keep_bytes: int = 2**19,
    ) -> None:
        self.stalls = stalls
        self.stores = stores
        self.large = large
        self.slow = slow
        self.longest_line: int = 300_200 if large else 200
        self.slow_start = slow_start
        self.window = window
        self.keep_bytes = keep_bytes

    def start_seconds(self, world: World) -> float:
        return world.rng.uniform(0.05, 20.0 if self.slow_start else 0.5)

    def write_seconds(self, world: World) -> float:
        return world.rng.uniform(0, 1.5) if self.slow or world.rng.random() < 0.1 else 0.0

    def lines(self, world: World) -> int:
        return world.rng.randrange(1, 8)

    def pace(self, world: World) -> float:
        return 2.5 if self.slow else world.rng.choice((0.0, 0.001, 0.02, 4.0 if self.stalls else 0.4))

    def output_bytes(self, world: World) -> int:
        if self.large and world.rng.random() < 0.2:
            return world.rng.randrange(300_000)
        return 0


class Place(NamedTuple):
    """What a worker has read of one part of the queue."""

    placing: Placing
    waiting: int
    unknown: int
    now: float
    others: dict[str, Node]
    homes: dict[str, str]


class Worker:
    """A worker of the fleet, as `FleetWorker`: it beats, looks for sessions that wait, and claims them."""

    def __init__(
        self,
        machine: Machine,
        connection: Connection,
        *,
        capacity: int,
        ledger_of: Callable[[str], tuple[Watch, Manner]],
        labels: Sequence[str] = (),
        numbers: Callable[[], int],
        wakes_others: bool = False,
        first_beat: float = 0.1,
    ) -> None:
        self.machine = machine
        self.connection = connection
        self.world: World = machine.world
        self.capacity = capacity
        self.labels = tuple(labels)
        self.hosted: dict[str, Hosted] = {}
        self.draining = False
        self._wakes_others = wakes_others  # as the real worker does; it only costs time where faults are looked for
        self._claiming: set[str] = set()
        self._placings: defaultdict[str, Placing] = defaultdict(Placing)  # by part of the queue
        self._told_load = 0
        self._ledger_of = ledger_of
        self._numbers = numbers
        self._looking = self._look_again = False
        self._about: set[str] = set()  # what this worker was woken about since the last look
        self._looks_everywhere = False
        connection.server.inboxes[machine.name] = self._woken
        self.machine.after(self.world.rng.uniform(0, first_beat), self._beat)

    def _woken(self, about: Collection[str]) -> None:
        if self.connection.is_up:
            for name in about:
                self._placings[self.connection.server.part_of(name)].ask(name)
            self._about.update(about)
            self.machine.after(0.001, self.look)

    def forget(self, hosted: Hosted) -> None:
        if self.hosted.get(hosted.session) is hosted:
            del self.hosted[hosted.session]
        self._not_mine(hosted.session)

    def _not_mine(self, session: str) -> None:
        self._claiming.discard(session)
        self._looks_everywhere = True
        self.machine.after(0, self.look)

    def _node(self, now: float) -> Node:
        load = len(self.hosted) + len(self._claiming)
        return Node(id=self.machine.name, capacity=self.capacity, load=load, labels=self.labels, seen=now, draining=self.draining)

    def _beat(self) -> None:
        server, sessions = self.connection.server, list(self.hosted)
        broker, part = server.data, server.data.keys.worker_part_of(self.machine.name).queue

        def work() -> None:
            now = broker.now / 1000
            self._tell_load(now)
            for session in sessions:
                broker.set_in(broker.waiting, session, now + LEASE_SECONDS)
            if server.counts_all:
                server.charge(1, part, size=BYTES["small"] + BYTES["held"] * len(sessions))  # the time; the look holds them

        if self.connection.is_up:
            self._looks_everywhere = True
            self.connection.ask(work, lambda _: self.look(), _nothing, key=part, size=BYTES["tell"])
        self.machine.after(BEAT, self._beat)

    # Taking sessions.

    def look(self) -> None:
        """Look for sessions that wait."""
        server = self.connection.server
        broker = server.data

        def work() -> list[Place]:
            now = broker.now / 1000
            for part in parts if everywhere else ():
                self._placings[part].ask_about_all()
            places = [self._read_place(part, now, about) for part in parts]
            self._charge(parts, sum(place.unknown for place in places), finds=any(place.waiting for place in places))
            return places

        def done(places: list[Place]) -> None:
            self._looking = False
            for place in places:
                self._place(place)
            if self._look_again:
                self._look_again = False
                self.look()

        def cut() -> None:
            self._looking = self._look_again = False

        if self._looking:
            self._look_again = True
        elif self.connection.is_up and not self.draining:
            self._looking = True
            about, self._about = self._about, set()
            everywhere, self._looks_everywhere = self._looks_everywhere or not about, False
            parts = server.parts if everywhere else sorted({server.part_of(name) for name in about})
            self.connection.ask(work, done, cut, key=parts[0], size=BYTES["look"])

    def _read_place(self, part: str, now: float, about: Collection[str]) -> Place:
        """Read what the sessions want that wait in a part of the queue, and which workers there are for them."""
        server, placing = self.connection.server, self._placings[part]
        asked = [name for name in about if server.part_of(name) == part and server.data.waiting.get(name, math.inf) <= now]
        first = dict.fromkeys([*asked, *server.data.waiting.first(part, now, 64)])
        waiting = [name for name in first if name not in self.hosted and name not in self._claiming]
        broker, unknown = server.data, placing.unknown(waiting)
        for name in unknown:
            found = broker.sessions.get(name)
            if found is None:
                broker.set_in(broker.waiting, name, None)
            else:
                placing.learn(name, found.fields["q"])
            if server.counts_all:
                server.charge(1, name, size=BYTES["small"])
        homes = {each: broker.homes[each] for each in placing.workspaces() if each in broker.homes}
        return Place(placing, len(waiting), len(unknown), now, self._others(placing, homes.values(), waiting) if waiting else {}, homes)

    def _charge(self, parts: Sequence[str], unknown: int, *, finds: bool) -> None:
        """Count the calls of a look at the queue: where all are counted, one for each part."""
        server = self.connection.server
        if not server.counts_all:
            server.charge(2 + unknown if finds else 1)
        for part in parts[1:]:
            server.charge(1, part, size=BYTES["look"])

    def _others(self, placing: Placing, homes: Collection[str], waiting: Sequence[str]) -> dict[str, Node]:
        server = self.connection.server
        others, broker = {}, server.data
        for labels in placing.label_sets(self.labels):
            found = find_nodes_at(server, labels, near=waiting, count=CANDIDATES + placing.to_place)
            others |= {node.id: node for node in found}
        for home in homes:
            if home not in others and home in broker.nodes and (node := decode_node(broker.nodes[home])) is not None:
                others[home] = node
        others.pop(self.machine.name, None)
        return others

    def _place(self, place: Place) -> None:
        now = place.now
        place.placing.pass_over([*place.others.values(), self._node(now)])
        placed = place.placing.place(self._node(now), place.others.values(), now=now, homes=place.homes)
        if placed.looks_further:
            self._looks_everywhere = True
            self.machine.after(0.01, self.look)
        for name, wanted in placed.claims:
            if name not in self.hosted and name not in self._claiming:
                self.claim(name, wanted)
        if not self.connection.is_up:
            return
        if self._node(now).load != self._told_load:
            self.connection.ask(
                lambda: self._tell_load(now),
                _ignore,
                _nothing,
                key=self.connection.server.data.keys.worker_part_of(self.machine.name).queue,
                size=BYTES["tell"],
            )
        for node, about in placed.wakes.items() if self._wakes_others else ():
            self.connection.ask(partial(self.connection.server.wake, node, about), _ignore, _nothing)

    def _tell_load(self, now: float) -> None:
        node, broker = self._node(now), self.connection.server.data
        broker.tell(node)
        self._told_load = node.load

    def claim(self, name: str, wanted: Wanted) -> None:
        """Claim a session, and begin to serve it."""
        self._claiming.add(name)
        broker, nonce, asked_at = self.connection.server.data, f"{self.world.rng.getrandbits(32):08x}", self.machine.clock()

        def work() -> list[Any]:
            answer = broker.claim(name, nonce, self.machine.name, int(LEASE_SECONDS * 1000))
            if answer[0] in ("GONE", "ENDED"):
                broker.set_in(broker.waiting, name, None)
            elif answer[0] == "OK":
                broker.set_in(broker.waiting, name, broker.now / 1000 + LEASE_SECONDS)
                if wanted.workspace:
                    broker.set_in(broker.homes, wanted.workspace, self.machine.name)
                answer.append(self._numbers())
                self._ledger_of(name)[0].skipped(answer[1]["wi"])
            return answer

        def done(answer: list[Any]) -> None:
            if answer[0] != "OK":
                self._not_mine(name)
                return
            watch, manner = self._ledger_of(name)
            claimed = Claimed.from_fields(answer[1])
            hosted = Hosted(self, name, claimed, watch, asked_at=asked_at, number=answer[2], manner=manner)
            self.hosted[name] = hosted
            self._claiming.discard(name)
            self.machine.after(manner.start_seconds(self.world), hosted.start)

        server = self.connection.server
        if server.counts_all:
            server.charge(2, server.part_of(name), size=BYTES["small"])  # the time, and that it does not wait
            server.charge(1, name, size=BYTES["small"])  # its conversation
        self.connection.ask(work, done, lambda: self._not_mine(name), key=name, size=BYTES["claim"])

    def drain(self, *, timeout: float) -> None:
        """Take no more sessions, and let each go at a quiet moment, or at the end."""
        self.draining = True
        self._drain(self.world.now + timeout)

    def _drain(self, until: float) -> None:
        for hosted in list(self.hosted.values()):
            if hosted.is_quiet or self.world.now >= until:
                hosted.leave()
        if self.hosted:
            self.machine.after(0.1, self._drain, until)

    def crash(self) -> None:
        """Kill the worker and its processes."""
        self.machine.dead = True
        self.connection.server.inboxes.pop(self.machine.name, None)
        self.connection.close()
