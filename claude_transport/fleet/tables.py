"""`Tables`: the tables of a fleet that all share, as a worker reads, writes and mends them.

What is no name of a session is taken out. A table of another type was not made by this library: it is deleted, and the heartbeats of the
workers fill it again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from claude_transport.errors import ProtocolError
from claude_transport.fleet.answers import MALFORMED, bytes_of, count_of, decode_node, looked_of, session_name
from claude_transport.fleet.broker import Broker, BrokerCut
from claude_transport.fleet.placement import MAX_WORKSPACE_BYTES, Node
from claude_transport.fleet.scripts import LOOK, MEND, TELL, FleetKeys, SharedKeys
from claude_transport.loggers import logger_for

logger: logging.Logger = logger_for(__name__)

_ADMITTED: Final = 256
"""Sessions that are admitted in one go."""

_FORGOTTEN: Final = 3600.0
"""Seconds after its last heartbeat at which the record of a worker is removed."""

MOST_HOMES: Final = 10_000
"""The most workspaces whose workers are remembered. What is beyond that goes to any worker."""

_DELETED: Final = 1000
"""Fields that are deleted in one call."""

_HELD_PAUSE: Final = 1.0
"""Seconds until a session is looked at again whose lease has not ended."""

_COUNTS: Final = 5
"""How often sessions are counted again while others go from one table to the other."""


async def count_waiting(ask: Callable[..., Awaitable[Any]], keys: FleetKeys, now: float) -> int:
    """Return how many sessions wait for a worker. `ask(command, key, *args)` reads from the broker.

    A worker may move names from the queue to the sessions between two reads. Then both are read again, at most five times; the last
    count may be too high by what was moved, and is never too low.
    """
    return sum([await _count_waiting_in(part, ask, now) for part in keys.parts])


async def _count_waiting_in(part: SharedKeys, ask: Callable[..., Awaitable[Any]], now: float) -> int:
    queued = count_of(await ask("zcard", part.queue))
    for _ in range(_COUNTS - 1):
        waiting = count_of(await ask("zcount", part.sessions, "-inf", now))
        left = count_of(await ask("zcard", part.queue))
        if left == queued:
            return waiting + queued
        queued = left
    return count_of(await ask("zcount", part.sessions, "-inf", now)) + queued


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the queue has found: the time, the first sessions that wait, how many wait, and whether to look again at once.

    `parts` are those that were looked at.
    """

    now: float
    parts: Sequence[SharedKeys] = ()
    names: Sequence[str] = ()
    waiting: int = 0
    may_be_more: bool = False


