"""How an end gets what the other end says: the broker tells it, over one connection for all sessions of a process."""

from __future__ import annotations

import logging
import re

import anyio
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import ClientEnd
from claude_transport.fleet.feed import StreamFeed
from claude_transport.fleet.scripts import PUSHED_BYTES, FleetKeys

KEYS = FleetKeys("claude-fleet")


async def connections(broker: Broker) -> int:
    return len((await broker.command("client_list")).splitlines())


async def calls(broker: Broker) -> dict[str, int]:
    """How often the server has carried out each command so far."""
    found: bytes = await broker.command("info", "commandstats")
    return {name: int(count) for name, count in re.findall(r"cmdstat_(\S+):calls=(\d+)", found.decode())}


async def converse(transport: FleetTransport, number: int) -> None:
    await transport.write(msgspec.json.encode({"n": number}))
    assert await read(transport.read_messages(), 1) == numbered([number])


async def test_the_sessions_of_one_url_share_a_connection_which_ends_with_the_last_of_them(broker: BrokerServer) -> None:
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO)):
        transports = [FleetTransport(broker.url) for _ in range(4)]
        await transports[0].connect()
        one = await connections(connection)
        for transport in transports[1:]:
            await transport.connect()
        assert await connections(connection) == one
        async with FleetTransport(f"{broker.url}?owner=alice") as other:
            assert await connections(connection) > one
            await converse(other, 0)
        for number, transport in enumerate(transports):
            await converse(transport, number)
            await transport.close()
        with anyio.fail_after(10):
            while await connections(connection) >= one:
                await a_moment()
        async with FleetTransport(broker.url) as again:
            await converse(again, 7)


async def test_a_round_trip_is_three_scripts_and_one_for_many_trips_and_no_read(broker: BrokerServer) -> None:
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        await converse(transport, 0)
        before = await calls(connection)
        for number in range(1, 51):
            await converse(transport, number)
        with anyio.fail_after(10):
            while (after := await calls(connection))["evalsha"] - before["evalsha"] <= 150:  # the client tells what it read a little later
                await a_moment()
    made = {name: after[name] - before.get(name, 0) for name in ("evalsha", "publish")}
    assert made["publish"] == 100
    assert 150 < made["evalsha"] <= 220  # and renewals of both leases
    assert after.get("xread", 0) - before.get("xread", 0) <= 20


@pytest.mark.parametrize("size", [1, PUSHED_BYTES - 20, PUSHED_BYTES + 1, 300_000])
async def test_a_line_of_any_size_arrives_whole_and_in_its_place(broker: BrokerServer, size: int) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        said = [{"n": 0}, {"text": "x" * size}, {"n": 1}]
        for message in said:
            await transport.write(msgspec.json.encode(message))
        assert await read(transport.read_messages(), 3) == said


FORGED = [
    b'2 9.evil d:9\n{"n":99}\n',
    b'2 1.evil d:9\n{"n":99}\n',
    b'2 1.evil p:9\n{"n":99}\n',
    b'7 1.evil d:9\n{"n":99}\n',
    b'7 OWNER d:9\n{"n":99}\n',
    b"999999999999999 1.evil\n",
    b"\xff",
]


@pytest.mark.parametrize("message", FORGED)
async def test_a_message_that_no_worker_has_sent_gives_a_client_nothing_that_the_stream_does_not_hold(
    broker: BrokerServer, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker = FleetWorker(broker.url, command=ECHO)
    async with connected(broker) as connection, serving(worker), FleetTransport(broker.url) as transport:
        session = str(transport.session)
        (owner,) = await connection.command("hmget", KEYS.meta(session), ["we"])
        message = message.replace(b"OWNER", owner)
        for number in range(3):
            assert await connection.command("publish", KEYS.outgoing(session), message) == 1
            assert await connection.command("publish", KEYS.incoming(session), message) == 1
            await converse(transport, number)
        assert "connection was lost" not in caplog.text


async def test_what_one_session_cannot_take_ends_it_alone_and_leaves_the_connection_to_the_others(broker: BrokerServer) -> None:
    heard: list[bytes] = []

    def take(_: object) -> None:
        raise errors.ProtocolError("it cannot be taken", code="fleet.malformed")

    async with connected(broker) as connection, anyio.create_task_group() as tasks:
        key, end = KEYS.outgoing("S"), ClientEnd("1.c")
        end.reader.token = "1.w"
        carrier = Carrier(connection, "S", end, patience=1.0, on_change=bool)
        feed = StreamFeed(connection, key, carrier, take=take, has_room=lambda: True, patience=1.0)
        raised = anyio.Event()

        async def run() -> None:
            with pytest.raises(errors.ProtocolError, match="cannot be taken"):
                await feed.run()
            raised.set()

        tasks.start_soon(run)
        await connection.follow("others", heard.append)
        generation = connection.generation_of("S")
        with anyio.fail_after(10):
            while not raised.is_set():
                await connection.command("publish", key, b"1 1.w d:3\n{}\n")
                await a_moment()
            await connection.command("publish", "others", b"news")
            while b"news" not in heard:
                await a_moment()
        assert connection.generation_of("S") == generation


async def test_an_entry_of_which_nothing_was_told_is_found_when_the_lease_is_renewed(broker: BrokerServer) -> None:
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO, lease=2)):
        transport = FleetTransport(broker.url)
        await transport.connect()
        session = str(transport.session)
        (token,) = await connection.command("hmget", KEYS.meta(session), ["ce"])
        await connection.command("xadd", KEYS.incoming(session), "1-0", {"e": token, "k": "d", "d": b'{"n":1}\n'})
        await connection.command("hset", KEYS.meta(session), {"ci": 1})
        assert await read(transport.read_messages(), 1) == numbered([1])
        await transport.close()
