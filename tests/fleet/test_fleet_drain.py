"""Workers that end: which prompts move to another worker, and what becomes of a session that is just being started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, numbered, read, serving

from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.placement import Node
from claude_transport.fleet.roster import broker_time
from claude_transport.fleet.tables import Tables
from claude_transport.launch.options import ClaudeOptions
from claude_transport.transports.subprocess import SubprocessTransport


class SlowToEnd:
    """Starts programs whose `close()` waits until `may_end` is set; `ends` is set when the first of them is closed."""

    def __init__(self) -> None:
        self.ends = anyio.Event()
        self.may_end = anyio.Event()

    def __call__(self, options: ClaudeOptions) -> SubprocessTransport:
        slow = self

        class Slow(SubprocessTransport):
            async def close(self) -> None:
                slow.ends.set()
                await slow.may_end.wait()
                await super().close()

        return Slow(options, command=ECHO)


async def has_said(broker: BrokerServer, transport: FleetTransport, *, entries: int) -> None:
    """Wait until the broker has as many entries of the client."""
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    with anyio.fail_after(20):
        while int(await connection.command("hget", connection.keys.meta(str(transport.session)), "ci")) < entries:
            await a_moment()
    await connection.aclose()


async def test_a_prompt_that_comes_while_a_drained_worker_ends_the_process_is_fed_by_the_next_worker(broker: BrokerServer) -> None:
    launch = SlowToEnd()
    old, new = FleetWorker(broker.url, launch=launch, name="old"), FleetWorker(broker.url, command=ECHO, name="new")
    async with serving(old), FleetTransport(broker.url) as transport, FleetTransport(broker.url) as busy:
        messages, others = transport.read_messages(), busy.read_messages()
        await busy.write('{"type":"user","n":0}')
        await read(others, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(old.drain)
            await launch.ends.wait()
            await transport.write('{"type":"user","n":1}')
            await has_said(broker, transport, entries=1)
            for message in numbered(range(3)):  # the worker reads both streams in one call, so it has read the prompt
                await busy.write(str(message).replace("'", '"'))
                await read(others, 1)
            launch.may_end.set()
            async with serving(new):
                notice, prompt = await read(messages, 2)
                assert (notice["subtype"], notice["worker"], notice["uncertain"]) == ("fleet_takeover", "new", 0)
                assert prompt == {"type": "user", "n": 1}
                await busy.write('{"type":"result"}')
                with anyio.fail_after(30):
                    while old.sessions:
                        await a_moment()
                await transport.close()
                await busy.close()


class StartsSlowly(SubprocessTransport):
    """Connects when it may, which is never."""

    begun: anyio.Event

    async def connect(self) -> None:
        self.begun.set()
        await anyio.sleep_forever()


def starts_slowly() -> type[StartsSlowly]:
    class Begun(StartsSlowly):
        begun = anyio.Event()

    return Begun


async def test_a_session_whose_process_is_being_started_moves_at_once_when_its_worker_drains(broker: BrokerServer) -> None:
    slow = starts_slowly()
    old = FleetWorker(broker.url, launch=slow, name="old", lease=600)
    async with anyio.create_task_group() as tasks, serving(old):
        transport = FleetTransport(broker.url)
        tasks.start_soon(transport.connect)
        await slow.begun.wait()
        with anyio.fail_after(10):
            await old.drain(timeout=600)
        async with serving(FleetWorker(broker.url, command=ECHO, name="new")):
            with anyio.fail_after(20):
                while transport.session is None or not transport.is_ready():
                    await a_moment()
            await transport.write('{"n":0}')
            assert await read(transport.read_messages(), 1) == numbered([0])
            await transport.close()


async def test_a_worker_that_is_cancelled_while_it_starts_a_process_gives_the_session_back(broker: BrokerServer) -> None:
    slow = starts_slowly()
    async with anyio.create_task_group() as tasks:
        transport = FleetTransport(broker.url)
        async with serving(FleetWorker(broker.url, launch=slow, name="old", lease=600)):
            tasks.start_soon(transport.connect)
            await slow.begun.wait()
        async with serving(FleetWorker(broker.url, command=ECHO, name="new")):
            with anyio.fail_after(20):
                while not transport.is_ready():
                    await a_moment()
            await transport.write('{"n":0}')
            assert await read(transport.read_messages(), 1) == numbered([0])
            await transport.close()


@asynccontextmanager
async def told_to_next(broker: BrokerServer) -> AsyncIterator[tuple[Broker, list[str], anyio.Event]]:
    """What the worker `next` is told, which is in no table yet; and an event that is set then."""
    listening, told = anyio.Event(), anyio.Event()
    heard: list[str] = []
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)

    def hear(message: bytes) -> None:
        listening.set()
        if message:
            heard.append(message.decode())
            told.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.listen, connection.keys.wake("next"), hear)
        await listening.wait()
        yield connection, heard, told
        tasks.cancel_scope.cancel()
    await connection.aclose()


async def enter_next(connection: Broker) -> None:
    """Put the worker `next` into the table."""
    node = Node(id="next", capacity=9, seen=await broker_time(connection))
    await Tables(connection).tell(node)


@pytest.mark.parametrize("drains", [True, False], ids=["drains", "is cancelled"])
async def test_a_worker_that_gives_back_a_session_that_it_starts_wakes_the_best_other_one(broker: BrokerServer, drains: bool) -> None:
    slow = starts_slowly()
    async with told_to_next(broker) as (connection, heard, told), anyio.create_task_group() as tasks:
        old, transport = FleetWorker(broker.url, launch=slow, name="old", lease=600), FleetTransport(broker.url)
        async with serving(old):
            tasks.start_soon(transport.connect)
            await slow.begun.wait()
            async with FleetRegistry(broker.url) as registry:
                (session,) = await registry.sessions()
            await enter_next(connection)
            if drains:
                await old.drain()
        with anyio.fail_after(10):
            await told.wait()
        assert heard == [session.id]
        tasks.cancel_scope.cancel()


async def test_a_worker_that_drains_wakes_the_best_other_one_for_a_session_that_moves(broker: BrokerServer) -> None:
    old = FleetWorker(broker.url, command=ECHO, name="old", lease=600)
    async with told_to_next(broker) as (connection, heard, told), serving(old), FleetTransport(broker.url) as transport:
        await enter_next(connection)
        await old.drain()
        with anyio.fail_after(10):
            await told.wait()
        assert heard == [str(transport.session)]
        async with serving(FleetWorker(broker.url, command=ECHO, name="third")):
            await transport.close()
