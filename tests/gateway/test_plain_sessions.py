"""Sessions in plain mode: bare lines, and a process that ends with its connection."""

from __future__ import annotations

import json
import socket
import sys

import anyio
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from rehearsal import ALICE, BOB, rehearsal
from virtual_time import virtual_time

from claude_transport.errors import ProtocolError
from claude_transport.gateway.arrival import Arrival
from claude_transport.link.machine import Refusal
from claude_transport.serving.door import GatewayLimits
from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.streams.sockets import SocketStream
from claude_transport.transports.stream import StreamTransport


async def test_lines_pass_as_they_are_in_both_directions() -> None:
    async with rehearsal() as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await client.say(b'{"to" : "the process"}')
        assert await process.hear() == b'{"to" : "the process"}'
        await process.say(b'{"to" : "the client"}', b"not even JSON")
        assert await client.hear() == b'{"to" : "the client"}'
        assert await client.hear() == b"not even JSON"
        await client.say(b"{}")
        assert await process.hear() == b"{}"
        assert (stage.gateway.metrics.lines, stage.gateway.metrics.bytes) == ({"in": 2, "out": 2}, {"in": 26, "out": 36})
        (session,) = stage.gateway.sessions
        assert (session.bytes_in, session.bytes_out, session.owner, session.mode, session.attached) == (26, 36, "alice", "plain", True)


async def test_what_a_socket_does_not_take_at_once_follows_when_the_client_reads() -> None:
    lines = [b'{"n":%d,"text":"%s"}' % (number, b"x" * 1000) for number in range(5000)]
    async with rehearsal() as stage, anyio.create_task_group() as tasks:
        mine, theirs = socket.socketpair()
        arrival = Arrival(SocketStream(theirs), medium="unix", peer="the test", token=ALICE)
        tasks.start_soon(stage.gateway.attend, arrival)
        client = SocketStream(mine)
        await client.send(b"{}\n")
        process, received = await stage.processes.next(), b""
        async with anyio.create_task_group() as talking:
            talking.start_soon(process.say, *lines)
            await anyio.wait_all_tasks_blocked()
            assert stage.gateway.metrics.lines["out"] < len(lines)
            with anyio.fail_after(30):
                while received.count(b"\n") < len(lines):
                    received += await client.receive()
        assert received == b"".join(line + b"\n" for line in lines)
        await process.stream.aclose()
        await client.aclose()
        await stage.until(sessions=0)
        assert stage.gateway.metrics.lines["out"] == len(lines)
        assert stage.gateway.metrics.bytes["out"] == len(received)


async def test_what_follows_the_token_in_the_same_packet_reaches_the_process() -> None:
    async with rehearsal() as stage:
        client = stage.connect()
        await client.stream.send(b'{"type":"authenticate","token":"alice-has-a-token-0123456789"}\n{"n":1}\n{"n":2}')
        await client.stream.send_eof()
        process = await stage.processes.next()
        assert await process.rest() == b'{"n":1}\n{"n":2}\n'


async def test_the_end_of_input_leaves_the_output_going_until_the_process_ends() -> None:
    async with rehearsal() as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await client.stream.send_eof()
        assert await process.rest() == b""
        await process.say(b'{"last":"line"}')
        await process.stream.aclose()
        assert await client.rest() == b'{"last":"line"}\n'
        await stage.until(sessions=0)


async def test_the_process_ends_when_its_connection_breaks() -> None:
    async with rehearsal() as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        client.stream.break_connection()
        assert await process.rest() == b""
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"client": 1}


