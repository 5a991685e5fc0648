"""The model of the broker is no wish: random sequences of calls get the same answers from it and from the scripts on a real server."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from broker_server import BrokerServer
from simulated_broker import SimulatedBroker

from claude_transport.fleet import scripts
from claude_transport.fleet.messages import Append, Entry, Renew, Side, Sync, Take
from claude_transport.fleet.scripts import FleetKeys

NEVER, LONG = -10_000_000, 1_000_000_000
"""Milliseconds of a lease that has ended, and of one that does not end here: no answer depends on how fast the test is."""

NOW = 1_700_000_000_000

TIMES = ("wu", "cu")


class RealBroker:
    """A connection to a server that speaks RESP2, so that an answer is what the script has returned."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, *parts: Any) -> Any:
        data = [each if isinstance(each, bytes) else str(each).encode() for each in parts]
        self._socket.sendall(b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in data))
        return self._answer()

    def _answer(self) -> Any:
        line = self._file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        match kind:
            case b"-":
                raise AssertionError(rest.decode())
            case b":":
                return int(rest)
            case b"$":
                return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
            case b"*":
                return [self._answer() for _ in range(int(rest))]
        return rest.decode()

    def script(self, text: str, keys: list[str], *args: Any) -> list[Any]:
        return list(self.ask("EVAL", text, len(keys), *keys, *args))


@pytest.fixture
def real(broker: BrokerServer) -> Iterator[RealBroker]:
    connection = RealBroker(broker.port)
    yield connection
    connection.close()


def about(value: Any, *, now: float = 0.0) -> str:
    """A time as what it means for a lease."""
    left = float(value) - now
    return "now" if abs(left) < 3_600_000 else "over" if left < 0 else "long" if left < 3 * LONG else "never"


def plain(answer: Any) -> Any:
    """Numbers and bytes as texts: a script returns either."""
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    return answer.decode() if isinstance(answer, bytes) else str(answer)


