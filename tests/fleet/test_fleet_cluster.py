"""A fleet on a real cluster of six servers: sessions on each primary, slots that move, primaries that die."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import trustme
from polling import a_moment
from programs import ECHO, numbered, read, serving
from redis_cluster import ClusterNode, RedisCluster, redis_cluster

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.scripts import FleetKeys
from claude_transport.observing import observe
from claude_transport.redis.resp import RespError

KEYS = FleetKeys("claude-fleet")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with redis_cluster(tmp_path / "cluster") as running:
        yield running


async def in_thread(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await anyio.to_thread.run_sync(functools.partial(call, *args, **options))


async def talk(transport: FleetTransport, *, upto: int, disturb: Callable[[], Awaitable[object]]) -> list[dict[str, Any]]:
    """Write numbers as fast as it goes, and read them. `disturb` runs beside it from a third of them on."""
    begun = anyio.Event()

    async def write() -> None:
        for number in range(upto):
            await transport.write(msgspec.json.encode({"n": number}))
            if number == upto // 3:
                begun.set()
            if number >= upto // 3 and not done.is_set():
                await a_moment()  # the disturbance happens in the middle

    async def disturb_then() -> None:
        await begun.wait()
        await disturb()
        done.set()

    done = anyio.Event()
    with anyio.fail_after(90):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            tasks.start_soon(disturb_then)
            messages = transport.read_messages()
            return [await anext(messages) for _ in range(upto)]
    raise AssertionError("not reached")


async def session_on(cluster: RedisCluster, primary: ClusterNode) -> FleetTransport:
    """A connected session whose keys are on one primary."""
    for _ in range(60):
        transport = FleetTransport(cluster.url, close_timeout=5)
        await transport.connect()
        if await in_thread(cluster.primary_of, KEYS.meta(str(transport.session))) is primary:
            return transport
        await transport.close()
    raise AssertionError("all sessions are elsewhere")


async def test_sessions_on_each_primary_of_a_cluster_work_as_on_one_server(cluster: RedisCluster, tmp_path: Path) -> None:
    async with serving(FleetWorker(cluster.url, command=ECHO, name="first", capacity=20)), FleetRegistry(cluster.url) as registry:
        used: set[int] = set()
        transports: list[FleetTransport] = []
        while len(used) < 3:
            transports.append(FleetTransport(cluster.url, keep=100, workspace="project"))
            await transports[-1].connect()
            used.add((await in_thread(cluster.primary_of, KEYS.meta(str(transports[-1].session)))).port)
            assert len(transports) < 20
        for transport in transports:
            for number in range(50):
                await transport.write(msgspec.json.encode({"n": number}))
            assert await read(transport.read_messages(), 50) == numbered(range(50))
        told = await registry.sessions()
        assert {each.id for each in told} == {transport.session for transport in transports}
        assert {(each.state, each.worker) for each in told} == {("running", "first")}
        assert [(node.name, node.load) for node in await registry.nodes()] == [("first", len(transports))]
        lines = observe(cluster.url, session=str(transports[0].session), since=None)
        shown = [await anext(lines) for _ in range(51)]
        assert [bytes(line) for line in shown if line.direction == "out"] == [msgspec.json.encode(each) for each in numbered(range(50))]
        await lines.aclose()
        await registry.stop(str(transports[0].session))
        with pytest.raises((StopAsyncIteration, errors.ConnectionLost)), anyio.fail_after(20):
            await anext(transports[0].read_messages())
        for transport in transports:
            await transport.close()
        with anyio.fail_after(20):
            while await registry.sessions():
                await a_moment()


async def test_what_all_sessions_share_is_on_each_primary(cluster: RedisCluster) -> None:
    connection = Broker(BrokerAddress(cluster.url))
    await connection.start(timeout=10)
    assert (connection.mode, connection.is_connected) == ("cluster", True)
    assert len({(await in_thread(cluster.primary_of, part.queue)).port for part in connection.keys.parts}) == 3
    await connection.aclose()


async def test_a_slot_that_moves_during_a_conversation_costs_no_line(cluster: RedisCluster) -> None:
    source, target = cluster.primaries[1], cluster.primaries[2]
    async with serving(FleetWorker(cluster.url, command=ECHO)):
        transport = await session_on(cluster, source)
        key = KEYS.meta(str(transport.session))

        async def there_and_back() -> None:
            for to in (target, source, target):
                await in_thread(cluster.move_slot, key, to=to)

        assert await talk(transport, upto=3000, disturb=there_and_back) == numbered(range(3000))
        assert await in_thread(cluster.primary_of, key) is target
        # what is told reaches its reader without waiting for a renewal
        for number in range(3):
            await transport.write(msgspec.json.encode({"n": number}))
            with anyio.fail_after(4):
                assert await anext(transport.read_messages()) == {"n": number}
        await transport.close()


async def test_the_tables_of_a_fleet_move_while_sessions_begin(cluster: RedisCluster) -> None:
    connection = Broker(BrokerAddress(cluster.url))
    await connection.start(timeout=10)
    async with serving(FleetWorker(cluster.url, command=ECHO, capacity=4)), anyio.create_task_group() as tasks:

        async def move_all() -> None:
            for part in connection.keys.parts:
                there = await in_thread(cluster.primary_of, part.queue)
                to = cluster.primaries[(cluster.primaries.index(there) + 1) % 3]
                await in_thread(cluster.move_slot, part.queue, to=to)

        tasks.start_soon(move_all)
        for number in range(20):
            async with FleetTransport(cluster.url, start_timeout=30) as transport:
                await transport.write(msgspec.json.encode({"n": number}))
                assert await read(transport.read_messages(), 1) == numbered([number])
    await connection.aclose()


@pytest.mark.parametrize("how", ["asked", "killed"])
async def test_a_replica_of_a_cluster_that_takes_over_during_a_conversation_costs_no_line(cluster: RedisCluster, how: str) -> None:
    primary, replica = cluster.primaries[1], cluster.replicas[1]
    async with serving(FleetWorker(cluster.url, command=ECHO)):
        transport = await session_on(cluster, primary)

        async def take_over() -> None:
            if how == "asked":
                await in_thread(replica.call, "CLUSTER", "FAILOVER")
            else:
                await in_thread(primary.kill)
            await in_thread(replica.until, "role:master", "INFO", "replication")

        assert await talk(transport, upto=2000, disturb=take_over) == numbered(range(2000))
        assert await in_thread(cluster.primary_of, KEYS.meta(str(transport.session))) is replica
        await transport.close()


async def test_sessions_begin_and_end_while_one_primary_is_gone_for_good(cluster: RedisCluster) -> None:
    """Also when it is the one in the address: a process that knows the cluster needs that address no more."""
    async with serving(FleetWorker(cluster.url, command=ECHO)):
        kept = FleetTransport(cluster.url)
        await kept.connect()
        await in_thread(cluster.primaries[0].kill)
        await in_thread(cluster.replicas[0].until, "role:master", "INFO", "replication")
        for number in range(6):
            async with FleetTransport(cluster.url, start_timeout=30) as transport:
                await transport.write(msgspec.json.encode({"n": number}))
                assert await read(transport.read_messages(), 1) == numbered([number])
        await kept.write('{"n":7}')
        assert await read(kept.read_messages(), 1) == numbered([7])
        await kept.close()


TURN = """
import sys, json
for line in sys.stdin:
    print(json.dumps({"type": "result", "said": json.loads(line)["n"]}), flush=True)
