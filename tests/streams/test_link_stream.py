"""`LinkStream`: its bytes survive cut connections; a session that cannot go on ends with a typed error."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream
from breaking_streams import CuttingDoor, Door, MeteringDoor, SilentStream
from virtual_time import virtual_time

from claude_transport.backoff import Backoff
from claude_transport.errors import (
    AuthenticationError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ProcessError,
    ProtocolError,
    ReplayGap,
    TransportClosed,
)
from claude_transport.link.carrier import DEFAULT_LINK_BACKOFF, LinkConnectable
from claude_transport.link.machine import Refusal
from claude_transport.streams.memory import MemoryConnectable, MemoryStream, memory_stream_pair
from claude_transport.testing.conformance.socket_peer import LinkPeer
from claude_transport.transport import Transport
from claude_transport.transports.stream import StreamTransport

AT_ONCE = Backoff(first=0, maximum=0)


def line(number: int) -> bytes:
    return b'{"type":"keep_alive","number":%d}' % number


@asynccontextmanager
async def linked(
    door: MemoryConnectable, *, peer: LinkPeer | None = None, timeout: float = 60, **options: Any
) -> AsyncIterator[tuple[Transport, LinkPeer]]:
    """Give a connected transport over a link, and its peer."""
    options.setdefault("backoff", AT_ONCE)
    with anyio.fail_after(timeout):
        link = LinkConnectable(door, **options)
        async with (peer or LinkPeer()).listening(door.accept) as listening, StreamTransport(link) as transport:
            yield transport, listening


async def read_all(transport: Transport) -> list[bytes]:
    return [each async for batch in transport.read_lines() for each in batch]


# Cut connections.


@pytest.mark.parametrize("longest", [pytest.param(3, marks=pytest.mark.nightly), 8, pytest.param(20, marks=pytest.mark.nightly)])
async def test_a_thousand_cuts_later_every_line_has_arrived_once_and_in_order_both_ways(longest: int) -> None:
    cuts = 340
    door = CuttingDoor(cuts=cuts, seed=longest, frames=lambda source: source.randrange(1, longest + 1))
    sizes = random.Random(longest)
    sent: list[list[bytes]] = [[], []]
    read: list[bytes] = []
    async with linked(door, window=4000, replay_bytes=4000, peer=LinkPeer(window=4000, replay_bytes=4000)) as (transport, peer):
        await peer.persist()

        def make(who: int) -> bytes:
            sent[who].append(b'{"n":%d,"pad":"%b"}' % (len(sent[who]), b"x" * sizes.randrange(120)))
            return sent[who][-1]

        async def write() -> None:
            while door.left:
                await transport.write(make(0))
            await transport.end_input()

        async def speak() -> None:
            while door.left:
                await peer.send(make(1) + b"\n")
            await peer.wait_input_end()
            await peer.finish()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            tasks.start_soon(speak)
            read = await read_all(transport)
        assert len(peer.hellos) >= cuts * 0.6  # some are cut before their hello has arrived
    assert peer.received.split(b"\n")[:-1] == sent[0]
    assert read == sent[1]


@pytest.mark.parametrize("direction", ["sent", "received"])
async def test_cuts_at_every_byte_of_the_frames_lose_and_repeat_nothing(direction: str) -> None:
    never = 10**9
    sizes = [500, *range(250)]  # bytes of a connection: from within the handshake to several frames behind it
    door = MeteringDoor((size, never) if direction == "sent" else (never, size) for size in sizes)
    said: list[list[bytes]] = [[], []]
    read: list[bytes] = []
    async with linked(door, window=4000, replay_bytes=200, peer=LinkPeer(window=4000, replay_bytes=200)) as (transport, peer):
        await peer.persist()

        async def write() -> None:
            while not door.used_up:
                said[0].append(line(len(said[0])))
                await transport.write(said[0][-1])
            await transport.end_input()

        async def speak() -> None:
            while not door.used_up:
                said[1].append(line(len(said[1])))
                await peer.send(said[1][-1] + b"\n")
            await peer.wait_input_end()
            await peer.finish()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            tasks.start_soon(speak)
            read = await read_all(transport)
    assert peer.received.split(b"\n")[:-1] == said[0]
    assert read == said[1]


async def test_a_line_of_two_megabytes_gets_through_connections_that_each_die_after_ten_kilobytes() -> None:
    door = MeteringDoor(iter(lambda: (10_000, 10_000), None))
    large = b'{"pad":"%b"}' % (b"x" * 2_000_000)
    async with linked(door) as (transport, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.send, large + b"\n")
        tasks.start_soon(transport.write, large)
        assert [batch async for batch in first_batch(transport)] == [[large]]
        assert await peer.receive_line() == large
        assert 200 < door.connections < 600
        await peer.finish()
        assert await read_all(transport) == []


async def test_a_connection_that_is_cut_before_it_was_of_any_use_is_made_again_ever_more_slowly() -> None:
    retries: list[int] = []

    class Counting(Backoff, frozen=True):
        def delay(self, retry: int) -> float:
            retries.append(retry)
            return 0.0

    door = MemoryConnectable()
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            whole = len(line(0)) + 1
            for received in (None, 0, 0, 0, whole, whole, whole):
                stream = await door.accept()
                await stream.send(b'W {"version":1,"session":"s","lease":9,"received":%d}\nA %d\n' % (received or 0, received or 0))
                while received is None and b"D 0 " not in await stream.receive():
                    pass
                await stream.aclose()
            await (await door.accept()).send(b'R {"code":"session"}\n')

        tasks.start_soon(serve)
        async with StreamTransport(LinkConnectable(door, backoff=Counting())) as transport:
            await transport.write(line(0))
            with pytest.raises(ConnectionLost):
                await read_all(transport)
    assert retries == [0, 1, 2, 0, 1]


async def test_what_is_written_while_the_connection_is_away_arrives_when_it_is_back() -> None:
    door = Door()
    async with linked(door) as (transport, peer):
        await transport.write(line(0))
        assert await peer.receive_line() == line(0)
        door.shut = True
        peer.cut()
        for number in range(1, 4):
            await transport.write(line(number))
        door.shut = False
        assert [await peer.receive_line() for _ in range(3)] == [line(1), line(2), line(3)]
        assert transport.is_ready()


async def test_a_writer_waits_while_the_connection_is_away_and_the_buffer_is_full() -> None:
    door = Door()
    async with linked(door, replay_bytes=1000) as (transport, peer):
        door.shut = True
        peer.cut()
        written: list[int] = []

        async def write() -> None:
            for number in range(200):
                await transport.write(line(number))
                written.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            while door.asked < 20:
                await anyio.lowlevel.checkpoint()
            assert 0 < len(written) < 35
            door.shut = False
        assert [await peer.receive_line() for _ in range(200)] == [line(number) for number in range(200)]


# Lost for good.


async def test_a_server_that_does_not_come_back_within_its_lease_is_a_lost_connection() -> None:
    door = Door()
    async with linked(door, peer=LinkPeer(lease=0.05), backoff=Backoff(first=0.01), close_timeout=0.1) as (transport, peer):
        await peer.send(line(0) + b"\n")
        reader = aiter(transport.read_lines())
        assert await anext(reader) == [line(0)]
        door.shut = True
        peer.cut()
        with pytest.raises(ConnectionLost, match=r"within 0\.05 s.*nobody is at home"):
            await anext(reader)
        assert not transport.is_ready()
        with pytest.raises(TransportClosed):
            await transport.write(line(1))


@pytest.mark.parametrize(
    ("code", "error"),
    [("auth", AuthenticationError), ("session", ConnectionLost), ("replay_gap", ReplayGap), ("full", ConnectionLost)],
)
async def test_a_session_that_is_refused_when_it_comes_back_ends_with_the_typed_reason(code: str, error: type[Exception]) -> None:
    async with linked(Door()) as (transport, peer):
        peer.refusal = Refusal(code=code, text="not any more")
        peer.cut()
        with pytest.raises(error, match="not any more"):
            await read_all(transport)


async def test_a_refusal_that_is_worth_another_try_is_tried_again() -> None:
    door = Door()
    async with linked(door) as (transport, peer):
        peer.refusal = Refusal(code="draining", text="in a minute", retryable=True)
        peer.cut()
        while door.asked < 5:
            await anyio.lowlevel.checkpoint()
        peer.refusal = None
        await transport.write(line(0))
        assert await peer.receive_line() == line(0)


async def test_a_connection_that_is_lost_below_the_link_before_the_welcome_is_made_again() -> None:
    door = Door()
    async with linked(door) as (transport, peer):
        door.failures = [ConnectionLost("left without the farewell that TLS asks for"), ConnectionLost("1012")]
        peer.cut()
        await transport.write(line(0))
        assert await peer.receive_line() == line(0)
    assert door.failures == []


@pytest.mark.parametrize(
    ("failure", "retryable"), [(ConnectionLost("the farewell is missing"), True), (ProtocolError("that is no zstd"), False)]
)
async def test_what_a_layer_below_the_link_says_before_the_welcome_is_a_failed_connection(failure: Exception, retryable: bool) -> None:
    door = Door()
    door.failures = [failure]
    with pytest.raises(CLIConnectionError, match=f"before the server had sent its welcome: {failure}") as caught:
        await LinkConnectable(door).connect()
    assert (caught.value.retryable, caught.value.__cause__) == (retryable, failure)


async def test_a_server_that_forgot_what_it_was_told_is_a_gap() -> None:
    door = MemoryConnectable()
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            stream = await door.accept()
            await stream.send(b'W {"version":1,"session":"s","lease":9}\n')
            while b"D 0 66" not in await stream.receive():
                pass
            await stream.send(b"A 66\n")
            await stream.aclose()
            stream = await door.accept()
            await stream.send(b'W {"version":1,"session":"s","lease":9,"received":0}\n')

        tasks.start_soon(serve)
        async with StreamTransport(LinkConnectable(door)) as transport:
            await transport.write(line(1) + b"\n" + line(2))
            with pytest.raises(ReplayGap, match="needs the data after position 0, but it is kept only from 66 on"):
                await read_all(transport)


async def first_batch(transport: Transport) -> AsyncIterator[list[bytes]]:
    async for batch in transport.read_lines():
        yield list(batch)
        return


async def test_a_server_that_breaks_the_protocol_ends_the_link() -> None:
    door = MemoryConnectable()
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            stream = await door.accept()
            await stream.send(b'W {"version":1,"session":"s","lease":9}\nD 0 3\n{}\nD 7 3\n{}\n')

        tasks.start_soon(serve)
        async with StreamTransport(LinkConnectable(door)) as transport:
            with pytest.raises(ProtocolError, match="position 7 came after position 3"):
                await read_all(transport)


# Heartbeats.


async def test_a_connection_that_fell_silent_is_given_up_and_the_session_goes_on_over_another_one() -> None:
    door = Door()
    # seconds; a busy machine must not delay this process for twice as long
    async with linked(door, heartbeat=0.4) as (transport, peer):
        await transport.write(line(0))
        assert await peer.receive_line() == line(0)
        door.streams[0].lost = True
        await transport.write(line(1))
        assert await peer.receive_line() == line(1)
        await peer.send(line(2) + b"\n")
        assert [batch async for batch in first_batch(transport)] == [[line(2)]]
        assert len(door.streams) == 2
        assert [hello.received for hello in peer.hellos] == [0, 0]
        assert peer.hellos[1].session is not None


async def test_the_newest_connection_counts_while_the_server_still_believes_in_the_one_before() -> None:
    door = Door()
    async with linked(door, peer=LinkPeer(heartbeat=1000.0), heartbeat=0.05) as (transport, peer):
        await transport.write(line(0))
        assert await peer.receive_line() == line(0)
        door.streams[0].lost = True
        door.streams[0].stays = True  # the server is not told that its client has left
        await peer.send(line(0) + b"\n")
        assert [batch async for batch in first_batch(transport)] == [[line(0)]]
        await transport.write(line(1))
        assert await peer.receive_line() == line(1)


@virtual_time
async def test_ten_idle_minutes_leave_no_minute_without_a_byte_for_a_proxy_to_count() -> None:
    door = Door()
    async with linked(door, peer=LinkPeer(heartbeat=10**6), timeout=3600) as (transport, peer):
        await anyio.sleep(600)
        await transport.write(line(0))
        assert await peer.receive_line() == line(0)
    assert [stream.longest_silence < 31 for stream in door.streams] == [True]


@virtual_time
async def test_attempts_to_come_back_are_made_for_as_long_as_the_lease_and_ever_less_often() -> None:
    door = Door()
    async with linked(door, peer=LinkPeer(lease=300), backoff=DEFAULT_LINK_BACKOFF, timeout=3600) as (transport, peer):
        before = anyio.current_time()
        door.shut = True
        peer.cut()
        with pytest.raises(ConnectionLost, match="within 300 s"):
            await read_all(transport)
        assert anyio.current_time() - before == pytest.approx(300)
        assert 60 < door.asked < 90


@virtual_time
@pytest.mark.parametrize(("reconnect_timeout", "waited"), [(4, 4), (0.5, 0.5), (900, 300), (None, 300)])
async def test_a_client_that_waits_less_than_the_lease_says_so_and_never_waits_longer_than_it(
    reconnect_timeout: float | None, waited: float
) -> None:
    door = Door()
    options: dict[str, Any] = {"backoff": DEFAULT_LINK_BACKOFF, "reconnect_timeout": reconnect_timeout}
    async with linked(door, peer=LinkPeer(lease=300), timeout=3600, **options) as (transport, peer):
        before = anyio.current_time()
        door.shut = True
        peer.cut()
        with pytest.raises(ConnectionLost, match=f"could not be made again within {waited:g} s"):
            await read_all(transport)
        assert anyio.current_time() - before == pytest.approx(waited)


class SilentLater(MemoryConnectable):
    """A server that takes connections after the first one, and says nothing on them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = True
        self.silent: list[ByteStream] = []

    async def connect(self) -> MemoryStream:
        if self.first:
            self.first = False
            return await super().connect()
        ours, theirs = memory_stream_pair()
        self.silent.append(theirs)
        return ours


