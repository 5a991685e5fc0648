"""The users of a broker that the page names: each can do all that its role needs, and nothing more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from broker_monitor import Monitor, monitored
from broker_server import BrokerServer, broker_server
from programs import ECHO, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.observing import observe
from claude_transport.streams.broker import Broker, BrokerAddress

USERS = (Path(__file__).parents[2] / "docs" / "examples" / "fleet_users.acl").read_text("utf-8")
ROLES = ("worker", "client", "operator")


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
    return {word[1:] for word in line.split() if word.startswith("+")}


async def play_all(server: BrokerServer, monitor: Monitor) -> None:
    """Do everything that the three roles do with a broker."""
    client, operator = url_of(server, "client"), url_of(server, "operator")
    one, two = (FleetWorker(url_of(server, "worker"), command=ECHO, name=name, capacity=2) for name in ("one", "two"))
    async with serving(one, two), FleetRegistry(operator) as registry:
        first = FleetTransport(client, workspace="project", keep=2)
        await first.connect()
        messages = first.read_messages()
        await first.write('{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}')
        await read(messages, 1)
        for message in numbered(range(300)):
            await first.write(msgspec.json.encode(message))
        assert await read(messages, 300) == numbered(range(300))
        await first.detach()
        second = FleetTransport(client, session=first.session)
        await second.connect()
        async with observe(client, session=str(second.session), since=None) as observed:
            await anext(observed)
            assert [each.id for each in await registry.sessions()] == [second.session]
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
            await FleetTransport(client, labels=["none"], start_timeout=0.2).connect()
        await registry.check()
        await stop_queued(client, registry)


async def stop_queued(client: str, registry: FleetRegistry) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FleetTransport(client, labels=["none"]).connect)
        while not (waiting := [each for each in await registry.sessions() if each.state == "waiting"]):
            await anyio.lowlevel.checkpoint()
        assert await registry.queue_length() == 1
        await registry.stop(waiting[0].id)
        tasks.cancel_scope.cancel()


async def test_each_role_needs_exactly_the_commands_that_the_page_gives_it(guarded: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(60):
        async with monitored(guarded, user="root", password="pass-of-root") as monitor:
            await play_all(guarded, monitor)
    unseen = {"hello"}  # greeting the server needs no right
    for role in ROLES:
        administrative = {"config|get"} & granted(role)  # which a monitor is not shown
        assert monitor.commands[f"fleet-{role}"] - unseen == granted(role) - administrative, role
        for secret in (f"fleet-{role}", f"REPLACE-{role.upper()}"):
            assert secret not in caplog.text


REFUSED: list[tuple[str, str, list[Any]]] = [
    ("client", "hset", ["{claude-fleet}:nodes", {"evil": "{}"}]),
    ("client", "hset", ["{claude-fleet}:homes", {"project": "evil"}]),
    ("client", "zrange", ["{claude-fleet}:sessions", 0, -1]),
    ("client", "keys", ["*"]),
    ("client", "config_get", [["*"]]),
    ("worker", "keys", ["*"]),
    ("worker", "config_set", [{"appendonly": "no"}]),
    ("operator", "config_set", [{"appendonly": "no"}]),
    ("operator", "xread", [{"{claude-fleet:x}:in": "0-0"}]),
    *((role, "hset", ["elsewhere", {"x": "y"}]) for role in ROLES),
    *((role, "flushall", []) for role in ROLES),
]


async def test_a_role_may_do_nothing_else_and_its_password_is_in_no_error(guarded: BrokerServer) -> None:
    for role, name, arguments in REFUSED:
        connection = Broker(BrokerAddress(url_of(guarded, role)))
        await connection.start(timeout=10)
        try:
            with pytest.raises(errors.ProtocolError) as caught:
                await connection.command(name, *arguments)
            assert (caught.value.code, "REPLACE" in str(caught.value)) == ("fleet.refused", False), (role, name)
        finally:
            await connection.aclose()
    with pytest.raises(errors.AuthenticationError) as wrong:
        await FleetTransport(url_of(guarded, "client").replace("REPLACE-CLIENT", "not-the-password")).connect()
    assert "not-the-password" not in str(wrong.value)
    assert "fleet-client" not in str(wrong.value)
