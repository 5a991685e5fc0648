"""Who may begin what on a fleet, what the broker never knows, and what hostile entries do."""

from __future__ import annotations

import ssl
import sys
import uuid
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import trustme
from broker_server import BrokerServer, broker_server
from polling import a_moment
from programs import ECHO, numbered, read, serving
from redis_server import free_port

import claude_transport as ct
from claude_transport import errors
from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.roster import wake_node
from claude_transport.fleet.scripts import CREATE
from claude_transport.gateway import GatewayLimits
from claude_transport.launch.options import ClaudeOptions
from claude_transport.sessions import InMemorySessionStore
from claude_transport.sessions.places import project_key_for_directory
from claude_transport.transport import Client
from claude_transport.transports.subprocess import SubprocessTransport

TOKENS = {"alice": "alice-has-a-long-token", "bob": "bob-has-a-long-token-too"}

TELL = [sys.executable, "-I", "-S", "-c", "import os,json; print(json.dumps({'key': os.environ.get('API_KEY')}), flush=True); input()"]


async def everything(broker: BrokerServer) -> bytes:
    """All that the broker holds, as one piece."""
    import coredis

    async with coredis.Redis.from_url(broker.url) as client:
        pieces = []
        async for key in client.scan_iter():
            pieces += [key, await client.dump(key)]
            kind = await client.type(key)
            if kind in (b"hash", "hash"):
                pieces += [part for pair in (await client.hgetall(key)).items() for part in pair]
            elif kind in (b"stream", "stream"):
                pieces += [value for entry in await client.xrange(key) for value in entry.field_values.values()]
    return b"\n".join(piece if isinstance(piece, bytes) else str(piece).encode() for piece in pieces)


async def test_a_session_needs_a_token_of_the_workers_which_the_broker_never_sees(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO, tokens=TOKENS)):
        for token in (None, "a-token-that-is-not-accepted"):
            with pytest.raises(errors.AuthenticationError):
                await FleetTransport(broker.url, token=token).connect()
        async with FleetTransport(broker.url, token=TOKENS["alice"]) as transport:
            await transport.write("{}")
            assert await read(transport.read_messages(), 1) == [{}]
            held = await everything(broker)
            assert b"has-a-long-token" not in held
            for token in (None, TOKENS["bob"]):
                with pytest.raises(errors.AuthenticationError):
                    await FleetTransport(broker.url, session=transport.session, token=token).connect()
            await transport.write("{}")
            assert await read(transport.read_messages(), 1) == [{}]


async def test_what_a_client_may_choose_is_bounded_by_the_worker(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, options=ct.ClaudeOptions(permission_mode="plan"), choices=["permission_mode", "model"])
    async with serving(worker):
        for options in ({"permission_mode": "bypassPermissions"}, {"cwd": "/"}, {"max_turns": "many"}):
            with pytest.raises(errors.ConfigurationError):
                await FleetTransport(broker.url, options=options).connect()
        async with FleetTransport(broker.url, options={"model": "haiku"}) as transport:
            assert transport.is_ready()


async def test_a_secret_is_refused_here_and_put_in_there(broker: BrokerServer) -> None:
    for options in ({"env": {"API_KEY": "sk-123"}}, {"mcp_servers": {"s": {"headers": {"Authorization": "Bearer abcdefghijkl"}}}}):
        with pytest.raises(errors.ConfigurationError) as caught:
            FleetTransport(broker.url, options=options)
        assert "sk-123" not in str(caught.value)
    worker = FleetWorker(broker.url, launch=_tell_the_key, choices=["env"], secrets={"KEY-OF-A": "sk-hidden"})
    async with serving(worker):
        async with FleetTransport(broker.url, options={"env": {"API_KEY": "secret:KEY-OF-A"}}) as transport:
            assert await read(transport.read_messages(), 1) == [{"key": "sk-hidden"}]
            held = await everything(broker)
            assert b"secret:KEY-OF-A" in held
            assert b'"env"' in held
        with pytest.raises(errors.ConfigurationError, match="no secret other"):
            await FleetTransport(broker.url, options={"env": {"API_KEY": "secret:other"}}).connect()


def _tell_the_key(options: ct.ClaudeOptions) -> ct.Transport:
    return ct.SubprocessTransport(ct.ClaudeOptions(env=options.env), command=TELL)