class Both:
    """Carries out each call on both brokers, and compares the answers and all of the session."""

    def __init__(self, real: RealBroker, seed: int) -> None:
        self.rng = random.Random(seed)
        self.real = real
        self.model = SimulatedBroker(journal=True)
        self.model.now = NOW
        self.keys = FleetKeys(f"model-{seed}")
        self.names = ("one", "two")
        self.said: list[str] = []
        self.tokens: dict[tuple[str, Side], list[str]] = {(name, side): ["1.lost"] for name in self.names for side in Side}

    def _three(self, name: str) -> list[str]:
        return [self.keys.meta(name), self.keys.incoming(name), self.keys.outgoing(name)]

    def _stream(self, name: str, side: Side) -> str:
        return self.keys.incoming(name) if side == Side.CLIENT else self.keys.outgoing(name)

    def step(self) -> None:
        rng = self.rng
        name = rng.choice(self.names)
        work = rng.choices(
            [self.create, self.attach, self.claim, self.append, self.take, self.sync, self.renew, self.release, self.discard],
            [1, 2, 3, 12, 8, 8, 2, 1, 0.3],
        )[0]
        modelled, found = work(name, rng.choice(list(Side)))
        self.said.append(f"{work.__name__} {name}: {modelled}")
        story = "\n".join(self.said[-30:])
        assert plain(found) == plain(modelled), story
        assert self.state(name) == self.model_state(name), story

    # The calls.

    def _token(self, name: str, side: Side) -> str:
        newest = self.model.sessions[name].fields[side.value + "e"] if name in self.model.sessions else "1.none"
        return str(newest) if self.rng.random() < 0.8 else self.rng.choice(self.tokens[name, side])

    def _number(self, name: str, field: str) -> int:
        session = self.model.sessions.get(name)
        return max(0, (int(session.fields[field]) if session is not None else 0) + self.rng.choice((-3, -1, 0, 0, 0, 1, 2)))

    def _fed(self, side: Side) -> int | None:
        return self.rng.choice((None, *range(9))) if side == Side.WORKER else None

    def _lease(self) -> int:
        return self.rng.choice((NEVER, LONG))

    def create(self, name: str, _: Side) -> tuple[Any, Any]:
        token, lease = f"1.{self.rng.choice('ab')}", self._lease()
        self.tokens[name, Side.CLIENT].append(token)
        keep, window = self.rng.choice((0, 2)), self.rng.choice((0, 65536))
        return (
            self.model.create(name, token, lease, LONG, {"q": "{}", "kp": keep, "cw": window}),
            self.real.script(scripts.CREATE, [self.keys.meta(name)], token, lease, LONG, "q", "{}", "kp", keep, "cw", window),
        )

    def attach(self, name: str, _: Side) -> tuple[Any, Any]:
        nonce, lease, window, waits = self.rng.choice("abcdef"), self._lease(), self.rng.choice((1, 65536)), self.rng.random() < 0.5
        modelled = self.model.attach(name, nonce, lease, "", window, waits=waits)
        found = self.real.script(scripts.ATTACH, [self.keys.meta(name)], nonce, lease, "", window, int(waits))
        if modelled[0] == "OK":
            self.tokens[name, Side.CLIENT].append(modelled[1])
        return modelled, found

    def claim(self, name: str, _: Side) -> tuple[Any, Any]:
        nonce, lease = self.rng.choice("uvwxyz"), self._lease()
        modelled = self.model.claim(name, nonce, f"node-{nonce}", lease)
        found = self.real.script(scripts.CLAIM, self._three(name), nonce, f"node-{nonce}", lease)
        if modelled[0] == "OK":
            self.tokens[name, Side.WORKER].append(modelled[1]["we"])
            return ["OK"], found[:1]  # the rest is the hash, which is compared after each call
        if modelled[0] == "HELD":
            return [*modelled[:2], about(modelled[2])], [*found[:2], about(found[2])]
        return modelled, found

    def append(self, name: str, side: Side) -> tuple[Any, Any]:
        rng = self.rng
        entries = [(rng.choice("dpfboe"), rng.randbytes(rng.randrange(5))) for _ in range(rng.randrange(4))]
        turns, stored = (rng.choice((None, 1, 2)), rng.choice((None, 1))) if side == Side.WORKER else (None, None)
        first = self._number(name, "wo" if side == Side.WORKER else "ci") + 1
        call = Append(side, self._token(name, side), first, entries, turns, stored, self._fed(side))
        args = [part for entry in entries for part in entry]
        found = self.real.script(
            scripts.APPEND,
            [self.keys.meta(name), self._stream(name, side)],
            *(side.value, call.token, first, _or_empty(turns), _or_empty(stored), _or_empty(call.fed), *args),
        )
        return self.model.append(name, call), found

    def take(self, name: str, side: Side) -> tuple[Any, Any]:
        turns = self.rng.choice((None, None, 1, 2, 3)) if side == Side.WORKER else None
        upto = self._number(name, "wi" if side == Side.WORKER else "co")
        call = Take(side, self._token(name, side), upto, turns, self._fed(side))
        other = Side.CLIENT if side == Side.WORKER else Side.WORKER
        keys = [self.keys.meta(name), self._stream(name, other)]
        found = self.real.script(scripts.TAKE, keys, side.value, call.token, upto, _or_empty(turns), _or_empty(call.fed))
        return self.model.take(name, call), found

    def sync(self, name: str, side: Side) -> tuple[Any, Any]:
        other = Side.CLIENT if side == Side.WORKER else Side.WORKER
        seen = self.rng.choice(("", self._token(name, other), self._token(name, other), f"{self.rng.randrange(9)}.new"))
        call = Sync(
            side,
            self._token(name, side),
            self._number(name, "ci" if side == Side.WORKER else "wo"),
            seen,
            self._number(name, "wi" if side == Side.WORKER else "co"),
            begun=self.rng.randrange(4),
            over=self.rng.randrange(4),
            stored=self.rng.randrange(4),
            fed=self._fed(side),
            heard=self.rng.randrange(6),
            said=self._number(name, "wo" if side == Side.WORKER else "ci"),
        )
        known = (call.cursor, seen, call.taken, call.begun, call.over, call.stored, _or_empty(call.fed), call.heard, call.said)
        return self.model.sync(name, call), self.real.script(scripts.SYNC, [self.keys.meta(name)], side.value, call.token, *known)

    def renew(self, name: str, side: Side) -> tuple[Any, Any]:
        lease = self._lease()
        call = Renew(side, self._token(name, side), lease / 1000, self.rng.randrange(8))
        modelled = self.model.renew(name, call)
        keys = [self.keys.meta(name), self.keys.incoming(name) if side == Side.WORKER else self.keys.outgoing(name)]
        found = self.real.script(scripts.RENEW, keys, side.value, call.token, lease, call.cursor)
        if modelled[0] == "OK":
            return ["OK", about(modelled[1]), *modelled[2:]], ["OK", about(found[1]), *found[2:]]
        return modelled, found

    def release(self, name: str, side: Side) -> tuple[Any, Any]:
        token, state = self._token(name, Side.WORKER), self.rng.choice(("live", "live", "ended"))
        return (
            self.model.release(name, token, state, LONG),
            self.real.script(scripts.RELEASE, self._three(name), token, state, LONG),
        )

    def discard(self, name: str, side: Side) -> tuple[Any, Any]:
        token = self._token(name, Side.CLIENT)
        return self.model.discard(name, token), self.real.script(scripts.DISCARD, self._three(name), token)

    # All of a session.

    def state(self, name: str) -> Any:
        now = int(self.real.ask("TIME")[0]) * 1000
        rows = [plain(each) for each in self.real.ask("HGETALL", self.keys.meta(name))]
        fields = dict(zip(rows[::2], rows[1::2], strict=True))
        streams = []
        for side in Side:
            found = []
            for number, pairs in self.real.ask("XRANGE", self._stream(name, side), "-", "+"):
                values = dict(zip(pairs[::2], pairs[1::2], strict=True))
                found.append(Entry(int(number.partition(b"-")[0]), values[b"e"].decode(), values[b"k"].decode(), values[b"d"]))
            streams.append(found)
        expires = self.real.ask("PTTL", self.keys.meta(name)) > 0
        return _meaning(fields, now=now), streams, expires

    def model_state(self, name: str) -> Any:
        session = self.model.sessions.get(name)
        if session is None:
            return {}, [[], []], False
        fields = {field: str(value) for field, value in session.fields.items()}
        return _meaning(fields, now=NOW), [session.streams[side.value] for side in Side], session.expires is not None


