"""The connection to the broker, whenever it ends."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import socket
import weakref
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute, SocketStream
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, serving
from virtual_time import jumping

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.roster import broker_time
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import make_client


async def call(client: Any) -> None:
    """Make a call, which may fail: the client may have ended."""
    with contextlib.suppress(Exception):  # of coredis or of anyio
        await client.ping()


async def test_a_connection_that_is_cancelled_after_any_step_leaves_nothing_open(broker: BrokerServer) -> None:
    for steps in range(60):
        connection = Broker(BrokerAddress(broker.url))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(connection.start, timeout=10))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        finally:
            await connection.aclose()
        del connection, tasks
        gc.collect()  # what was left open warns now


async def test_a_client_that_ends_while_calls_connect_leaves_nothing_open(broker: BrokerServer) -> None:
    for steps in range(20):
        client = make_client(RedisAddress.of(broker.url), connect_timeout=10)
        async with anyio.create_task_group() as tasks, client:
            await client.ping()
            for _ in range(3):
                tasks.start_soon(call, client)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
        del client, tasks
        gc.collect()  # what was left open warns now


def tasks_of(name: str) -> list[str]:
    """The tasks of the event loop whose name begins so."""
    return [task.name for task in anyio.get_running_tasks() if task.name is not None and task.name.startswith(name)]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_no_task_of_a_connection_runs_when_it_is_closed_also_by_a_cancelled_call(broker: BrokerServer, *, cancelled: bool) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    assert tasks_of("broker ") == [f"broker {connection.address}"]
    with anyio.CancelScope() as scope:
        if cancelled:
            scope.cancel()
        await connection.aclose()
    assert tasks_of("broker ") == []


@pytest.mark.parametrize("how", ["close", "detach", "cancelled close"])
async def test_no_task_of_a_session_runs_when_its_client_is_closed(broker: BrokerServer, how: str) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)):
        transport = FleetTransport(broker.url, close_timeout=0.5)
        await transport.connect()
        assert tasks_of("fleet session ") == [f"fleet session {transport.session}"]
        with anyio.CancelScope() as scope:
            if how == "cancelled close":
                scope.cancel()
            await (transport.detach() if how == "detach" else transport.close())
        assert tasks_of("fleet session ") == []


@jumping(idle=0.05)
async def test_a_registry_gives_up_a_broker_that_takes_the_connection_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begun = anyio.current_time()
        with pytest.raises(errors.CLIConnectionError):
            await FleetRegistry(f"redis://127.0.0.1:{mute.getsockname()[1]}/0").__aenter__()
        assert anyio.current_time() - begun <= 10


@jumping(idle=0.05)
async def test_a_client_waits_for_a_mute_broker_no_longer_than_for_a_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begun = anyio.current_time()
        with pytest.raises(errors.CLIConnectionError, match="cannot be reached"):
            await FleetTransport(f"redis://127.0.0.1:{mute.getsockname()[1]}/0", start_timeout=1).connect()
        assert anyio.current_time() - begun < 4


@jumping(idle=0.05)
async def test_a_broker_that_begins_no_encryption_is_given_up_before_the_time_for_a_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"rediss://127.0.0.1:{mute.getsockname()[1]}/0"
        connection, began = Broker(BrokerAddress(url)), anyio.current_time()
        try:
            with pytest.raises(errors.CLIConnectionError) as caught:
                await connection.start(timeout=600)
        finally:
            await connection.aclose()
    assert anyio.current_time() - began < 10
    error = caught.value
    assert (type(error), error.code, error.retryable) == (errors.CLIConnectionError, "fleet.broker_unreachable", True)
    assert str(error).startswith(f"{url} cannot be reached: ")


@contextlib.asynccontextmanager
async def answering(replies: dict[bytes, bytes], *, user: str = "") -> AsyncIterator[Broker]:
    """A connection, not started, to a server that answers each command by a word in it, else with OK."""

    async def answer(client: SocketStream) -> None:
        async with client:
            async for said in client:
                commands = said.split(b"*")[1:]
                await client.send(b"".join(next((replies[word] for word in replies if word in each), b"+OK\r\n") for each in commands))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        connection = Broker(BrokerAddress(f"redis://{user}127.0.0.1:{listener.extra(SocketAttribute.local_port)}/0"))
        try:
            yield connection
        finally:
            await connection.aclose()
            tasks.cancel_scope.cancel()


@jumping(idle=0.05)
async def test_a_channel_is_heard_although_the_first_connection_for_it_was_taken_and_not_answered() -> None:
    """As behind a proxy whose server is gone: it answers the greeting, and nothing after it."""
    told = {b"HELLO": greeting(b"standalone"), b"SUBSCRIBE": b">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"}
    numbers = itertools.count(1)

    async def answer(client: SocketStream) -> None:
        is_mute = next(numbers) == 2  # the first one is for calls
        async with client:
            with contextlib.suppress(anyio.BrokenResourceError):  # it is given up
                await talk(client, is_mute=is_mute)

    async def talk(client: SocketStream, *, is_mute: bool) -> None:
        async for said in client:
            for command in said.split(b"*")[1:]:
                if not (is_mute and b"SUBSCRIBE" in command):
                    await client.send(next((told[word] for word in told if word in command), b"+OK\r\n"))

    heard: list[bytes] = []
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        connection = Broker(BrokerAddress(f"redis://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/0"))
        await connection.start(timeout=10)
        with pytest.raises(BrokerCut):
            await connection.follow("news", heard.append)
        with anyio.fail_after(3600):
            while not heard:
                await anyio.sleep(0.1)
        assert heard == [b""]  # some may have been missed
        assert (connection.generation_of("S")[1], connection.is_connected) == (0, True)
        await connection.aclose()
        tasks.cancel_scope.cancel()
    assert next(numbers) == 4


async def test_a_flood_on_a_channel_costs_no_call_and_the_channel_is_heard_again(broker: BrokerServer) -> None:
    """A server ends a connection with channels for which more than 32 MB wait: any client of a fleet may say so much on its own channel."""
    heard: list[bytes] = []
    async with connected(broker) as connection, connected(broker) as hostile:
        await connection.follow("news", heard.append)
        assert heard == [b""]
        for number in range(2, 5):
            await hostile.command("publish", "news", b"x" * (40 * 2**20))
            assert await connection.script("return {'OK', 1}", [], []) == [b"OK", 1]
            while len(heard) < number:
                await a_moment()
        assert heard == [b""] * 4
        await hostile.command("publish", "news", b"still there")
        while len(heard) < 5:
            await a_moment()
        assert (heard[-1], connection.generation_of("S")[1]) == (b"still there", 0)


async def test_a_channel_that_nobody_follows_any_more_is_left(broker: BrokerServer) -> None:
    heard: list[bytes] = []
    async with connected(broker) as connection:
        await connection.follow("news", heard.append)
        connection.unfollow("news", heard.append)
        await connection.follow("weather", heard.append)  # the server takes both in order
        assert await connection.command("publish", "news", b"one") == 0
        assert await connection.command("publish", "weather", b"two") == 1


async def test_a_start_that_is_cancelled_just_when_it_succeeds_leaves_no_connection(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    scope = anyio.CancelScope()
    with pytest.raises(BrokerCut):
        await connection.follow("news", lambda _: scope.cancel())  # called when it is connected
    with scope:
        await connection.start(timeout=10)
    if not scope.cancelled_caught:  # trio has told of the success before
        await connection.aclose()
    assert (connection.is_connected, tasks_of("broker ")) == (False, [])


async def test_a_connection_that_all_share_is_forgotten_when_all_have_closed_it(broker: BrokerServer) -> None:
    address = BrokerAddress(broker.url)
    users = [Broker.shared(address) for _ in range(3)]
    assert len(set(users)) == 1
    for number in range(3):
        await users[number].start(timeout=10)  # no name may keep one of them
    await users.pop().aclose()
    await users.pop().aclose()
    assert Broker.shared(address) is users[0]
    assert users[0].is_connected
    forgotten = weakref.ref(users[0])
    await users.pop().aclose()
    gc.collect()
    assert forgotten() is None


def greeting(mode: bytes) -> bytes:
    return b"%%4\r\n+proto\r\n:3\r\n+id\r\n:1\r\n+version\r\n+7.0.0\r\n+mode\r\n$%d\r\n%b\r\n" % (len(mode), mode)


async def test_the_mode_that_a_broker_tells_is_printable_and_of_bounded_length() -> None:
    async with answering({b"HELLO": greeting(b"\x1b[31mred " + b"x" * 1000)}) as connection:
        with pytest.raises(errors.CLIConnectionError, match="its mode is") as caught:
            await connection.start(timeout=10)
    assert (caught.value.code, "\\x1b[31mred x" in str(caught.value)) == ("fleet.refused", True)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("at", [b"PING", b"EVALSHA", b"EXISTS"])
async def test_whatever_a_broker_says_of_a_call_is_printable_and_of_bounded_length(at: bytes) -> None:
    replies = {b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", at: b"-ERR \x1b[31mred " + b"x" * 2000 + b"\r\n"}
    async with answering(replies) as connection:
        with pytest.raises(errors.ClaudeTransportError) as caught:
            await connection.start(timeout=10)
            await (connection.script("return 1", [], []) if at == b"EVALSHA" else connection.command("exists", ["key"]))
    assert "\\x1b[31mred x" in caught.value.args[0]
    assert len(caught.value.args[0]) < 500


async def test_a_channel_is_left_when_the_task_that_listens_to_it_ends(broker: BrokerServer) -> None:
    heard: list[bytes] = []
    async with connected(broker) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.listen, "news", heard.append)
            while not heard:
                await a_moment()
            tasks.cancel_scope.cancel()
        await connection.follow("weather", heard.append)  # the server takes both in order
        assert await connection.command("publish", "news", b"one") == 0
        assert await connection.command("publish", "weather", b"two") == 1


@pytest.mark.parametrize("at", [b"PING", b"EVALSHA", b"EXISTS"])
async def test_a_broker_that_repeats_the_password_does_not_get_it_into_an_error(at: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="claude_transport")
    said = b"-%b hunter-two\r\n" % (b"OOM" if at == b"EXISTS" else b"ERR")
    async with answering({b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", at: said}, user="me:hunter-two@") as connection:
        with pytest.raises((errors.ClaudeTransportError, BrokerCut)) as caught:
            await connection.start(timeout=10)
            await (connection.script("return 1", [], []) if at == b"EVALSHA" else connection.command("exists", ["key"]))
    assert "***" in str(caught.value)
    assert "hunter" not in f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"


async def test_what_a_broker_says_in_an_error_is_printable_and_of_bounded_length(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    try:
        with pytest.raises(errors.ProtocolError) as caught:
            await connection.script(f"return redis.error_reply('ERR \\27[31mred {'x' * 1000}')", [], [])
    finally:
        await connection.aclose()
    assert "\\x1b[31mred x" in str(caught.value)
    assert len(str(caught.value)) < 500


async def test_what_a_broker_says_of_a_call_that_it_takes_later_moves_no_cursor_of_a_terminal(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="claude_transport")
    async with connected(broker) as connection:
        with pytest.raises(BrokerCut) as caught:
            await connection.script(r"return redis.error_reply('OOM \27[2J\226\128\174')", [], [])
    assert caught.value.refused
    assert r"OOM \x1b[2J\u202e" in str(caught.value)
    assert r"OOM \x1b[2J\u202e" in caplog.text
    assert "\x1b" not in caplog.text


@jumping(idle=0.05)
async def test_a_command_that_the_broker_does_not_answer_is_cut_in_its_time() -> None:
    async with answering({b"HELLO": greeting(b"standalone"), b"ECHO": b""}) as connection:
        await connection.start(timeout=10)
        began = anyio.current_time()
        with anyio.fail_after(3600), pytest.raises(BrokerCut):
            await connection.command("echo", "hello")
        assert anyio.current_time() - began == pytest.approx(5.0, abs=1.0)


async def test_each_question_of_an_operator_to_a_broker_that_is_gone_is_a_typed_error(broker: BrokerServer) -> None:
    async with FleetRegistry(broker.url) as registry:
        broker.kill()
        for ask in (registry.sessions, registry.nodes, registry.queue_length, registry.check, functools.partial(registry.stop, "S")):
            with pytest.raises(errors.CLIConnectionError) as caught:
                await ask()
            assert caught.value.code == "fleet.broker_lost"


@pytest.mark.parametrize("question", ["sessions", "nodes", "queue_length"])
async def test_a_broker_that_goes_in_the_middle_of_a_question_of_an_operator_is_the_same_error(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    async def time_and_death(connection: Broker) -> float:
        now = await broker_time(connection)
        broker.kill()
        return now

    monkeypatch.setattr("claude_transport.fleet.registry.broker_time", time_and_death)
    async with FleetRegistry(broker.url) as registry:
        with pytest.raises(errors.CLIConnectionError) as caught:
            await getattr(registry, question)()
    assert caught.value.code == "fleet.broker_lost"
    assert str(caught.value).startswith(str(BrokerAddress(broker.url)))


@pytest.mark.parametrize("fails", ["while it is cancelled", "by itself"])
async def test_a_cancelled_worker_ends_as_cancelled_although_its_connection_fails_meanwhile(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """What coredis cleans up may fail then, in one group with the cancellation. A failure without one is told as it is."""
    failing = anyio.Event()

    async def listen(*_: object) -> None:
        try:
            await failing.wait()
            await anyio.sleep_forever() if fails == "while it is cancelled" else None
        except anyio.get_cancelled_exc_class() as cancelled:
            raise BaseExceptionGroup("coredis", [cancelled, anyio.ClosedResourceError()]) from None
        raise ExceptionGroup("coredis", [anyio.ClosedResourceError()])

    monkeypatch.setattr(Broker, "listen", listen)
    worker = FleetWorker(broker.url, command=ECHO)
    ended: list[BaseException | None] = []

    async def serve() -> None:
        try:
            await worker.serve()
        except BaseException as error:
            ended.append(error)
            raise

    with contextlib.suppress(ExceptionGroup):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await worker.started.wait()
            failing.set()
            if fails == "while it is cancelled":
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
    (error,) = ended
    wanted = anyio.get_cancelled_exc_class() if fails == "while it is cancelled" else anyio.ClosedResourceError
    assert isinstance(error, wanted), repr(error)


# What a server says, and what it means.

CUT = "cut"
SAID: list[tuple[str, bytes, str, bool]] = [  # where, what, the code or a cut, and whether the connection is given up
    ("script", b"-WRONGTYPE no", "fleet.malformed", False),
    ("script", b"-TOOLARGE no", "fleet.malformed", False),
    ("script", b"-ERR no", "fleet.malformed", False),
    ("script", b"-NOPERM no", "fleet.refused", False),
    ("script", b"-ERR user_script:1: NOPERM no", "fleet.refused", False),
    ("script", b"-OOM no", CUT, False),
    ("script", b"-ERR user_script:1: -OOM no", CUT, False),
    ("script", b"-READONLY no", CUT, True),
    ("script", b":1", "fleet.malformed", False),
    ("script", b"*0", "fleet.malformed", False),
    ("read", b"-WRONGTYPE no", "fleet.malformed", False),
    ("read", b"-ERR no", "fleet.refused", False),
    ("read", b"-BUSY no", CUT, False),
    ("read", b"-MASTERDOWN no", CUT, True),
    ("command", b"-WRONGTYPE no", "fleet.malformed", False),
    ("command", b"-ERR no", "fleet.refused", False),
    ("command", b"-NOPERM no", "fleet.refused", False),
    ("command", b"-OOM no", CUT, False),
    ("command", b"-LOADING no", CUT, True),
    *(("command", b"-%b no" % word, CUT, False) for word in (b"MISCONF", b"TRYAGAIN", b"CLUSTERDOWN", b"NOREPLICAS", b"UNBLOCKED")),
]
WORDS = {"script": b"EVALSHA", "read": b"XREAD", "command": b"EXISTS"}


@pytest.mark.parametrize(("where", "said", "code", "gives_up"), SAID)
async def test_an_error_of_a_server_is_what_it_means(where: str, said: bytes, code: str, *, gives_up: bool) -> None:
    replies = {b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", WORDS[where]: said + b"\r\n"}
    async with answering(replies) as connection:
        await connection.start(timeout=10)
        with pytest.raises((errors.ProtocolError, BrokerCut)) as caught:
            match where:
                case "script":
                    await connection.script("return 1", [], [])
                case "read":
                    await connection.read("key", 0)
                case _:
                    await connection.command("exists", ["key"])
        assert getattr(caught.value, "code", CUT) == code
        assert where == "command" or getattr(caught.value, "refused", True)
        assert (connection.generation_of("S")[1] > 0) is gives_up


async def test_a_script_that_a_server_does_not_know_is_sent_to_it_once() -> None:
    replies = {b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", b"EVALSHA": b"-NOSCRIPT no\r\n", b"EVAL\r": b"*1\r\n:7\r\n"}
    async with answering(replies) as connection:
        await connection.start(timeout=10)
        assert await connection.script("return 1", [], []) == [7]
    async with answering({**replies, b"EVAL\r": b"-OOM no\r\n"}) as connection:
        await connection.start(timeout=10)
        with pytest.raises(BrokerCut, match="OOM no"):
            await connection.script("return 1", [], [])


STARTS: list[tuple[bytes, bytes, type[errors.CLIConnectionError], str, str]] = [
    (b"HELLO", b"-WRONGPASS no", errors.AuthenticationError, "connect.auth_failed", "does not accept the user or the password"),
    (b"HELLO", b"-NOAUTH no", errors.AuthenticationError, "connect.auth_failed", "does not accept the user or the password"),
    (b"HELLO", b"-ERR AUTH called without any password", errors.AuthenticationError, "connect.auth_failed", "does not accept the user"),
    (
        b"PING",
        b"-NOPERM cannot run the 'ping' command",
        errors.CLIConnectionError,
        "fleet.refused",
        "may not call ping: give it the rights",
    ),
    (
        b"PING",
        b"-NOPERM no",
        errors.CLIConnectionError,
        "fleet.refused",
        "may not call PING: give it the rights of a fleet's users (+ping)",
    ),
    (b"PING", b"-ERR no", errors.CLIConnectionError, "fleet.broker_unreachable", "cannot be reached: RespError: ERR no"),
]


@pytest.mark.parametrize(("at", "said", "kind", "code", "words"), STARTS)
async def test_a_start_that_a_server_refuses_says_why(
    at: bytes, said: bytes, kind: type[errors.CLIConnectionError], code: str, words: str
) -> None:
    async with answering({b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", at: said + b"\r\n"}) as connection:
        with pytest.raises(errors.CLIConnectionError) as caught:
            await connection.start(timeout=10)
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert words in str(caught.value)


def pushed(*parts: bytes) -> bytes:
    """A message of a server that nobody asked for."""
    return b">%d\r\n" % len(parts) + b"".join(parts)


def text(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


async def test_a_message_of_another_shape_is_passed_over() -> None:
    message, news, one = text(b"message"), text(b"news"), b":1\r\n"
    odd = [(message, news), (message, news, one), (message, b"*0\r\n", text(b"x")), (text(b"pmessage"), news, text(b"x"))]
    odd.append((message, news, text(b"x"), text(b"y")))
    told = pushed(text(b"subscribe"), news, one) + b"".join(pushed(*parts) for parts in odd) + pushed(message, news, text(b"good"))
    heard: list[bytes] = []
    async with answering({b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", b"SUBSCRIBE": told}) as connection:
        await connection.start(timeout=10)
        with anyio.fail_after(20):
            await connection.follow("news", heard.append)
            while b"good" not in heard:
                await a_moment()
        assert sorted(heard) == [b"", b"good"]


async def test_a_channel_that_is_refused_is_not_followed() -> None:
    heard: list[bytes] = []
    replies = {b"HELLO": greeting(b"standalone"), b"PING": b"+PONG\r\n", b"SUBSCRIBE": b"-NOPERM no\r\n"}
    async with answering(replies) as connection:
        await connection.start(timeout=10)
        with pytest.raises(errors.ProtocolError) as caught:
            await connection.follow("news", heard.append)
        assert caught.value.code == "fleet.refused"
    assert heard == []


@jumping()
async def test_a_broker_that_was_not_reached_is_waited_for_and_told() -> None:
    connection, began = Broker(BrokerAddress("redis://127.0.0.1:1/0")), anyio.current_time()
    for ask in (lambda: connection.command("ping"), lambda: connection.script("return 1", [], []), lambda: connection.read("key", 0)):
        with pytest.raises(BrokerCut, match="the broker is not connected") as cut:
            await ask()
        assert not cut.value.refused
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ask()
        assert scope.cancelled_caught
    with pytest.raises(errors.ConnectionLost, match="was not reached again in 7 s") as caught:
        await connection.reached("S", patience=7.0)
    assert (caught.value.code, round(anyio.current_time() - began, 3)) == ("fleet.broker_lost", 7.0)
    await connection.aclose()
    with pytest.raises(errors.ConnectionLost):
        await connection.reached("S", patience=100.0)
    assert anyio.current_time() - began < 8


async def test_a_program_that_begins_while_the_connection_of_others_is_lost_gets_one_of_its_own(broker: BrokerServer) -> None:
    address = BrokerAddress(broker.url)
    shared = Broker.shared(address)
    await shared.start(timeout=10)
    assert Broker.shared(address) is shared
    broker.kill()
    with anyio.fail_after(20):
        while Broker.shared(address) is shared:
            await a_moment()
    assert not shared.is_connected
    await shared.aclose()


async def test_a_start_waits_for_a_connection_that_was_lost_after_it_was_made_again(broker: BrokerServer) -> None:
    """Why an earlier one was lost is no reason any more."""
    address = BrokerAddress(broker.url)
    connection = Broker.shared(address)
    await connection.start(timeout=10)
    broker.kill()
    with anyio.fail_after(20):
        while Broker.shared(address) is connection:  # until an attempt to reach it has failed
            await a_moment()
    await anyio.to_thread.run_sync(broker.start)
    await connection.reached("S", patience=20)
    async with connected(broker) as other:
        await other.command("client_kill", "type", "normal", "skipme", "yes")
        with anyio.fail_after(20):
            while connection.is_connected:
                await anyio.lowlevel.checkpoint()
        await connection.start(timeout=10)
    await connection.aclose()
    await connection.aclose()
