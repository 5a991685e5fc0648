"""The users of a broker that the page names: each can do all that its role needs, and nothing more."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from broker_monitor import Monitor, monitored
from broker_server import BrokerServer, broker_server
from polling import a_moment
from programs import ECHO, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.roster import wake_node
from claude_transport.fleet.scripts import CREATE, FleetKeys
from claude_transport.observing import observe

USERS = (Path(__file__).parents[2] / "docs" / "examples" / "fleet_users.acl").read_text("utf-8")
ROLES = ("worker", "client", "alice", "observer", "operator")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerServer]:
    """A server with the users of the page, and one more that may do everything."""
    path = tmp_path / "users.acl"
    path.write_text(f"{USERS}user root on >pass-of-root ~* &* +@all\n")
    with broker_server(tmp_path / "broker", "--appendonly", "yes", "--aclfile", str(path)) as server:
        yield server


def url_of(server: BrokerServer, role: str) -> str:
    return server.url.replace("//", f"//fleet-{role}:REPLACE-{role.upper()}@")


def granted(role: str) -> set[str]:
    """The commands that the page gives to a role."""
    (line,) = (line for line in USERS.splitlines() if line.startswith(f"user fleet-{role} "))
    return set(re.findall(r"[ (]\+([\w|]+)", line))


async def spoil_homes(server: BrokerServer) -> None:
    """Make another type of a table, which the workers mend."""
    connection = Broker(BrokerAddress(server.url.replace("//", "//root:pass-of-root@")))
    await connection.start(timeout=10)
    await connection.command("set", connection.keys.homes, "junk")
    await connection.aclose()


async def play_all(server: BrokerServer, monitor: Monitor) -> None:
    """Do everything that the three roles do with a broker."""
    client, operator = url_of(server, "client"), url_of(server, "operator")
    one, two = (FleetWorker(url_of(server, "worker"), command=ECHO, name=name, capacity=2) for name in ("one", "two"))
    async with serving(one, two), FleetRegistry(operator) as registry:
        await spoil_homes(server)
        first = FleetTransport(client, workspace="project", keep=2)
        await first.connect()
        messages = first.read_messages()
        await first.write('{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}')
        await read(messages, 1)
        for message in numbered(range(300)):
            await first.write(msgspec.json.encode(message))
        assert await read(messages, 300) == numbered(range(300))
        said = 300
        while any("xtrim" in granted(role) - monitor.commands[f"fleet-{role}"] for role in ("client", "worker")):
            for message in numbered(range(said, said + 50)):  # only an end that has taken some of many entries trims
                await first.write(msgspec.json.encode(message))
            assert await read(messages, 50) == numbered(range(said, said + 50))
            said += 50
        await wake_the_worse_one(server, monitor, "one" if one.sessions else "two")
        while (await registry.sessions())[-1].state == "waiting":
            await a_moment()
        await registry.stop("beside")
        await first.detach()
        second = FleetTransport(client, session=first.session, since=first.bookmark)
        await second.connect()
        async with observe(url_of(server, "observer"), session=str(second.session), since=None) as observed:
            await anext(observed)
            while [each.id for each in await registry.sessions()] != [second.session]:
                await a_moment()
        messages = second.read_messages()
        await (one if one.sessions else two).drain()
        assert (await read(messages, 1))[0]["subtype"] == "fleet_takeover"
        await second.end_input()
        assert len([each async for each in messages]) <= 1  # the request, which was said again to the new process
        await second.close()
        stopped = FleetTransport(client)
        await stopped.connect()
        messages = stopped.read_messages()
        await stopped.write("{}")
        assert await read(messages, 1) == [{}]
        while "unlink" not in monitor.commands["fleet-client"]:  # the client gives away what it has read in its own time
            await anyio.lowlevel.checkpoint()
        await registry.stop(str(stopped.session))
        with pytest.raises(errors.ConnectionLost), anyio.fail_after(20):
            await anext(messages)
        await stopped.close()
        with pytest.raises(errors.ConnectTimeout):
            await FleetTransport(client, labels=["none"], start_timeout=2.0).connect()
        await registry.check()
        await stop_queued(client, registry)


async def wake_the_worse_one(server: BrokerServer, monitor: Monitor, loaded: str) -> None:
    """Begin a session and wake a worker that is not the best one for it. It wakes the better one."""
    connection = Broker(BrokerAddress(url_of(server, "client")))
    await connection.start(timeout=10)
    await connection.script(CREATE, [connection.keys.meta("beside")], ["1.c", 60_000, 60_000, "v", 1, "q", b"{}", "cw", 1000])
    await connection.command("zadd", connection.keys.queue, {"beside": 0})
    while "publish" not in monitor.commands["fleet-worker"]:
        await wake_node(connection, loaded, about=["beside"])
    await connection.aclose()


async def stop_queued(client: str, registry: FleetRegistry) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FleetTransport(client, labels=["none"]).connect)
        while not (waiting := [each for each in await registry.sessions() if each.state == "waiting"]):
            await a_moment()
        assert await registry.queue_length() in (1, 2)  # the session before, which its client has given up, may not be forgotten yet
        await registry.stop(waiting[0].id)
        tasks.cancel_scope.cancel()


async def test_each_role_needs_exactly_the_commands_that_the_page_gives_it(guarded: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(60):
        async with monitored(guarded, user="root", password="pass-of-root") as monitor:
            await play_all(guarded, monitor)
    unseen = {"hello"}  # greeting the server needs no right
    line = {role: next(each for each in USERS.splitlines() if f"fleet-{role} " in each).replace(role.upper(), "X") for role in ROLES}
    narrowed = line["client"].replace("fleet-client", "fleet-alice").replace("{claude-fleet:*}", "{claude-fleet:alice.*}")
    assert line["alice"] == narrowed  # a client with less keys, and the same commands
    for role in ROLES:
        if role == "alice":
            continue
        administrative = {"config|get"} & granted(role)  # which a monitor is not shown
        assert monitor.commands[f"fleet-{role}"] - unseen == granted(role) - administrative, role
        for secret in (f"fleet-{role}", f"REPLACE-{role.upper()}"):
            assert secret not in caplog.text


OF_ANY, OF_BOB = FleetKeys("claude-fleet").incoming("0123456789abcdef"), FleetKeys("claude-fleet").incoming("bob.1")

REFUSED: list[tuple[str, str, list[Any]]] = [
    *(
        ("client", "hset", [f"{{claude-fleet}}:{table}", {"evil": "{}"}])
        for table in ("nodes", "homes", "queue", "sessions", "loads", "loads:gpu")
    ),
    *(("client", "delete", [[f"{{claude-fleet}}:{table}"]]) for table in ("nodes", "homes", "queue", "sessions", "node:w")),
    *(("client", "zrange", [f"{{claude-fleet}}:{table}", 0, -1]) for table in ("queue", "sessions")),
    ("client", "zadd", ["{claude-fleet}:sessions", {"evil": 0}]),
    ("client", "zrem", ["{claude-fleet}:sessions", ["evil"]]),
    ("client", "xadd", ["{claude-fleet}:node:w", "*", {"w": "evil"}]),
    ("client", "publish", ["{other-fleet}:wake:w", ""]),
    ("client", "hset", [OF_ANY, {"x": "y"}]),
    ("client", "set", [OF_ANY, "x"]),
    ("client", "xread", ["STREAMS", OF_ANY, "0-0"]),
    ("client", "xadd", [OF_ANY.replace(":in", ":out"), "*", {"x": "y"}]),
    ("client", "xadd", [OF_ANY.replace(":in", ":meta"), "*", {"x": "y"}]),
    ("client", "set", [OF_ANY.replace(":in", ":meta"), "x"]),
    ("client", "hset", [OF_ANY.replace(":in", ":setup"), {"x": "y"}]),
    ("client", "hset", [OF_ANY.replace(":in", ":other"), {"x": "y"}]),
    ("client", "eval", ["return redis.call('SET', KEYS[1], 'x')", 1, OF_ANY]),
    ("client", "eval", ["return redis.call('ZADD', KEYS[1], 0, 'x')", 1, "{claude-fleet}:queue"]),
    ("client", "keys", ["*"]),
    ("client", "config_get", [["*"]]),
    ("alice", "xadd", [OF_BOB, "*", {"x": "y"}]),
    ("alice", "hset", [OF_BOB.replace(":in", ":meta"), {"x": "y"}]),
    ("alice", "hget", [OF_BOB.replace(":in", ":meta"), "x"]),
    ("alice", "xread", ["STREAMS", OF_BOB.replace(":in", ":out"), "0-0"]),
    ("alice", "eval", ["return 1", 1, OF_BOB]),
    ("alice", "publish", [OF_BOB, "1 1.a d:3"]),
    ("alice", "publish", [OF_BOB.replace(":in", ":out"), "1 1.a d:3"]),
    ("observer", "publish", [OF_ANY.replace(":in", ":out"), ""]),
    ("observer", "hset", [OF_ANY.replace(":in", ":meta"), {"x": "y"}]),
    ("observer", "xread", ["STREAMS", OF_ANY, "0-0"]),
    ("observer", "publish", ["{claude-fleet}:wake:w", ""]),
    ("observer", "eval", ["return 1", 1, OF_ANY]),
    ("worker", "keys", ["*"]),
    ("worker", "config_set", [{"appendonly": "no"}]),
    ("operator", "config_set", [{"appendonly": "no"}]),
    ("operator", "xread", ["STREAMS", "{claude-fleet:x}:in", "0-0"]),
    *((role, "hset", ["elsewhere", {"x": "y"}]) for role in ROLES),
    *((role, "flushall", []) for role in ROLES),
]


async def test_a_role_may_do_nothing_else_and_its_password_is_in_no_error(guarded: BrokerServer) -> None:
    connections = {role: Broker(BrokerAddress(url_of(guarded, role))) for role in ROLES}
    for connection in connections.values():
        await connection.start(timeout=10)
    for role, name, arguments in REFUSED:
        with pytest.raises(errors.ProtocolError) as caught:
            await connections[role].command(name, *arguments)
        assert (caught.value.code, "REPLACE" in str(caught.value)) == ("fleet.refused", False), (role, name, arguments)
    for connection in connections.values():
        await connection.aclose()
    with pytest.raises(errors.AuthenticationError) as wrong:
        await FleetTransport(url_of(guarded, "client").replace("REPLACE-CLIENT", "not-the-password")).connect()
    assert "not-the-password" not in str(wrong.value)
    assert "fleet-client" not in str(wrong.value)


async def test_a_user_that_may_not_ping_is_told_so_and_not_that_the_password_is_wrong(guarded: BrokerServer) -> None:
    root = Broker(BrokerAddress(guarded.url.replace("//", "//root:pass-of-root@")))
    await root.start(timeout=10)
    await root.command("acl_setuser", "fleet-client", "-ping")
    with pytest.raises(errors.CLIConnectionError) as caught:
        await FleetTransport(url_of(guarded, "client")).connect()
    text = f"{guarded.url}: the user of the URL may not call ping: give it the rights of a fleet's users (+ping)"
    assert (type(caught.value), caught.value.code, str(caught.value)) == (errors.CLIConnectionError, "fleet.refused", text)
    assert not caught.value.retryable
    await root.aclose()


async def test_a_client_with_a_user_of_its_own_reaches_its_own_sessions_alone(guarded: BrokerServer) -> None:
    alice, client = url_of(guarded, "alice"), url_of(guarded, "client")
    async with serving(FleetWorker(url_of(guarded, "worker"), command=ECHO)), FleetTransport(client) as other:
        async with FleetTransport(f"{alice}?owner=alice") as transport:
            assert str(transport.session).startswith("alice.")
            await transport.write('{"n":0}')
            assert await read(transport.read_messages(), 1) == numbered([0])
        for url, session in ((alice, None), (alice, other.session)):
            with pytest.raises(errors.CLIConnectionError) as caught:
                await FleetTransport(url, session=session).connect()
            assert (caught.value.code, "NOPERM" in str(caught.value) or "permissions" in str(caught.value)) == ("fleet.refused", True)
        await other.write('{"n":1}')
        assert await read(other.read_messages(), 1) == numbered([1])
