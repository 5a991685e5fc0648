"""What a client may send before the server trusts it: little in all, in whatever frames, and nothing of it is lost."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counted import Counted
from hypothesis import given, settings
from hypothesis import strategies as st
from websocket_peers import PATIENCE, FramePeer, server_and_frames
from websockets.frames import Frame, Opcode

from claude_transport.errors import ProtocolError
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.streams.websocket import WebSocketStream, accept_websocket

TEXT, BINARY, CONT, PING, CLOSE = Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.CLOSE
MIB = 2**20
REQUEST = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def framed(data: bytes, opcode: Opcode = BINARY, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True, extensions=[])


def announced(size: int, opcode: Opcode = BINARY) -> bytes:
    """The head of a frame with `size` bytes, which do not follow."""
    return struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size) + bytes(4)


async def refused(stream: WebSocketStream, peer: FramePeer) -> ProtocolError:
    """Receive until the stream refuses more. The peer gets the close code 1009 with a reason."""
    with pytest.raises(ProtocolError) as caught:
        while True:
            await stream.receive()
    while (answer := await peer.next_frame()).opcode is not CLOSE:
        pass
    assert bytes(answer.data[:2]) == (1009).to_bytes(2, "big")
    assert b"before it is admitted" in bytes(answer.data)
    assert caught.value.code == "protocol.message_too_big"
    return caught.value


@asynccontextmanager
async def stranger(at_most: int = 10_000, **options: Any) -> AsyncIterator[tuple[WebSocketStream, FramePeer]]:
    async with server_and_frames(max_first_bytes=at_most, capacity=2 * MIB, **options) as (stream, peer):
        yield stream, peer


@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING])
@pytest.mark.parametrize("size", [9_995, 2**16, 2**40])
async def test_a_frame_that_is_too_large_for_a_stranger_is_refused_by_its_head(size: int, opcode: Opcode) -> None:
    async with stranger() as (stream, peer):
        await peer.wire.send(announced(size, opcode))
        error = await refused(stream, peer)
        assert str(error) == "the peer has sent more than the 10000 bytes that it may send before it is admitted"


async def test_a_frame_that_a_stranger_may_send_arrives_and_one_byte_more_does_not() -> None:
    for size in (10_000 - 8, 10_000 - 7):
        async with stranger() as (stream, peer):
            await peer.wire.send(framed(b"x" * size))
            if size == 10_000 - 8:
                received = await stream.receive()
                assert received == b"x" * size
            else:
                await refused(stream, peer)


@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING])
@pytest.mark.parametrize("size", [0, 1, 100])
async def test_frames_that_are_small_one_by_one_are_counted_together(size: int, opcode: Opcode) -> None:
    async with stranger() as (stream, peer):
        fitting = 10_000 // (size + 6)
        parts = opcode is TEXT  # one message in many frames; an empty one would end the input
        for number in range(fitting + 1):
            await peer.wire.send(framed(b"x" * size, CONT if parts and number else opcode, fin=not parts))
        received = b""
        if opcode is not PING:
            while len(received) < size * fitting:
                received += await stream.receive()
        assert received == (b"" if opcode is PING else b"x" * size * fitting)
        await refused(stream, peer)


async def test_a_stranger_that_sends_without_end_is_read_no_further_than_its_bound() -> None:
    async with server_and_frames(max_first_bytes=65_536, capacity=1000) as (stream, peer), anyio.create_task_group() as tasks:
        sent = 0

        async def flood() -> None:
            nonlocal sent
            data = framed(b"x" * 60_000, fin=False) + framed(b"x" * MIB, CONT)
            for start in range(0, len(data), 1000):
                await peer.wire.send(data[start : start + 1000])
                sent += 1000

        tasks.start_soon(flood)
        assert len(await stream.receive(MIB)) == 60_000
        with pytest.raises(ProtocolError):
            await stream.receive()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        assert sent <= 60_000 + 4096 + 2 * 1000


async def test_who_is_trusted_may_send_the_rest_that_had_arrived_before() -> None:
    async with stranger() as (stream, peer), anyio.create_task_group() as tasks:
        large = b"x" * MIB + b"\n"
        tasks.start_soon(peer.wire.send, framed(b"hello\n", TEXT) + framed(large[:-1], TEXT) + framed(b"bye\n", TEXT))
        assert await stream.receive() == b"hello\n"
        stream.trust_peer()
        received = b""
        while len(received) < len(large) + 4:
            received += await stream.receive(2 * MIB)
        assert received == large + b"bye\n"


async def test_who_is_trusted_in_the_middle_of_a_message_may_go_on_with_it() -> None:
    async with stranger() as (stream, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.wire.send, framed(b"hello\n{", fin=False) + framed(b"x" * MIB, CONT))
        assert await stream.receive() == b"hello\n{"
        stream.trust_peer()
        received = b""
        while len(received) < MIB:
            received += await stream.receive(2 * MIB)
        assert received == b"x" * MIB


async def test_who_is_trusted_has_the_bound_of_a_message_still() -> None:
    async with stranger(max_message_bytes=20_000) as (stream, peer):
        stream.trust_peer()
        await peer.wire.send(framed(b"x" * 20_000))
        assert len(await stream.receive()) == 20_000
        await peer.wire.send(framed(b"x" * 20_001))
        with pytest.raises(ProtocolError, match="20001 bytes") as caught:
            await stream.receive()
        assert caught.value.code == "protocol.message_too_big"


async def test_a_client_that_does_not_wait_for_the_answer_is_bounded_too() -> None:
    here, there = memory_stream_pair(capacity=MIB)
    await there.send(REQUEST + framed(b"early\n", TEXT) + announced(2**30))
    with anyio.fail_after(PATIENCE):
        stream = await accept_websocket(here, max_first_bytes=1000)
        assert stream is not None
        assert await stream.receive() == b"early\n"
        with pytest.raises(ProtocolError) as caught:
            await stream.receive()
        assert caught.value.code == "protocol.message_too_big"
        await anyio.aclose_forcefully(stream)


async def test_a_frame_whose_beginning_came_with_the_request_arrives_when_its_client_is_trusted() -> None:
    here, there = memory_stream_pair(capacity=2 * MIB)
    await there.send(REQUEST + framed(b"early\n", TEXT) + framed(b"x" * MIB))
    with anyio.fail_after(PATIENCE):
        stream = await accept_websocket(here, max_first_bytes=1000)
        assert stream is not None
        stream.trust_peer()
        received = b""
        while len(received) < MIB + 6:
            received += await stream.receive(2 * MIB)
        assert received == b"early\n" + b"x" * MIB
        await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("cut", range(len(REQUEST) - 6, len(REQUEST) + 1))
async def test_a_request_that_arrives_in_two_pieces_is_told_from_what_follows(cut: int) -> None:
    here, there = memory_stream_pair()
    early = b"\x7f" * 60  # a part of it, taken for a head, is that of a frame without measure
    data = REQUEST + b"\x82\xbc\x00\x00\x00\x00" + early
    accepted: list[WebSocketStream | None] = []

    async def accept() -> None:
        accepted.append(await accept_websocket(here, max_first_bytes=1000))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            for piece in (data[:cut], data[cut:]):
                await there.send(piece)
                await anyio.wait_all_tasks_blocked()
        (stream,) = accepted
        assert stream is not None
        assert await stream.receive() == early
        await anyio.aclose_forcefully(stream)


async def test_little_is_read_at_a_time_until_the_peer_is_trusted() -> None:
    here, there = memory_stream_pair(capacity=2 * MIB)
    wire = Counted(here)
    await there.send(REQUEST + framed(b"x" * 20_000) + framed(b"x" * MIB))
    with anyio.fail_after(PATIENCE):
        stream = await accept_websocket(wire, max_first_bytes=50_000)
        assert stream is not None
        assert len(await stream.receive()) == 20_000
        assert wire.most == 4096
        assert wire.taken <= 20_000 + 2 * 4096 + len(REQUEST)
        stream.trust_peer()
        stream.trust_peer()
        assert len(await stream.receive(2 * MIB)) == MIB
        assert wire.most == 65_536
        await anyio.aclose_forcefully(stream)


async def test_other_tasks_run_while_many_frames_of_a_stranger_are_read() -> None:
    async with stranger() as (stream, peer), anyio.create_task_group() as tasks:
        turns = 0

        async def work() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        await peer.wire.send(framed(b"x") * 400)
        tasks.start_soon(work)
        for _ in range(400):
            assert await stream.receive() == b"x"
        assert turns > 300
        tasks.cancel_scope.cancel()


async def test_a_cancelled_receiver_loses_nothing_of_what_had_arrived() -> None:
    async with stranger() as (stream, peer):
        await peer.wire.send(framed(b"one\n", TEXT) + framed(b"two\n", TEXT))
        assert await stream.receive() == b"one\n"
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.receive()
        assert scope.cancelled_caught
        assert await stream.receive() == b"two\n"


# Compression.


async def test_what_cannot_be_deflated_arrives_and_what_inflates_to_nothing_counts_too() -> None:
    data = random.Random(7).randbytes(9_000)
    async with stranger(compression=True) as (stream, peer):
        await peer.say(BINARY, data)
        assert await stream.receive() == data
    async with stranger(compression=True) as (stream, peer):
        empty = b"\x00\x00\x00\xff\xff" * 900 + b"\x00"  # blocks without content
        for _ in range(3):
            await peer.wire.send(b"\xc2\xfe" + len(empty).to_bytes(2) + bytes(4) + empty)
        with pytest.raises(ProtocolError) as caught:
            await stream.receive()
        assert caught.value.code == "protocol.message_too_big"


async def test_what_a_stranger_has_deflated_counts_as_it_is_inflated() -> None:
    async with stranger(compression=True, max_message_bytes=64 * MIB) as (stream, peer):
        assert peer.extensions
        bomb = Frame(BINARY, b"x" * 32 * MIB, True).serialize(mask=True, extensions=peer.extensions)
        assert len(bomb) < 60_000
    async with stranger(at_most=70_000, compression=True, max_message_bytes=64 * MIB) as (stream, peer):
        tracemalloc.start()
        try:
            await peer.wire.send(bomb)
            with pytest.raises(ProtocolError) as caught:
                await stream.receive()
            assert caught.value.code == "protocol.message_too_big"
            assert tracemalloc.get_traced_memory()[1] < MIB
        finally:
            tracemalloc.stop()


async def test_several_deflated_messages_count_together_and_those_of_a_trusted_client_do_not() -> None:
    async with stranger(compression=True) as (stream, peer):
        for _ in range(2):
            await peer.say(BINARY, b"x" * 4_900)
            assert len(await stream.receive()) == 4_900
        await peer.say(BINARY, b"x" * 4_900)
        with pytest.raises(ProtocolError) as caught:
            await stream.receive()
        assert caught.value.code == "protocol.message_too_big"
    async with stranger(compression=True) as (stream, peer):
        await peer.say(BINARY, b"x" * 4_900)
        assert len(await stream.receive()) == 4_900
        stream.trust_peer()
        for _ in range(2):
            await peer.say(BINARY, b"y" * 60_000)
            assert len(await stream.receive()) == 60_000
        await stream.send(b"z" * 1000)
        assert len(zlib.compress(b"z" * 1000)) < 100
        assert bytes((await peer.next_frame()).data) == b"z" * 1000


async def test_an_answer_to_a_stranger_is_deflated() -> None:
    async with stranger(compression=True) as (stream, peer):
        await stream.send(b"z" * 1000)
        raw = await peer.wire.receive()
        assert len(raw) < 100
        peer.protocol.receive_data(raw)
        assert bytes(peer.protocol.events_received()[0].data) == b"z" * 1000  # type: ignore[union-attr]


# Any frames, in any pieces.

PIECES = st.lists(st.binary(max_size=300) | st.integers(120, 70_000).map(lambda size: b"y" * size), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(PIECES, st.integers(1, 5000), st.integers(0, 6))
def test_frames_of_any_size_in_pieces_of_any_size_arrive_as_they_were_sent(pieces: list[bytes], step: int, trusted_after: int) -> None:
    async def carry() -> None:
        here, there = memory_stream_pair(capacity=2 * MIB)
        wire = b"".join(framed(piece) + framed(b"?" * (len(piece) % 126), PING) for piece in pieces)
        await there.send(REQUEST)
        with anyio.fail_after(PATIENCE):
            stream = await accept_websocket(here, max_first_bytes=len(wire))
            assert stream is not None

            async def say() -> None:
                for start in range(0, len(wire), step):
                    await there.send(wire[start : start + step])

            received = b""
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say)
                for number in range(10**6):
                    if number == trusted_after:
                        stream.trust_peer()
                    if len(received) == sum(map(len, pieces)):
                        break
                    received += await stream.receive()
            assert received == b"".join(pieces)
            await anyio.aclose_forcefully(stream)

    anyio.run(carry, backend="trio")
