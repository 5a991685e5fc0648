"""`SimulatedBroker`: what the scripts of a fleet do to a broker, in plain Python, with a clock that the caller moves.

Each method stands for one script, and gives the same answer; `test_simulated_broker.py` holds that on a real server. A journal of the last
seconds lets it lose them again, as a power cut does.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from claude_transport.fleet.messages import (
    Append,
    Appended,
    Call,
    Entry,
    Fenced,
    Gap,
    Gone,
    Renew,
    Renewed,
    Reply,
    Side,
    Sync,
    Synced,
    Take,
    Taken,
)
from claude_transport.fleet.placement import Node
from claude_transport.fleet.roster import find_nodes
from claude_transport.fleet.scripts import FleetKeys, SharedKeys

JOURNAL_SECONDS = 2.5
"""Seconds that can be lost."""

_NUMBER = re.compile(r"\d+")
_number_of = attrgetter("number")


def num(token: str) -> int:
    """The number that a token begins with."""
    found = _NUMBER.match(token)
    return int(found[0]) if found else 0


Asked = Callable[[str, str, int], object]


class SimulatedSession:
    """The hash and both streams of a session. `expires` has the milliseconds at which each of them is forgotten."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.streams: dict[str, list[Entry]] = {"c": [], "w": []}  # by the side that writes it
        self.expires: float | None = None

    def copy(self) -> SimulatedSession:
        twin = SimulatedSession()
        twin.fields = dict(self.fields)
        twin.streams = {side: list(stream) for side, stream in self.streams.items()}
        twin.expires = self.expires
        return twin


class Waiting(dict[str, float]):
    """Sessions by the second until which they do not wait. `first()` does not look at those that do not."""

    def __init__(self, part_of: Callable[[str], SharedKeys]) -> None:
        super().__init__()
        self._part_of = part_of
        self._heaps: dict[str, list[tuple[float, int, str]]] = defaultdict(list)  # by part of the queue; those of older values, too
        self._numbers = count()

    def __setitem__(self, session: str, until: float) -> None:
        super().__setitem__(session, until)
        heappush(self._heaps[self._part_of(session).queue], (until, next(self._numbers), session))

    def first(self, part: str, now: float, most: int) -> list[str]:
        """Return the first sessions of a part that wait at `now`, those that have waited longest first."""
        found: dict[str, tuple[float, int, str]] = {}
        heap = self._heaps[part]
        while heap and heap[0][0] <= now and len(found) < most:
            row = heappop(heap)
            if self.get(row[2]) == row[0]:
                found.setdefault(row[2], row)
        for row in found.values():
            heappush(heap, row)
        return list(found)


class Change(NamedTuple):
    """A change that can be lost: when, of which session, what it was and by which side, the token, and how to undo it."""

    when: float
    session: str
    what: str
    token: str
    undo: Callable[[], None]