async def test_the_limits_of_a_token_hold_on_a_worker(broker: BrokerServer) -> None:
    limits = GatewayLimits(sessions=1, line_bytes=1000, session_bytes=20_000)
    async with serving(FleetWorker(broker.url, command=ECHO, limits=limits)):
        async with FleetTransport(broker.url) as first:
            with pytest.raises(errors.CLIConnectionError) as caught:
                await FleetTransport(broker.url).connect()
            assert (caught.value.code, caught.value.retryable) == ("fleet.limit", True)
            await first.write(msgspec.json.encode({"long": "x" * 2000}))
            with pytest.raises(errors.ConnectionLost) as lost, anyio.fail_after(20):
                await anext(first.read_messages())
            assert lost.value.code == "fleet.line_too_long"
        async with FleetTransport(broker.url) as second:
            with pytest.raises(errors.ConnectionLost) as lost, anyio.fail_after(20):
                messages = second.read_messages()
                while True:
                    await second.write(msgspec.json.encode({"text": "x" * 900}))
                    await anext(messages)
            assert lost.value.code == "fleet.session_bytes"


async def put(broker: BrokerServer, key: str, number: str, fields: dict[Any, Any]) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    try:
        await connection.command("xadd", key, number, fields)
        await connection.command("publish", key, "")
    finally:
        await connection.aclose()


async def everything_told(broker: BrokerServer, session: str) -> None:
    """Wait until the client has told that it has read all: the broker forgets the whole stream then, also what others have put there."""
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    try:
        with anyio.fail_after(20):
            while len(set(await connection.command("hmget", connection.keys.meta(session), ["wo", "co"]))) != 1:
                await a_moment()
    finally:
        await connection.aclose()


HOSTILE: list[tuple[str, dict[Any, Any]]] = [
    ("1-0", {"x": "y"}),
    ("1-7", {"e": "1.a", "k": "d", "d": "{}"}),
    ("9-0", {"e": "1.a", "k": "d", "d": "{}"}),
    ("1-0", {"e": "0.a", "k": "d", "d": "{}"}),
    ("1-0", {"e": "1.a", "k": "d", "d": b"x" * 300_000}),
    ("1-0", {"e": b"\xff", "k": "d", "d": "{}"}),
]


@pytest.mark.parametrize(("number", "fields"), HOSTILE)
async def test_a_hostile_entry_of_a_client_ends_its_session_and_no_other_one(
    broker: BrokerServer, number: str, fields: dict[Any, Any]
) -> None:
    worker = FleetWorker(broker.url, command=ECHO)
    async with serving(worker), FleetTransport(broker.url) as good, FleetTransport(broker.url) as bad:
        await put(broker, f"{{claude-fleet:{bad.session}}}:in", number, fields)
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            await anext(bad.read_messages())
        assert caught.value.code == "fleet.malformed"
        await good.write('{"n":0}')
        assert await read(good.read_messages(), 1) == numbered([0])


async def test_a_line_that_never_ends_is_held_up_to_the_limit_of_a_line(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO, limits=GatewayLimits(line_bytes=1000))
    async with serving(worker), FleetTransport(broker.url) as transport:
        for number in (1, 2):
            part = {"e": "1.a", "k": "p", "d": b"x" * 600}
            await put(broker, f"{{claude-fleet:{transport.session}}}:in", f"{number}-0", part)
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            await anext(transport.read_messages())
        assert caught.value.code == "fleet.line_too_long"


async def test_what_waits_for_a_process_that_reads_nothing_is_bounded(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=[sys.executable, "-c", "import time; time.sleep(1000)"], limits=GatewayLimits(line_bytes=1000))
    async with serving(worker), FleetTransport(broker.url) as transport:
        with anyio.fail_after(60):
            with pytest.raises(errors.TransportClosed, match="has not waited"):
                while True:
                    await transport.write(msgspec.json.encode({"text": "x" * 900}))
            with pytest.raises(errors.ConnectionLost) as caught:
                await anext(transport.read_messages())
        assert caught.value.code == "fleet.line_too_long"


