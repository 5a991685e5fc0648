"""A WebSocket connection as a byte stream: both ends, half-close, closing, pings, limits, and peers that break the rules."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import anyio
import pytest
from websocket_peers import URL, both_ends, client_and_frames, receive_all, server_and_frames
from websockets.frames import Frame, Opcode

from claude_transport.errors import ConfigurationError, ConnectionLost, ProtocolError, UsageError
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.websocket import WebSocketStream, check_websocket, parse_url

TEXT, BINARY, CONT, CLOSE, PING, PONG = Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.CLOSE, Opcode.PING, Opcode.PONG
EITHER_END = pytest.mark.parametrize("peered", [client_and_frames, server_and_frames], ids=["client", "server"])


async def failure_of(stream: WebSocketStream) -> Exception:
    """Receive everything, and return the exception at the end."""
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, ConnectionLost, ProtocolError) as exc:
        return exc


# Two ends.


@pytest.mark.parametrize("compression", [False, True])
async def test_what_one_end_sends_the_other_receives(compression: bool) -> None:
    lines = [b'{"n":%d,"s":"\xc3\xa9"}\n' % n for n in range(50)] + [b"x" * 3_000_000 + b"\n", b"caf\xe9\n", b"torn"]
    async with both_ends(compression=compression) as ends:
        for one, other in (ends, reversed(ends)):
            received: list[bytes] = []

            async def receive(stream: WebSocketStream = other, received: list[bytes] = received) -> None:
                while sum(map(len, received)) < len(b"".join(lines)):
                    received.append(await stream.receive())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                for line in lines:
                    await one.send(line)
            assert b"".join(received) == b"".join(lines)


async def test_a_receiver_gets_no_more_than_it_asks_for() -> None:
    async with both_ends() as (client, server):
        await client.send(b"abcdefg\n")
        assert [await server.receive(3), await server.receive(3), await server.receive(3)] == [b"abc", b"def", b"g\n"]
        with pytest.raises(UsageError, match="max_bytes"):
            await server.receive(0)


async def test_after_the_end_of_its_input_the_peer_still_answers() -> None:
    async with both_ends() as (client, server):
        await client.send(b"question\n")
        await client.send_eof()
        await client.send_eof()
        assert await receive_all(server) == b"question\n"
        with pytest.raises(anyio.EndOfStream):
            await server.receive()
        with pytest.raises(anyio.ClosedResourceError):
            await client.send(b"more\n")
        await server.send(b"answer\n")
        await server.send_eof()
        assert await receive_all(client) == b"answer\n"


async def test_what_was_said_before_the_farewell_arrives_and_then_the_end() -> None:
    async with both_ends() as (client, server):
        await client.send(b"last words\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.aclose)
            assert await receive_all(server) == b"last words\n"
        assert server.extra(StreamAttribute.ended)
        with pytest.raises(anyio.BrokenResourceError):
            await server.send(b"too late\n")


async def test_closing_wakes_who_receives_and_who_sends() -> None:
    errors: list[Exception] = []
    async with both_ends(capacity=1000, close_timeout=0.01) as (client, _server), anyio.create_task_group() as tasks:

        async def wait(call: Any, *args: Any) -> None:
            try:
                await call(*args)
            except anyio.ClosedResourceError as exc:
                errors.append(exc)

        tasks.start_soon(wait, client.receive)
        tasks.start_soon(wait, client.send, b"x" * 100_000 + b"\n")
        await anyio.wait_all_tasks_blocked()
        assert not errors
        await client.aclose()
        await client.aclose()
    assert len(errors) == 2
    for call in (client.receive, lambda: client.send(b"x\n")):
        with pytest.raises(anyio.ClosedResourceError):
            await call()


async def test_a_receiver_is_woken_before_the_peer_has_answered_the_farewell() -> None:
    async with client_and_frames(close_timeout=60) as (client, _peer), anyio.create_task_group() as tasks:
        woken = anyio.Event()

        async def wait() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await client.receive()
            woken.set()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(client.aclose)
        await woken.wait()
        tasks.cancel_scope.cancel()


async def test_closing_a_connection_whose_peer_does_not_take_part_does_not_wait_for_it() -> None:
    async with client_and_frames(close_timeout=0.01) as (client, peer):
        await client.aclose()
        assert (await peer.next_frame()).opcode is CLOSE
        with pytest.raises(anyio.EndOfStream):
            await peer.next_frame()


async def test_a_cancelled_close_still_closes_what_lies_below() -> None:
    async with client_and_frames(close_timeout=60) as (client, peer):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await client.aclose()
        assert scope.cancelled_caught
        with pytest.raises(anyio.EndOfStream):
            await peer.next_frame()


async def test_a_cancelled_receiver_takes_nothing_along() -> None:
    async with both_ends() as (client, server):
        for n in range(20):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.send, b"%d\n" % n)
                    scope.cancel()
                    await server.receive()
            if scope.cancelled_caught:
                with anyio.move_on_after(0.01):
                    assert await server.receive() in {b"%d\n" % n, b"%d\n" % (n - 1)}


async def test_after_a_send_that_was_cancelled_half_way_nothing_more_is_sent() -> None:
    async with both_ends(capacity=1000, close_timeout=0.01) as (client, server):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send, b"x" * 100_000 + b"\n")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        with pytest.raises(anyio.BrokenResourceError, match="as a whole"):
            await client.send(b"next\n")
        await client.aclose()
        assert isinstance(await failure_of(server), anyio.BrokenResourceError)


async def test_two_at_once_cannot_receive() -> None:
    async with both_ends() as (client, _server), anyio.create_task_group() as tasks:
        tasks.start_soon(failure_of, client)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await client.receive()
        tasks.cancel_scope.cancel()


async def test_the_address_is_known_and_so_is_what_lies_below() -> None:
    async with both_ends() as (client, server):
        assert client.extra(StreamAttribute.address) == URL.replace("example", "example:80")
        assert server.extra(StreamAttribute.address, None) is None
        assert not client.extra(StreamAttribute.ended)


# Frames of a foreign peer.


@EITHER_END
async def test_text_is_whole_lines_and_bytes_are_as_they_are(peered: Any) -> None:
    async with peered() as (stream, peer):
        await peer.say(TEXT, b'{"a":1}')
        await peer.say(BINARY, b'{"b":')
        await peer.say(BINARY, b"2}\n")
        await peer.say(TEXT, b'{"c":', fin=False)
        await peer.say(PING, b"between")
        await peer.say(CONT, b"3}")
        await peer.say(TEXT, b"")
        assert await receive_all(stream) == b'{"a":1}\n{"b":2}\n{"c":3}\n'


async def test_what_a_server_says_right_behind_its_answer_is_not_lost() -> None:
    async with client_and_frames(behind=b"early\n", farewell=True) as (client, _peer):
        assert await client.receive() == b"early\n"
        with pytest.raises(ConnectionLost, match="restarting"):
            await client.receive()


@EITHER_END
async def test_lines_go_out_as_text_and_the_end_of_input_as_an_empty_one(peered: Any) -> None:
    async with peered() as (stream, peer):
        await stream.send(b'{"a":1}\n{"b":2}\n')
        await stream.send(b"\xff")
        await stream.send_eof()
        frames = [await peer.next_frame() for _ in range(3)]
        assert [(frame.opcode, bytes(frame.data)) for frame in frames] == [(TEXT, b'{"a":1}\n{"b":2}\n'), (BINARY, b"\xff"), (TEXT, b"")]


async def test_a_long_line_goes_out_in_frames_that_need_not_be_held_at_once() -> None:
    async with client_and_frames(capacity=10_000_000) as (client, peer):
        await client.send(b"x" * 2_500_000 + b"\n")
        frames = [await peer.next_frame() for _ in range(3)]
    assert [(frame.opcode, frame.fin) for frame in frames] == [(TEXT, False), (CONT, False), (CONT, True)]
    assert sum(len(frame.data) for frame in frames) == 2_500_001


@EITHER_END
@pytest.mark.parametrize("after_its_end", [False, True])
async def test_pings_are_answered_also_after_the_peer_has_ended_its_input(peered: Any, after_its_end: bool) -> None:
    async with peered() as (stream, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(failure_of, stream)
        if after_its_end:
            await peer.say(TEXT, b"")
        await peer.say(PING, b"are you there?")
        pong = await peer.next_frame()
        assert (pong.opcode, bytes(pong.data)) == (PONG, b"are you there?")
        tasks.cancel_scope.cancel()


async def test_a_peer_that_pings_without_end_and_reads_nothing_gets_a_bounded_number_of_answers() -> None:
    pings = 40_000
    async with client_and_frames(capacity=1000) as (client, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(failure_of, client)
        for _ in range(pings // 100):
            await peer.wire.send(Frame(PING, b"12345678").serialize(mask=False) * 100)
        await anyio.wait_all_tasks_blocked()
        answered = 0
        with anyio.move_on_after(1):
            await peer.say(TEXT, b"")
            while (await peer.next_frame()).opcode is PONG:
                answered += 1
        assert 0 < answered < pings // 2
        tasks.cancel_scope.cancel()


@EITHER_END
async def test_pings_are_answered_also_after_much_was_sent(peered: Any) -> None:
    line = b"x" * 100_000 + b"\n"
    async with peered() as (stream, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(failure_of, stream)
        tasks.start_soon(stream.send, line)
        assert (await peer.next_frame()).data == line
        for said in (b"1", b"2"):
            await peer.say(PING, said)
            answer = await peer.next_frame()
            assert (answer.opcode, answer.data) == (PONG, said)
        tasks.cancel_scope.cancel()


async def test_a_reader_does_not_wait_for_its_answers_to_be_taken() -> None:
    async with client_and_frames(capacity=1000, close_timeout=0.01) as (client, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(client.send, b"x" * 100_000 + b"\n")
        await anyio.wait_all_tasks_blocked()
        await peer.say(PING, b"you send, and I do not read")
        await peer.say(TEXT, b"hello\n")
        assert await client.receive() == b"hello\n"
        tasks.cancel_scope.cancel()


@EITHER_END
@pytest.mark.parametrize(
    ("code", "reason", "expected", "retryable"),
    [
        (1000, "", anyio.EndOfStream, None),
        (None, "", anyio.EndOfStream, None),
        (1001, "restarting", ConnectionLost, True),
        (1002, "", ProtocolError, False),
        (1008, "token expired", ConnectionLost, False),
        (1009, "", ProtocolError, False),
        (1011, "oops", ConnectionLost, False),
        (1013, "", ConnectionLost, True),
        (4000, "", ConnectionLost, False),
    ],
)
async def test_the_code_of_a_farewell_says_how_it_ends(
    peered: Any, code: int | None, reason: str, expected: type[Exception], retryable: bool | None
) -> None:
    async with peered() as (stream, peer):
        await peer.say(TEXT, b"last\n")
        await peer.say(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason.encode())
        assert await stream.receive() == b"last\n"
        error = await failure_of(stream)
        assert type(error) is expected
        assert reason in str(error)
        assert getattr(error, "retryable", None) is retryable
        answer = await peer.next_frame()
        assert (answer.opcode, bytes(answer.data[:2])) == (CLOSE, b"" if code is None else code.to_bytes(2, "big"))


async def test_a_peer_that_says_farewell_in_the_middle_of_a_long_line_ends_its_sender_typed() -> None:
    async with client_and_frames(capacity=2**16) as (client, peer), anyio.create_task_group() as tasks:

        async def drain() -> None:
            while True:
                await peer.wire.receive()

        async def send() -> None:
            with pytest.raises(anyio.BrokenResourceError):
                await client.send(b"x" * (3 * 2**20) + b"\n")
            tasks.cancel_scope.cancel()

        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        await peer.say(CLOSE, (1000).to_bytes(2, "big"))
        with pytest.raises(anyio.EndOfStream):
            await client.receive()
        tasks.start_soon(drain)


@EITHER_END
async def test_a_peer_that_leaves_without_a_word_is_no_good_end(peered: Any) -> None:
    async with peered() as (stream, peer):
        await peer.say(TEXT, b"last\n")
        await peer.wire.aclose()
        assert await stream.receive() == b"last\n"
        assert isinstance(await failure_of(stream), anyio.BrokenResourceError)
        assert stream.extra(StreamAttribute.ended)


@EITHER_END
async def test_a_connection_that_breaks_below_is_broken(peered: Any) -> None:
    async with peered() as (stream, peer):
        peer.wire.break_connection()
        assert isinstance(await failure_of(stream), anyio.BrokenResourceError)
        with pytest.raises(anyio.BrokenResourceError):
            await stream.send(b"hello?\n")


@EITHER_END
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([(TEXT, b"caf\xe9", True)], 1007),
        ([(CONT, b"continues nothing", True)], 1002),
        ([(TEXT, b"a", False), (TEXT, b"b", True)], 1002),
        ([(CLOSE, b"\x00", True)], 1002),
    ],
)
async def test_a_peer_that_breaks_the_rules_is_told_so_and_the_reader_too(peered: Any, frames: Any, code: int) -> None:
    async with peered() as (stream, peer):
        await peer.say(TEXT, b"fine\n")
        for opcode, data, fin in frames:
            await peer.say(opcode, data, fin=fin)
        assert (await stream.receive())[:5] == b"fine\n"
        assert type(await failure_of(stream)) is ProtocolError
        answer = await peer.next_frame()
        assert (answer.opcode, bytes(answer.data[:2])) == (CLOSE, code.to_bytes(2, "big"))


@pytest.mark.parametrize("raw", [b"\x83\x00", b"\xf1\x00", b"\x81\x7f" + b"\xff" * 8, b"\x81\x85maskhello"])
async def test_what_is_no_frame_for_a_client_is_a_protocol_error(raw: bytes) -> None:
    async with client_and_frames() as (client, peer):
        await peer.wire.send(raw)
        assert type(await failure_of(client)) is ProtocolError


# Limits.


@EITHER_END
@pytest.mark.parametrize("parts", [1, 4])
async def test_a_message_over_the_limit_ends_the_connection(peered: Any, parts: int) -> None:
    async with peered(max_message_bytes=1000) as (stream, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.say, TEXT, b"x" * 1000)
        assert await stream.receive() == b"x" * 1000 + b"\n"
        for part in range(parts):
            await peer.say(CONT if part else TEXT, b"x" * (1200 // parts), fin=part == parts - 1)
        error = await failure_of(stream)
        assert isinstance(error, ProtocolError)
        assert error.code == "protocol.message_too_big"
        answer = await peer.next_frame()
        assert (answer.opcode, bytes(answer.data[:2])) == (CLOSE, (1009).to_bytes(2, "big"))


@EITHER_END
async def test_a_small_message_that_inflates_beyond_the_limit_ends_the_connection(peered: Any) -> None:
    async with peered(compression=True, max_message_bytes=100_000) as (stream, peer):
        assert peer.extensions
        await peer.say(TEXT, b"x" * 10_000_000)
        error = await failure_of(stream)
        assert isinstance(error, ProtocolError)
        assert error.code == "protocol.message_too_big"


async def test_what_is_not_deflated_well_is_a_protocol_error() -> None:
    async with client_and_frames(compression=True) as (client, peer):
        await peer.wire.send(b"\xc1\x05\xff\xff\xff\xff\xff")
        assert type(await failure_of(client)) is ProtocolError


async def test_compression_is_used_when_both_ends_want_it() -> None:
    async with client_and_frames(compression=True) as (client, peer):
        line = b"again and again " * 1000 + b"\n"
        await client.send(line)
        raw = await peer.wire.receive()
        assert len(raw) < len(zlib.compress(line)) + 100
        peer.protocol.receive_data(raw)
        assert bytes(peer.protocol.events_received()[0].data) == line  # type: ignore[union-attr]


async def test_nothing_is_read_ahead_of_a_receiver_that_does_not_ask() -> None:
    async with client_and_frames(capacity=1000) as (_client, peer), anyio.create_task_group() as tasks:
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await peer.say(TEXT, b"x" * 99 + b"\n")
                sent += 1

        tasks.start_soon(flood)
        await anyio.wait_all_tasks_blocked()
        assert sent <= 11
        tasks.cancel_scope.cancel()


def test_the_package_that_speaks_websocket_is_asked_for_by_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("websockets.server", "websockets.uri"):
        monkeypatch.setitem(sys.modules, name, None)
    for need in (check_websocket, lambda: parse_url(URL)):
        with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[ws\]'") as caught:
            need()
        assert isinstance(caught.value.__cause__, ImportError)
