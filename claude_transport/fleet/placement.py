"""Which worker of a fleet takes a session: the one with the needed labels that had its workspace, else the least loaded one.

Pure functions on a list of workers: those that `claude_transport.fleet.roster` has found. Every worker and every client comes to the same
answer from the same list.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Final

import msgspec

from claude_transport.fleet.messages import FLEET_VERSION, FLEET_VERSIONS

NODE_SECONDS: Final = 15.0
"""Seconds after its last heartbeat at which a worker counts as gone."""

PATIENCE_SECONDS: Final = 2.0
"""Seconds for which a session is left to each better worker. Then the next one may take it."""

MAX_NODE_BYTES: Final = 4096
"""The most bytes of the record of a worker. A larger one was not written by a worker."""


MAX_WORKSPACE_BYTES: Final = 1024
"""The most bytes of the name of a workspace. The worker that had it is not remembered for a longer one."""

_MOST_LABEL_SETS: Final = 32
"""The most sets of labels for which a worker looks for better ones in one go. Clients choose labels as they like."""

MOST_ASKED: Final = 1000
"""The most sessions that a worker remembers to be woken about, from one look to the next."""

_MANY_READ: Final = 64
"""The most sessions that a worker was not woken about and of which it reads what they want in one look."""

_FEW_WORKERS: Final = 32
"""From so many workers on, each reads fewer sessions, and wakes others about fewer. All look with each of their heartbeats: in a burst,
what they do about sessions that are not for them would take more of the broker than the sessions themselves."""

_FEW_READ: Final = 4
"""How many sessions they then read. While they find only sessions that no worker can take, they read twice as many with each look."""

_PASSED_ON: Final = 2
"""About how many sessions they then wake others."""

_MOST_OUT_OF_REACH: Final = 4096
"""The most sessions that no worker can take and behind which others are looked for."""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as the others see it: its name, how many sessions it may and does have, its labels, and its last heartbeat.

    `seen` is in seconds of the broker's clock. A `draining` worker takes no more sessions. `versions` are those of the formats that it
    can read. A record with other numbers than a worker writes is not decoded.
    """

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    capacity: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    load: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    labels: Sequence[str] = ()
    seen: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    draining: bool = False
    versions: Sequence[int] = (1,)
    library: str = ""

    @property
    def share(self) -> float:
        """The part of its capacity that is in use."""
        return self.load / self.capacity

    @property
    def room(self) -> int:
        """How many more sessions it can take."""
        return 0 if self.draining else max(self.capacity - self.load, 0)

    def lives(self, now: float) -> bool:
        """Return whether its last heartbeat is not old, nor from a time that the broker's clock has not seen."""
        return abs(now - self.seen) < NODE_SECONDS


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session needs: labels that its worker must have, a workspace, and the options that the client has chosen.

    `trace` is the W3C trace context, `answers` lists what the client answers, `owner` names the token that `proof` proves.
    """

    labels: Sequence[str] = ()
    workspace: str = ""
    options: Mapping[str, Any] = {}
    trace: Mapping[str, str] = {}
    answers: Sequence[str] = ()
    version: int = 1


def may_have(node: Node, wanted: Wanted) -> bool:
    """Return whether `node` can run the session at all: it has every label, and reads the format."""
    return set(wanted.labels) <= set(node.labels) and wanted.version in node.versions


def agree_version(nodes: Iterable[Node], wanted: Wanted, *, now: float) -> int | None:
    """Return the version of the format with which a client of this library begins a session.

    It is the newest one that all workers with the labels read, so that each of them can take the session over; else the newest one that
    any of them reads. None when no worker reads a version of this library. Without any worker it is the newest one of this library.
    """
    here = [each for each in nodes if set(wanted.labels) <= set(each.labels) and not each.draining and each.lives(now)]
    if not here:
        return FLEET_VERSION
    common = set(FLEET_VERSIONS).intersection(*(each.versions for each in here))
    return max(common or set(FLEET_VERSIONS).intersection(read for each in here for read in each.versions), default=None)


def rank_nodes(nodes: Iterable[Node], wanted: Wanted, *, now: float, session: str, home: str | None = None) -> list[Node]:
    """Return the workers that can take a session, the best first.

    Args:
        nodes: all workers.
        wanted: what the session needs.
        now: seconds of the broker's clock.
        session: its id. It decides which one of the least loaded workers is the best, so that sessions that begin together go to several.
        home: the worker that had the workspace last. It comes first as long as it lives and has room.
    """
    return _for_session(_in_order(nodes, wanted, now=now), session, home)


def _in_order(nodes: Iterable[Node], wanted: Wanted, *, now: float) -> list[Node]:
    """Return the workers that can take such sessions, the least loaded first."""
    return sorted((node for node in nodes if node.room and may_have(node, wanted) and node.lives(now)), key=by_load)


def by_load(node: Node) -> tuple[float, int, str]:
    """Return what workers are ordered by: the least loaded one first, then the one with the most room."""
    return node.share, -node.room, node.id


def _for_session(order: list[Node], session: str, home: str | None) -> list[Node]:
    """Return workers that are in order as one session sees them: its home first, and then one of those that are least loaded."""
    least = by_load(order[0])[:2] if order else None
    equal = list(itertools.takewhile(lambda node: by_load(node)[:2] == least, order))
    equal.sort(key=lambda node: blake2b(f"{session} {node.id}".encode("utf-8", "replace"), digest_size=8).digest())
    ranked = equal + order[len(equal) :]
    at_home = [node for node in ranked if node.id == home] if home is not None else []
    return [*at_home, *(node for node in ranked if node.id != home)] if at_home else ranked


def _move_in(ranked: list[Node], node: Node) -> None:
    """Put a worker of which the load has changed into its new place."""
    for at, each in enumerate(ranked):
        if each.id == node.id:
            del ranked[at]
            if node.room:
                insort(ranked, node, key=by_load)
            return


class Placed(msgspec.Struct, frozen=True):
    """What a worker does after a look at the queue: the sessions that it claims, and the workers that it wakes, each about its sessions."""

    claims: Sequence[tuple[str, Wanted]] = ()
    wakes: Mapping[str, Sequence[str]] = {}
    looks_further: bool = False
    """Whether the worker looks again at once: others wait of which it has not read what they want. In a large fleet it does not when all
    that it has read are for better workers."""


class Placing:
    """How one worker places the sessions that wait in one part of the queue, from one look to the next."""

    def __init__(self) -> None:
        self.out_of_reach: int = 0
        """How many of the sessions no worker can take. A look goes further down the queue, past them."""
        self._since: dict[str, float] = {}
        self._passed_on: set[str] = set()
        self._wanted: dict[str, Wanted] = {}
        self._strange: set[str] = set()
        self._read: list[str] = []
        self._most_read = _FEW_READ
        self._has_few_workers = False
        self._unread = 0
        self._asked: set[str] = set()
        self._is_about_all = False

    def ask(self, session: str) -> None:
        """Note that the worker was woken about a session. With too many, the next look is about all that wait."""
        if len(self._asked) < MOST_ASKED:
            self._asked.add(session)
        else:
            self._is_about_all = True

    def ask_about_all(self) -> None:
        """Note that the next look is about all that wait."""
        self._is_about_all = True

    def unknown(self, waiting: Collection[str]) -> list[str]:
        """Forget the sessions that do not wait any more. Returns those of `waiting` that `learn()` has to be told of before `place()`.

        They are those that the worker was woken about, and when the look is about all, the first few others.
        """
        there = set(waiting)
        for known in (self._since, self._wanted):
            for name in known.keys() - there:
                del known[name]
        for names in (self._passed_on, self._strange):
            names &= there
        new = [name for name in waiting if name not in self._wanted and name not in self._strange]
        asked = [name for name in new if name in self._asked]
        others = [name for name in new if name not in self._asked]
        most = 0 if not self._is_about_all else _MANY_READ if self._has_few_workers else self._most_read
        self._unread = max(len(others) - most, 0)
        self._read = [*asked, *others[:most]]
        return self._read

    def learn(self, session: str, wanted: Wanted | None) -> None:
        """Note what a session wants, which never changes; None when this worker cannot know it."""
        if wanted is None:
            self._strange.add(session)
        else:
            self._wanted[session] = wanted

    @property
    def to_place(self) -> int:
        """How many of the sessions that wait it is known of what they want."""
        return len(self._wanted)

    def workspaces(self) -> set[str]:
        """Return the workspaces of the sessions that wait."""
        return {wanted.workspace for wanted in self._wanted.values() if wanted.workspace}

    def label_sets(self, own: Collection[str]) -> list[frozenset[str]]:
        """Return the sets of labels that the sessions want, each once. Those that a worker with the labels `own` has come first."""
        sets = {frozenset(wanted.labels) for wanted in self._wanted.values()}
        return sorted(sets, key=lambda labels: (not labels <= set(own), sorted(labels)))[:_MOST_LABEL_SETS]

    def pass_over(self, nodes: Collection[Node]) -> None:
        """Count the sessions of which this worker cannot know what they want, or that want labels that none of the workers `nodes` has."""
        beyond = {
            name for name, wanted in self._wanted.items() if not any(set(wanted.labels) <= set(node.labels) for node in nodes)
        } | self._strange
        self.out_of_reach = min(len(beyond), _MOST_OUT_OF_REACH)
        self._most_read = min(2 * self._most_read, _MANY_READ) if self._read and beyond.issuperset(self._read) else _FEW_READ

    def place(self, own: Node, others: Iterable[Node], *, now: float, homes: Mapping[str, str]) -> Placed:
        """Return what the worker `own` does about the sessions that were learned.

        Each session counts for the worker that is the best for it, so the next one sees that load. Every worker comes to the same division
        from the same table. A better worker is woken about a session once. When all workers did that for each session that they see, they
        would wake each other for ever in a burst. So a worker passes on what `ask()` was told since the last look, and few others.

        Args:
            own: this worker, as it is now.
            others: the other workers.
            now: seconds of the broker's clock.
            homes: the worker that had a workspace last, by workspace.
        """
        asked, self._asked = self._asked, set()
        others_to_pass_on = 0 if not self._is_about_all else _MANY_READ if self._has_few_workers else _PASSED_ON
        self._is_about_all = False
        nodes = {node.id: node for node in (*others, own)}
        if self._wanted:  # a worker that can take none of them does not know how large the fleet is
            self._has_few_workers = len(nodes) < _FEW_WORKERS and any(may_have(own, wanted) for wanted in self._wanted.values())
        claims: list[tuple[str, Wanted]] = []
        wakes: dict[str, list[str]] = {}
        left: set[str] = set()  # sessions that some worker can take
        orders: dict[tuple[frozenset[str], int], list[Node]] = {}  # of the workers, for sessions with the same needs
        for name, wanted in self._wanted.items():
            needs = frozenset(wanted.labels), wanted.version
            if needs not in orders:
                orders[needs] = _in_order(nodes.values(), wanted, now=now)
            ranked = _for_session(orders[needs], name, homes.get(wanted.workspace))
            if not ranked:
                continue
            left.add(name)
            may_wake = name not in self._passed_on and (name in asked or others_to_pass_on > 0)
            patience = wait_for_better(ranked, own.id)
            taker = ranked[0]
            if patience is not None and now - self._since.setdefault(name, now) >= patience:
                taker = nodes[own.id]
                claims.append((name, wanted))
            elif patience is not None and may_wake:
                self._passed_on.add(name)
                others_to_pass_on -= name not in asked
                wakes.setdefault(taker.id, []).append(name)
            nodes[taker.id] = busier = msgspec.structs.replace(taker, load=taker.load + 1)
            for order in orders.values():
                _move_in(order, busier)
        claimed = {name for name, _ in claims}
        looks_further = self._unread > 0 and (self._has_few_workers or not (left - claimed).issuperset(self._read))
        return Placed(claims, wakes, looks_further=looks_further)


def wait_for_better(ranked: Sequence[Node], me: str) -> float | None:
    """Return the seconds for which the worker `me` leaves a waiting session to better ones; None when it cannot take it at all."""
    for place, node in enumerate(ranked):
        if node.id == me:
            return place * PATIENCE_SECONDS
    return None
