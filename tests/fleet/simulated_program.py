"""The programs of a simulated fleet: each talks in one session, through one client after the other, and a ledger checks what happens."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from simulated_broker import Change
from simulated_ends import (
    CLIENT_LEASE,
    START_SECONDS,
    TAKEOVER_SECONDS,
    Driver,
    Hosted,
    Line,
    Manner,
    decode_line,
    encode_line,
    find_nodes_at,
)
from simulated_machines import Connection, Machine, World

from claude_transport.fleet.answers import decode_node
from claude_transport.fleet.ends import ClientEnd, FleetEnd
from claude_transport.fleet.messages import Kind, Owner, SessionEnd, StreamArrival
from claude_transport.fleet.placement import Wanted, rank_nodes
from claude_transport.fleet.roster import CANDIDATES

EXPECTED_ENDS = frozenset(
    {
        "exit",
        "live",
        "ended",
        "no last words",
        "input lost",
        "lease",
        "broker_lost",
        "fleet.fenced",
        "fleet.gone",
        "fleet.no_session",
        "fleet.no_worker",
        "no worker took it",
        "not back",
        "not begun: the broker was lost",
    }
)
"""How a program, or an end of a session, may be over. Anything else, such as a `ReplayGap`, is a broken promise."""


class Violation(AssertionError):
    """What a fleet promises did not hold."""


class InLine:
    """A line of the program: the entry that ends it, the client that said it, and what became of it."""

    __slots__ = ("end", "entry", "is_dropped", "is_prompt", "outcome", "size")

    def __init__(self, end: FleetEnd, *, is_prompt: bool, size: int) -> None:
        self.end = end
        self.entry = end.writer.last
        self.size = size
        self.is_prompt = is_prompt
        self.is_dropped = False
        self.outcome = ""


class Ledger:
    """Notes what happens in one session, and raises `Violation` at once when a promise is broken.

    A power cut may take back what the broker had acknowledged. An end that lives mends that when it compares the streams. Until then, and
    for good when it died first, what depends on the lost changes is excused, and counted.
    """

    def __init__(self, world: World, name: str, manner: Manner, counts: Counter[str]) -> None:
        self.world = world
        self.name = name
        self.manner = manner
        self.counts = counts
        self.trace: deque[str] = deque(maxlen=80)
        self.lines: list[InLine] = []
        self.hosts: dict[int, Hosted] = {}
        self._fed_to = -1
        self._skipped = 0  # a worker begins behind what one before it has taken, whether it was fed or not
        self._fed_by = 0
        self._got = (0, 0)  # claim, output number
        self._lost: dict[str, set[str]] = {}
        self._lost_at = -math.inf
        self._excused: set[str] = set()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.world.now:10.4f} {text}")

    def broken(self, kind: str, text: str, *, excuses: Iterable[str] = ()) -> None:
        """Raise `Violation`, unless changes of a kind in `excuses` were lost and not mended."""
        found = set().union(*self._lost.values()).intersection(excuses)
        if found:
            if kind not in self._excused:
                self._excused.add(kind)
                self.counts[f"excused: {kind}, lost {' '.join(sorted(found))}"] += 1
            return
        raise Violation(f"{kind}: {text} (session {self.name}, at {self.world.now:.4f})\n" + "\n".join(self.trace))

    # The broker.

    def lost(self, change: Change) -> None:
        self.note(f"lost: {change.what} by {change.token}")
        what, _, side = change.what.partition(" ")
        again = {f"take {side}", f"append {side}"} if what == "sync" else set()  # a comparison says again what was lost before
        self._lost.setdefault(change.token, set()).update({change.what}, again)
        self._lost_at = self.world.now

    def synced(self, token: str, *, at: float) -> None:
        """An end has compared the streams. The broker did it at `at`; its answer may come after it has lost that, too."""
        if at > self._lost_at and (lost := self._lost.pop(token, set())) & {"renew w"}:
            self._lost[token] = lost & {"renew w"}  # the lease is as short as the broker knows it, until it is renewed

    # Input.

    def sent(self, end: FleetEnd, *, is_prompt: bool, size: int) -> None:
        """A client has put a line, of `size` bytes. The process has received all but a window of those before it.

        Of a worker whose claim is lost, the broker knows only what it has taken.
        """
        ahead = sum(line.size for line in self.lines[self._fed_to + 1 :] if line.end is end and line.entry > self._skipped)
        if ahead >= self.manner.window:
            self.broken("window", f"{ahead} bytes were not fed, and the window is {self.manner.window}", excuses=("claim",))
        self.lines.append(InLine(end, is_prompt=is_prompt, size=size))

    def attached(self, last: int) -> None:
        """A new client has come: what earlier ones did not get into the broker never arrives."""
        for line in self.lines:
            if line.entry > last and not line.is_dropped:
                if line.end.writer.said >= line.entry:
                    self.broken("lost input", f"the entry {line.entry} was acknowledged", excuses=("append c",))
                line.is_dropped = True

    def missed(self) -> None:
        """A client has come behind a position that another worker has now: with a bookmark, it would get a `ReplayGap`."""
        self._lost.setdefault("", set()).add("position")

    def skipped(self, taken: int) -> None:
        """The broker has granted a claim: the process of that worker gets what is behind the entry `taken`."""
        self._skipped = max(self._skipped, taken)

    def claimed(self, hosted: Hosted) -> None:
        self.hosts[hosted.number] = hosted
        self.note(f"#{hosted.number} {hosted.machine.name} has it as {hosted.end.token}, behind {hosted.claimed.in_taken}")

    def fed(self, hosted: Hosted, line: Line) -> None:
        at = line.n
        self.note(f"#{hosted.number} fed {at}")
        self.counts["lines in"] += 1
        if hosted.number < self._fed_by:
            self.broken("two fed", f"#{hosted.number} was fed {at} after #{self._fed_by}", excuses=("claim", "renew w"))
        elif at <= self._fed_to:
            self.broken("repeated", f"{at} was fed after {self._fed_to}", excuses=("take w",))
        if self.lines[at].is_dropped:
            self.broken("late", f"{at} was fed, and its client was replaced before it was there", excuses=("attach", "append c"))
        for between in range(self._fed_to + 1, at):
            if not self.lines[between].is_dropped and self.lines[between].entry > hosted.claimed.in_taken:
                self.broken("lost input", f"{at} was fed, and {between} was not", excuses=("append c",))
        self._fed_to, self._fed_by = max(at, self._fed_to), max(hosted.number, self._fed_by)

    def given_back(self, hosted: Hosted, owed: int, *, taken: int) -> None:
        """A worker has let the session go. What it took after it was told to do so, the process has received."""
        if taken > max(hosted.end.fed_number, owed):
            text = f"#{hosted.number} has taken {taken} when it was about to go, and fed {hosted.end.fed_number}"
            self.broken("taken in vain", text)

    # Output.

    def owner(self, owner: Owner) -> int:
        """A worker has said that it has the session. Returns how many turns are uncertain from now on."""
        taken = [line for line in self.lines if line.is_prompt and line.entry <= owner.taken and not line.is_dropped and not line.outcome]
        self.note(f"{owner.node} says: taken {owner.taken}, uncertain {owner.uncertain}; {len(taken)} have no outcome")
        self.check_tail(int(owner.node.partition("#")[2]))
        if owner.uncertain < len(taken):
            text = f"{len(taken)} turns are uncertain, and {owner.uncertain} were told"
            self.broken("untold", text, excuses=("claim", "position"))
        if owner.uncertain > len(taken):
            self.counts["overtold"] += owner.uncertain - len(taken)
        for line in taken:
            line.outcome = "uncertain"
            self.counts["uncertain turns"] += 1
        return len(taken)

    def _said_by(self, number: int) -> int:
        """The last output number of a claim that the broker has acknowledged."""
        host = self.hosts.get(number)
        if host is None:
            return 0
        said = host.end.writer.said
        return next((output for entry, output in reversed(host.said) if entry <= said), 0)

    def check_tail(self, until: int) -> None:
        """What earlier workers have got into the broker must have arrived."""
        number, got = self._got
        for host in [each for each in self.hosts if number <= each < until]:
            if (said := self._said_by(host)) > (got if host == number else 0):
                self.broken("lost output", f"#{host} has said {said}, and {got} of #{number} arrived", excuses=("append w",))

    def got(self, line: Line) -> bool:
        """A line has arrived. Returns whether a turn is over that the program waits for."""
        number, last = self._got
        self.counts["lines out"] += 1
        if line.w < number:
            self.broken("stale output", f"a line of #{line.w} arrived after one of #{number}")
        if line.w != number:
            self.check_tail(line.w)
            last = 0
        if line.k != last + 1:
            kind = "repeated output" if line.k <= last else "lost output"
            self.broken(kind, f"{line.k} of #{line.w} arrived after {last}", excuses=("append w",))
        self._got = (line.w, line.k)
        if line.type != "result":
            return False
        self.note(f"result of {line.n} from #{line.w}")
        if self.lines[line.n].outcome:
            self.broken("two outcomes", f"a result of {line.n}, which was {self.lines[line.n].outcome}", excuses=("append w",))
            return False
        self.lines[line.n].outcome = "result"
        self.counts["turns"] += 1
        return not self.lines[line.n].is_dropped  # the process may have got it before the broker and its client were gone

    def ended(self, end: SessionEnd) -> None:
        self.note(f"the end: {end}")
        self.check_tail(max(self.hosts, default=0) + 1)
        if end.exit_code is None:
            return
        left = [line for line in self.lines if line.is_prompt and line.entry <= end.taken and not line.is_dropped and not line.outcome]
        if left:
            text = f"the process ended well, and {len(left)} turns have no outcome"
            self.broken("lost turn", text, excuses=("claim", "position"))

    # The end, and memory.

    def over(self, how: str) -> None:
        """The program is over."""
        self.note(f"the program is over: {how}")
        self.counts[f"ended: {how}"] += 1

    def end_over(self, end: FleetEnd, how: str) -> None:
        """An end is over. An end that lives mends what the broker has lost, so it is never over because of lost lines."""
        self.note(f"{end.side.value} {end.token} is over: {how}")
        if how not in EXPECTED_ENDS:
            self.broken("an end", f"{end.token}: {how}", excuses=("attach",) if how == "protocol.replay_gap" else ())

    def stepped(self, end: FleetEnd) -> None:
        if end.writer.kept_bytes > self.manner.keep_bytes + 3 * self.manner.longest_line:
            self.broken("memory", f"{end.token} keeps {end.writer.kept_bytes} bytes")


class ClientDriver(Driver):
    """A client, as `FleetStream`."""

    end: ClientEnd

    def __init__(self, machine: Machine, connection: Connection, program: Program, end: ClientEnd, *, owned: bool) -> None:
        super().__init__(machine, connection, program.name, end, program.ledger, patience=CLIENT_LEASE / 2)
        self.program = program
        self._owned = owned
        self._inbox: deque[StreamArrival] = deque()
        self._telling = False
        self._consuming = False
        self._missed_since: float | None = None
        machine.after(CLIENT_LEASE / 6, self._renew)

    def finish(self, how: str) -> None:
        super().finish(how)
        self.connection.close()
        self.program.client_over(self, how)

    def kick(self) -> None:
        super().kick()
        if self.over is None:
            self.program.advance(self)

    def may_read(self) -> bool:
        return len(self._inbox) < 64

    def heard(self, arrivals: Sequence[StreamArrival]) -> None:
        self._inbox.extend(arrivals)
        self._consume_soon()

    def _consume_soon(self) -> None:
        if not self._consuming and self._inbox:
            self._consuming = True
            self.machine.after(self.program.reading_seconds(), self._consume)

    def _consume(self) -> None:
        self._consuming = False
        for _ in range(min(len(self._inbox), self.world.rng.randrange(1, 64))):
            if self.over is not None:
                return
            arrival = self._inbox.popleft()
            self.end.consumed(arrival.number)
            self._owned = self._owned or arrival.kind == Kind.OWNER
            self.program.consume(self, arrival)
        self._consume_soon()
        self.kick()

    def _take(self) -> None:
        if self.end.owes_take and not self._telling:
            self._telling = True
            self.machine.after(0.01, self._tell)

    def _tell(self) -> None:
        self._telling = False
        if self.over is None and self._is_current:
            super()._take()

    def _renew(self) -> None:
        if self.over is not None:
            return
        if self._is_current and not {"renew"} & (self._asked | self._refused):
            self._ask("renew", self.end.renew_call(CLIENT_LEASE), self._look_at_worker)
        else:
            self._look_at_worker()
        self.machine.after(CLIENT_LEASE / 6, self._renew)

    def _look_at_worker(self) -> None:
        now = self.machine.clock()
        if not self._owned or self.end.others_lease > 0:
            self._missed_since = None
        elif self._missed_since is None:
            self._missed_since = now
        elif now - self._missed_since > TAKEOVER_SECONDS:
            self.finish("fleet.no_worker")


class Program:
    """What talks in a session. It goes on through one client after the other, from where it was."""

    def __init__(self, world: World, name: str, manner: Manner, ledger: Ledger, *, wanted: Wanted) -> None:
        rng = world.rng
        self.world = world
        self.name = name
        self.manner = manner
        self.ledger = ledger
        self.over: str | None = None
        self.driver: ClientDriver | None = None
        self.position = 0
        self._said_by = ""  # the worker that has said the entry there
        self._wanted = wanted
        self._prompts = rng.randrange(1, 12)
        self._ahead = 4 if manner.slow else rng.choice((1, 1, 2, 4))
        self._hasty = rng.random() < 0.2
        self._leaves = rng.choice((Kind.EOF, Kind.EOF, Kind.BYE))
        self._slow_reader = rng.random() < 0.2
        self._open = 0
        self._left = False
        self._asleep_until = 0.0
        self._tries = 0
        self._coming = 0
        self._drivers: list[ClientDriver] = []

    def reading_seconds(self) -> float:
        return self.world.rng.uniform(0, 0.3) if self._slow_reader else 0.0

    def finish(self, how: str) -> None:
        if self.over is None:
            self.over = how
            self.ledger.over(how)
            self.driver = None
            for driver in self._drivers:
                driver.finish(how)

    def client_over(self, driver: ClientDriver, how: str) -> None:
        if driver is self.driver:
            self.finish(how)

    # Beginning, and coming back.

    def begin(self, machine: Machine, connection: Connection) -> None:
        """Begin the session."""
        server, nonce = connection.server, f"{self.world.rng.getrandbits(32):08x}"
        broker, name, wanted = server.data, self.name, self._wanted

        def created(_: Any) -> None:
            end = ClientEnd(f"1.{nonce}", window=self.manner.window, keep_bytes=self.manner.keep_bytes)
            driver = self._use(ClientDriver(machine, connection, self, end, owned=False))

            def enqueue() -> None:
                broker.set_in(broker.waiting, name, 0.0)
                nodes = {node.id: node for node in find_nodes_at(server, wanted.labels, near=[name], count=CANDIDATES)}
                home = broker.homes.get(wanted.workspace) if wanted.workspace else None
                if home in broker.nodes and (node := decode_node(broker.nodes[home])) is not None:
                    nodes[home] = node
                if ranked := rank_nodes(nodes.values(), wanted, now=broker.now / 1000, session=name, home=home):
                    server.wake(ranked[0].id, (name,))

            if server.counts_all:
                server.charge(1, name, size=150)  # the time
            connection.ask(enqueue, lambda _: driver.kick(), self._not_begun, key=server.part_of(name), size=150)

        def create() -> list[Any]:
            return broker.create(name, f"1.{nonce}", int(CLIENT_LEASE * 1000), 86_400_000, {"q": wanted, "cw": self.manner.window})

        machine.after(START_SECONDS, self._not_started)
        connection.ask(create, created, self._not_begun, key=name, size=600)

    def _not_begun(self) -> None:
        self.finish("not begun: the broker was lost")

    def _not_started(self) -> None:
        driver = self.driver
        if driver is None or self.position or self.over is not None:
            return
        broker, name, token = driver.broker, self.name, driver.end.token

        def discard() -> None:
            if broker.discard(name, token)[0] == "OK":
                broker.set_in(broker.waiting, name, None)

        driver.connection.ask(discard, lambda _: None, lambda: None, key=name)
        self.finish("no worker took it")

    def come_back(self, machine: Machine, connection: Connection) -> None:
        """Go on through another client."""
        if self.over is not None:
            connection.close()
            return
        self._coming += 1
        self._attach(machine, connection, self._coming, f"{self.world.rng.getrandbits(32):08x}", 30)

    def _attach(self, machine: Machine, connection: Connection, coming: int, nonce: str, tries: int) -> None:
        if self.over is not None or coming != self._coming:
            connection.close()
            return
        broker, name, window = connection.server.data, self.name, self.manner.window

        def again() -> None:
            if not tries:
                self.finish("not back")
            else:
                machine.after(1.0, self._attach, machine, connection, coming, nonce, tries - 1)

        def attached(answer: list[Any]) -> None:
            if coming == self._coming:
                self._attached(machine, connection, answer, again)

        if connection.is_up:
            connection.ask(lambda: broker.attach(name, nonce, int(CLIENT_LEASE * 1000), window=window), attached, again, key=name)
        else:
            again()

    def _attached(self, machine: Machine, connection: Connection, answer: list[Any], again: Any) -> None:
        if self.over is not None or answer[0] != "OK":
            self.finish("fleet.no_session")
            connection.close()
            return
        token, last, taken, read, out_last = answer[1:6]
        if self.position > out_last:  # a ReplayGap, until the worker has said again what the broker has lost
            again()
            return
        self.ledger.note(f"a client comes as {token}, behind {self.position}")
        worker, base = answer[6], answer[8]
        if self._said_by not in ("", worker) and self.position > base:
            self.ledger.missed()
        self.ledger.attached(last)
        self._open = sum(line.is_prompt and not line.is_dropped and not line.outcome for line in self.ledger.lines)
        self._left = False
        sizes = {"window": self.manner.window, "keep_bytes": self.manner.keep_bytes}
        end = ClientEnd(token, last=last, taken=taken, cursor=self.position, told=read, **sizes)
        self._use(ClientDriver(machine, connection, self, end, owned=True)).kick()

    def _use(self, driver: ClientDriver) -> ClientDriver:
        self.driver = driver
        self._drivers.append(driver)
        return driver

    # Talking.

    def advance(self, driver: ClientDriver) -> None:
        """Say what can be said now."""
        if driver is not self.driver or self._left:
            return
        writer, rng = driver.end.writer, self.world.rng
        while self._prompts and self._open < self._ahead and writer.has_room and self.world.now >= self._asleep_until:
            is_prompt = rng.random() < 0.8
            pad = "x" * rng.randrange(300_000) if self.manner.large and rng.random() < 0.2 else ""
            line = Line("user" if is_prompt else "control", n=len(self.ledger.lines), pad=pad)
            data = encode_line(line) + b"\n"
            writer.put(data)
            self.ledger.sent(driver.end, is_prompt=is_prompt, size=len(data))
            self._prompts -= is_prompt
            self._open += is_prompt
            if rng.random() < 0.3:
                self._asleep_until = self.world.now + rng.uniform(0, 3.0)
                driver.machine.after(self._asleep_until - self.world.now + 0.001, driver.kick)
        if not self._prompts and (self._hasty or not self._open):
            self._left = True
            writer.put_control(self._leaves if not self._hasty else Kind.EOF)
        driver.watch.stepped(driver.end)
        driver.append()

    def consume(self, driver: ClientDriver, arrival: StreamArrival) -> None:
        """Take what has arrived."""
        if driver is not self.driver:
            return
        self.position = driver.end.consumed_number
        self._said_by = driver.end.reader.writer_of(self.position) or self._said_by
        match arrival.kind:
            case Kind.DATA:
                for data in arrival.data.splitlines():
                    self._open -= self.ledger.got(decode_line(data))
            case Kind.OWNER:
                self._open -= self.ledger.owner(msgspec.json.decode(arrival.data, type=Owner))
            case Kind.END:
                end = msgspec.json.decode(arrival.data, type=SessionEnd)
                self.ledger.ended(end)
                lost = end.exit_code is not None and end.taken < driver.end.writer.last and not self._left
                self.finish(end.code or ("input lost" if lost else "exit"))
