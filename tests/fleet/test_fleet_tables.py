"""The tables that all workers of a fleet share stay small, whatever is gone."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.placement import Node
from claude_transport.fleet.roster import broker_time
from claude_transport.fleet.scripts import FleetKeys, SharedKeys
from claude_transport.fleet.tables import MOST_HOMES, Tables, count_waiting


async def test_workspaces_and_workers_that_are_gone_are_removed_and_there_are_never_too_many(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys, now = connection.keys, await broker_time(connection)
    for node in (Node(id="alive", seen=now), Node(id="silent", seen=now - 60), Node(id="gone", seen=now - 4000)):
        await connection.command("hset", keys.nodes, {node.id: msgspec.json.encode(node)})
    for owner, count in (("gone", 1500), ("nobody", 1500), ("silent", 3), ("alive", MOST_HOMES)):
        await connection.command("hset", keys.homes, {f"{owner} {number}": owner for number in range(count)})
    async with serving(FleetWorker(broker.url, command=ECHO, name="new")):
        assert sorted(await connection.command("hkeys", keys.nodes)) == [b"alive", b"new", b"silent"]
        owners = await connection.command("hvals", keys.homes)
        assert len(owners) == MOST_HOMES
        assert set(owners) <= {b"alive", b"silent"}
        async with FleetTransport(broker.url, workspace="project"):
            assert await connection.command("hget", keys.homes, "project") == b"new"
    await connection.aclose()


class Stubborn(Broker):
    """A broker in which a table has the wrong type again as soon as it is mended."""

    async def command(self, name: str, *args: Any) -> Any:
        if name == "zadd":
            raise errors.ProtocolError("another type", code="fleet.malformed")
        return await super().command(name, *args)


async def test_a_table_that_cannot_be_mended_is_a_broker_that_takes_no_calls(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Stubborn(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    with pytest.raises(BrokerCut, match=r"sessions has changed its type again"):
        await Tables(connection).hold({"session": 1.0})
    await connection.aclose()
    assert [record.levelname for record in caplog.records if "is deleted" in record.getMessage()] == ["WARNING"]


class Refusing(Broker):
    """Refuses to write into a table, and runs no script."""

    async def command(self, name: str, *args: Any, timeout: float = 5.0, **options: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        raise errors.ProtocolError("it is refused", code="fleet.refused")

    async def script(self, text: str, keys: Any, args: Any, *, follow: bool = True) -> list[Any]:
        raise AssertionError("a table that may not be written is not deleted")


async def test_a_table_that_may_not_be_written_is_left_as_it_is() -> None:
    with pytest.raises(errors.ProtocolError, match="it is refused"):
        await Tables(Refusing(BrokerAddress("redis://127.0.0.1:1/0"))).hold({"session": 1.0})


async def test_a_session_that_is_given_back_wakes_the_worker_that_is_best_for_it(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys, heard, listening = connection.keys, [], anyio.Event()

    def hear(message: bytes) -> None:
        listening.set()
        if message:
            heard.append(message.decode())
            told.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.listen, keys.wake("next"), hear)
        await listening.wait()
        for drains in (True, False):
            told = anyio.Event()
            worker = FleetWorker(broker.url, command=ECHO, name="old")
            async with serving(worker):
                transport = FleetTransport(broker.url, close_timeout=0.1)
                await transport.connect()
                node = Node(id="next", capacity=9, seen=await broker_time(connection))
                await Tables(connection).tell(node)
                if drains:
                    await worker.drain()
            with anyio.fail_after(10):
                await told.wait()
            assert heard == [transport.session]
            heard.clear()
            await Tables(connection).say_goodbye(node)
            await transport.close()
        tasks.cancel_scope.cancel()
    await connection.aclose()


async def test_what_is_left_of_workers_that_were_killed_and_rows_that_no_worker_has_written_is_removed(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys, now = connection.keys, await broker_time(connection)
    seen = {"killed": now - 4000, "ahead": now + 4000, "silent": now - 60}
    for name, moment in seen.items():
        await connection.command("hset", keys.nodes, {name: msgspec.json.encode(Node(id=name, seen=moment))})
    mask = msgspec.json.encode(Node(id="silent", seen=now))
    await connection.command("hset", keys.nodes, {b"\xff": b"{", "junk": "x", "other": mask, "large": b"x" * 10_000})
    async with serving(FleetWorker(broker.url, command=ECHO, name="new")):
        assert sorted(await connection.command("hkeys", keys.nodes)) == [b"new", b"silent"]
    await connection.aclose()


async def test_nothing_is_left_of_a_session_whose_client_has_deleted_its_hash(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys = connection.keys
    async with serving(FleetWorker(broker.url, command=ECHO, lease=1.5)):
        for is_running in (True, False):
            transport = FleetTransport(broker.url, close_timeout=0.2)
            await transport.connect()
            session = str(transport.session)
            await transport.write('{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}')
            await read(transport.read_messages(), 1)
            if not is_running:  # it is given back, and then claimed again
                await connection.command("hset", keys.meta(session), {"we": "0.", "wu": 0})
                await connection.command("zadd", keys.queue, {session: 0})
            await connection.command("delete", [keys.meta(session)])
            await transport.write("{}")
            with pytest.raises(errors.ClaudeTransportError):
                await read(transport.read_messages(), 9)
            with anyio.fail_after(20):
                while await connection.command("exists", [keys.incoming(session), keys.outgoing(session), keys.setup(session)]):
                    await a_moment()
            await transport.close()
        await connection.command("hset", keys.setup("left"), {"initialize": "{}"})
        await connection.command("zadd", keys.queue, {"left": 0})
        with anyio.fail_after(20):
            while await connection.command("exists", [keys.setup("left")]):
                await a_moment()
    await connection.aclose()


async def test_sessions_that_are_moved_while_they_are_counted_are_counted_once() -> None:
    keys, tables = FleetKeys("claude-fleet"), {"queue": 3, "sessions": 0}

    async def ask(command: str, key: str, *_: object) -> int:
        if command == "zcount":
            found = tables["sessions"]
            tables.update(queue=0, sessions=3)  # a worker admits them behind this read
            return found
        assert key == keys.queue
        return tables["queue"]

    assert await count_waiting(ask, keys, 0.0) == 3


async def test_a_count_of_a_queue_that_never_rests_comes_to_an_end() -> None:
    keys, told = FleetKeys("claude-fleet"), itertools.count()

    async def ask(command: str, *_: object) -> int:
        return next(told) if command == "zcard" else 7

    assert await count_waiting(ask, keys, 0.0) >= 7


async def test_a_session_that_has_ended_leaves_the_queue_at_once_and_again_when_somebody_puts_it_back(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO)
    async with connected(broker) as connection, serving(worker):
        keys = connection.keys
        transport = FleetTransport(broker.url, close_timeout=0.2)
        await transport.connect()
        session = str(transport.session)
        assert await connection.command("zscore", keys.sessions, session) is not None
        await transport.close()
        with anyio.fail_after(20):
            while worker.sessions:
                await a_moment()
        assert await connection.command("zscore", keys.sessions, session) is None
        await connection.command("zadd", keys.sessions, {session: 0, "gone": 0})
        await connection.command("zadd", keys.queue, {session: 0})
        with anyio.fail_after(20):
            while await connection.command("zcard", keys.sessions) or await connection.command("zcard", keys.queue):
                await a_moment()


async def test_a_part_whose_server_is_lost_keeps_no_other_one_from_being_asked() -> None:
    connection, asked = Broker(BrokerAddress("redis://127.0.0.1:1/0")), list[str]()
    connection.keys.divide(3)

    async def ask(part: SharedKeys) -> str:
        await anyio.lowlevel.checkpoint()
        asked.append(part.queue)
        if part.queue in lost:
            raise BrokerCut(part.queue)
        return part.nodes

    lost = {"{claude-fleet#0}:queue"}
    assert await connection.at_each_part(ask) == ["{claude-fleet#1}:nodes", "{claude-fleet#2}:nodes"]
    lost = {part.queue for part in connection.keys.parts}
    with pytest.raises(BrokerCut, match=r"claude-fleet#\d"):
        await connection.at_each_part(ask)
    assert sorted(asked) == sorted(["{claude-fleet#0}:queue", "{claude-fleet#1}:queue", "{claude-fleet#2}:queue"] * 2)


async def test_all_parts_are_asked_at_once_and_what_one_refuses_is_told() -> None:
    connection, asked, all_there = Broker(BrokerAddress("redis://127.0.0.1:1/0")), list[str](), anyio.Event()
    connection.keys.divide(3)

    async def ask(part: SharedKeys) -> str:
        asked.append(part.nodes)
        if len(asked) == 3:
            all_there.set()
        with anyio.fail_after(5):
            await all_there.wait()
        if refused in part.nodes:
            raise errors.ProtocolError("refused", code="fleet.refused")
        return part.nodes

    refused = "none"
    assert await connection.at_each_part(ask) == [f"{{claude-fleet#{number}}}:nodes" for number in range(3)]
    refused = "#1"
    with pytest.raises(errors.ProtocolError, match="refused"):
        await connection.at_each_part(ask)


async def test_a_look_at_the_queue_is_one_call_that_admits_counts_and_holds(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(broker) as connection:
        keys, tables = connection.keys, Tables(connection)
        await connection.command("zadd", keys.queue, {"a": 0, "b": 0, "c": 0, b"\xff": 0, b"x" * 129: 0})
        await connection.command("zadd", keys.sessions, {"mine": 0})
        looked = await tables.look(count=2, hold=["mine"], seconds=15)
        assert (looked.names, looked.waiting, looked.may_be_more) == (["a", "b"], 3, False)
        assert abs(looked.now - await broker_time(connection)) < 10
        assert abs(float(await connection.command("zscore", keys.sessions, "mine")) - looked.now - 15) < 0.01
        assert await connection.command("exists", [keys.queue]) == 0
        assert "2 names that no session has there" in caplog.text
        assert (await tables.look(count=0)).names == []


async def test_what_a_look_leaves_in_the_queue_is_worth_another_one(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        keys, tables = connection.keys, Tables(connection)
        await connection.command("zadd", keys.queue, {f"s{number:03}": 0 for number in range(300)})
        first, second = await tables.look(count=64), await tables.look(count=64)
        assert (first.waiting, first.may_be_more, second.waiting, second.may_be_more) == (256, True, 300, False)
        assert len(second.names) == 64


async def test_each_part_holds_its_own_sessions(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        connection.keys.divide(4)
        names = [f"s{number}" for number in range(12)]
        for name in names:
            await connection.command("zadd", connection.keys.part_of(name).sessions, {name: 0})
        looked = await Tables(connection).look(count=9, hold=names[:5], seconds=15)
        assert (sorted(looked.names), looked.waiting) == (sorted(names[5:]), 7)
        assert len({connection.keys.part_of(name).sessions for name in names}) > 1


async def test_a_name_in_another_part_than_its_own_is_taken_out(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    """A client may write it there. It would stand before the sessions of that part for ever."""
    async with connected(broker) as connection:
        connection.keys.divide(4)
        keys, names = connection.keys, [f"s{number}" for number in range(200)]
        part = keys.part_of("mine")
        misplaced = [name for name in names if keys.part_of(name) is not part]
        await connection.command("zadd", part.queue, dict.fromkeys(misplaced, 0))
        await connection.command("zadd", part.sessions, {"mine": 1})
        looked = await Tables(connection).look(about=["mine"], count=64)
        while looked.may_be_more:
            assert set(looked.names) <= {"mine"}
            looked = await Tables(connection).look(about=["mine"], count=64)
        assert looked.names == ["mine"]
        assert await connection.command("zrange", part.sessions, 0, -1) == [b"mine"]
        assert "names that no session has there" in caplog.text
