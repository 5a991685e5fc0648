"""Sessions through a real broker: begun, carried, ended, moved and refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, connected, numbered, read, serving

import claude_transport as ct
from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.messages import Append, Entry, Side, Take
from claude_transport.fleet.scripts import ATTACH, CLAIM, CREATE, RELEASE
from claude_transport.testing import FakeClaude, Scenario


async def test_a_program_on_a_worker_gets_each_line_and_answers(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        for message in numbered(range(100)):
            await transport.write(msgspec.json.encode(message))
        messages = transport.read_messages()
        assert await read(messages, 100) == numbered(range(100))
        await transport.end_input()
        assert [message async for message in messages] == []
        assert transport.info.exit_code == 0


async def test_a_query_talks_over_a_fleet_as_over_a_process(broker: BrokerServer) -> None:
    with FakeClaude(Scenario.simulated()) as fake:
        worker = FleetWorker(broker.url, options=ct.ClaudeOptions(cli_path=str(fake.path)))
        async with serving(worker), ct.Query(ct.open_transport(broker.url)) as query:
            turn = await query.send("Hello")
            result = await turn.result()
            assert not result.is_error


async def test_a_line_of_megabytes_arrives_whole(broker: BrokerServer) -> None:
    async with (
        serving(FleetWorker(broker.url, command=ECHO)),
        FleetTransport(broker.url) as transport,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(transport.write, msgspec.json.encode({"text": "x" * 3_000_000}))
        (message,) = await read(transport.read_messages(), 1)
        assert len(message["text"]) == 3_000_000


async def test_a_program_that_a_signal_ended_is_a_process_error_with_the_signal(broker: BrokerServer) -> None:
    command = [*ECHO[:-1], "import os; os.kill(os.getpid(), 11)"]
    async with serving(FleetWorker(broker.url, command=command)), FleetTransport(broker.url) as transport:
        with pytest.raises(errors.ProcessError, match="ended with signal 11") as caught:
            await anext(transport.read_messages())
        assert (caught.value.exit_code, caught.value.signal) == (None, 11)


async def test_a_program_that_fails_is_a_process_error_here(broker: BrokerServer) -> None:
    command = [*ECHO[:-1], "import sys; print('{}', flush=True); print('broken', file=sys.stderr); sys.exit(7)"]
    async with serving(FleetWorker(broker.url, command=command)), FleetTransport(broker.url) as transport:
        messages = transport.read_messages()
        assert await read(messages, 1) == [{}]
        with pytest.raises(errors.ProcessError) as caught:
            await anext(messages)
        assert (caught.value.exit_code, "broken" in caught.value.stderr_tail) == (7, True)


async def test_a_session_waits_for_a_worker(broker: BrokerServer) -> None:
    async with anyio.create_task_group() as tasks:
        transport = FleetTransport(broker.url)
        tasks.start_soon(transport.connect)
        async with FleetRegistry(broker.url) as registry:
            while not await registry.queue_length():
                await a_moment()
            (waiting,) = await registry.sessions()
            assert (waiting.state, waiting.worker) == ("waiting", "")
        worker = FleetWorker(broker.url, command=ECHO, name="late")
        async with serving(worker):
            await transport.connect()
            await transport.write("{}")
            assert await read(transport.read_messages(), 1) == [{}]
            async with FleetRegistry(broker.url) as registry:
                (running,) = await registry.sessions()
            assert (running.id, running.state, running.worker) == (transport.session, "running", "late")
            await transport.close()


async def test_a_queued_session_that_is_given_up_leaves_nothing_behind(broker: BrokerServer) -> None:
    with anyio.move_on_after(0.5):
        await FleetTransport(broker.url).connect()
    with pytest.raises(errors.ConnectTimeout):
        await FleetTransport(broker.url, start_timeout=0.3).connect()
    async with FleetRegistry(broker.url) as registry:
        assert await registry.sessions() == []


async def test_another_client_goes_on_where_the_first_one_was(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)):
        first = FleetTransport(broker.url)
        await first.connect()
        await first.write(b"\n".join(msgspec.json.encode(each) for each in numbered(range(5))))
        assert await read(first.read_messages(), 5) == numbered(range(5))
        await first.detach()
        async with FleetTransport(broker.url, session=first.session) as second:
            await second.write(b'{"n":5}')
            assert await read(second.read_messages(), 1) == numbered([5])


async def test_a_client_that_comes_back_tells_what_the_one_before_it_could_not_tell(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose window is full would wait for it, and the client for the worker."""

    class Dying(Broker):
        """The first client is gone before it can tell what it has read."""

        dies = True

        async def call(self, session: str, call: Any) -> Any:
            if isinstance(call, Take) and call.side == Side.CLIENT and self.dies:
                await anyio.sleep_forever()
            return await super().call(session, call)

    monkeypatch.setattr("claude_transport.fleet.stream.Broker", Dying)
    async with connected(broker) as connection, serving(FleetWorker(broker.url, command=ECHO)):
        first = FleetTransport(broker.url, close_timeout=0.1)
        await first.connect()
        await first.write("{}")
        assert await read(first.read_messages(), 1) == [{}]
        meta = connection.keys.meta(str(first.session))
        await first.detach()
        assert await connection.command("hget", meta, "co") == b"0"
        monkeypatch.setattr(Dying, "dies", False)
        async with FleetTransport(broker.url, session=first.session, since=first.position):
            with anyio.fail_after(10):
                while int(await connection.command("hget", meta, "co")) != first.position:
                    await a_moment()


