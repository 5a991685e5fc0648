"""The world of a simulated fleet: virtual time, machines with clocks of their own, and their connections to a broker that can fail."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

from simulated_broker import Change, SimulatedBroker

from claude_transport.redis.slots import SLOTS, slot_of

CALL_TIMEOUT = 5.0
"""Seconds for one call of the broker, as in `fleet/broker.py`."""


class Refused(Exception):
    """The broker takes no calls now: it is out of memory, or busy."""


_WAKE_BYTES = 120
"""Bytes of a wake-up, to the broker and from it."""


class World:
    """Virtual time. What happens at one moment happens in the order in which it was asked for."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()

    def at(self, when: float, work: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._queue, (when, next(self._order), work, args))

    def run(self, until: Callable[[], bool], *, before: float) -> bool:
        """Let time pass until `until()`, which is asked after each step, or the time `before`. Returns whether it came true."""
        queue = self._queue
        while not until():
            if not queue or queue[0][0] > before:
                self.now = before
                return until()
            self.now, _, work, args = heapq.heappop(queue)
            self.steps += 1
            work(*args)
        return True


class Machine:
    """A machine: it can stop for a while, or for good, and its monotonic clock drifts."""

    def __init__(self, world: World, name: str, *, drift: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self._rate = 1.0 + world.rng.uniform(-drift, drift)
        self._offset = world.rng.uniform(0, 1e6)
        self._paused_until = 0.0

    def clock(self) -> float:
        return self._offset + self._rate * self.world.now

    def after(self, seconds: float, work: Callable[..., None], *args: Any) -> None:
        """Do `work` after seconds of this machine's clock."""
        self.world.at(self.world.now + max(seconds, 0.0) / self._rate, self.run, work, args)

    def pause(self, seconds: float) -> None:
        """Stop everything on this machine for a while; its clock goes on."""
        self._paused_until = max(self._paused_until, self.world.now + seconds)

    def run(self, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.dead:
            return
        if self.world.now < self._paused_until:
            self.world.at(self._paused_until, self.run, work, args)
            return
        work(*args)


class Shard:
    """One process of the broker. It carries out one call after the other."""

    __slots__ = ("busy_seconds", "busy_until", "bytes", "calls", "latencies")

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.latencies: list[float] | None = None
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        self.calls = self.bytes = 0
        self.busy_seconds = 0.0


class Server:
    """The processes of the broker, and what they run on. All of them stop and start together.

    Args:
        world: the time.
        journal: whether the last seconds can be lost.
        call_seconds: how long one call takes a process.
        shards: how many processes share the keys.
        counts_all: count the calls, too, that the model carries out together with others, and that a real broker gets one by one.
    """

    def __init__(self, world: World, *, journal: bool, call_seconds: float, shards: int = 1, counts_all: bool = False) -> None:
        self.world = world
        self.data = SimulatedBroker(journal=journal, parts=1 if shards == 1 else 16)
        self.is_up = True
        self.life = 0
        self.call_seconds = call_seconds
        self.slower = 1.0
        self.refuses = 0.0
        self.shards = [Shard() for _ in range(shards)]
        self.parts = [part.queue for part in self.data.keys.parts]
        self.counts_all = counts_all
        self._shard_of: dict[str, Shard] = {}
        self.connections: set[Connection] = set()
        self.inboxes: dict[str, Callable[[Collection[str]], None]] = {}  # by the name of a worker
        self.trap: Callable[[Connection], None] | None = None  # what happens when the next call was carried out, before its answer
        self.trap_after = 0
        self._skew = 0.0
        self._readers: dict[tuple[str, str], list[Callable[[], bool]]] = {}

    def shard_of(self, key: str) -> Shard:
        """Return the process that has what belongs to `key`: the id of a session, or a key of a part."""
        if len(self.shards) == 1:
            return self.shards[0]
        found = self._shard_of.get(key)
        if found is None:
            found = self._shard_of[key] = self.shards[slot_of(key) * len(self.shards) // SLOTS]
        return found

    def part_of(self, name: str) -> str:
        """Return a key of the part of the tables that has a session."""
        return self.data.keys.part_of(name).queue

    def carry_out(self, work: Callable[[], Any]) -> Any:
        self.data.now = int((self.world.now + self._skew) * 1000) + 1_700_000_000_000
        return work()

    def time_taken(self, shard: Shard, size: int = 0) -> float:
        """When a call that comes now is done."""
        cost = self.call_seconds * self.slower
        shard.calls += 1
        shard.bytes += size
        shard.busy_seconds += cost
        shard.busy_until = max(shard.busy_until, self.world.now) + cost
        return shard.busy_until

    def charge(self, calls: int, key: str = "", *, size: int = 0) -> None:
        """Count calls that are carried out together here, and one after the other by a real shell; `size` are bytes of each."""
        shard = self.shard_of(key)
        shard.calls += calls
        shard.bytes += calls * size
        shard.busy_seconds += calls * self.call_seconds * self.slower
        shard.busy_until = max(shard.busy_until, self.world.now) + calls * self.call_seconds * self.slower

    def wake(self, name: str, about: Collection[str]) -> None:
        """Put sessions into the inbox of a worker."""
        if name in self.inboxes:
            self.charge(1, self.data.keys.worker_part_of(name).queue, size=_WAKE_BYTES)
            self.inboxes[name](about)

    def wait_for(self, session: str, side: str, look: Callable[[], bool]) -> None:
        """Call `look` whenever `side` appends, until it returns True."""
        self._readers.setdefault((session, side), []).append(look)

    def appended(self, session: str, side: str) -> None:
        looks = self._readers.pop((session, side), None)
        if looks and (left := [look for look in looks if not look()]):
            self._readers[session, side] = left

    def stop(self) -> None:
        """Kill the process: whatever is under way is gone, and every connection is cut."""
        self.is_up = False
        self.life += 1
        self._readers.clear()
        for connection in sorted(self.connections, key=lambda each: each.number):
            connection.hears_of_a_cut()

    def start(self) -> None:
        self.is_up = True
        for shard in self.shards:
            shard.busy_until = self.world.now

    def lose(self, seconds: float, *, skew: float = 0.0) -> list[Change]:
        """Go back by some seconds while the server is down; `skew` is the clock of another machine that goes on."""
        self.data.now = int((self.world.now + self._skew) * 1000) + 1_700_000_000_000
        self._skew = skew
        return self.data.lose(seconds)


_Work = tuple[Callable[[], Any], Shard, int]
"""What a call does, where, and its size."""


class Connection:
    """The connection of a machine to the broker, as `Broker` of `fleet/broker.py` keeps it: made again, with a new generation.

    Calls are carried out in the order in which they were made. One that was cut may still be carried out, also later.
    """

    _numbers = count()

    def __init__(self, machine: Machine, server: Server, *, delay: float = 0.0005) -> None:
        self.number = next(self._numbers)
        self.machine = machine
        self.server = server
        self.generation = 0
        self.is_up = False
        self.changed: list[Callable[[], None]] = []
        self._world = machine.world
        self._delay = delay
        self._open: dict[int, tuple[float | None, Callable[[], None]]] = {}
        self._tickets = count()
        self._void = -1  # calls up to this one never reach the broker
        self._late = -1  # those up to this one reach it late
        self._there = self._back = 0.0
        self._apart_until = 0.0
        self._watching = False
        self._retries = 0
        server.connections.add(self)
        self._reconnect()

    def close(self) -> None:
        self.server.connections.discard(self)
        self.changed.clear()

    # Faults.

    def part(self, seconds: float) -> None:
        """Let nothing through for a while. What was sent arrives later."""
        self._apart_until = max(self._apart_until, self._world.now + seconds)

    def hears_of_a_cut(self) -> None:
        """Let the machine know that the connection is gone; a machine that is apart hears of it later."""
        self._world.at(max(self._world.now, self._apart_until) + self._delay, self.machine.run, self._drop, (self.generation,))

    def cut(self) -> None:
        """Cut the connection now: answers that are under way are lost."""
        self.machine.run(self._drop, (self.generation,))

    def _drop(self, generation: int) -> None:
        if not self.is_up or generation != self.generation:
            return
        self.is_up = False
        self.generation += 1
        fate = self._world.rng.random()
        if fate < 0.4:
            self._void = next(self._tickets)
        elif fate < 0.6:
            self._late = next(self._tickets)
        self._there = self._back = 0.0
        cuts = [cut for _, cut in self._open.values()]
        self._open.clear()
        for cut in cuts:
            cut()
        self._retries = 0
        self.machine.after(0.05, self._reconnect)
        self._tell()

    def _reconnect(self) -> None:
        if self.is_up or self not in self.server.connections:
            return
        if self.server.is_up and self._world.now >= self._apart_until:
            self.is_up = True
            self._tell()
            return
        self._retries += 1
        self.machine.after(min(0.05 * 2**self._retries, 1.0) * self._world.rng.uniform(0.5, 1.0), self._reconnect)

    def _tell(self) -> None:
        for changed in list(self.changed):
            changed()

    # Calls.

    def ask(self, work: Callable[[], Any], done: Callable[[Any], None], cut: Callable[[], None], *, key: str = "", size: int = 0) -> None:
        """Let the broker carry out `work`, which is about `key`, and takes `size` bytes. Then either `done` or `cut` is called, once."""
        self._send(self._arrive, (work, self.server.shard_of(key), size), done, is_read=False, cut=cut)
        if not self._watching:
            self._watching = True
            self.machine.after(CALL_TIMEOUT, self._watch)

    def read(self, session: str, side: str, look: Callable[[], Any], done: Callable[[Any], None], cut: Callable[[], None]) -> None:
        """Wait until `look()` finds something in the stream that `side` writes."""
        self._send(self._arrive_read, (session, side, look), done, is_read=True, cut=cut)

    def _send(self, arrive: Callable[..., None], work: Any, done: Callable[[Any], None], *, is_read: bool, cut: Callable[[], None]) -> None:
        ticket, now = next(self._tickets), self._world.now
        self._open[ticket] = (None if is_read else now, cut)
        self._there = max(self._there, now + self._random_delay(), self._apart_until)
        self._world.at(self._there, arrive, ticket, work, done, self.server.life)

    def _random_delay(self) -> float:
        return self._delay * (0.5 + self._world.rng.random())

    def _watch(self) -> None:
        """Drop the connection when a call has had no answer for too long."""
        sent = min((sent for sent, _ in self._open.values() if sent is not None), default=None)
        if sent is None:
            self._watching = False
            return
        left = sent + CALL_TIMEOUT - self._world.now
        if left <= 0:
            self._drop(self.generation)
        self.machine.after(max(left, 0.1), self._watch)

    def _arrive(self, ticket: int, work: _Work, done: Callable[[Any], None], life: int) -> None:
        server, now = self.server, self._world.now
        _, shard, size = work
        if life != server.life or not server.is_up or ticket <= self._void:
            return
        if ticket <= self._late:
            self._world.at(now + self._world.rng.uniform(0, 10), self._execute, ticket, work, done, life, now)
        elif shard.busy_until > now:
            self._world.at(server.time_taken(shard, size), self._execute, ticket, work, done, life, now)
        else:
            server.time_taken(shard, size)
            self._execute(ticket, work, done, life, now)

    def _execute(self, ticket: int, work: _Work, done: Callable[[Any], None], life: int, arrived: float) -> None:
        server, now = self.server, self._world.now
        call, shard, _ = work
        if life != server.life or not server.is_up:
            return
        if shard.latencies is not None:
            shard.latencies.append(max(now, arrived + server.call_seconds) - arrived)
        if server.refuses and self._world.rng.random() < server.refuses:
            reply: Any = Refused
        else:
            reply = server.carry_out(call)
            if server.trap is not None:
                server.trap_after -= 1
                if server.trap_after <= 0:
                    trap, server.trap = server.trap, None
                    trap(self)
        self._reply(ticket, done, reply)

    def _reply(self, ticket: int, done: Callable[[Any], None], reply: Any) -> None:
        self._back = max(self._back, self._world.now + self._random_delay(), self._apart_until)
        self._world.at(self._back, self.machine.run, self._answer, (ticket, done, reply))

    def _answer(self, ticket: int, done: Callable[[Any], None], reply: Any) -> None:
        if (found := self._open.pop(ticket, None)) is None:
            return
        if reply is Refused:
            found[1]()
        else:
            done(reply)

    def _arrive_read(self, ticket: int, where: tuple[str, str, Callable[[], Any]], done: Callable[[Any], None], life: int) -> None:
        if life != self.server.life or not self.server.is_up or ticket not in self._open:
            return
        session, side, look = where

        def looks() -> bool:
            if ticket not in self._open:
                return True
            found = look()
            if found:
                self._reply(ticket, done, found)
            return bool(found)

        if not self.server.counts_all:  # a real broker tells most of it without being asked
            self.server.time_taken(self.server.shard_of(session))
        if not looks():
            self.server.wait_for(session, side, looks)
