"""A client that writes junk into the broker harms its own session alone: workers, other clients, observers and the program go on."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.scripts import FleetKeys
from claude_transport.observing import observe

KEYS = FleetKeys("claude-fleet")


async def spoil(connection: Broker, commands: list[tuple[Any, ...]]) -> None:
    """Carry out plain commands, as a hostile client does."""
    for name, *arguments in commands:
        try:
            await connection.command(name, *arguments)
        except errors.ProtocolError:  # no worker has mended the key since it was spoilt before
            await connection.command("delete", arguments[0])
            await connection.command(name, *arguments)


async def converses(transport: FleetTransport, number: int) -> None:
    await transport.write(msgspec.json.encode({"n": number}))
    assert await read(transport.read_messages(), 1) == numbered([number])


def spoilt(key: str, *commands: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [("delete", [key]), *commands]


def spoilt_table(key: str) -> list[tuple[Any, ...]]:
    return spoilt(key, ("set", key, "x"))


JUNK: dict[str, list[tuple[Any, ...]]] = {
    "a name in the queue that is no text": [("zadd", KEYS.sessions, {b"\xff": 0})],
    "a name in the queue that no session has": [("zadd", KEYS.sessions, {b"../\n" + b"x" * 2000: 0})],
    "names before the beginning of time": [("zadd", KEYS.sessions, {b"\xfe": float("-inf"), "early": -5})],
    "a queue of another type": spoilt_table(KEYS.queue),
    "sessions of another type": spoilt_table(KEYS.sessions),
    "a new name that is no text": [("zadd", KEYS.queue, {b"\xff": 0, b"\n": float("inf"), "": -1})],
    "a wake-up on the channel that is no text": [("publish", KEYS.wake("w"), b"\xff \xfe"), ("publish", KEYS.wake("w"), b"x" * 10**6)],
    "a table of workers of another type": spoilt_table(KEYS.nodes),
    "a table of homes of another type": spoilt_table(KEYS.homes),
    "workers that no worker has written": [
        ("hset", KEYS.nodes, {b"\xff": b"\xff", "none": "{", "list": "[]", "much": b"x" * 10_000}),
        ("hset", KEYS.nodes, {"zero": '{"id":"zero","capacity":0,"load":-1,"seen":1e11}'}),
        ("hset", KEYS.nodes, {"less": '{"id":"less","capacity":-5,"load":-9,"seen":1e300}'}),
        ("hset", KEYS.nodes, {"nan": '{"id":"nan","capacity":NaN,"load":0,"seen":NaN}', "bare": '{"id":"bare","seen":1e400}'}),
        ("hset", KEYS.nodes, {"long": msgspec.json.encode({"id": "l" * 3000, "capacity": 9, "seen": 1e11})}),
    ],
}


async def test_junk_in_what_all_share_ends_no_worker_and_no_session(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, name="w")
    async with connected(broker) as connection, serving(worker), FleetTransport(broker.url) as good, FleetRegistry(broker.url) as registry:
        for number, (what, commands) in enumerate(JUNK.items()):
            await spoil(connection, commands)
            await converses(good, number)
            assert {each.name for each in await registry.nodes()} <= {"w"}, what
            assert {each.id for each in await registry.sessions()} <= {good.session}, what
            assert await registry.queue_length() >= 0, what
        async with FleetTransport(broker.url, workspace="project", start_timeout=30) as second:  # the next look finds it
            await converses(second, 1)
        while [each.id for each in await registry.sessions()] != [good.session] or await registry.queue_length():
            await a_moment()  # all that is junk was taken out
        assert await connection.command("hkeys", KEYS.homes) in ([b"project"], {b"project"}, (b"project",))


def ways(session: str) -> dict[str, list[tuple[Any, ...]]]:
    """How a client spoils its own session."""
    meta, incoming, outgoing = KEYS.meta(session), KEYS.incoming(session), KEYS.outgoing(session)
    last = "18446744073709551615-18446744073709551615"
    return {
        "the input is a text": spoilt(incoming, ("set", incoming, "x")),
        "the input is a hash": spoilt(incoming, ("hset", incoming, {"e": "x"})),
        "the input is full": spoilt(incoming, ("xadd", incoming, last, {"e": "x"})),
        "the output is a text and cannot be trimmed": [*spoilt(outgoing, ("set", outgoing, "x")), ("hset", meta, {"co": b"x"})],
        "the hash is a text": spoilt(meta, ("set", meta, "x")),
        "the hash is gone": spoilt(meta),
        "a number is none": [("hset", meta, {"ci": b"\xff"})],
        "a number is too large": [("hset", meta, {"ci": b"1e300", "wi": b"1e300"})],
        "a number is below zero": [("hset", meta, {"wi": b"-7"})],
        "a number of the worker is none": [("hset", meta, {"wo": b"nan", "co": b""})],
    }


async def test_a_client_that_spoils_its_keys_ends_its_own_session_alone_with_a_typed_error(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    ended: dict[str, str | None] = {}
    connection = Broker(BrokerAddress(broker.url))

    async def spoil_one(what: str) -> None:
        victim = FleetTransport(broker.url, close_timeout=0.2)
        await victim.connect()
        await spoil(connection, ways(str(victim.session))[what])
        with contextlib.suppress(errors.TransportClosed):  # the read says why
            await victim.write("{}")
        with anyio.move_on_after(30):
            with pytest.raises(errors.ClaudeTransportError) as caught:
                async for _ in victim.read_messages():
                    pass
            ended[what] = caught.value.code
        await victim.close()

    await connection.start(timeout=10)
    async with serving(FleetWorker(broker.url, command=ECHO, capacity=20)), FleetTransport(broker.url) as good:
        async with anyio.create_task_group() as tasks:
            for what in ways(""):
                tasks.start_soon(spoil_one, what)
            for number in range(20):
                await converses(good, number)
        await converses(good, 20)
        async with FleetTransport(broker.url) as after:
            await converses(after, 0)
    await connection.aclose()
    seen_by_the_worker_first = {"fleet.malformed", "fleet.gone"}
    assert {what: code for what, code in ended.items() if code not in seen_by_the_worker_first} == {}
    assert set(ended) == set(ways(""))
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


async def test_a_client_that_waits_for_a_worker_is_told_what_has_become_of_its_session(broker: BrokerServer) -> None:
    async with connected(broker) as connection, anyio.create_task_group() as tasks:

        async def spoil_what_waits() -> None:
            while not (waiting := await connection.command("zrange", KEYS.queue, 0, -1)):
                await a_moment()
            await spoil(connection, spoilt_table(KEYS.outgoing(waiting[0].decode())))

        tasks.start_soon(spoil_what_waits)
        with anyio.fail_after(30):
            with pytest.raises(errors.CLIConnectionError, match="holds something that no end of a fleet writes") as caught:
                await FleetTransport(broker.url, close_timeout=0.2).connect()
            assert caught.value.code == "fleet.malformed"


@pytest.mark.parametrize("command", [("set", "x"), ("xadd", "*", {"x": "y"})], ids=["no stream", "no entry"])
async def test_a_worker_ends_the_session_of_an_input_that_it_cannot_read_though_its_client_says_nothing(
    broker: BrokerServer, command: tuple[Any, ...]
) -> None:
    """Otherwise it would ask for that input again and again, without a pause."""
    worker = FleetWorker(broker.url, command=ECHO, lease=1.5)
    async with connected(broker) as connection, serving(worker), FleetTransport(broker.url) as good:
        victim = FleetTransport(broker.url, close_timeout=0.2)
        await victim.connect()
        incoming = KEYS.incoming(str(victim.session))
        await spoil(connection, spoilt(incoming, (command[0], incoming, *command[1:])))
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            await anext(victim.read_messages())
        assert caught.value.code == "fleet.malformed"
        await victim.close()
        with anyio.fail_after(20):
            while worker.sessions != (good.session,):
                await a_moment()
        await converses(good, 0)


async def test_the_program_lists_a_fleet_with_junk_and_names_what_is_spoilt(broker: BrokerServer, tmp_path: Path) -> None:
    async with connected(broker) as connection:
        for commands in JUNK.values():
            await spoil(connection, [each for each in commands if each[0] != "set"])
        await spoil(connection, [("zadd", KEYS.sessions, {"typed": 0, "filled": 0, "bytes": 0})])
        await spoil(connection, [("set", KEYS.meta("typed"), "x"), ("hset", KEYS.meta("filled"), {"s": "new", "wu": "nan"})])
        await spoil(connection, [("hset", KEYS.meta("bytes"), {"s": b"\xff"})])
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "claude_transport", *arguments, "--broker", broker.url]
        return subprocess.run(command, capture_output=True, text=True, env=home, timeout=60, check=False)

    listed = await anyio.to_thread.run_sync(run, "sessions", "--json")
    assert (listed.returncode, "bug" in listed.stderr) == (0, False), listed.stderr
    found = msgspec.json.decode(listed.stdout)
    assert {each["id"]: each["state"] for each in found["sessions"]} == dict.fromkeys(("typed", "filled", "bytes"), "malformed")
    assert found["workers"] == []
    shown = await anyio.to_thread.run_sync(run, "sessions")
    assert (shown.returncode, shown.stdout.count("malformed")) == (0, 3), shown.stderr
    checked = await anyio.to_thread.run_sync(run, "doctor")
    assert (checked.returncode, "appendonly is off" in checked.stdout, checked.stderr) == (1, True, "")
    for session in ("typed", "filled", "bytes"):
        for use in (anext(observe(broker.url, session=session, since=None)), FleetTransport(broker.url, session=session).connect()):
            with pytest.raises(errors.ClaudeTransportError) as caught:
                await use
            assert caught.value.code in ("fleet.malformed", "fleet.no_session"), session


async def test_a_lost_wake_up_is_no_error(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with connected(broker) as connection:
        await connection.command("acl_setuser", "mute", "on", ">word", "~*", "+@all", "resetchannels", "&{claude-fleet:*}:*")
        url = broker.url.replace("//", "//mute:word@")
        async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(url, start_timeout=30) as transport:
            await converses(transport, 0)
    (said,) = [each.getMessage() for each in caplog.records if "was not woken" in each.getMessage()]
    assert "NOPERM" in said or "permissions" in said


async def test_a_session_whose_keys_are_spoilt_before_a_worker_has_it_is_removed_and_its_client_is_told(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(broker) as connection, anyio.create_task_group() as tasks:
        keys, told = connection.keys, anyio.Event()

        async def connect() -> None:
            with pytest.raises(errors.CLIConnectionError) as caught:
                await FleetTransport(broker.url).connect()
            assert caught.value.code == "fleet.gone"
            told.set()

        tasks.start_soon(connect)
        with anyio.fail_after(20):
            while not (waiting := await connection.command("zrange", keys.queue, 0, -1)):
                await a_moment()
        session = waiting[0].decode()
        await connection.command("set", keys.setup(session), "junk")
        async with serving(FleetWorker(broker.url, command=ECHO, lease=600)):
            with anyio.fail_after(20):
                await told.wait()
            assert not await connection.command("exists", [keys.meta(session), keys.setup(session)])
        assert f"session {session} could not be served" in caplog.text