@virtual_time
@pytest.mark.parametrize(("connect_timeout", "reconnect_timeout", "attempts"), [(30, 10, 1), (4, 10, 3), (4, 3, 1)])
async def test_a_server_that_says_nothing_when_it_is_reached_again_costs_no_more_than_the_time_to_come_back(
    connect_timeout: float, reconnect_timeout: float, attempts: int
) -> None:
    door = SilentLater()
    options = {"connect_timeout": connect_timeout, "reconnect_timeout": reconnect_timeout}
    async with linked(door, peer=LinkPeer(lease=300), timeout=3600, **options) as (transport, peer):
        before = anyio.current_time()
        peer.cut()
        with pytest.raises(ConnectionLost, match=f"could not be made again within {reconnect_timeout:g} s: no welcome within") as caught:
            await read_all(transport)
        assert isinstance(caught.value.__cause__, ConnectTimeout)
        assert anyio.current_time() - before == pytest.approx(reconnect_timeout)
        assert len(door.silent) == attempts


class UnwillingStream(SilentStream):
    """A connection that does not end in good order: only by force."""

    async def aclose(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await super().aclose()


class Unwilling(MemoryConnectable):
    """Opens such connections."""

    async def connect(self) -> ByteStream:  # type: ignore[override]
        return UnwillingStream(await super().connect())


@virtual_time
async def test_after_the_end_of_the_process_a_connection_is_given_a_second_to_end_in_good_order() -> None:
    async with linked(Unwilling(), timeout=3600) as (transport, peer):
        await peer.finish()
        assert await read_all(transport) == []
        before = anyio.current_time()
        await transport.close()
        assert anyio.current_time() - before == pytest.approx(1.0)


@virtual_time
async def test_a_connection_that_fell_silent_is_given_up_after_two_heartbeats() -> None:
    door = Door()
    async with linked(door, timeout=3600) as (transport, peer):
        door.streams[0].lost = True
        before = anyio.current_time()
        await peer.send(line(0) + b"\n")
        assert [batch async for batch in first_batch(transport)] == [[line(0)]]
        assert anyio.current_time() - before == pytest.approx(30)


async def test_a_goodbye_of_a_server_that_ends_is_worth_another_attempt() -> None:
    async with linked(Door()) as (transport, peer):
        peer.end.bye(code="closed_by_server", reason="the server ends")
        await peer.send(line(0) + b"\n")
        with pytest.raises(ConnectionLost) as caught:
            await read_all(transport)
    assert (caught.value.code, caught.value.retryable, str(caught.value)) == ("connection.closed_by_server", True, "the server ends")


# Connecting.


async def test_the_hello_carries_the_token_the_options_and_the_trace_and_hides_them_in_a_log() -> None:
    door = Door()
    link = LinkConnectable(door, token="s3cret", options={"model": "haiku"})
    link.set_option("max_turns", 3)
    link.carry_trace({"traceparent": "00-1-2-01"})
    async with LinkPeer().listening(door.accept) as peer:
        await (await link.connect()).aclose()
    hello = peer.hellos[0]
    assert (hello.token, hello.options, hello.trace) == ("s3cret", {"model": "haiku", "max_turns": 3}, {"traceparent": "00-1-2-01"})
    assert "s3cret" not in repr(hello)


@pytest.mark.parametrize(("code", "error"), [("auth", AuthenticationError), ("options", ConfigurationError), ("full", CLIConnectionError)])
async def test_a_refused_hello_is_a_typed_error(code: str, error: type[Exception]) -> None:
    door = Door()
    peer = LinkPeer()
    peer.refusal = Refusal(code=code, text="no", retryable=code == "full")
    async with peer.listening(door.accept):
        with pytest.raises(error, match="no") as caught:
            await LinkConnectable(door).connect()
    assert getattr(caught.value, "retryable", None) is (code == "full")


async def test_who_does_not_speak_the_protocol_is_told_apart_from_who_is_not_there() -> None:
    door = MemoryConnectable()
    async with anyio.create_task_group() as tasks:

        async def answer(reply: bytes) -> None:
            stream = await door.accept()
            await stream.receive()
            await stream.send(reply)
            await stream.aclose()

        for reply, code in (
            (b'{"type":"system"}\n', "connect.not_a_link"),
            (b"", "connect.failed"),
            (b'W {"version":99,"session":"s","lease":1}\n', "connect.version"),
            (b"A 1\n", "connect.not_a_link"),
        ):
            tasks.start_soon(answer, reply)
            with pytest.raises(CLIConnectionError) as caught:
                await LinkConnectable(door).connect()
            assert caught.value.code == code


async def test_a_server_that_never_says_welcome_is_a_timeout() -> None:
    with pytest.raises(ConnectTimeout, match=r"0\.01 s") as caught:
        await LinkConnectable(MemoryConnectable(), connect_timeout=0.01).connect()
    assert caught.value.waited == 0.01


@pytest.mark.parametrize("options", [{"heartbeat": 0.0}, {"window": 0}, {"replay_bytes": 0}])
def test_bounds_that_are_none_are_refused_when_they_are_given(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        LinkConnectable(MemoryConnectable(), **options)


# The end.


async def test_the_exit_of_the_far_process_is_told_as_that_of_a_local_one() -> None:
    async with linked(Door()) as (transport, peer):
        await peer.send(line(0) + b"\n")
        await peer.fail()
        read: list[bytes] = []
        with pytest.raises(ProcessError, match="exit code 3") as caught:
            async for batch in transport.read_lines():
                read += batch
        assert read == [line(0)]
        assert (caught.value.exit_code, caught.value.stderr_tail) == (3, "that was all")
        assert (transport.info.exit_code, transport.info.stderr_tail) == (3, "that was all")


async def test_a_cut_between_the_last_line_and_the_exit_loses_neither() -> None:
    door = Door()
    async with linked(door) as (transport, peer):
        door.shut = True
        peer.cut()
        await peer.send(line(0) + b"\n")
        await peer.fail()
        door.shut = False
        with pytest.raises(ProcessError):
            await read_all(transport)


def saying(frame: bytes) -> tuple[MemoryConnectable, Callable[[], Coroutine[Any, Any, Any]]]:
    """Give a door, and a server behind it that answers its first client with this frame."""
    door = MemoryConnectable()

    async def serve() -> None:
        stream = await door.accept()
        await stream.send(b'W {"version":1,"session":"s","lease":9}\n' + frame + b"\n")
        with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            while True:
                await stream.receive()

    return door, serve


async def test_the_last_words_of_a_far_process_are_shown_without_what_we_told_it_in_confidence() -> None:
    words = "x" * 600 + " the token hush-hush-hush and the key of-its-tool-9 and sk-ant-api03-abcdefghijklmnop " + "y" * 400
    door, serve = saying(b'X {"after":0,"exit_code":1,"stderr_tail":"%b"}' % words.encode())
    told: dict[str, Any] = {"token": "hush-hush-hush", "options": {"env": {"TOOL_API_KEY": "of-its-tool-9"}}}
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with StreamTransport(LinkConnectable(door, **told)) as transport:
                with pytest.raises(ProcessError) as caught:
                    await read_all(transport)
            reason = caught.value.reason
            assert reason in str(caught.value)
            assert "the token" in reason
            assert "hush" not in reason
            assert "of-its-tool" not in reason
            assert "abcdefgh" not in reason


@pytest.mark.parametrize(
    ("bye", "code"),
    [
        (b'{"code":"line_too_long","reason":"too long"}', "connection.line_too_long"),
        (b'{"reason":"too long"}', "connection.lost"),
        (b'{"code":"No code, but\\n text","reason":"too long"}', "connection.lost"),
    ],
)
async def test_why_a_server_said_goodbye_is_in_the_code_of_the_error(bye: bytes, code: str) -> None:
    door, serve = saying(b"B " + bye)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with StreamTransport(LinkConnectable(door)) as transport:
                with pytest.raises(ConnectionLost, match="too long") as caught:
                    await read_all(transport)
            assert caught.value.code == code


async def test_input_that_never_reached_the_process_is_an_error_and_not_a_success() -> None:
    async with linked(Door()) as (transport, peer):
        await peer.stop_reading()
        await transport.write(line(0))
        await peer.finish()
        with pytest.raises(ConnectionLost, match="had not been given the end of its input") as caught:
            await read_all(transport)
        assert caught.value.code == "connection.input_lost"


async def test_input_that_did_reach_it_is_a_success() -> None:
    async with linked(Door()) as (transport, peer):
        await transport.write(line(0))
        await transport.end_input()
        assert await peer.receive_line() == line(0)
        assert await read_all(transport) == []
        assert transport.info.exit_code == 0


async def test_closing_waits_for_the_status_of_the_far_process() -> None:
    door = Door()
    async with linked(door) as (transport, peer):
        await transport.close()
        assert transport.info.exit_code == 0
        assert peer.input_ended


async def test_closing_takes_the_last_words_of_the_far_process_however_many_they_are() -> None:
    async with linked(Door(), window=4000, close_timeout=2.0, peer=LinkPeer(window=4000)) as (transport, peer):
        await peer.persist()

        async def say() -> None:
            await peer.wait_input_end()
            for number in range(20):
                await peer.send(line(number) * 30 + b"\n")
            await peer.finish()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say)
            await transport.close()
            assert transport.info.exit_code == 0
            tasks.cancel_scope.cancel()


async def test_a_server_that_says_endless_nothing_is_not_listened_to_for_ever() -> None:
    door = MemoryConnectable()

    async def answer() -> None:
        stream = await door.accept()
        with pytest.raises(anyio.BrokenResourceError):
            while True:
                await stream.send(b"x" * 65536)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            with pytest.raises(CLIConnectionError) as caught:
                await LinkConnectable(door).connect()
            assert (caught.value.code, caught.value.retryable) == ("connect.not_a_link", False)


async def test_a_link_that_is_over_says_so_in_both_directions() -> None:
    door, serve = saying(b'X {"after":0,"accepted":0,"exit_code":3,"stderr_tail":"last words"}')
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            stream = await LinkConnectable(door).connect()
            with pytest.raises(ProcessError) as ended:
                await stream.receive()
            with pytest.raises(anyio.BrokenResourceError) as broken:
                await stream.send(b"more")
            assert broken.value.__cause__ is ended.value
            await stream.send_eof()
            await stream.aclose()
            for call in (stream.receive(), stream.send(b"more")):
                with pytest.raises(anyio.ClosedResourceError):
                    await call
            tasks.cancel_scope.cancel()


async def test_a_refusal_in_the_middle_of_a_session_ends_it_with_its_typed_reason() -> None:
    door, serve = saying(b'R {"code":"unauthorized","text":"the token was withdrawn","retryable":false}')
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            stream = await LinkConnectable(door).connect()
            with pytest.raises(CLIConnectionError, match="the token was withdrawn"):
                await stream.receive()
            await stream.aclose()
            tasks.cancel_scope.cancel()


async def test_who_closes_ends_the_input_says_goodbye_and_waits_for_the_exit() -> None:
    door = MemoryConnectable()
    said = bytearray()
    transport = StreamTransport(LinkConnectable(door))
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            stream = await door.accept()
            await stream.send(b'W {"version":1,"session":"s","lease":9}\n')
            while b"B " not in said:
                said.extend(await stream.receive())
            await stream.send(b'D 0 13\n{"unread":1}\nX {"after":13,"accepted":34,"signal":15,"killed":true}\n')
            said.extend(await stream.receive())

        tasks.start_soon(serve)
        async with transport:
            await transport.write(line(0))
    assert said.split(b"\n")[1:] == [
        b"D 0 33",
        line(0),
        b"E 33",
        b'B {"reason":"closed"}',
        b"A 14",
        b'B {"reason":"the process has ended"}',
        b"",
    ]
    assert (transport.info.signal, transport.info.exit_code, transport.info.killed) == (15, None, True)


async def test_closing_first_lets_go_out_what_waits_for_the_window() -> None:
    lines = b"\n".join(line(number) for number in range(100))
    async with linked(Door(), peer=LinkPeer(window=200)) as (transport, peer):
        await transport.write(lines)
        assert len(peer.received) < len(lines)
        await transport.close()
        assert peer.received == lines + b"\n"


async def test_a_reader_with_nothing_left_to_read_says_what_it_has_read() -> None:
    async with linked(Door()) as (transport, peer), anyio.create_task_group() as tasks:
        await peer.send(line(0) + b"\n")
        tasks.start_soon(read_all, transport)
        while peer.end.kept_bytes:
            await anyio.lowlevel.checkpoint()
        await peer.finish()


async def test_closing_while_the_connection_is_away_says_goodbye_as_soon_as_it_is_back() -> None:
    door = Door()
    async with linked(door) as (transport, peer):
        door.shut = True
        peer.cut()
        await transport.write(line(0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.close)
            asked = door.asked
            while door.asked < asked + 3:
                await anyio.lowlevel.checkpoint()
            door.shut = False
        assert peer.received == line(0) + b"\n"
        assert transport.info.exit_code == 0


async def test_closing_ends_in_time_although_nobody_ever_comes_back() -> None:
    door = Door()
    async with linked(door, close_timeout=0.05) as (transport, peer):
        door.shut = True
        peer.cut()
        await transport.close()
        assert transport.info.exit_code is None


async def test_lines_that_are_sent_byte_by_byte_arrive_as_lines() -> None:
    door = Door()
    async with LinkPeer().listening(door.accept) as peer:
        stream = await LinkConnectable(door).connect()
        for byte in b"one\n\ntwo\nthree":
            await stream.send(bytes([byte]))
        await stream.send_eof()
        await peer.wait_input_end()
        assert peer.received == b"one\n\ntwo\nthree"
        await stream.aclose()


async def test_bytes_that_are_no_lines_get_through_as_they_are() -> None:
    door = Door()
    async with LinkPeer().listening(door.accept) as peer:
        stream = await LinkConnectable(door).connect()
        await stream.send(b"one\ntw")
        await stream.send(b"o\nthree")
        await stream.send_eof()
        await peer.wait_input_end()
        assert peer.received == b"one\ntwo\nthree"
        await stream.aclose()


async def test_a_cancelled_close_of_a_link_leaves_no_task_behind() -> None:
    door = Door()
    with anyio.fail_after(60):
        async with LinkPeer().listening(door.accept):
            stream = await LinkConnectable(door, close_timeout=0.1).connect()
            assert [task.name for task in anyio.get_running_tasks()].count("resumable link") == 1
            with anyio.CancelScope() as scope:
                scope.cancel()
                await stream.aclose()
            assert [task.name for task in anyio.get_running_tasks()].count("resumable link") == 0