"""


async def test_a_cluster_that_has_lost_slots_is_a_lost_broker_and_serves_again_when_they_are_back(cluster: RedisCluster) -> None:
    """Without full coverage, each primary answers `CLUSTERDOWN`. Writers wait, and nothing is lost."""
    primary, replica = cluster.primaries[1], cluster.replicas[1]
    async with serving(FleetWorker(cluster.url, command=ECHO)):
        transport = await session_on(cluster, cluster.primaries[0])

        async def lose_and_find() -> None:
            await in_thread(replica.kill)
            await in_thread(primary.kill)
            await in_thread(cluster.primaries[0].until, "cluster_state:fail", "CLUSTER", "INFO")
            await in_thread(primary.start)
            await in_thread(cluster.primaries[0].until, "cluster_state:ok", "CLUSTER", "INFO")

        assert await talk(transport, upto=1000, disturb=lose_and_find) == numbered(range(1000))
        await transport.close()


async def test_workers_of_a_cluster_take_over_from_one_that_died(cluster: RedisCluster) -> None:
    command = [sys.executable, "-I", "-S", "-c", TURN]
    async with anyio.create_task_group() as tasks:
        first = FleetWorker(cluster.url, command=command, name="first", lease=1.5)
        scope = anyio.CancelScope()

        async def serve_first() -> None:
            with scope:
                await first.serve()

        tasks.start_soon(serve_first)
        await first.started.wait()
        async with FleetTransport(cluster.url) as transport:
            await transport.write(msgspec.json.encode({"type": "user", "n": 1}))
            assert await read(transport.read_messages(), 1) == [{"type": "result", "said": 1}]
            async with serving(FleetWorker(cluster.url, command=command, name="second", lease=1.5)):
                scope.cancel()
                notice = await read(transport.read_messages(), 1)
                assert (notice[0]["subtype"], notice[0]["uncertain"]) == ("fleet_takeover", 0)
                await transport.write(msgspec.json.encode({"type": "user", "n": 2}))
                assert await read(transport.read_messages(), 1) == [{"type": "result", "said": 2}]


async def test_a_client_comes_back_to_its_session_of_a_cluster(cluster: RedisCluster) -> None:
    async with serving(FleetWorker(cluster.url, command=ECHO)):
        first = FleetTransport(cluster.url)
        await first.connect()
        await first.write('{"n":0}')
        assert await read(first.read_messages(), 1) == numbered([0])
        await first.detach()
        async with FleetTransport(cluster.url, session=first.session) as second:
            await second.write('{"n":1}')
            assert await read(second.read_messages(), 1) == numbered([1])
        with pytest.raises(errors.UsageError) as caught:
            await FleetTransport(cluster.url, session=uuid.uuid4().hex[:16]).connect()
        assert caught.value.code == "fleet.no_session"


@pytest.mark.parametrize("is_new", [False, True], ids=["to a primary", "to a new server"])
async def test_a_slot_that_is_half_way_answers_for_what_is_there_and_lets_the_rest_wait(cluster: RedisCluster, *, is_new: bool) -> None:
    """A call for one key that has gone is sent on with `ASK`. For several keys, one of which is nowhere, both servers say `TRYAGAIN`."""
    source, target = cluster.primaries[0], await in_thread(cluster.add) if is_new else cluster.primaries[1]
    connection = Broker(BrokerAddress(cluster.url))
    await connection.start(timeout=10)
    async with serving(FleetWorker(cluster.url, command=ECHO)):
        transport = await session_on(cluster, source)
        key = KEYS.meta(str(transport.session))

        async def move_slowly() -> None:
            await in_thread(cluster.move_keys, key, to=target)
            for _ in range(20):
                assert await connection.command("hget", key, "s") == b"live"
                assert await connection.script("return {redis.call('HGET', KEYS[1], 's')}", [key], []) == [b"live"]
                with pytest.raises(RespError, match="ASK"):
                    await in_thread(source.call, "HGET", key, "s")
                await a_moment()
            await in_thread(cluster.end_move, key, source, to=target)

        assert await talk(transport, upto=600, disturb=move_slowly) == numbered(range(600))
        await transport.close()
    await connection.aclose()


ROLES = ("worker", "client", "alice", "observer", "operator")
USERS = (Path(__file__).parents[2] / "docs" / "examples" / "fleet_cluster_users.acl").read_text()


def url_of(cluster: RedisCluster, role: str) -> str:
    return cluster.url.replace("//", f"//fleet-{role}:REPLACE-{role.upper()}@")


async def test_the_users_of_a_cluster_have_the_rights_that_those_of_one_server_have() -> None:
    of_one = (Path(__file__).parents[2] / "docs" / "examples" / "fleet_users.acl").read_text()
    wanted = re.sub(r"\+(publish|subscribe|unsubscribe)\b", r"+s\1", of_one.replace("{claude-fleet}", "{claude-fleet#*}"))
    assert wanted == USERS.replace("+cluster|slots +asking ", "")
    assert USERS.count("+cluster|slots +asking ") == len(ROLES)


async def test_each_role_does_its_work_on_a_cluster_with_the_users_of_the_page(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        for line in USERS.splitlines()[1:]:
            await in_thread(node.call, "ACL", "SETUSER", *_rules_of(line))
    client, alice, operator = (url_of(cluster, role) for role in ("client", "alice", "operator"))
    worker = FleetWorker(url_of(cluster, "worker"), command=ECHO)
    transport, other = FleetTransport(client, keep=10), FleetTransport(f"{alice}?owner=alice")
    async with serving(worker), FleetRegistry(operator) as registry, transport, other:
        for each in (transport, other):
            await each.write('{"n":0}')
            assert await read(each.read_messages(), 1) == numbered([0])
        key = KEYS.meta(str(transport.session))
        source = await in_thread(cluster.primary_of, key)
        to = next(each for each in cluster.primaries if each is not source)
        await in_thread(cluster.move_keys, key, to=to)
        for role in ROLES[:4]:
            await asked_with(url_of(cluster, role), key, needs_ask=role != "alice")
        await in_thread(cluster.end_move, key, source, to=to)
        await transport.write('{"n":1}')
        assert await read(transport.read_messages(), 1) == numbered([1])
        observed = observe(url_of(cluster, "observer"), session=str(transport.session), since=None)
        assert b'{"n":0}' in [bytes(await anext(observed)) for _ in range(2)]
        await observed.aclose()
        with pytest.raises(errors.ClaudeTransportError):
            await FleetTransport(alice, session=transport.session).connect()
        assert {each.id for each in await registry.sessions()} == {transport.session, other.session}
        await registry.stop(str(other.session))
        check = await registry.check()
        assert (check.mode, len(check.servers), check.role, check.findings) == ("cluster", 3, "master", ())
        await transport.write('{"n":2}')
        assert await read(transport.read_messages(), 1) == numbered([2])


async def test_a_server_that_does_not_know_the_user_is_named_at_once(cluster: RedisCluster) -> None:
    without = cluster.primaries[2]
    for node in cluster.nodes:
        for line in USERS.splitlines()[1:]:
            if node is not without:
                await in_thread(node.call, "ACL", "SETUSER", *_rules_of(line))
    with pytest.raises(errors.AuthenticationError) as caught, anyio.fail_after(20):
        await FleetTransport(url_of(cluster, "client"), start_timeout=3600).connect()
    assert str(caught.value) == f"redis://127.0.0.1:{without.port}/0 does not accept the user or the password"
    await in_thread(without.call, "ACL", "SETUSER", "fleet-client", "on", ">REPLACE-CLIENT", "+hello", "+@connection", "-ping")
    with pytest.raises(errors.CLIConnectionError, match="may not call ping") as refused, anyio.fail_after(20):
        await FleetTransport(url_of(cluster, "client"), start_timeout=3600).connect()
    assert (refused.value.code, str(without.port) in str(refused.value)) == ("fleet.refused", True)


async def asked_with(url: str, key: str, *, needs_ask: bool) -> None:
    """Read a field of a session whose slot is half way, as far as the user in the URL may."""
    connection = Broker(BrokerAddress(url))
    await connection.start(timeout=10)
    try:
        if needs_ask:
            assert await connection.command("hget", key, "s") == b"live"
        else:
            with pytest.raises(errors.ProtocolError) as caught:
                await connection.command("hget", key, "s")
            assert caught.value.code == "fleet.refused"
    finally:
        await connection.aclose()


def _rules_of(line: str) -> list[str]:
    """A line of a file of users, as the words of `ACL SETUSER`: rights in parentheses are one word."""
    return re.findall(r"\([^)]*\)|\S+", line.removeprefix("user "))


async def test_a_cluster_behind_tls_is_verified_at_each_server(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key"))
    files = {"cert-file": "cert", "key-file": "key", "ca-cert-file": "ca"}
    words = [word for name, file in files.items() for word in (f"--tls-{name}", str(tmp_path / file))]
    words += ["--tls-auth-clients", "no", "--tls-cluster", "yes", "--tls-replication", "yes"]
    with redis_cluster(tmp_path / "cluster", *words, tls=True) as cluster:
        url = f"rediss://127.0.0.1:{cluster.primaries[0].tls_port}/0"
        with pytest.raises(errors.CLIConnectionError) as caught:
            await FleetTransport(url).connect()
        assert caught.value.code == "fleet.broker_unreachable"
        trusting = f"{url}?ssl_ca_certs={tmp_path / 'ca'}"
        async with FleetRegistry(trusting) as registry:
            check = await registry.check()
        assert sorted(check.servers) == sorted(f"rediss://127.0.0.1:{node.tls_port}/0" for node in cluster.primaries)
        async with serving(FleetWorker(trusting, command=ECHO)):
            for number in range(6):
                async with FleetTransport(trusting) as transport:
                    await transport.write(msgspec.json.encode({"n": number}))
                    assert await read(transport.read_messages(), 1) == numbered([number])


async def test_doctor_says_that_a_broker_is_a_cluster_and_what_is_wrong_at_which_server(cluster: RedisCluster, tmp_path: Path) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        command = [sys.executable, "-m", "claude_transport", "doctor", "--broker", cluster.url]
        return subprocess.run(command, capture_output=True, text=True, env=home, timeout=60, check=False)

    done = await in_thread(run)
    assert (done.returncode, "Mode        cluster of 3 primaries\n" in done.stdout) == (0, True), done
    await in_thread(cluster.primaries[1].call, "CONFIG", "SET", "appendonly", "no")
    done = await in_thread(run)
    assert done.returncode == 1
    assert f"Fault       redis://127.0.0.1:{cluster.primaries[1].port}/0: appendonly is off" in done.stdout
    assert done.stdout.count("Fault") == 1
