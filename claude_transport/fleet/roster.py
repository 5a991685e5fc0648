"""The roster: the workers of a fleet as the broker knows them, and which of them have the most room.

A fleet may have thousands of workers, so nothing here that is done for a session reads all of them. Each worker keeps its place in an
order by load, one for all workers and one for each of its labels. A reader takes the first ones, and their records.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from functools import partial
from typing import Any, Final, NamedTuple

from claude_transport.errors import ProtocolError
from claude_transport.fleet.answers import MALFORMED, bytes_of, decode_node, nodes_of, text_of
from claude_transport.fleet.broker import Broker, BrokerCut
from claude_transport.fleet.placement import MAX_NODE_BYTES, Node, by_load
from claude_transport.fleet.scripts import SharedKeys
from claude_transport.loggers import logger_for

logger: logging.Logger = logger_for(__name__)

CANDIDATES: Final = 32
"""How many workers are looked at for one session. More are read only when some of them are gone, or have other labels."""

_MOST_READ: Final = 4096
"""The most places of one order that are read in one search."""


class Found(NamedTuple):
    """What a search has found: workers that live, the least loaded first, and rows (key, name) of orders that stand for no such worker."""

    nodes: list[Node]
    gone: list[tuple[str, bytes]]


async def find_nodes(
    broker: Broker, labels: Collection[str] = (), *, near: Collection[str] = (), now: float, count: int = CANDIDATES
) -> Found:
    """Return the least loaded workers that live, take sessions and have all `labels`.

    Of a cluster, the parts of the sessions `near` are asked first, and the others only when these have too few workers with room. So
    all who look for a worker for one session find the same ones. Several parts are asked for twice their share, because none of them knows
    what the others have.

    Args:
        broker: the broker.
        labels: the labels. The first in alphabetical order decides which order is read.
        near: the sessions for which a worker is looked for.
        now: seconds of the broker's clock.
        count: how many workers are enough. There may be a few more.
    """
    if any(len(label.encode("utf-8", "replace")) > MAX_NODE_BYTES for label in labels):
        return Found([], [])
    parts = broker.keys.worker_parts
    first = tuple(dict.fromkeys(map(broker.keys.worker_part_of, near)))
    found: list[Found] = []
    for some in (first, tuple(part for part in parts if part not in first)):
        if some and sum(node.room > 0 for each in found for node in each.nodes) < count:
            share = count if len(some) == 1 else math.ceil(2 * count / len(some))
            found += await broker.at_each_part(partial(_find_in, broker, labels=frozenset(labels), now=now, count=share), some)
    nodes = sorted((node for each in found for node in each.nodes), key=by_load)
    return Found(nodes, [row for each in found for row in each.gone])


async def _find_in(broker: Broker, part: SharedKeys, *, labels: frozenset[str], now: float, count: int) -> Found:
    first = min(labels, default=None)
    order = part.loads if first is None else part.loads_of(first)
    found = Found([], [])
    start = 0
    while len(found.nodes) < count and start < _MOST_READ:
        names = [bytes_of(name) for name in await ask_table(broker, "zrange", order, start, start + count - 1, default=())]
        records = await ask_table(broker, "hmget", part.nodes, names, default=()) if names else ()
        for name, record in zip(names, records, strict=False):
            node = None if record is None else decode_node(bytes_of(record))
            if node is None or node.id.encode() != name or not _is_in_order(node, first, now=now):
                found.gone.append((order, name))
            elif labels <= set(node.labels):
                found.nodes.append(node)
        start += len(names)
        if len(names) < count:
            break
    return found


def _is_in_order(node: Node, label: str | None, *, now: float) -> bool:
    """Return whether a worker belongs into the order of a label, or of all workers."""
    return node.lives(now) and not node.draining and (label is None or label in node.labels)


async def read_node(broker: Broker, name: str) -> Node | None:
    """Return the worker with a name; None when the broker knows none."""
    record = await ask_table(broker, "hget", broker.keys.worker_part_of(name).nodes, name, default=None)
    return None if record is None else decode_node(bytes_of(record))


async def broker_time(broker: Broker) -> float:
    """Return the seconds of the broker's clock."""
    seconds, microseconds = await broker.command("time")
    return int(seconds) + int(microseconds) / 1e6


async def read_nodes(broker: Broker) -> list[Node]:
    """Return every worker that the broker knows, also those that are gone."""
    found = await broker.at_each_part(lambda part: ask_table(broker, "hgetall", part.nodes, default={}), broker.keys.worker_parts)
    return [node for rows in found for node in nodes_of(rows)]


async def read_home(broker: Broker, workspace: str) -> str | None:
    """Return the worker that had a workspace last; None when that is not known."""
    home = await ask_table(broker, "hget", broker.keys.part_of(workspace).homes, workspace, default=None)
    try:
        return None if home is None else text_of(home)
    except ProtocolError:
        return None


async def ask_table(broker: Broker, name: str, key: str, *args: Any, default: Any) -> Any:
    """Call a command on a table that all share. Returns `default` when it has another type, which the next worker mends."""
    try:
        return await broker.command(name, key, *args)
    except ProtocolError as exc:
        if exc.code != MALFORMED:
            raise
        logger.warning("%s has another type than this library gives it", key)
        return default


async def wake_node(broker: Broker, node: str, *, about: Collection[str] = ()) -> None:
    """Make a worker look at the queue at once, and at the sessions `about`; without them, at all that wait.

    A wake-up that is lost or refused is no error: the worker looks with its next heartbeat.
    """
    try:
        await broker.publish(broker.keys.wake(node), " ".join(about))
    except (BrokerCut, ProtocolError) as exc:
        logger.info("a worker was not woken: %s", exc)
