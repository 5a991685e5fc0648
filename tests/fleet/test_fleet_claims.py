"""How a worker looks at the queue and claims, told by the broker alone: its heartbeats, which would find everything later, do not come."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import metadata
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker
from claude_transport.fleet.placement import Node, Wanted
from claude_transport.fleet.roster import broker_time, wake_node
from claude_transport.fleet.scripts import CLAIM, CREATE, LOOK
from claude_transport.fleet.tables import Tables
from claude_transport.launch.options import ClaudeOptions
from claude_transport.transports.subprocess import SubprocessTransport

URL = "redis://127.0.0.1:1/0"


class Told(Broker):
    """Has one heartbeat. `before` is called before each call, with the name of the command or the text of the script and its first key."""

    before: Callable[[str, str], Awaitable[object]] | None = None
    heart: int | None = None  # the task of the heartbeats
    looks = 0
    deepest = 0  # rows of one look

    async def command(self, name: str, *args: Any) -> Any:
        task = anyio.get_current_task().id
        if name == "time" and task == self.heart:
            await anyio.sleep_forever()
        if name == "time" and self.heart is None:  # each heartbeat begins with it, and so does the first one of all
            self.heart = task
        if self.before is not None:
            await self.before(name, str(args[0]) if args else "")
        return await super().command(name, *args)

    async def script(self, text: str, keys: Any, args: Any, *, follow: bool = True) -> list[Any]:
        if text == LOOK:
            self.looks += 1
            self.deepest = max(self.deepest, args[1])
        if self.before is not None:
            await self.before(text, keys[0])
        return await super().script(text, keys, args, follow=follow)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """The connections of the workers of the test, the newest last."""
    made: list[Told] = []

    def make(*args: Any) -> Told:
        made.append(Told(*args))
        return made[-1]

    monkeypatch.setattr("claude_transport.fleet.worker.Broker", make)
    return made


@contextlib.asynccontextmanager
async def begun(broker: BrokerServer, **options: Any) -> AsyncIterator[FleetTransport]:
    """A session that converses; its client gives up long before another heartbeat of a second worker would come."""
    async with FleetTransport(broker.url, start_timeout=30, **options) as transport:
        await transport.write('{"n":0}')
        assert await read(transport.read_messages(), 1) == numbered([0])
        yield transport


async def put(connection: Broker, session: str, *, version: int = 1, score: float = 0, **wanted: Any) -> None:
    """Put a session that nobody waits for among those that wait."""
    asked = msgspec.json.encode(Wanted(version=version, **wanted))
    await connection.script(CREATE, [connection.keys.meta(session)], ["1.c", 60_000, 600_000, "v", version, "q", asked, "cw", 1000])
    await connection.command("zadd", connection.keys.sessions, {session: score})


async def enter(connection: Broker, **fields: Any) -> None:
    """Put a worker into the table."""
    node = Node(seen=await broker_time(connection), **fields)
    await Tables(connection).tell(node)


async def the_session(connection: Broker) -> str:
    """The only session that a worker has taken. Its client does not know its id before it runs."""
    (name,) = await connection.command("zrange", connection.keys.sessions, 0, -1)
    return str(name.decode())


async def until(true: Callable[[], Any]) -> None:
    """Wait until `true()`, or what it waits for, is true."""
    with anyio.fail_after(20):
        while True:
            found = true()
            if await found if isinstance(found, Awaitable) else found:
                return
            await a_moment()


async def test_a_worker_that_is_told_of_a_session_takes_it_and_looks_no_more(broker: BrokerServer, told: list[Told]) -> None:
    worker = FleetWorker(broker.url, command=ECHO, lease=600)
    async with connected(broker) as connection, serving(worker), begun(broker) as transport:
        until_when = await connection.command("zscore", connection.keys.sessions, str(transport.session))
        assert until_when > await broker_time(connection) + 300
        await read_again(transport, 1)
        looks = told[0].looks
        for number in range(2, 30):
            await read_again(transport, number)
        assert told[0].looks - looks <= 1
        assert told[0].deepest == 64


async def read_again(transport: FleetTransport, number: int) -> None:
    await transport.write(b'{"n":%d}' % number)
    assert await read(transport.read_messages(), 1) == numbered([number])


JUNK: dict[str, tuple[str, Callable[[int], str | bytes]]] = {
    "names of no session, among those that wait": ("sessions", lambda number: b"\xff%03d" % number),
    "sessions that are gone, among those that wait": ("sessions", lambda number: f"!{number:03}".replace("!", "0-")),
    "names of no session, among the new ones": ("queue", lambda number: b"\x00%03d" % number),
    "sessions that are gone, among the new ones": ("queue", lambda number: f"0-{number:03}"),
}


@pytest.mark.parametrize("what", JUNK)
async def test_what_is_no_session_keeps_a_worker_from_no_session_behind_it(broker: BrokerServer, told: list[Told], what: str) -> None:
    table, name = JUNK[what]
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO)):
        rows = {name(number): -1 for number in range(600)}
        await connection.command("zadd", getattr(connection.keys, table), rows)
        async with begun(broker):
            pass
        await until(lambda: is_empty(connection))


async def is_empty(connection: Broker) -> bool:
    keys = connection.keys
    return not (await connection.command("zcard", keys.queue) or await connection.command("zcard", keys.sessions))


async def test_sessions_that_no_worker_can_take_are_looked_past_at_once(broker: BrokerServer, told: list[Told]) -> None:
    async with connected(broker) as connection:
        for number in range(150):
            await put(connection, f"0-{number:03}", score=-1, labels=("none has it",))
        async with serving(FleetWorker(broker.url, command=ECHO)), begun(broker):
            await until(lambda: told[0].deepest > 150)
        assert told[0].deepest <= 64 + 150


async def test_a_session_takes_the_place_of_one_that_has_ended_at_once(broker: BrokerServer, told: list[Told]) -> None:
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO, capacity=1)):
        second = FleetTransport(broker.url, start_timeout=30)
        async with anyio.create_task_group() as tasks:
            async with begun(broker):
                tasks.start_soon(second.connect)
                await until(lambda: connection.command("zcard", connection.keys.queue))
            await until(second.is_ready)
        await second.close()


async def look_again(connection: Broker, own: Told) -> None:
    """Let the worker `one` look at the queue, and do what follows from that."""
    for _ in range(4):
        looks = own.looks
        await wake_node(connection, "one")
        await until(lambda before=looks: own.looks > before)  # type: ignore[misc]


async def test_a_worker_does_not_claim_what_it_has(broker: BrokerServer, told: list[Told]) -> None:
    worker = FleetWorker(broker.url, command=ECHO, name="one")
    async with connected(broker) as connection, serving(worker), begun(broker) as transport:
        (own,) = told
        await connection.command("zadd", connection.keys.sessions, {str(transport.session): 0})
        await look_again(connection, own)
        await read_again(transport, 1)
        assert worker.sessions == (transport.session,)
        assert await connection.command("zscore", connection.keys.sessions, str(transport.session)) == 0


class Starting(SubprocessTransport):
    """Is started when the test says so."""

    begun: anyio.Event
    may: anyio.Event

    async def connect(self) -> None:
        self.begun.set()
        await self.may.wait()
        await super().connect()


def starting() -> type[Starting]:
    class Begun(Starting):
        begun, may = anyio.Event(), anyio.Event()

        def __init__(self, options: ClaudeOptions) -> None:
            super().__init__(options, command=ECHO)

    return Begun


async def test_a_session_that_is_being_started_takes_its_place(broker: BrokerServer, told: list[Told]) -> None:
    launch = starting()
    worker = FleetWorker(broker.url, launch=launch, name="one")
    async with connected(broker) as connection, anyio.create_task_group() as tasks, serving(worker):
        transport = FleetTransport(broker.url, start_timeout=60)
        tasks.start_soon(transport.connect)
        await launch.begun.wait()
        (own,), session = told, await the_session(connection)
        await connection.command("zadd", connection.keys.sessions, {session: 0})
        await look_again(connection, own)
        assert "free_capacity 7\n" in worker.prometheus_text()
        assert await connection.command("zscore", connection.keys.sessions, session) == 0
        launch.may.set()
        await until(transport.is_ready)
        assert "free_capacity 7\n" in worker.prometheus_text()
        await transport.close()


@contextlib.asynccontextmanager
async def hearing(broker: BrokerServer, name: str) -> AsyncIterator[list[str]]:
    """What the worker `name` is told, which is in no table."""
    heard: list[str] = []
    async with connected(broker) as connection:
        await connection.follow(connection.keys.wake(name), lambda message: heard.append(message.decode()) if message else None)
        yield heard


async def test_a_worker_passes_on_what_is_for_a_better_one(broker: BrokerServer, told: list[Told]) -> None:
    """It is told of one session. Another one waits, of which it was not told."""
    worker = FleetWorker(broker.url, command=ECHO, name="one", capacity=2, labels=["a"])
    async with connected(broker) as connection, hearing(broker, "next") as heard, serving(worker), begun(broker):
        await enter(connection, id="next", capacity=9, labels=("a",))
        await put(connection, "first", labels=("a",))
        await put(connection, "second", labels=("a",))
        await wake_node(connection, "one", about=("second",))
        await until(lambda: heard)
        assert heard == ["second"]


async def test_the_heartbeat_of_a_worker_passes_on_what_nobody_was_told_of(broker: BrokerServer, told: list[Told]) -> None:
    worker = FleetWorker(broker.url, command=ECHO, name="one", capacity=1, labels=["a"])
    async with connected(broker) as connection, hearing(broker, "next") as heard:
        await enter(connection, id="next", capacity=9, labels=("a",))
        await put(connection, "first", labels=("a",))
        async with serving(worker):
            await until(lambda: heard)
            assert heard == ["first"]


async def test_a_session_that_another_worker_holds_is_left_alone_for_a_moment(broker: BrokerServer, told: list[Told]) -> None:
    async with connected(broker) as connection:
        keys = connection.keys
        await put(connection, "held")
        await connection.script(CLAIM, [keys.meta("held"), keys.incoming("held"), keys.outgoing("held")], ["w", "other", 600_000])
        async with serving(FleetWorker(broker.url, command=ECHO)):
            await until(lambda: connection.command("zscore", keys.sessions, "held"))
            now, score = await broker_time(connection), await connection.command("zscore", keys.sessions, "held")
            assert now - 20 < score < now + 2
        assert await connection.command("hget", keys.meta("held"), "wn") == b"other"


async def test_a_lease_that_ends_soon_is_waited_for_and_a_later_look_is_not_made_earlier(broker: BrokerServer) -> None:
    async with connected(broker) as connection:
        tables = Tables(connection)
        await connection.command("zadd", connection.keys.sessions, {"short": 0, "long": 0, "later": 500})
        for session, left in (("short", 0.25), ("long", 60.0), ("later", 60.0)):
            await tables.hold_off(session, now=100.0, left=left)
        scores = [await connection.command("zscore", connection.keys.sessions, name) for name in ("short", "long", "later")]
        assert scores == [100.25, 101.0, 500.0]


async def test_a_worker_that_may_not_read_what_a_session_wants_leaves_it_alone(
    broker: BrokerServer, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[str] = []

    async def before(name: str, key: str) -> None:
        await anyio.lowlevel.checkpoint()
        if name == "hget" and key.endswith(":meta") and not refused:
            refused.append(key)
            raise errors.ProtocolError("it is refused", code="fleet.refused")

    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO, name="one")):
        told[0].before = before
        transport = FleetTransport(broker.url, start_timeout=60)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.connect)
            await until(lambda: refused)
            await until(lambda: "the queue cannot be read: it is refused" in caplog.messages)
            await wake_node(connection, "one")
            await until(transport.is_ready)
        await transport.close()


async def test_a_worker_names_at_most_sixty_four_versions_that_it_does_not_know(
    broker: BrokerServer, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(broker) as connection:
        for number in range(2, 72):
            await put(connection, f"0-{number:03}", version=number, score=-1)
        await put(connection, "behind")
        worker = FleetWorker(broker.url, command=ECHO)
        async with serving(worker):
            await until(lambda: worker.sessions)
    said = [message for message in caplog.messages if "of the format of a fleet" in message]
    assert len(said) == len(set(said)) == 64
    assert said[0].startswith("session 0-002 waits, and has version 2 ")


# Workers that end.


async def test_a_worker_that_drains_just_when_it_has_claimed_a_session_starts_no_process(broker: BrokerServer, told: list[Told]) -> None:
    started: list[str] = []

    class Noting(SubprocessTransport):
        async def connect(self) -> None:
            await anyio.lowlevel.checkpoint()
            started.append("one")
            await super().connect()

    worker = FleetWorker(broker.url, launch=lambda options: Noting(options, command=ECHO), lease=600)
    async with connected(broker) as connection, anyio.create_task_group() as tasks, serving(worker):

        async def before(name: str, key: str) -> None:
            await anyio.lowlevel.checkpoint()
            if name == CLAIM:
                await drain_too(tasks, worker)

        told[0].before = before
        transport = FleetTransport(broker.url, start_timeout=60)
        tasks.start_soon(transport.connect)
        keys = connection.keys
        await until(lambda: "free_capacity 0\n" in worker.prometheus_text())
        await until(lambda: connection.command("zcard", keys.sessions))
        session = await the_session(connection)
        await until(lambda: is_given_back(connection, session))
        assert (started, worker.sessions) == ([], ())
        async with serving(FleetWorker(broker.url, command=ECHO, name="next")):
            await until(transport.is_ready)
            assert await connection.command("hget", keys.meta(session), "wn") == b"next"
            await transport.close()


async def drain_too(tasks: Any, worker: FleetWorker) -> None:
    tasks.start_soon(worker.drain)
    while "free_capacity 0\n" not in worker.prometheus_text():
        await anyio.lowlevel.checkpoint()


async def is_given_back(connection: Broker, session: str) -> bool:
    return (await connection.command("hmget", connection.keys.meta(session), ["s", "wu"])) == [b"live", b"0"]


async def test_a_worker_that_drains_just_when_its_process_has_started_gives_the_session_away(
    broker: BrokerServer, told: list[Told]
) -> None:
    worker = FleetWorker(broker.url, command=ECHO, lease=600, drain_timeout=600)
    async with connected(broker) as connection, anyio.create_task_group() as tasks, serving(worker):

        async def before(name: str, key: str) -> None:
            await anyio.lowlevel.checkpoint()
            if name == "hset" and key.endswith(":setup"):
                await drain_too(tasks, worker)

        told[0].before = before
        transport = FleetTransport(broker.url, start_timeout=60)
        await transport.connect()
        await until(lambda: is_given_back(connection, str(transport.session)))
        await until(lambda: worker.metrics.ended["moved"])
        async with serving(FleetWorker(broker.url, command=ECHO)):
            await transport.close()


@pytest.mark.parametrize("way", ["its own", "that of the call"])
async def test_a_drain_waits_for_a_turn_as_long_as_it_may_and_returns_when_no_session_is_left(broker: BrokerServer, way: str) -> None:
    worker = FleetWorker(broker.url, command=ECHO, lease=600, drain_timeout=0.2 if way == "its own" else 600)
    async with connected(broker) as connection, serving(worker):
        transport = FleetTransport(broker.url, close_timeout=0.2)
        await transport.connect()
        await transport.write('{"type":"user","n":0}')
        await read(transport.read_messages(), 1)
        with anyio.fail_after(20):
            await worker.drain(timeout=None if way == "its own" else 0.2)
        assert worker.sessions == ()
        assert await is_given_back(connection, str(transport.session))
        await transport.close()


async def test_a_drain_returns_when_what_is_being_started_is_given_back(broker: BrokerServer) -> None:
    launch = starting()
    worker = FleetWorker(broker.url, launch=launch, lease=600)
    async with connected(broker) as connection, anyio.create_task_group() as tasks, serving(worker):
        transport = FleetTransport(broker.url, start_timeout=60)
        tasks.start_soon(transport.connect)
        await launch.begun.wait()
        session = await the_session(connection)
        with anyio.fail_after(20):
            await worker.drain()
        assert await is_given_back(connection, session)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("drains", [True, False], ids=["drains", "is cancelled"])
async def test_other_workers_see_that_a_worker_ends_before_they_are_woken_for_its_sessions(
    broker: BrokerServer, told: list[Told], drains: bool
) -> None:
    """Otherwise they would leave the sessions to it for a while."""
    seen: list[Node] = []
    worker = FleetWorker(broker.url, command=ECHO, name="one", lease=600)
    async with connected(broker) as connection:

        async def before(name: str, key: str) -> None:
            await anyio.lowlevel.checkpoint()
            if name == "publish" and key.endswith(":next"):
                row = await connection.command("hget", connection.keys.nodes, "one")
                seen.append(msgspec.json.decode(row, type=Node))

        async with serving(worker):
            transport = FleetTransport(broker.url, close_timeout=0.2)
            await transport.connect()
            await enter(connection, id="next", capacity=9)
            told[0].before = before
            if drains:
                await worker.drain()
        assert [(node.draining, node.room) for node in seen] == [(True, 0)]
        await transport.close()


async def test_a_session_that_is_lost_while_its_process_starts_is_given_up(
    broker: BrokerServer, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    launch = starting()
    worker = FleetWorker(broker.url, launch=launch, lease=1)
    async with connected(broker) as connection, anyio.create_task_group() as tasks, serving(worker):
        transport = FleetTransport(broker.url, start_timeout=60)
        tasks.start_soon(transport.connect)
        await launch.begun.wait()
        session = await the_session(connection)
        await connection.command("hset", connection.keys.meta(session), {"we": "9.other"})
        await until(lambda: "free_capacity 8\n" in worker.prometheus_text())
        said = f"session {session} could not be served: this end of the session may not write any more: another end has taken its place"
        assert said in caplog.messages
        assert await connection.command("hget", connection.keys.meta(session), "we") == b"9.other"
        tasks.cancel_scope.cancel()


async def test_a_lease_is_renewed_while_its_process_starts(broker: BrokerServer, told: list[Told]) -> None:
    launch = starting()
    worker = FleetWorker(broker.url, launch=launch, lease=1)
    async with connected(broker) as connection, anyio.create_task_group() as tasks, serving(worker):
        transport = FleetTransport(broker.url, start_timeout=60)
        tasks.start_soon(transport.connect)
        await launch.begun.wait()
        meta, ends = connection.keys.meta(await the_session(connection)), set[int]()

        async def renewed() -> bool:
            ends.add(int(await connection.command("hget", meta, "wu")))
            return len(ends) >= 4

        await until(renewed)
        assert max(ends) - min(ends) < 20_000
        launch.may.set()
        await until(transport.is_ready)
        await transport.close()


# What a worker says of itself.


@pytest.mark.parametrize(
    ("host", "name"),
    [("höst_1.example", "hst1.example"), ("x" * 100, "x" * 40), ("", "worker"), ("é_", "worker")],
)
def test_a_worker_has_the_name_of_its_machine_as_far_as_the_broker_takes_it(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert re.fullmatch(f"{re.escape(name)}-[0-9a-f]{{8}}", FleetWorker(URL, command=ECHO).name)
    assert FleetWorker(URL, command=ECHO, name="mine").name == "mine"


async def test_a_worker_of_a_library_that_was_not_installed_serves_all_the_same(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", version)
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetRegistry(broker.url) as registry:
        assert [node.library for node in await registry.nodes()] == [""]