class SimulatedBroker:
    """The data of a broker. `now` is its clock, in milliseconds; the caller sets it before each call. A cluster has several `parts`."""

    def __init__(self, *, journal: bool = False, parts: int = 1) -> None:
        self.keys = FleetKeys("claude-fleet")
        if parts > 1:
            self.keys.divide(parts)
        self.now: int = 0
        self.sessions: dict[str, SimulatedSession] = {}
        self.waiting = Waiting(self.keys.part_of)
        self.nodes: dict[str, bytes] = {}
        self.homes: dict[str, str] = {}
        self.orders: dict[str, list[tuple[float, str]]] = defaultdict(list)  # by key
        self._shares: dict[tuple[str, str], float] = {}
        self._journal: deque[Change] | None = deque() if journal else None

    # Losing.

    def _note(self, session: str, what: str, token: str, undo: Callable[[], None]) -> None:
        journal = self._journal
        if journal is None:
            return
        journal.append(Change(self.now / 1000, session, what, token, undo))
        while journal[0].when < self.now / 1000 - JOURNAL_SECONDS:
            journal.popleft()

    def _note_fields(self, name: str, session: SimulatedSession, what: str, token: str) -> None:
        if self._journal is None:
            return
        before, expires = dict(session.fields), session.expires

        def undo() -> None:
            session.fields, session.expires = before, expires

        self._note(name, what, token, undo)

    def lose(self, seconds: float) -> list[Change]:
        """Go back by `seconds`. Returns the changes that are lost."""
        lost = []
        while self._journal and self._journal[-1].when > self.now / 1000 - seconds:
            change = self._journal.pop()
            change.undo()
            lost.append(change)
        return lost

    def forget(self) -> None:
        """Lose everything, as a broker without a file does."""
        for table in (self.sessions, self.waiting, self.nodes, self.homes, self.orders, self._shares):
            table.clear()
        if self._journal is not None:
            self._journal.clear()

    # Sessions.

    def _find(self, name: str) -> SimulatedSession | None:
        session = self.sessions.get(name)
        if session is not None and session.expires is not None and session.expires <= self.now:
            del self.sessions[name]
            return None
        return session

    def create(self, name: str, token: str, lease: int, unclaimed: int, fields: Mapping[str, Any]) -> list[Any]:
        session = self._find(name)
        if session is not None:
            return ["OK"] if session.fields["ce"] == token else ["EXISTS"]
        session = self.sessions[name] = SimulatedSession()
        session.fields = {"s": "new", "we": "0.", "wb": 0, "wo": 0, "wi": 0, "wu": 0}
        session.fields |= {"ce": token, "cb": 0, "ci": 0, "co": 0, "cu": self.now + lease, **fields}
        session.expires = self.now + unclaimed
        self._note(name, "create", token, lambda: self.sessions.pop(name) and None)
        return ["OK"]

    def attach(self, name: str, nonce: str, lease: int, shown: str = "", window: int = 0, *, waits: bool = False) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        m = session.fields
        if m.get("k") and hashlib.sha1(shown.encode(), usedforsecurity=False).hexdigest() != m["k"]:
            return ["DENIED"]
        token, is_there = m["ce"], int(m["cu"] > self.now)
        if token.partition(".")[2] != nonce:
            token = f"{num(token) + 1}.{nonce}"
            self._note_fields(name, session, "attach", token)
            m = session.fields
            before = m["ce"]
            m["ce"], m["cb"], m["cu"], m["cw"] = token, m["ci"], self.now + lease, window
            m["ch"] = admitted(m.get("ch", ""), token, m["ci"])
            if waits:
                m["cp"] = before
        if not waits and m.get("cp"):
            m["cp"] = ""
        return ["OK", token, m["ci"], m["wi"], m["co"], m["wo"], m["we"], m["s"], m["wb"], is_there]

    def claim(self, name: str, nonce: str, node: str, lease: int) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        m = session.fields
        if m["s"] == "ended":
            return ["ENDED"]
        is_new = m["we"].partition(".")[2] != nonce
        if is_new and m["wu"] > self.now:
            return ["HELD", m.get("wn", ""), m["wu"] - self.now]
        token = f"{num(m['we']) + 1}.{nonce}" if is_new else m["we"]
        self._note_fields(name, session, "claim", token)
        m["wu"] = self.now + lease
        if is_new:
            m["we"], m["wb"], m["wn"], m["s"], session.expires = token, m["wo"], node, "live", None
            m["wh"] = admitted(m.get("wh", ""), token, m["wo"])
        return ["OK", dict(m)]

    def append(self, name: str, call: Append) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        m, side = session.fields, call.side.value
        last_of, taken_of = ("wo", "co") if side == "w" else ("ci", "wi")
        if m[side + "e"] != call.token:
            return ["FENCED", m[side + "e"]]
        last, number, taken = m[last_of], call.first, m[taken_of]
        if number > last + 1:
            return ["GAP", last, taken]
        stream = session.streams[side]
        length, old = len(stream), dict(m) if self._journal is not None else m
        for kind, data in call.entries:
            if number > last:
                assert not stream or number > stream[-1].number
                stream.append(Entry(number, call.token, kind, data))
                last = number
            number += 1
        m[last_of] = last
        _raise(m, "td", call.turns or 0)
        _raise(m, "ts", call.stored or 0)
        _tell_fed(m, call.token, call.fed)
        if self._journal is not None:
            added = len(stream) - length

            def undo() -> None:
                if added:
                    del stream[-added:]
                session.fields = old

            self._note(name, f"append {side}", call.token, undo)
        return ["OK", last, taken, _used(m, side, taken)]

    def take(self, name: str, call: Take) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        m, side = session.fields, call.side.value
        is_fenced = m[side + "e"] != call.token
        if is_fenced and (side != "c" or m.get("cp") != call.token):
            return ["FENCED", m[side + "e"]]
        stream, old = session.streams["c" if side == "w" else "w"], dict(m) if self._journal is not None else m
        trimmed: list[Entry] = []
        taken_of, last_of = ("wi", "ci") if side == "w" else ("co", "wo")
        if call.upto > m[taken_of]:
            m[taken_of] = call.upto
            upto = call.upto - (int(m.get("kp", 0)) if side == "c" else 0)
            at = len(stream) if upto >= m[last_of] else bisect_right(stream, upto, key=_number_of)
            trimmed = stream[:at]
            del stream[:at]
        if not is_fenced:
            _raise(m, "tt", call.turns or 0)
            _tell_fed(m, call.token, call.fed)
        if self._journal is not None:

            def undo() -> None:
                stream[:0] = trimmed
                session.fields = old

            self._note(name, f"take {side}", call.token, undo)
        return ["FENCED", m[side + "e"]] if is_fenced else ["OK", m.get("cw", 0)]

    def sync(self, name: str, call: Sync) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        m, side, seen = session.fields, call.side.value, call.seen
        other, last_of, taken_of, own_last, own_taken = ("c", "ci", "wi", "wo", "co") if side == "w" else ("w", "wo", "co", "ci", "wi")
        if m[side + "e"] != call.token:
            return ["FENCED", m[side + "e"]]
        is_newest = seen == m[other + "e"]
        self._note_fields(name, session, f"sync {side}", call.token)
        m = session.fields
        token, base, lifts = _compared(m, other, call)
        if lifts and call.cursor > m[last_of]:
            m[last_of] = call.cursor
            if token != seen:
                base = m[other + "b"] = call.cursor
                m[other + "h"] = ""
            if call.cursor > m[taken_of]:
                m[taken_of] = call.cursor
                if side == "w":
                    _raise(m, "tt", call.heard)
        _raise(m, taken_of, call.taken if is_newest or not seen else min(call.taken, base))
        if lifts:
            _tell_fed(m, call.token, call.fed)
        if side == "w":
            _raise(m, "tt", call.begun)
            if m[own_last] >= call.said:
                _raise(m, "td", call.over)
                _raise(m, "ts", call.stored)
        return ["OK", token, base, m[own_last], m[own_taken], _used(m, side, m[own_taken])]

    def renew(self, name: str, call: Renew) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        m, side = session.fields, call.side.value
        if m[side + "e"] != call.token:
            return ["FENCED", m[side + "e"]]
        self._note_fields(name, session, f"renew {side}", call.token)
        m = session.fields
        m[side + "u"] = self.now + int(call.seconds * 1000)
        other = Side.WORKER if call.side == Side.CLIENT else Side.CLIENT
        return ["OK", m[("w" if side == "c" else "c") + "u"] - self.now, int(m.get("x", 0)), int(bool(self.read(name, other, call.cursor)))]

    def release(self, name: str, token: str, state: str, kept: int) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        if session.fields["we"] != token:
            return ["FENCED", session.fields["we"]]
        self._note_fields(name, session, "release", token)
        session.fields["s"], session.fields["wu"] = state, 0
        if state == "ended":
            session.expires = self.now + kept
        return ["OK"]

    def discard(self, name: str, token: str) -> list[Any]:
        session = self._find(name)
        if session is None:
            return ["GONE"]
        if session.fields["ce"] != token:
            return ["FENCED", session.fields["ce"]]
        if session.fields["s"] != "new":
            return ["LIVE"]
        del self.sessions[name]
        self._note(name, "discard", token, lambda: self.sessions.__setitem__(name, session))
        return ["OK"]

    def read(self, name: str, writer: Side, cursor: int, *, count: int = 64) -> list[Entry]:
        """Return entries behind the cursor, as XREAD does."""
        session = self._find(name)
        if session is None:
            return []
        stream = session.streams[writer.value]
        at = bisect_right(stream, cursor, key=_number_of)
        return stream[at : at + count]

    # What an end asks.

    def carry_out(self, name: str, call: Call) -> Reply:
        """Carry out the call of an end."""
        match call:
            case Append():
                answer = self.append(name, call)
            case Take():
                answer = self.take(name, call)
            case Sync():
                answer = self.sync(name, call)
            case Renew():
                answer = self.renew(name, call)
        return as_reply(call, answer)

    # The tables of the fleet.

    def set_in(self, table: dict[str, Any], key: str, value: Any) -> None:
        """Set, or with None remove, a row of `waiting`, `nodes` or `homes`."""
        old = table.get(key)
        _put(table, key, value)
        self._note("", "table", "", lambda: _put(table, key, old))

    def tell(self, node: Node) -> None:
        """Write down what a worker has, and its place in each order."""
        self.set_in(self.nodes, node.id, msgspec.json.encode(node))
        part = self.keys.worker_part_of(node.id)
        for key in (part.loads, *map(part.loads_of, node.labels)):
            order, before = self.orders[key], self._shares.pop((key, node.id), None)
            if before is not None:
                del order[bisect_left(order, (before, node.id))]
            if not node.draining:
                self._shares[key, node.id] = node.share
                insort(order, (node.share, node.id))

    def find_nodes(self, labels: Collection[str], *, near: Collection[str], count: int, asked: Asked) -> list[Node]:
        """Look for workers as the real ends do. `asked` is called for each call, with its key and the number of rows of its answer."""
        tables = _RosterTables(self, asked)
        search = find_nodes(tables, labels, near=near, now=self.now / 1000, count=count)  # type: ignore[arg-type]
        try:
            search.send(None)  # it never waits
        except StopIteration as found:
            return list(found.value.nodes)
        raise AssertionError("the model has made a search wait")