def _meaning(fields: dict[str, str], *, now: float) -> dict[str, str]:
    return {name: about(value, now=now) if name in TIMES and value != "0" else value for name, value in fields.items()}


def _or_empty(value: int | None) -> Any:
    return "" if value is None else value


def test_random_calls_get_the_same_answers_from_the_model_and_from_the_scripts(real: RealBroker) -> None:
    words: set[str] = set()
    for seed in range(40):
        both = Both(real, seed)
        both.create("one", Side.CLIENT)
        both.create("two", Side.CLIENT)
        for _ in range(150):
            both.step()
        words |= {word for line in both.said for word in line.partition(": ")[2].strip("[]'").split("'")[:1]}
    assert {"OK", "GONE", "FENCED", "GAP", "HELD", "ENDED", "EXISTS", "LIVE"} <= words


def test_a_model_that_loses_its_last_second_is_as_it_was_before_it() -> None:
    rng, model = random.Random(1), SimulatedBroker(journal=True)
    model.now = NOW
    model.create("one", "1.a", LONG, LONG, {})
    model.claim("one", "w", "node", LONG)
    model.now += 5000
    before = model.sessions["one"].copy()
    for number in range(1, 30):
        model.now += 50
        model.append("one", Append(Side.CLIENT, "1.a", number, [("d", b"%d\n" % number)]))
        if rng.random() < 0.5:
            model.take("one", Take(Side.WORKER, "1.w", number, number))
    assert model.sessions["one"].fields != before.fields
    lost = model.lose(2.0)
    now = model.sessions["one"]
    assert (now.fields, now.streams) == (before.fields, before.streams)
    assert {change.what for change in lost} == {"append c", "take w"}