class Tables:
    """The tables of the fleet of `broker`. Each call raises as `Broker.script()` does."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._keys = broker.keys

    async def _ask(self, name: str, key: str, *args: Any) -> Any:
        """Call a command on a table; when it has another type, delete it and call again."""
        return await self._mended([key], partial(self._broker.command, name, key, *args))

    async def _mended(self, keys: Sequence[str], call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call on tables; when one of them has another type, delete it and call again."""
        try:
            return await call()
        except ProtocolError as exc:
            if exc.code != MALFORMED:
                raise
        logger.warning("%s has another type than this library gives it, and is deleted", " or ".join(keys))
        hashes = {each for part in self._keys.parts for each in (part.nodes, part.homes)}
        for key in keys:
            await self._broker.script(MEND, [key], ["hash" if key in hashes else "zset"])
        try:
            return await call()
        except ProtocolError as exc:  # it is no fault of the session that this call is for
            raise BrokerCut(f"{keys[0]} has changed its type again") from exc

    async def tell(self, node: Node) -> None:
        """Write down what this worker has, and its place among the others."""
        part, orders = self._keys.worker_part_of(node.id), self._orders_of(node)
        share = "" if node.draining else node.share
        args = [node.id, msgspec.json.encode(node), share, int(_FORGOTTEN * 1000)]
        keys = [part.nodes, *orders]
        await self._mended(keys, partial(self._broker.script, TELL, keys, args))

    async def say_goodbye(self, node: Node) -> None:
        """Remove this worker from the tables."""
        await self._ask("hdel", self._keys.worker_part_of(node.id).nodes, node.id)
        for order in self._orders_of(node):
            await self._ask("zrem", order, node.id)

    def _orders_of(self, node: Node) -> list[str]:
        part = self._keys.worker_part_of(node.id)
        return [part.loads, *map(part.loads_of, dict.fromkeys(node.labels))]

    async def leave_out(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take rows (key, name) that stand for no worker out of the orders."""
        by_order: dict[str, list[bytes]] = {}
        for order, name in rows:
            by_order.setdefault(order, []).append(name)
        for order, names in by_order.items():
            await self._ask("zrem", order, names)

    async def hold(self, ends: Mapping[str, float]) -> None:
        """Write down until when the leases of sessions last."""

        async def hold_in(part: SharedKeys) -> None:
            there = {session: end for session, end in ends.items() if self._keys.part_of(session) is part}
            if there:
                await self._ask("zadd", part.sessions, there)

        await self._broker.at_each_part(hold_in)

    async def hold_off(self, session: str, *, now: float, left: float) -> None:
        """Leave a session that another worker has alone for a moment, or for as long as its lease has `left`."""
        until = {session: now + min(left, _HELD_PAUSE)}
        await self._ask("zadd", self._keys.part_of(session).sessions, "GT", until)

    async def remove(self, session: str) -> None:
        """Take a session out of the queue."""
        await self._ask("zrem", self._keys.part_of(session).sessions, session)

    async def keep_home(self, workspace: str, node: str) -> None:
        """Write down which worker has a workspace."""
        if len(workspace.encode("utf-8", "replace")) <= MAX_WORKSPACE_BYTES:
            await self._ask("hset", self._keys.part_of(workspace).homes, {workspace: node})

    async def forget_gone(self, now: float) -> int:
        """Remove workers that were silent for an hour, and rows that no worker has written. Returns how many workers are left.

        Then remove workspaces of workers that are gone, or of which there are too many. This reads all workers.
        """
        live: set[bytes] = set()
        for part in self._keys.worker_parts:
            live |= await self._forget_nodes(part, now)
        for part in self._keys.parts:
            homes = {bytes_of(name): bytes_of(node) for name, node in (await self._ask("hgetall", part.homes)).items()}
            kept = [name for name, node in homes.items() if node in live]
            most = MOST_HOMES // len(self._keys.parts)
            await self._delete(part.homes, [*(homes.keys() - set(kept)), *kept[most:]])
        return len(live)

    async def _forget_nodes(self, part: SharedKeys, now: float) -> set[bytes]:
        """Remove the workers of a part that are gone, and return the names of the others."""
        nodes = {bytes_of(name): decode_node(bytes_of(row)) for name, row in (await self._ask("hgetall", part.nodes)).items()}
        live = {name for name, node in nodes.items() if node and node.id.encode() == name and abs(now - node.seen) <= _FORGOTTEN}
        gone = [name for name in nodes if name not in live]
        await self._delete(part.nodes, gone)
        orders = {name: [part.loads, *map(part.loads_of, node.labels)] for name in gone if (node := nodes[name]) is not None}
        await self.leave_out((order, name) for name, places in orders.items() for order in places)
        return live

    async def _delete(self, key: str, fields: Sequence[str | bytes]) -> None:
        for some in (fields[start : start + _DELETED] for start in range(0, len(fields), _DELETED)):
            await self._ask("hdel", key, some)

    async def look(
        self, *, about: Iterable[str] = (), everywhere: bool = True, count: int, hold: Iterable[str] = (), seconds: float = 0.0
    ) -> Looked:
        """Let the sessions wait that clients have begun, and return sessions whose lease is over: of each part the first `count`, and
        those of `about`, which come first.

        Unless this is of `everywhere`, only the parts are looked at that have one of the sessions `about`. The sessions `hold` wait for
        nobody for `seconds` seconds.
        """
        asked, held = self._by_part(about), self._by_part(hold)
        parts = self._keys.parts if everywhere else tuple(asked.keys() | held.keys())
        found = await self._broker.at_each_part(
            lambda part: self._look_in(part, about=asked[part], count=count, hold=held[part], seconds=seconds), parts
        )
        return Looked(
            parts=parts,
            now=max(each.now for each in found),
            names=[name for each in found for name in each.names],
            waiting=sum(each.waiting for each in found),
            may_be_more=any(each.may_be_more for each in found),
        )

    def _by_part(self, sessions: Iterable[str]) -> defaultdict[SharedKeys, list[str]]:
        by_part: defaultdict[SharedKeys, list[str]] = defaultdict(list)
        for session in sessions:
            by_part[self._keys.part_of(session)].append(session)
        return by_part

    async def _look_in(self, part: SharedKeys, *, about: Sequence[str], count: int, hold: Sequence[str], seconds: float) -> Looked:
        keys = [part.queue, part.sessions]
        args = [_ADMITTED, count, seconds, len(hold), *hold, *about]
        answer = await self._mended(keys, partial(self._broker.script, LOOK, keys, args))
        now, moved, junk, waiting, rows = looked_of(answer)
        names = {row: name for row in map(bytes_of, rows) if (name := session_name(row)) is not None and self._keys.part_of(name) is part}
        if strange := [row for row in map(bytes_of, rows) if row not in names]:
            await self._ask("zrem", part.sessions, strange)
        junk += len(strange)
        if junk:
            logger.warning("the queue had %d names that no session has there: they are taken out", junk)
        return Looked(now=now, names=tuple(names.values()), waiting=waiting, may_be_more=moved == _ADMITTED or bool(strange))