async def test_a_client_that_comes_at_the_moment_of_a_read_gets_no_line_again(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached = anyio.Event()

    class LateTeller(Broker):
        """Tells what a client has read when the next client has come, and not before."""

        async def call(self, session: str, call: Any) -> Any:
            if isinstance(call, Take) and call.side == Side.CLIENT and call.upto > 1:  # the first entry says who the worker is
                await attached.wait()
            return await super().call(session, call)

        async def script(self, text: str, *args: Any, **options: Any) -> list[Any]:
            answer = await super().script(text, *args, **options)
            if text == ATTACH:
                attached.set()
            return answer

    monkeypatch.setattr("claude_transport.fleet.stream.Broker", LateTeller)
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as first:
        messages = first.read_messages()
        for message in numbered(range(3)):
            await first.write(msgspec.json.encode(message))
            assert await read(messages, 1) == [message]
        async with FleetTransport(broker.url, session=first.session) as second:
            assert second.position == 4
            await second.write('{"n":3}')
            assert await read(second.read_messages(), 1) == numbered([3])
            with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(10):
                await anext(messages)
            assert caught.value.code == "fleet.fenced"


async def test_a_client_that_was_replaced_is_told(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as first:
        second = FleetTransport(broker.url, session=first.session)
        await second.connect()
        with pytest.raises(errors.TransportClosed) as caught:
            while True:
                await first.write("{}")
                await anyio.lowlevel.checkpoint()
        assert getattr(caught.value.__cause__, "code", "") == "fleet.fenced"
        await second.write('{"n":1}')
        while (await read(second.read_messages(), 1))[0] != {"n": 1}:
            pass
        await second.close()


async def test_a_client_that_was_replaced_while_it_read_nothing_is_told_so_and_not_that_lines_are_gone(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[LateReader] = []

    class LateReader(Broker):
        """Hands out what it reads when `gate` is set, and has to read all that it is told before."""

        def __init__(self, address: BrokerAddress) -> None:
            super().__init__(address)
            self.gate = anyio.Event()
            self.gate.set()
            self.reads = 0
            readers.append(self)

        async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
            await super().follow(channel, lambda message: heard(message if self.gate.is_set() else b""))

        async def read(self, *args: Any, **options: Any) -> list[Entry]:
            found = await super().read(*args, **options)
            await self.gate.wait()
            self.reads += bool(found)
            return found

    monkeypatch.setattr("claude_transport.fleet.stream.Broker", LateReader)
    async with serving(FleetWorker(broker.url, command=ECHO)):
        first = FleetTransport(broker.url)
        await first.connect()
        (late,) = readers
        key = late.keys.outgoing(str(first.session))

        async def length_is(wanted: int) -> None:
            with anyio.fail_after(10):
                while await late.command("xlen", key) != wanted:
                    await a_moment()

        await length_is(0)  # the first client has said what it has read, so that nothing but a read can tell it anything
        late.gate, reads = anyio.Event(), late.reads
        second = FleetTransport(f"{broker.url}?prefix=claude-fleet", session=first.session)  # a connection of its own
        await second.connect()
        messages = second.read_messages()
        for message in numbered(range(3)):
            await second.write(msgspec.json.encode(message))
            await read(messages, 1)
        await length_is(0)
        await second.write('{"n":3}')
        await length_is(1)
        late.gate.set()
        with anyio.fail_after(5):
            while late.reads < reads + 2:
                await a_moment()
        with pytest.raises(errors.ConnectionLost) as caught:
            async for _ in first.read_messages():
                pass
        assert caught.value.code == "fleet.fenced"
        await first.close()
        await second.close()


async def test_a_client_goes_on_behind_its_bookmark(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)):
        first = FleetTransport(broker.url, keep=100)
        await first.connect()
        marks = []
        for message in numbered(range(3)):
            await first.write(msgspec.json.encode(message))
            await read(first.read_messages(), 1)
            marks.append(first.bookmark)
        position = first.position
        await first.detach()
        assert marks[-1].startswith(f"{position}@1.")
        second = FleetTransport(broker.url, session=first.session, since=marks[0])
        assert (second.position, second.bookmark) == (int(marks[0].partition("@")[0]), marks[0])
        async with second:
            assert await read(second.read_messages(), 2) == numbered([1, 2])
            assert second.bookmark == marks[-1]


async def test_a_bookmark_of_lines_that_the_broker_has_lost_and_replaced_is_a_replay_gap(broker: BrokerServer) -> None:
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    keys = [connection.keys.meta("S"), connection.keys.incoming("S"), connection.keys.outgoing("S")]
    await connection.script(CREATE, keys[:1], ["1.c", 60_000, 60_000])
    await connection.script(CLAIM, keys, ["w", "one", 60_000])
    await connection.call("S", Append(Side.WORKER, "1.w", 1, [("d", b"{}\n")]))
    # the entries 2 and 3 of this worker are lost in a power cut, and the next worker does not know of them
    await connection.script(RELEASE, keys, ["1.w", "live", 60_000])
    await connection.script(CLAIM, keys, ["v", "two", 60_000])
    await connection.call("S", Append(Side.WORKER, "2.v", 2, [("o", b"{}"), ("d", b"{}\n"), ("d", b'{"n":4}\n')]))

    async def first_behind(since: int | str) -> Any:
        transport = FleetTransport(broker.url, session="S", since=since)
        await transport.connect()
        (message,) = await read(transport.read_messages(), 1)
        await transport.detach()
        return message

    with pytest.raises(errors.ReplayGap):
        await first_behind("3@1.w")
    assert await first_behind("3@2.v") == {"n": 4}
    with pytest.raises(errors.ReplayGap):
        await first_behind("2@1.w")
    await connection.aclose()


@pytest.mark.parametrize("since", ["", "3", "3@x", "-1@1.a", -1, True, 1.5])
def test_a_bookmark_that_is_none_is_refused(since: Any) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        FleetTransport("redis://h/0", session="S", since=since)
    assert caught.value.option == "since"


async def test_a_position_that_is_not_kept_any_more_is_a_replay_gap(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)):
        first = FleetTransport(broker.url)
        await first.connect()
        for message in numbered(range(3)):
            await first.write(msgspec.json.encode(message))
            await read(first.read_messages(), 1)
        await first.detach()
        with pytest.raises(errors.ReplayGap):
            await FleetTransport(broker.url, session=first.session, since=0).connect()
        with pytest.raises(errors.ReplayGap):
            await FleetTransport(broker.url, session=first.session, since=100).connect()


async def test_a_session_that_is_not_there_is_a_typed_error(broker: BrokerServer) -> None:
    with pytest.raises(errors.UsageError) as caught:
        await FleetTransport(broker.url, session="\x1b[31mred " + "x" * 1000).connect()
    assert (caught.value.code, "\\x1b[31mred x" in str(caught.value)) == ("fleet.no_session", True)
    assert len(str(caught.value)) < 200


async def test_a_session_of_a_version_that_is_no_number_is_told_in_a_bounded_line(broker: BrokerServer) -> None:
    session = "\x1b[31mred " + "x" * 1000
    async with connected(broker) as connection:
        await connection.command("hset", connection.keys.meta(session), {"v": "\x1b[32mgreen " + "y" * 1000})
    with pytest.raises(errors.CLIConnectionError) as caught:
        await FleetTransport(broker.url, session=session).connect()
    assert caught.value.code == "fleet.version"
    assert "\\x1b[31mred x" in str(caught.value)
    assert "\\x1b[32mgreen y" in str(caught.value)
    assert (str(caught.value).count("x") < 100, str(caught.value).count("y") < 30) == (True, True)


async def test_no_password_is_in_a_log_or_an_error(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = broker.url.replace("redis://", "redis://somebody:hunter-two@")
    with pytest.raises(errors.CLIConnectionError) as caught:
        await FleetTransport(url).connect()
    assert "hunter" not in f"{caught.value!r} {caught.value.__cause__!r} {FleetTransport(url).info} {caplog.text}"


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h:x/0",
        "redis://h/a",
        "redis://h/0?other=1",
        "redis://h/0?prefix=a{b",
        "rediss://h/0#x",
        "http://h/",
        "redis://[::/0",
    ],
)
def test_a_url_that_is_none_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        FleetTransport(url)
    assert caught.value.option in ("url", "prefix")