def test_a_call_that_was_cut_and_comes_late_takes_no_turn_back(real: RealBroker) -> None:
    keys = FleetKeys("late")
    meta, incoming, outgoing = keys.meta("one"), keys.incoming("one"), keys.outgoing("one")
    real.script(scripts.CREATE, [meta], "1.a", LONG, LONG)
    real.script(scripts.CLAIM, [meta, incoming, outgoing], "w", "node", LONG)
    real.script(scripts.TAKE, [meta, incoming], "w", "1.w", 2, 2, 2)
    real.script(scripts.TAKE, [meta, incoming], "w", "1.w", 1, 1, 1)  # said before, cut, and late
    real.script(scripts.APPEND, [meta, outgoing], "w", "1.w", 1, 2, 2, 2, "d", b"two results\n")
    real.script(scripts.APPEND, [meta, outgoing], "w", "1.w", 1, 1, 1, 1, "d", b"one result\n")
    assert real.ask("HMGET", meta, "tt", "td", "ts", "wf") == [b"2", b"2", b"2", b"2@1.w"]


def test_a_worker_reads_again_what_came_between_a_client_that_was_lost_and_the_newest_one(real: RealBroker) -> None:
    """The broker has lost `3.lost`, of which the worker has read the entry 2. Another client has said an entry 2 since, and is gone."""
    keys = FleetKeys("between")
    meta, incoming, outgoing = keys.meta("one"), keys.incoming("one"), keys.outgoing("one")
    real.script(scripts.CREATE, [meta], "1.a", LONG, LONG)
    real.script(scripts.CLAIM, [meta, incoming, outgoing], "w", "node", LONG)
    real.script(scripts.ATTACH, [meta], "b", LONG, "", 1)
    real.script(scripts.APPEND, [meta, incoming], "c", "2.b", 1, "", "", "", "d", b"read\n")
    real.script(scripts.ATTACH, [meta], "c", LONG, "", 1)
    real.script(scripts.APPEND, [meta, incoming], "c", "3.c", 2, "", "", "", "d", b"said between\n")
    real.script(scripts.ATTACH, [meta], "d", LONG, "", 1)
    assert real.ask("HMGET", meta, "cb", "ch") == [b"2", b"2.b:0 3.c:1 4.d:2 "]
    told = (0, 0, 0, "", 0, 0)
    answer = real.script(scripts.SYNC, [meta], "w", "1.w", 2, "3.lost", 2, *told)
    assert plain(answer[:3]) == ["OK", "4.d", "1"]
    assert real.ask("HGET", meta, "wi") == b"1"
    for seen, base in (("2.b", 1), ("3.c", 2), ("4.d", 2), ("", 2)):
        assert plain(real.script(scripts.SYNC, [meta], "w", "1.w", 2, seen, 1, *told)[2]) == str(base)
    # the worker has read the entries up to 5 of a client that is lost: nothing before is there any more, or ever read again
    assert plain(real.script(scripts.SYNC, [meta], "w", "1.w", 5, "9.new", 2, *told)[:3]) == ["OK", "9.lost-d", "5"]
    real.script(scripts.ATTACH, [meta], "e", LONG, "", 1)
    assert real.ask("HMGET", meta, "ce", "ch") == [b"10.e", b"10.e:5 "]
    assert plain(real.script(scripts.SYNC, [meta], "w", "1.w", 5, "9.new", 5, *told)[2]) == "5"


def test_the_list_of_the_last_writers_stays_short_and_is_read_whatever_is_in_it(real: RealBroker) -> None:
    keys = FleetKeys("short")
    meta = keys.meta("one")
    real.script(scripts.CREATE, [meta], "1.a", LONG, LONG)
    for number in range(2, 40):
        real.script(scripts.ATTACH, [meta], f"n{number}", LONG, "", 1)
    assert real.ask("HGET", meta, "ch") == b"".join(b"%d.n%d:0 " % (number, number) for number in range(32, 40))
    for hostile in ("x" * 1000, " : : ", "9.a:", "9.a:1", ":1 ", "9.a:99999999999999999999 "):
        real.ask("HSET", meta, "ch", hostile)
        assert plain(real.script(scripts.SYNC, [meta], "w", "0.", 0, "9.z", 0, 0, 0, 0, "", 0, 0)[:3]) == ["OK", "39.n39", "0"]
        real.script(scripts.ATTACH, [meta], "a b:1", LONG, "", 1)
        real.script(scripts.ATTACH, [meta], "n39", LONG, "", 1)
        real.ask("HSET", meta, "ce", "39.n39")
