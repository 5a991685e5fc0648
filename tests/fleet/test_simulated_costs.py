"""What the model counts for a call is what a real broker is sent and sends."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broker_server import BrokerServer
from programs import connected
from simulated_ends import BYTES, find_nodes_at, size_of
from simulated_machines import Server, World

from claude_transport.fleet.broker import Broker
from claude_transport.fleet.messages import Append, Call, Kind, Renew, Side, Sync, Take
from claude_transport.fleet.placement import Node
from claude_transport.fleet.roster import CANDIDATES, broker_time, find_nodes
from claude_transport.fleet.scripts import CREATE
from claude_transport.fleet.tables import Tables

TIMES = 50
SESSION = "0123456789abcdef"
ENTRY = (Kind.DATA, b"x" * 100)


async def bytes_of(connection: Broker) -> int:
    """All bytes that the server has got and sent."""
    said = (await connection.command("info", "stats")).decode()
    return sum(map(int, re.findall(r"total_net_(?:input|output)_bytes:(\d+)", said)))


async def measured(connection: Broker, call: Callable[[], Awaitable[Any]]) -> float:
    """Bytes of one of many calls."""
    await call()
    asking = -await bytes_of(connection) + await bytes_of(connection)
    before = await bytes_of(connection)
    for _ in range(TIMES):
        await call()
    return (await bytes_of(connection) - before - asking) / TIMES


CALLS: dict[str, Call] = {
    "append": Append(Side.WORKER, "1.0123abcd", 1, [ENTRY, ENTRY]),
    "append nothing": Append(Side.WORKER, "1.0123abcd", 1, []),
    "take": Take(Side.CLIENT, "1.0123abcd", 1),
    "renew": Renew(Side.WORKER, "1.0123abcd", 15.0),
    "sync": Sync(Side.WORKER, "1.0123abcd", 0, "1.0123abcd", taken=0),
}


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_of_a_session_has_the_size_that_the_model_gives_it(broker: BrokerServer, what: str) -> None:
    async with connected(broker) as connection:
        fields = [connection.keys.meta(SESSION)], ["1.0123abcd", 60_000, 600_000, "v", 1, "q", "{}", "cw", 10**6]
        await connection.script(CREATE, *fields)
        await connection.command("hset", connection.keys.meta(SESSION), {"we": "1.0123abcd"})
        await connection.follow(connection.keys.outgoing(SESSION), bool)
        call, numbers = CALLS[what], iter(range(1, 10_000))

        async def ask() -> None:
            asked = call
            if isinstance(call, Append):
                asked = Append(call.side, call.token, next(numbers) if call.entries else 1, call.entries[:1])
            await connection.call(SESSION, asked)

        expected = size_of(Append(Side.WORKER, "", 1, CALLS[what].entries[:1]) if isinstance(call, Append) else call)  # type: ignore[union-attr]
        assert 0.7 * expected < await measured(connection, ask) < 1.3 * expected


async def test_the_calls_of_a_worker_have_the_sizes_that_the_model_gives_them(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        tables, now = Tables(connection), await broker_time(connection)
        nodes = [Node(id=f"worker-{number:08}", capacity=60, load=number % 60, seen=now, library="0.1.0") for number in range(100)]
        for node in nodes:
            await tables.tell(node)
        found = {
            "small": await measured(connection, lambda: broker_time(connection)),
            "tell": await measured(connection, lambda: tables.tell(nodes[0])),
            "look": await measured(connection, lambda: tables.look(count=64)),
            "wake": await measured(connection, lambda: connection.publish(connection.keys.wake("worker-12345678"), SESSION)),
        }
        server = Server(World(0), journal=False, call_seconds=0.0, counts_all=True)
        server.data.now = int(now * 1000)
        for node in nodes:
            server.data.tell(node)
        find_nodes_at(server, (), near=[SESSION], count=CANDIDATES)
        found["search"] = await measured(connection, lambda: find_nodes(connection, now=now))
        expected = BYTES | {"search": server.shards[0].bytes}
        assert {name: 0.5 < size / expected[name] < 1.5 for name, size in found.items()} == dict.fromkeys(found, True), found