async def test_back_pressure_reaches_the_writer_and_the_process(broker: BrokerServer) -> None:
    command = [*ECHO[:-1], "import time; time.sleep(100)"]
    transport = FleetTransport(broker.url, window=65536, close_timeout=1)
    async with serving(FleetWorker(broker.url, command=command)), transport:
        written = 0
        with anyio.move_on_after(1.5):
            while True:
                await transport.write(msgspec.json.encode({"text": "x" * 10_000}))
                written += 10_000
        assert written < 4 * 2**20


async def test_an_idle_session_takes_less_than_a_kilobyte_and_its_streams_are_trimmed(broker: BrokerServer) -> None:
    import coredis

    async with serving(FleetWorker(broker.url, command=ECHO)), FleetTransport(broker.url) as transport:
        messages = transport.read_messages()
        for number in range(50):
            await transport.write(msgspec.json.encode({"n": number}))
            await read(messages, 1)
        key = f"{{claude-fleet:{transport.session}}}"
        async with coredis.Redis.from_url(broker.url) as client:
            with anyio.fail_after(10):
                while await client.xlen(f"{key}:in") or await client.xlen(f"{key}:out"):
                    await a_moment()
            sizes = [await client.memory_usage(name) or 0 for name in (f"{key}:meta", f"{key}:in", f"{key}:out")]
            assert sum(sizes) <= 1024
