"""Workers: which one takes a session, how sessions move, what observers and operators see, and a broker without memory."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.placement import Wanted
from claude_transport.observing import observe


async def worker_of(broker: BrokerServer, transport: FleetTransport) -> str:
    async with FleetRegistry(broker.url) as registry:
        return next(each.worker for each in await registry.sessions() if each.id == transport.session)


async def test_sessions_go_to_the_worker_with_the_label_and_to_the_least_loaded_one(broker: BrokerServer) -> None:
    one, two = (FleetWorker(broker.url, command=ECHO, name=name, capacity=2, labels=["gpu"]) for name in ("one", "two"))
    plain = FleetWorker(broker.url, command=ECHO, name="plain", capacity=100)
    async with serving(one, two, plain):
        transports = [FleetTransport(broker.url, labels=["gpu"]) for _ in range(4)]
        for transport in transports:
            await transport.connect()
        assert sorted([await worker_of(broker, transport) for transport in transports]) == ["one", "one", "two", "two"]
        with pytest.raises(errors.ConnectTimeout):
            await FleetTransport(broker.url, labels=["gpu"], start_timeout=0.5).connect()
        for transport in transports:
            await transport.close()


async def test_sessions_that_no_worker_can_take_keep_nothing_from_those_behind_them(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    for number in range(150):  # their names are before that of every other session
        session = f"0000000000{number:06}"
        wanted = msgspec.json.encode(Wanted(labels=("none has it",)))
        await connection.command("hset", connection.keys.meta(session), {"q": wanted, "ce": "1.a", "s": "new"})
        await connection.command("zadd", connection.keys.sessions, {session: 0})
    await connection.aclose()
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url, start_timeout=20) as transport:
        await transport.write('{"n":0}')
        assert await read(transport.read_messages(), 1) == numbered([0])


async def test_other_workers_see_at_once_what_a_worker_has_taken(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetRegistry(broker.url) as registry, FleetTransport(broker.url):
        assert [node.load for node in await registry.nodes()] == [1]
        async with FleetTransport(broker.url):
            assert [node.load for node in await registry.nodes()] == [2]


async def test_a_workspace_goes_to_the_worker_that_had_it(broker: BrokerServer) -> None:
    workers = [FleetWorker(broker.url, command=ECHO, name=name, capacity=9) for name in ("one", "two", "three")]
    async with serving(*workers):
        homes = set()
        for _ in range(4):
            async with FleetTransport(broker.url, workspace="project") as transport:
                homes.add(await worker_of(broker, transport))
        assert len(homes) == 1


async def test_a_drained_worker_gives_its_sessions_away_when_their_turn_is_over(broker: BrokerServer) -> None:
    old, new = (FleetWorker(broker.url, command=ECHO, name=name) for name in ("old", "new"))
    async with serving(old), FleetTransport(broker.url) as transport:
        messages = transport.read_messages()
        await transport.write('{"type":"user","n":0}')
        assert await read(messages, 1) == [{"type": "user", "n": 0}]
        async with serving(new), anyio.create_task_group() as tasks:
            tasks.start_soon(old.drain)
            with anyio.move_on_after(0.5):
                await anext(messages)
            assert old.sessions == (transport.session,)  # the turn runs
            await transport.write('{"type":"result"}')
            result, notice = await read(messages, 2)
            assert (result, notice["subtype"], notice["uncertain"]) == ({"type": "result"}, "fleet_takeover", 0)
            assert (old.sessions, new.sessions) == ((), (transport.session,))
            await transport.write('{"n":1}')
            assert await read(messages, 1) == numbered([1])
            await transport.close()


async def test_a_worker_that_is_cancelled_gives_its_sessions_back(broker: BrokerServer) -> None:
    with anyio.fail_after(60):
        async with serving(FleetWorker(broker.url, command=ECHO, name="first")):
            transport = FleetTransport(broker.url)
            await transport.connect()
        async with serving(FleetWorker(broker.url, command=ECHO, name="second")):
            (notice,) = await read(transport.read_messages(), 1)
            assert (notice["subtype"], notice["worker"]) == ("fleet_takeover", "second")
            await transport.close()


async def test_a_session_is_stopped_by_an_operator(broker: BrokerServer) -> None:
    async with (
        serving(FleetWorker(broker.url, command=ECHO, lease=600)),  # renewed in minutes, unless the worker is told
        FleetTransport(broker.url) as transport,
        FleetRegistry(broker.url) as registry,
    ):
        await registry.stop(str(transport.session))
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            await anext(transport.read_messages())
        assert caught.value.code == "fleet.stopped"
        with pytest.raises(errors.UsageError):
            await registry.stop("none")


async def test_a_worker_keeps_nothing_of_a_session_that_is_over(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO)

    def sizes() -> dict[str, int]:
        return {name: len(value) for name, value in vars(worker).items() if isinstance(value, dict | set | list)}

    async with serving(worker):
        before = sizes()
        async with FleetTransport(broker.url) as transport:
            await transport.write('{"n":0}')
            messages = transport.read_messages()
            assert await read(messages, 1) == numbered([0])
            assert sizes() != before
            await transport.end_input()
            assert [message async for message in messages] == []
        with anyio.fail_after(20):
            while sizes() != before:
                await a_moment()


async def test_a_queued_session_is_stopped_by_an_operator(broker: BrokerServer) -> None:
    async with anyio.create_task_group() as tasks, FleetRegistry(broker.url) as registry:

        async def wait_in_vain() -> None:
            with pytest.raises(errors.CLIConnectionError) as caught:
                await FleetTransport(broker.url).connect()
            assert caught.value.code == "fleet.gone"

        tasks.start_soon(wait_in_vain)
        while not (waiting := await registry.sessions()):
            await a_moment()
        await registry.stop(waiting[0].id)
        assert await registry.sessions() == []


async def test_what_a_worker_has_done_is_counted(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, capacity=3)
    async with serving(worker):
        async with FleetTransport(broker.url) as transport:
            await transport.write('{"n":0}')
            await read(transport.read_messages(), 1)
            assert "claude_transport_fleet_active_sessions 1\n" in worker.prometheus_text()
        while worker.sessions:
            await a_moment()
        text = worker.prometheus_text()
    for line in (
        'claimed_total{kind="new"} 1',
        'ended_total{reason="ended"} 1',
        'bytes_total{direction="in"} 8',
        'bytes_total{direction="out"} 8',
        "capacity 3",
    ):
        assert f"claude_transport_fleet_{line}\n" in text


async def test_observers_read_a_session_and_change_nothing(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)):
        transport = FleetTransport(broker.url, keep=100)
        await transport.connect()
        messages = transport.read_messages()
        for message in numbered(range(5)):
            await transport.write(msgspec.json.encode(message))
            await read(messages, 1)
        session = str(transport.session)
        async with observe(broker.url, session=session) as first, observe(broker.url, session=session) as second:
            seen = [await anext(first) for _ in range(6)]
            assert [line.direction for line in seen] == ["note", *["out"] * 5]
            assert [msgspec.json.decode(line) for line in seen[1:]] == numbered(range(5))
            assert [await anext(second) for _ in range(6)] == seen
        async with observe(broker.url, session=session, since=seen[3].position) as later:
            assert await anext(later) == b'{"n":3}'
            await transport.end_input()
            rest = [line async for line in later]
        assert rest[0] == b'{"n":4}'
        assert [line.direction for line in rest[1:]] == ["note"] * 3
        await transport.close()


async def test_a_session_that_is_not_there_is_named_on_one_short_line(broker: BrokerServer) -> None:
    async with FleetRegistry(broker.url) as registry:
        with pytest.raises(errors.UsageError) as caught:
            await registry.stop("\x1b" * 1000)
    assert str(caught.value).startswith("the fleet has no session " + "\\x1b" * 16)
    assert len(str(caught.value)) < 200


async def test_an_observer_sees_no_secret_that_comes_in_several_fragments(broker: BrokerServer) -> None:
    parts = ["The key is ", "sk-ant-", "api03-0123456789", "abcdef0123456789", " now", "adays"]
    async with serving(FleetWorker(broker.url, command=ECHO)):
        transport = FleetTransport(broker.url, keep=100)
        await transport.connect()
        for part in parts:
            event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
            await transport.write(msgspec.json.encode({"type": "stream_event", "event": event}))
        async with observe(broker.url, session=str(transport.session)) as observed:
            await read(transport.read_messages(), len(parts))
            await transport.end_input()
            lines = [line async for line in observed]
        await transport.close()
    positions = [line.position for line in lines]
    assert positions == sorted(set(positions))
    said = [msgspec.json.decode(line)["event"]["delta"]["text"] for line in lines if line.direction == "out"]
    assert len(said) == len(parts)
    assert "".join(said) == "The key is [secret] nowadays"


async def test_an_observer_that_begins_in_the_middle_of_a_secret_sees_no_half_of_it(broker: BrokerServer) -> None:
    def event(kind: str, **fields: Any) -> bytes:
        return msgspec.json.encode({"type": "stream_event", "event": {"type": kind, "index": 0, **fields}})

    parts = ["The key is sk-ant-api03-01234567", "89abcdef", " and more", "another text "]
    deltas = [event("content_block_delta", delta={"type": "text_delta", "text": part}) for part in parts]
    lines = [event("content_block_start"), *deltas[:3], event("content_block_start"), deltas[3]]
    async with serving(FleetWorker(broker.url, command=ECHO)):
        transport = FleetTransport(broker.url, keep=100)
        await transport.connect()
        messages = transport.read_messages()
        for line in lines:  # one by one, so that each is an entry of its own
            await transport.write(line)
            await read(messages, 1)
        await transport.end_input()
        whole = [line async for line in observe(broker.url, session=str(transport.session))]
        third = [line.position for line in whole if line.direction == "out"][2]
        seen = [line async for line in observe(broker.url, session=str(transport.session), since=third - 1)]
        await transport.close()
    rows = [msgspec.json.decode(line)["event"] for line in seen if line.direction == "out"]
    assert "".join(row["delta"]["text"] for row in rows if "delta" in row) == "[secret]another text "


async def test_an_observer_of_lines_that_are_not_kept_is_told(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        messages = transport.read_messages()
        for message in numbered(range(3)):
            await transport.write(msgspec.json.encode(message))
            await read(messages, 1)
        with anyio.fail_after(10):
            while True:
                try:
                    async with observe(broker.url, session=str(transport.session), since=1) as observed:
                        await anext(observed)  # the worker has not been told yet that the client has the lines
                except errors.ReplayGap:
                    break
        with pytest.raises(errors.CLIConnectionError):
            await anext(observe(broker.url, session="none", since=None))
        with pytest.raises(errors.ConfigurationError):
            observe(broker.url, session=None)


async def test_a_broker_out_of_memory_makes_writers_wait_and_loses_nothing(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        messages = transport.read_messages()
        await transport.write('{"n":0}')
        assert await read(messages, 1) == numbered([0])
        await connection.command("config_set", {"maxmemory": 1})
        for message in numbered(range(1, 20)):
            await transport.write(msgspec.json.encode(message))
        with anyio.move_on_after(1) as waited:
            await anext(messages)
        assert waited.cancelled_caught
        await connection.command("config_set", {"maxmemory": 0})
        assert await read(messages, 19) == numbered(range(1, 20))
    await connection.aclose()


async def test_a_worker_leaves_sessions_of_a_newer_format_to_newer_workers(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    async with serving(FleetWorker(broker.url, command=ECHO)):
        transport = FleetTransport(broker.url)
        wanted: dict[str, Any] = {"version": 2}
        await connection.command(
            "hset", connection.keys.meta("new"), {"s": "new", "q": msgspec.json.encode(wanted), "ce": "1.a", "we": "0."}
        )
        await connection.command("zadd", connection.keys.sessions, {"new": 0})
        await transport.connect()
        await transport.close()
        assert await connection.command("hget", connection.keys.meta("new"), "s") == b"new"
    await connection.aclose()


async def test_a_check_of_the_broker_names_what_a_fleet_needs(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    async with FleetRegistry(broker.url) as registry:
        (finding,) = (await registry.check()).findings
        assert "appendonly" in finding
        await connection.command("config_set", {"appendonly": "yes", "appendfsync": "no", "maxmemory-policy": "allkeys-lru"})
        check = await registry.check()
        assert [word in " ".join(check.findings) for word in ("appendfsync", "maxmemory-policy")] == [True, True]
        await connection.command("config_set", {"appendfsync": "everysec", "maxmemory-policy": "noeviction"})
        assert (await registry.check()).findings == ()
    await connection.aclose()
