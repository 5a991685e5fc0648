"""What a session leaves in the broker, however it ends, and what a worker that was replaced does not touch."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.hosted import release_session
from claude_transport.fleet.scripts import CLAIM, CREATE
from claude_transport.gateway import GatewayLimits
from claude_transport.launch.options import ClaudeOptions
from claude_transport.transport import Client, SessionTerms, Transport
from claude_transport.transports.subprocess import SubprocessTransport

INITIALIZE = '{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}'

OBEYS = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n    if 'exit' in line: sys.exit(3)\n",
]
"""Says each line again, and ends with the code 3 after one with `exit`."""


async def close(transport: FleetTransport, _broker: BrokerServer) -> None:
    await transport.close()


async def end_input(transport: FleetTransport, _broker: BrokerServer) -> None:
    await transport.end_input()


async def fail(transport: FleetTransport, _broker: BrokerServer) -> None:
    await transport.write('{"exit":3}')


async def say_too_much(transport: FleetTransport, _broker: BrokerServer) -> None:
    await transport.write(msgspec.json.encode({"long": "x" * 2000}))


async def stop(transport: FleetTransport, broker: BrokerServer) -> None:
    async with FleetRegistry(broker.url) as registry:
        await registry.stop(str(transport.session))


async def cancel_reader(transport: FleetTransport, _broker: BrokerServer) -> None:
    """A cancelled client closes its transport, as `async with` does."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anext(transport.read_messages())
        finally:
            await transport.close()


Ending = Callable[[FleetTransport, BrokerServer], Awaitable[None]]


@pytest.mark.parametrize("ending", [close, end_input, fail, say_too_much, stop, cancel_reader])
async def test_nothing_that_set_a_session_up_outlives_it(broker: BrokerServer, ending: Ending) -> None:
    worker = FleetWorker(broker.url, command=OBEYS, limits=GatewayLimits(line_bytes=1000))
    async with connected(broker) as connection, serving(worker):
        keys, transport = connection.keys, FleetTransport(broker.url)
        await transport.connect()
        session = str(transport.session)
        await transport.write(INITIALIZE)
        await read(transport.read_messages(), 1)
        assert sorted(await connection.command("hkeys", keys.setup(session))) == [b"conversation", b"initialize"]
        await ending(transport, broker)
        with anyio.fail_after(20):
            while await connection.command("hget", keys.meta(session), "s") != b"ended":
                await a_moment()
        assert await connection.command("hgetall", keys.setup(session)) == {}
        await transport.close()


async def test_nothing_that_set_a_session_up_outlives_one_that_the_next_worker_cannot_start(broker: BrokerServer) -> None:
    def refuse(_options: ClaudeOptions) -> Transport:
        raise OSError("no more processes")

    async with connected(broker) as connection:
        keys = connection.keys
        async with serving(FleetWorker(broker.url, command=ECHO)):
            transport = FleetTransport(broker.url)
            await transport.connect()
            session = str(transport.session)
            await transport.write(INITIALIZE)
            await read(transport.read_messages(), 1)
        # the cancelled worker has given it back with what the next one needs
        assert sorted(await connection.command("hkeys", keys.setup(session))) == [b"conversation", b"initialize"]
        async with serving(FleetWorker(broker.url, launch=refuse)):
            with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
                await anext(transport.read_messages())
            assert caught.value.code == "fleet.start"
            with anyio.fail_after(20):
                while await connection.command("hget", keys.meta(session), "s") != b"ended":
                    await a_moment()
        assert await connection.command("hgetall", keys.setup(session)) == {}
        await transport.close()


class Holding(SubprocessTransport):
    """Holds prompts back, which a worker cannot do."""

    def attach(self, client: Client) -> SessionTerms:
        async def before_prompt(line: bytes) -> bytes:
            return line

        return super().attach(client).with_before_prompt(before_prompt)


async def test_a_transport_that_holds_prompts_back_is_refused(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    transport = FleetTransport(broker.url)
    async with serving(FleetWorker(broker.url, launch=lambda _options: Holding(command=ECHO))):
        with pytest.raises(errors.ClaudeTransportError) as caught, anyio.fail_after(20):
            await transport.connect()
            await anext(transport.read_messages())
        assert caught.value.code == "fleet.start"
        await transport.close()
    assert "FleetWorker hands lines on as they come" in caplog.text


class Spoilt(SubprocessTransport):
    """A program's own transport, which raises what it likes once it is connected."""

    async def write(self, data: str | bytes) -> None:
        await super().write(data)
        raise ValueError("a mistake in the program")


async def test_nothing_that_set_a_session_up_outlives_a_broken_program(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, launch=lambda _options: Spoilt(command=ECHO))
    async with connected(broker) as connection, serving(worker), FleetTransport(broker.url) as transport:
        keys, session = connection.keys, str(transport.session)
        await transport.write(INITIALIZE)
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            async for _ in transport.read_messages():
                pass
        assert caught.value.code == "fleet.failed"
        with anyio.fail_after(20):
            while await connection.command("hget", keys.meta(session), "s") != b"ended":
                await a_moment()
        assert await connection.command("hgetall", keys.setup(session)) == {}


@pytest.mark.parametrize("ended", [True, False])
async def test_a_worker_that_was_replaced_gives_nothing_back(broker: BrokerServer, *, ended: bool) -> None:
    async with connected(broker) as connection:
        keys, session = connection.keys, "S"
        where = [keys.meta(session), keys.incoming(session), keys.outgoing(session)]
        await connection.script(CREATE, where[:1], ["1.c", 60_000, 60_000, "v", 1, "q", b"{}", "cw", 1000])
        await connection.script(CLAIM, where, ["old", "one", 0])
        await connection.script(CLAIM, where, ["new", "two", 60_000])
        await connection.command("hset", keys.setup(session), {"initialize": "{}"})
        await connection.command("zadd", keys.sessions, {session: 5})

        async def held() -> list[Any]:
            return [
                await connection.command("hgetall", keys.meta(session)),
                await connection.command("hgetall", keys.setup(session)),
                await connection.command("zscore", keys.sessions, session),
            ]

        before = await held()
        assert (before[0][b"we"], before[1:]) == (b"2.new", [{b"initialize": b"{}"}, 5.0])
        await release_session(connection, session, "1.old", ended=ended)
        assert await held() == before


async def test_a_cancelled_worker_takes_itself_out_of_the_tables(broker: BrokerServer) -> None:
    """Clients would choose it for a minute."""
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO, name="stays")):
        keys = connection.keys

        async def there() -> list[Any]:
            return sorted(await connection.command("hkeys", keys.nodes))

        async with serving(goes := FleetWorker(broker.url, command=ECHO, name="goes", labels=["gpu"])):
            async with FleetTransport(broker.url, labels=["gpu"]) as transport:
                assert goes.sessions == (transport.session,)
            assert await there() == [b"goes", b"stays"]
        assert await there() == [b"stays"]


async def test_a_worker_that_is_cancelled_without_its_broker_ends_all_the_same(broker: BrokerServer) -> None:
    with anyio.fail_after(60):
        worker = FleetWorker(broker.url, command=ECHO)
        async with serving(worker), FleetTransport(broker.url, close_timeout=0.2) as transport:
            await transport.write("{}")
            await read(transport.read_messages(), 1)
            broker.kill()
        assert worker.sessions == ()