class _RosterTables:
    """The tables of workers, as `find_nodes()` asks a broker for them."""

    def __init__(self, data: SimulatedBroker, asked: Asked) -> None:
        self.keys = data.keys
        self._data = data
        self._asked = asked

    async def command(self, name: str, key: str, *args: Any) -> list[Any]:
        if name == "hmget":
            rows: list[Any] = [self._data.nodes.get(each.decode()) for each in args[0]]
        else:
            first, last = args
            rows = [worker.encode() for _, worker in self._data.orders.get(key, [])[first : last + 1]]
        self._asked(name, key, len(rows))
        return rows

    async def at_each_part(self, call: Callable[[SharedKeys], Awaitable[Any]], parts: Collection[SharedKeys]) -> list[Any]:
        return [await call(part) for part in parts]


def _compared(fields: dict[str, Any], other: str, call: Sync) -> tuple[str, int, bool]:
    """Return the token of the other end, behind which entry it began, and whether what was read of it may be written down."""
    token, base, seen = fields[other + "e"], fields[other + "b"], call.seen
    nonce = token.partition(".")[2]
    if seen and nonce.startswith("lost-") and nonce == f"lost-{seen.partition('.')[2]}":
        return token, max(base, call.cursor), True
    if not seen or seen == token:
        return token, base, seen == token
    if num(seen) < num(token):
        later = [each.split(":") for each in fields.get(other + "h", "").split()]
        first = next((int(began) for each, began in later if each != seen and num(each) >= num(seen)), base)
        return token, min(base, first), False
    token = fields[other + "e"] = f"{num(seen)}.lost-{nonce.removeprefix('lost-')}"
    if other == "w":
        fields["wu"] = 0
    return token, base, True