class Deaf(ByteStream):
    """A connection on which nothing can be sent, although its other half is whole."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        raise anyio.BrokenResourceError

    async def send_eof(self) -> None:
        raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        await self._stream.aclose()


@virtual_time
async def test_the_process_ends_when_its_client_takes_no_more_and_says_nothing() -> None:
    async with rehearsal() as stage, anyio.create_task_group() as tasks:
        mine, theirs = memory_stream_pair()
        tasks.start_soon(stage.gateway.attend, Arrival(Deaf(theirs), medium="unix", peer="the test", token=ALICE))
        await mine.send(b"{}\n")
        process = await stage.processes.next()
        assert await process.hear() == b"{}"
        await process.say(b'{"n":1}')
        with anyio.fail_after(30):
            assert await process.rest() == b""
            await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"client": 1}


async def test_half_a_line_of_a_connection_that_broke_is_not_handed_on() -> None:
    async with rehearsal() as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await client.stream.send(b'{"n":1}\n{"n":')
        await client.stream.send_eof()
        assert await process.rest() == b'{"n":1}\n'


@pytest.mark.parametrize("half", [b'{"n":', b'{"type":"user","message":"\xc3'])
async def test_half_a_first_line_starts_nothing(half: bytes) -> None:
    async with rehearsal(tokens=None) as stage:
        client = stage.connect()
        await client.stream.send(half)
        await client.stream.send_eof()
        assert await client.rest() == b""
        assert stage.processes.options == []


async def test_a_torn_last_line_of_the_process_stays_torn() -> None:
    async with rehearsal() as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await process.stream.send(b'{"n":1}\n{"n":')
        await process.stream.aclose()
        assert await client.rest() == b'{"n":1}\n{"n":'


class RuledStream(ByteStream):
    """A medium that refuses the bytes `b"rude"` as a protocol error."""

    def __init__(self, inner: MemoryStream) -> None:
        self._inner = inner

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = await self._inner.receive(max_bytes)
        if data == b"rude":
            raise ProtocolError("that is no frame")
        return data

    async def send(self, item: bytes) -> None:
        await self._inner.send(item)

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_who_breaks_the_rules_of_the_medium_after_the_end_has_not_been_refused() -> None:
    async with rehearsal() as stage, anyio.create_task_group() as tasks:
        ours, theirs = memory_stream_pair(capacity=2**20)
        arrival = Arrival(RuledStream(theirs), medium="ws", peer="the test", token=ALICE)
        tasks.start_soon(stage.gateway.attend, arrival)
        await ours.send(b'{"n":1}\n')
        process = await stage.processes.next()
        assert await process.hear() == b'{"n":1}'
        await process.stream.aclose()
        with pytest.raises(anyio.EndOfStream):
            await ours.receive()
        await ours.send(b"rude")
    assert not stage.gateway.metrics.refused


async def test_without_tokens_the_first_line_is_already_for_the_process() -> None:
    async with rehearsal(tokens=None) as stage:
        client = stage.connect()
        await client.say(b'{"type":"user"}')
        process = await stage.processes.next()
        assert await process.hear() == b'{"type":"user"}'
        assert [session.owner for session in stage.gateway.sessions] == ["anybody"]


async def test_a_first_message_may_be_larger_than_any_greeting() -> None:
    async with rehearsal(tokens=None, limits=GatewayLimits(first_line_bytes=1000)) as stage:
        client = stage.connect()
        line = b'{"image":"%s"}' % (b"x" * 100_000)
        await client.say(line)
        process = await stage.processes.next()
        assert await process.hear() == line


async def test_a_first_message_does_not_wait_for_its_end_when_it_is_longer_than_a_greeting() -> None:
    async with rehearsal(tokens=None, limits=GatewayLimits(first_line_bytes=1000)) as stage:
        client = stage.connect()
        await client.stream.send(b'{"image":"' + b"x" * 5000)
        process = await stage.processes.next()
        await client.stream.send(b'"}\n')
        assert await process.hear() == b'{"image":"%s"}' % (b"x" * 5000)


async def test_the_first_line_of_a_client_that_is_known_by_its_header_may_be_as_long_as_any_other() -> None:
    async with rehearsal(limits=GatewayLimits(first_line_bytes=1000)) as stage:
        client = stage.connect(token=ALICE)
        await client.stream.send(b'{"image":"' + b"x" * 5000)
        process = await stage.processes.next()
        await client.stream.send(b'"}\n')
        assert await process.hear() == b'{"image":"%s"}' % (b"x" * 5000)


async def test_of_a_long_first_line_as_many_bytes_are_looked_at_as_allowed() -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send(b"{" + b"x" * 100)
    assert await Arrival(ours, medium="memory").first_line(max_bytes=50, whole=False) == b"{" + b"x" * 49


@pytest.mark.parametrize("by", ["header", "nothing"])
async def test_where_only_plain_is_spoken_a_client_that_is_known_may_listen_before_it_says_anything(by: str) -> None:
    more = {"tokens": None} if by == "nothing" else {}
    async with rehearsal(modes=["plain"], **more) as stage:
        client = stage.connect(token=ALICE if by == "header" else None)
        process = await stage.processes.next()
        await process.say(b'{"first":"word"}')
        assert await client.hear() == b'{"first":"word"}'


@virtual_time
async def test_an_admitted_client_may_take_its_time_for_the_first_line() -> None:
    async with rehearsal(tokens=None) as stage:
        client = stage.connect()
        await anyio.sleep(3600)
        await client.say(b'{"type":"user"}')
        process = await stage.processes.next()
        assert await process.hear() == b'{"type":"user"}'


async def test_options_the_gateway_has_for_initialize_are_put_into_the_clients_request() -> None:
    from claude_transport.agents.claude_fields import ClaudeFields

    fields = ClaudeFields({"title": "ours"})
    request = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize", "hooks": {"Stop": []}, "title": "theirs"}}
    line = json.dumps(request).encode()
    (merged,) = fields.merged([line])
    assert json.loads(merged)["request"] == {"subtype": "initialize", "hooks": {"Stop": []}, "title": "ours"}
    assert b"\n" not in merged  # it is still one line
    others = [b'{"type":"user","text":"\\"subtype\\":\\"initialize\\""}', b'{"subtype":"initialize"}', b'{"subtype":"initialize" broken']
    assert fields.merged(others) == others
    assert ClaudeFields({}).merged([line]) == [line]


async def test_a_token_with_all_its_sessions_gets_no_other_and_somebody_else_does() -> None:
    async with rehearsal(limits=GatewayLimits(sessions=1, total_sessions=2)) as stage:
        first = await stage.plain()
        await stage.processes.next()
        second = await stage.plain()
        refused = json.loads(await second.hear())
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("limit", True)
        await stage.plain(token="bob-has-another-one-987654321")
        await stage.processes.next()
        first.stream.break_connection()
        await stage.until(sessions=1)
        await stage.plain()
        await stage.processes.next()


async def test_a_gateway_with_all_its_sessions_gives_nobody_another_one() -> None:
    async with rehearsal(limits=GatewayLimits(total_sessions=1)) as stage:
        first = await stage.plain()
        await stage.processes.next()
        refused = json.loads(await (await stage.plain(token=BOB)).hear())
        assert (refused["error"]["code"], refused["error"]["retryable"]) == ("limit", True)
        first.stream.break_connection()
        await stage.until(sessions=0)
        await stage.plain(token=BOB)
        await stage.processes.next()


async def test_a_token_with_all_its_connections_gets_no_other_before_it_says_anything() -> None:
    async with rehearsal(limits=GatewayLimits(connections=1)) as stage:
        silent = stage.connect(token=ALICE)
        await anyio.wait_all_tasks_blocked()
        assert json.loads(await stage.connect(token=ALICE).hear())["error"]["code"] == "limit"
        somebody_else = stage.connect(token=BOB)
        await somebody_else.say({"n": 1})
        await stage.processes.next()
        await silent.say({"n": 1})
        await stage.processes.next()


async def test_a_token_whose_only_connection_has_ended_gets_another_one() -> None:
    async with rehearsal(limits=GatewayLimits(connections=1)) as stage:
        for number in range(2):
            client = stage.connect(token=ALICE)
            await client.say({"n": number})
            process = await stage.processes.next()
            await process.hear()
            client.stream.break_connection()
            await stage.until(sessions=0)
            await anyio.wait_all_tasks_blocked()


async def test_a_process_that_does_not_start_takes_no_place_and_tells_no_paths(caplog: pytest.LogCaptureFixture) -> None:
    async with rehearsal(launch=None, command=["/no/such/program"], limits=GatewayLimits(sessions=1)) as stage:
        for _ in range(3):
            client = await stage.plain()
            error = json.loads(await client.hear())["error"]
            assert (error["code"], "/no/such" in error["message"]) == ("start", False)
        link = await stage.link()
        assert (await link.hear_frame(Refusal)).code == "start"
        assert stage.gateway.metrics.refused == {"start": 4}
    assert "/no/such/program" in caplog.text


async def test_a_process_that_does_not_end_is_killed_after_the_time_of_the_gateway() -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True); time.sleep(600)"
    async with rehearsal(launch=None, command=[sys.executable, "-c", program], close_timeout=0.2) as stage:
        client = await stage.plain()
        assert await client.hear() == b"{}"
        with anyio.fail_after(60):
            await stage.gateway.aclose()


@virtual_time
async def test_a_process_that_is_never_there_is_not_waited_for_for_ever() -> None:
    class Nowhere(ByteStreamConnectable):
        async def connect(self) -> MemoryStream:
            await anyio.sleep_forever()
            raise AssertionError

    async with rehearsal(launch=lambda _options: StreamTransport(Nowhere())) as stage:
        client = await stage.plain()
        with anyio.fail_after(100):
            error = json.loads(await client.rest(patience=90.0))["error"]
        assert (error["code"], error["retryable"]) == ("start", True)
        assert stage.gateway.sessions == ()


@virtual_time
async def test_who_sends_faster_than_the_rate_waits_and_loses_nothing() -> None:
    async with rehearsal(limits=GatewayLimits(bytes_per_second=1000)) as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        began = anyio.current_time()
        for _ in range(10):
            await client.say(b'{"x":"%s"}' % (b"x" * 991))
        for _ in range(10):
            assert len(await process.hear()) == 999
        assert 8 <= anyio.current_time() - began <= 11


@virtual_time
async def test_starting_sessions_over_and_over_is_refused_for_a_minute() -> None:
    async with rehearsal(limits=GatewayLimits(starts_per_minute=2)) as stage:
        for _ in range(2):
            client = await stage.plain()
            await stage.processes.next()
            client.stream.break_connection()
            await stage.until(sessions=0)
        client = await stage.plain()
        assert json.loads(await client.hear())["error"]["code"] == "limit"
        await anyio.sleep(61)
        await stage.plain()
        await stage.processes.next()


async def test_a_drain_lets_the_running_turn_finish_and_takes_no_new_session() -> None:
    async with rehearsal() as stage:
        busy, idle = await stage.plain(), await stage.link()
        worker, sleeper = await stage.processes.next(), await stage.processes.next()
        await busy.say({"type": "user", "message": {"role": "user", "content": "work"}})
        await worker.hear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.gateway.drain)
            assert await sleeper.rest() == b""
            idle.stream.break_connection()
            late = await stage.plain()
            assert json.loads(await late.hear())["error"]["code"] == "draining"
            assert stage.gateway.page("/healthz", token=None).status == 503  # type: ignore[union-attr]
            await worker.say({"type": "result", "subtype": "success"})
            assert json.loads(await busy.hear())["type"] == "result"
            assert await worker.rest() == b""
        assert stage.gateway.sessions == ()
        assert stage.gateway.metrics.ended == {"drained": 2}


@pytest.mark.parametrize("mode", ["plain", "link"])
async def test_a_process_that_was_being_started_when_the_gateway_began_to_end_is_not_left_behind(mode: str) -> None:
    starting, ended = anyio.Event(), anyio.Event()
    processes: list[MemoryStream] = []

    class SlowOpener(ByteStreamConnectable):
        async def connect(self) -> MemoryStream:
            ours, theirs = memory_stream_pair()
            processes.append(theirs)
            starting.set()
            await ended.wait()
            return ours

    async with rehearsal(launch=lambda _options: StreamTransport(SlowOpener())) as stage:
        client = await (stage.plain() if mode == "plain" else stage.link())
        await starting.wait()
        await stage.gateway.drain()
        ended.set()
        with anyio.fail_after(30), pytest.raises(anyio.EndOfStream):
            await processes[0].receive()
        assert b"draining" in await client.rest()
        await stage.gateway.aclose()
        assert stage.gateway.sessions == ()
        assert stage.gateway.metrics.refused == {"draining": 1}


@virtual_time
async def test_a_drain_is_over_in_time_whatever_the_turn_does() -> None:
    async with rehearsal(drain_timeout=30.0) as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await client.say({"type": "user", "message": {"role": "user", "content": "work"}})
        await process.hear()
        began = anyio.current_time()
        await stage.gateway.drain()
        assert anyio.current_time() - began <= 35.0
        assert stage.gateway.sessions == ()


async def test_a_first_line_without_its_newline_is_whole_when_its_client_says_no_more() -> None:
    async with rehearsal(tokens=None) as stage:
        client = stage.connect()
        await client.stream.send(b'\n{"n":1}')
        await client.stream.send_eof()
        process = await stage.processes.next()
        assert await process.rest() == b'{"n":1}\n'