async def test_a_hostile_entry_for_a_client_is_a_typed_error(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        await everything_told(broker, str(transport.session))
        await put(broker, f"{{claude-fleet:{transport.session}}}:out", "77-0", {"x": "y"})
        with pytest.raises(errors.ProtocolError), anyio.fail_after(20):
            await anext(transport.read_messages())


@pytest.mark.parametrize("fields", [{"s": "new"}, {"s": "new", "q": "{"}, {"s": "new", "q": "{}", "we": "x", "wu": "0", "ce": "1.a"}])
async def test_a_hostile_session_in_the_queue_harms_no_other_one(broker: BrokerServer, fields: dict[Any, Any]) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    await connection.command("hset", connection.keys.meta("evil"), fields)
    await connection.command("zadd", connection.keys.sessions, {"evil": 0})
    await connection.aclose()
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        await transport.write("{}")
        assert await read(transport.read_messages(), 1) == [{}]


async def test_a_broker_behind_tls_is_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key"))
    port = free_port()
    files = {"cert-file": "cert", "key-file": "key", "ca-cert-file": "ca"}
    tls = [word for name, file in files.items() for word in (f"--tls-{name}", str(tmp_path / file))]
    with broker_server(tmp_path / "b", "--tls-port", str(port), "--tls-auth-clients", "no", *tls):
        url = f"rediss://127.0.0.1:{port}/0"
        with pytest.raises(errors.CLIConnectionError):
            await FleetTransport(url).connect()  # nothing here trusts this authority
        context = ssl.create_default_context(cafile=str(tmp_path / "ca"))
        in_url = f"{url}?ssl_ca_certs={tmp_path / 'ca'}"
        async with serving(FleetWorker(in_url, command=ECHO)), FleetTransport(url, ssl_context=context) as transport:
            await transport.write("{}")
            assert await read(transport.read_messages(), 1) == [{}]


async def test_a_user_of_the_broker_without_the_rights_is_told(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    await connection.command("acl_setuser", "fleet", "on", ">pass%word", "~{claude-fleet*", "&{claude-fleet*", "+@all")
    await connection.command("acl_setuser", "deaf", "on", ">pass", "~{claude-fleet*", "resetchannels", "+@all")
    await connection.command("acl_setuser", "narrow", "on", ">other", "~nothing", "+@all")
    await connection.aclose()
    narrow, wide = (broker.url.replace("redis://", f"redis://{user}@") for user in ("narrow:other", "fleet:pass%25word"))
    with pytest.raises(errors.CLIConnectionError) as caught:
        await FleetTransport(narrow).connect()
    assert caught.value.code == "fleet.refused"
    with pytest.raises(errors.ProtocolError) as refused:
        await FleetWorker(narrow, command=ECHO).serve()
    assert refused.value.code == "fleet.refused"
    async with serving(FleetWorker(wide, command=ECHO)):
        with pytest.raises(errors.CLIConnectionError, match="channels") as unheard:  # it would hear of nothing
            await FleetTransport(broker.url.replace("redis://", "redis://deaf:pass@")).connect()
        assert unheard.value.code == "fleet.refused"
    async with serving(FleetWorker(wide, command=ECHO)), FleetTransport(wide) as transport:
        await transport.write("{}")
        assert await read(transport.read_messages(), 1) == [{}]


async def test_the_trace_of_a_client_reaches_the_process(broker: BrokerServer) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import os,json; print(json.dumps({'t': os.environ.get('TRACEPARENT')}), flush=True); input()",
    ]
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving(FleetWorker(broker.url, command=command)):
        transport = FleetTransport(broker.url)
        transport.attach(Client(trace={"traceparent": trace, "other": "dropped"}))
        async with transport:
            assert await read(transport.read_messages(), 1) == [{"t": trace}]


async def test_a_proof_that_is_none_is_refused_once_whatever_its_bytes_are(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys = connection.keys
    worker = FleetWorker(broker.url, command=ECHO, tokens=TOKENS)
    async with serving(worker):
        for session, proof in (("letters", "é".encode()), ("bytes", b"\xff"), ("long", b"x" * 100_000)):
            fields = ["v", 1, "q", b"{}", "cw", 1000, "p", proof]
            await connection.script(CREATE, [keys.meta(session)], ["1.c", 60_000, 60_000, *fields])
            await connection.command("zadd", keys.queue, {session: 0})
            with anyio.fail_after(20):
                while await connection.command("hget", keys.meta(session), "s") not in (b"ended", None):
                    await a_moment()
        assert worker.metrics.ended["auth"] == 2
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    await connection.aclose()


async def test_a_client_cannot_name_the_conversation_that_the_next_worker_resumes(broker: BrokerServer) -> None:
    """It may write anything into the hash of its session, and the store has the conversations of all."""
    connection, store = Broker(BrokerAddress(broker.url)), InMemorySessionStore()
    await connection.start(timeout=10)
    keys, of_alice = connection.keys, str(uuid.uuid4())
    entry: Any = {"type": "user", "uuid": "1", "message": {"role": "user", "content": "A secret of Alice"}}
    await store.append({"project_key": project_key_for_directory(), "session_id": of_alice}, [entry])
    started: list[ClaudeOptions] = []

    def launch(options: ClaudeOptions) -> SubprocessTransport:
        started.append(options)
        return SubprocessTransport(command=ECHO)

    worker = FleetWorker(broker.url, options=ClaudeOptions(session_store=store), launch=launch, lease=1.5)
    async with serving(worker), FleetTransport(broker.url) as transport:
        session = str(transport.session)
        await transport.write('{"n":0}')
        assert await read(transport.read_messages(), 1) == numbered([0])
        forged = dict.fromkeys(("sid", "conversation", "resume"), of_alice)
        await connection.command("hset", keys.meta(session), {**forged, "we": "1.gone", "wu": 0})
        await connection.command("zadd", keys.queue, {session: 0})
        with anyio.fail_after(30):
            while len(started) < 2:
                await a_moment()
        assert of_alice not in str([(each.resume, each.session_id) for each in started])
    await connection.aclose()


async def test_the_next_worker_resumes_the_conversation_of_the_worker_before(broker: BrokerServer) -> None:
    connection, store = Broker(BrokerAddress(broker.url)), InMemorySessionStore()
    await connection.start(timeout=10)
    keys = connection.keys
    started: list[ClaudeOptions] = []

    def launch(options: ClaudeOptions) -> SubprocessTransport:
        started.append(options)
        return SubprocessTransport(command=ECHO)

    worker = FleetWorker(broker.url, options=ClaudeOptions(session_store=store), launch=launch, lease=1.5)
    async with serving(worker), FleetTransport(broker.url) as transport:
        session, conversation = str(transport.session), str(started[0].session_id)
        entry: Any = {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Hello"}}
        await store.append({"project_key": project_key_for_directory(), "session_id": conversation}, [entry])
        await connection.command("hset", keys.meta(session), {"we": "1.gone", "wu": 0})
        await connection.command("zadd", keys.queue, {session: 0})
        with anyio.fail_after(30):
            while len(started) < 2:
                await a_moment()
        assert (started[1].resume, started[1].session_id) == (conversation, None)
    await connection.aclose()


OURS = str(uuid.UUID(int=7))
CONVERSATIONS: dict[str, tuple[dict[str, Any], bytes]] = {
    "named": ({"session_id": OURS}, OURS.encode()),
    "resumed": ({"resume": OURS}, OURS.encode()),
    "forked": ({"resume": OURS, "fork_session": True}, b""),
    "continued": ({"continue_conversation": True}, b""),
}


@pytest.mark.parametrize("which", CONVERSATIONS)
async def test_the_first_worker_starts_the_conversation_of_its_options_and_the_next_one_without_a_store_a_new_one(
    broker: BrokerServer, which: str
) -> None:
    options, conversation = CONVERSATIONS[which]
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys = connection.keys
    started: list[ClaudeOptions] = []

    def launch(chosen: ClaudeOptions) -> SubprocessTransport:
        started.append(chosen)
        return SubprocessTransport(command=ECHO)

    worker = FleetWorker(broker.url, options=ClaudeOptions(**options), launch=launch, lease=1.5)
    async with serving(worker), FleetTransport(broker.url) as transport:
        session = str(transport.session)
        assert started == [ClaudeOptions(**options)]
        assert await connection.command("hget", keys.setup(session), "conversation") == conversation
        await connection.command("hset", keys.meta(session), {"we": "1.gone", "wu": 0})
        await connection.command("zadd", keys.queue, {session: 0})
        await wake_node(connection, worker.name)
        with anyio.fail_after(30):
            while len(started) < 2:
                await a_moment()
        named = started[1].session_id
        assert named not in (None, OURS)
        assert started[1] == ClaudeOptions(session_id=named)
    await connection.aclose()