def admitted(written: str, token: str, base: int) -> str:
    """The list of the last writers of one side, with one more: it began behind the entry `base`."""
    return " ".join([*written.split(), f"{token}:{base}"][-8:]) + " "


def _raise(fields: dict[str, Any], name: str, value: int) -> None:
    if value > fields.get(name, 0):
        fields[name] = value


def _tell_fed(fields: dict[str, Any], token: str, fed: int | None) -> None:
    number, _, teller = fields.get("wf", "0@").partition("@")
    if fed is not None and (fed > int(number) or teller != token):
        fields["wf"] = f"{fed}@{token}"


def _used(fields: dict[str, Any], side: str, taken: int) -> int:
    number, _, teller = fields.get("wf", "0@").partition("@")
    return int(number) if side == "c" and teller == fields["we"] else taken


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def as_reply(call: Call, answer: list[Any]) -> Reply:
    """Return what an answer of a script means."""
    match answer[0]:
        case "GONE":
            return Gone()
        case "FENCED":
            return Fenced(answer[1])
        case "GAP":
            return Gap(answer[1], answer[2])
    match call:
        case Append():
            return Appended(answer[1], answer[2], answer[3])
        case Take():
            return Taken(answer[1])
        case Sync():
            return Synced(answer[1], answer[2], answer[3], answer[4], answer[5])
        case Renew():
            return Renewed(answer[1] / 1000, stop=bool(answer[2]), more=bool(answer[3]))
