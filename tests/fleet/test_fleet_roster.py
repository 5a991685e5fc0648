"""Who looks for a worker reads the best few of them, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, serving

from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker
from claude_transport.fleet.placement import MAX_NODE_BYTES, NODE_SECONDS, Node, Placing, Wanted
from claude_transport.fleet.roster import CANDIDATES, broker_time, find_nodes, read_node
from claude_transport.fleet.tables import Tables

MANY = 400


async def enter(connection: Broker, nodes: Sequence[Node]) -> float:
    """Put workers into the tables. Returns the broker's time."""
    now = await broker_time(connection)
    for node in nodes:
        seen = Node(id=node.id, capacity=node.capacity, load=node.load, labels=node.labels, seen=node.seen + now, draining=node.draining)
        await Tables(connection).tell(seen)
    return now


def many(**others: Any) -> list[Node]:
    """Workers of which the last ones have the most room."""
    return [Node(id=f"w{number:03}", capacity=1000, load=MANY - number, **others) for number in range(MANY)]


class Counting:
    """Counts the records of workers that are read through a connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        ask = Broker.command

        async def counted(broker: Broker, name: str, *args: Any) -> Any:
            answer = await ask(broker, name, *args)
            if args and args[0] in {part.nodes for part in broker.keys.parts}:
                self.records += {"hgetall": len(answer) if name == "hgetall" else 0, "hmget": len(args[-1]), "hget": 1}.get(name, 0)
            return answer

        monkeypatch.setattr(Broker, "command", counted)


async def test_the_least_loaded_of_many_workers_are_found_and_no_other_one_is_read(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as connection:
        now = await enter(connection, many())
        counting = Counting(monkeypatch)
        found = await find_nodes(connection, now=now)
        assert [node.id for node in found.nodes] == [f"w{MANY - 1 - number:03}" for number in range(CANDIDATES)]
        assert found.gone == []
        assert counting.records == CANDIDATES


async def test_a_session_and_its_worker_read_no_table_of_all_workers(broker: BrokerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FleetWorker(broker.url, command=ECHO, name="best", capacity=500)
    async with connected(broker) as connection, serving(worker):
        await enter(connection, many())
        counting = Counting(monkeypatch)
        async with FleetTransport(broker.url):
            assert len(worker.sessions) == 1
        assert 0 < counting.records <= 10 * CANDIDATES < MANY


async def test_workers_with_all_labels_are_found_through_the_order_of_one(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        fast = [Node(id=f"fast{number}", capacity=9, load=number, labels=("gpu", "linux")) for number in range(3)]
        now = await enter(connection, [*many(labels=("linux",)), *fast, Node(id="bare", labels=("gpu",))])
        assert [node.id for node in (await find_nodes(connection, ["linux", "gpu"], now=now)).nodes] == ["fast0", "fast1", "fast2"]
        assert len((await find_nodes(connection, ["linux"], now=now)).nodes) >= CANDIDATES
        assert await find_nodes(connection, ["windows"], now=now) == ([], [])
        assert await find_nodes(connection, ["x" * (MAX_NODE_BYTES + 1)], now=now) == ([], [])


async def test_what_stands_for_no_worker_is_passed_over_and_told(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        silent = [Node(id=f"silent{number:02}", labels=("a",), seen=-NODE_SECONDS - 1) for number in range(CANDIDATES + 8)]
        now = await enter(connection, [*silent, Node(id="other", capacity=9, load=7, labels=("a",)), Node(id="good", capacity=9, load=8)])
        keys = connection.keys
        await connection.command("zadd", keys.loads, {"junk": 0, b"\xff": 0})
        await connection.command("zadd", keys.loads_of("a"), {"good": 0.5})  # it had this label before
        found = await find_nodes(connection, now=now)
        assert [node.id for node in found.nodes] == ["other", "good"]
        assert {name for _, name in found.gone} == {b"junk", b"\xff", *(node.id.encode() for node in silent)}
        with_label = await find_nodes(connection, ["a"], now=now)
        assert [node.id for node in with_label.nodes] == ["other"]
        assert (keys.loads_of("a"), b"good") in with_label.gone
        await Tables(connection).leave_out([*found.gone, *with_label.gone])
        assert await connection.command("zrange", keys.loads, 0, -1) == [b"other", b"good"]
        assert await connection.command("zrange", keys.loads_of("a"), 0, -1) == [b"other"]


async def test_a_worker_that_looks_takes_those_that_are_gone_out_of_the_order(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, name="new")
    async with connected(broker) as connection, serving(worker):
        await enter(connection, [Node(id=f"silent{number}", seen=-60) for number in range(5)])
        async with FleetTransport(broker.url):
            with anyio.fail_after(20):
                while await connection.command("zcard", connection.keys.loads) > 1:
                    await a_moment()
        assert await connection.command("zrange", connection.keys.loads, 0, -1) == [b"new"]


async def test_a_worker_keeps_its_place_by_load_and_leaves_every_order(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, name="w", capacity=4, labels=["a", "b"])
    async with connected(broker) as connection:
        orders = [connection.keys.loads, connection.keys.loads_of("a"), connection.keys.loads_of("b")]

        async def shares() -> list[Any]:
            return [await connection.command("zscore", order, "w") for order in orders]

        async with serving(worker):
            assert await shares() == [0.0, 0.0, 0.0]
            assert all([await connection.command("pttl", order) > 3_000_000 for order in orders])  # an unused label is forgotten
            async with FleetTransport(broker.url):
                with anyio.fail_after(20):
                    while await shares() != [0.25, 0.25, 0.25]:
                        await a_moment()
        assert await connection.command("exists", [*orders, connection.keys.nodes]) == 0


async def test_a_worker_that_drains_is_in_no_order(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        node = Node(id="w", labels=("a",))
        now = await enter(connection, [node])
        assert [each.id for each in (await find_nodes(connection, ["a"], now=now)).nodes] == ["w"]
        await enter(connection, [Node(id="w", labels=("a",), draining=True)])
        assert await find_nodes(connection, ["a"], now=now) == await find_nodes(connection, now=now) == ([], [])
        assert await connection.command("exists", [connection.keys.loads, connection.keys.loads_of("a")]) == 0
        await connection.command("zadd", connection.keys.loads, {"w": 0})  # what an older call may leave
        assert (await find_nodes(connection, now=now)).gone == [(connection.keys.loads, b"w")]


async def test_what_a_worker_left_behind_an_hour_ago_leaves_every_order(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        now = await enter(connection, [Node(id="gone", labels=("a",), seen=-4000), Node(id="here", labels=("a",))])
        assert await Tables(connection).forget_gone(now) == 1
        for order in (connection.keys.loads, connection.keys.loads_of("a")):
            assert await connection.command("zrange", order, 0, -1) == [b"here"]
        assert await read_node(connection, "gone") is None
        here = await read_node(connection, "here")
        assert here is not None
        assert here.labels == ["a"]


async def test_an_order_of_another_type_is_no_worker_and_is_made_anew(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        order = connection.keys.loads
        await connection.command("set", order, "x")
        assert await find_nodes(connection, now=1.0) == ([], [])
        now = await enter(connection, [Node(id="w")])
        assert [node.id for node in (await find_nodes(connection, now=now)).nodes] == ["w"]


async def test_each_part_of_a_cluster_gives_its_share(broker: BrokerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(broker) as connection:
        connection.keys.divide(4)
        now = await enter(connection, many())
        counting = Counting(monkeypatch)
        found = await find_nodes(connection, now=now, count=8)
        assert counting.records == len(found.nodes) == 16  # twice as many as are needed, in all
        assert [node.id for node in found.nodes[:4]] == ["w399", "w398", "w397", "w396"]
        assert [node.share for node in found.nodes] == sorted(node.share for node in found.nodes)


async def test_of_a_cluster_the_part_of_a_session_is_asked_first_and_the_others_when_it_has_too_few(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as connection:
        connection.keys.divide(4)
        now = await enter(connection, many())
        counting, part = Counting(monkeypatch), connection.keys.worker_part_of("a session")
        found = await find_nodes(connection, near=["a session"], now=now, count=8)
        assert counting.records == len(found.nodes) == 8
        assert {connection.keys.worker_part_of(node.id) for node in found.nodes} == {part}
        full = [Node(id=node.id, capacity=1, load=1) for node in many() if connection.keys.worker_part_of(node.id) is part]
        await enter(connection, full)
        found = await find_nodes(connection, near=["a session"], now=now, count=8)
        assert len({connection.keys.worker_part_of(node.id) for node in found.nodes}) == 4
        assert found.nodes[0].room > 0


async def test_a_worker_of_a_cluster_looks_only_at_the_parts_of_what_it_is_woken_about(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        connection.keys.divide(4)
        names = {connection.keys.part_of(f"s{number}").queue: f"s{number}" for number in range(40)}
        for name in names.values():
            await connection.command("zadd", connection.keys.part_of(name).queue, {name: 0})
        one = next(iter(names.values()))
        looked = await Tables(connection).look(about=[one], everywhere=False, count=9)
        assert (looked.names, looked.parts) == ([one], (connection.keys.part_of(one),))
        looked = await Tables(connection).look(count=9)
        assert (sorted(looked.names), len(looked.parts)) == (sorted(names.values()), 4)


async def test_what_a_worker_is_woken_about_is_found_behind_all_that_wait_and_only_when_it_waits(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        tables, sessions = Tables(connection), connection.keys.sessions
        await connection.command("zadd", sessions, {**{f"a{number}": 0 for number in range(5)}, "held": 9e9, "last": 1})
        looked = await tables.look(about=["last", "held", "gone"], everywhere=False, count=2)
        assert looked.names == ["last", "a0", "a1"]
        looked = await tables.look(about=["last"], count=2, hold=["a0", "a1"], seconds=60)
        assert looked.names == ["last", "a2", "a3"]


def test_a_worker_looks_first_for_what_it_could_run_itself_and_never_for_all_that_clients_think_of() -> None:
    placing = Placing()
    for number in range(100):
        placing.learn(f"strange{number}", Wanted(labels=(f"x{number:02}",)))
    for number, labels in enumerate(((), ("b",), ("b", "a"), ("a", "b"))):
        placing.learn(f"own{number}", Wanted(labels=labels))
    sets = placing.label_sets(("a", "b"))
    assert sets[:4] == [frozenset(), {"a", "b"}, {"b"}, {"x00"}]
    assert len(sets) == 32
