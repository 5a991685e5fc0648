"""Compressed streams: each send can be read at once, the end is part of the data, and memory is bounded for any data."""

from __future__ import annotations

import random
import sys
import tracemalloc
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream
from counted import Counted

from claude_transport.errors import ConfigurationError, ConnectionLost, ProtocolError
from claude_transport.streams.compression import MAGIC, CompressedConnectable, CompressedStream, accept_compression, load_zstd
from claude_transport.streams.memory import MemoryConnectable, memory_stream_pair

LINE = b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word"}}}\n'


def compressed_pair(*, capacity: int = 65536) -> tuple[CompressedStream, CompressedStream]:
    here, there = memory_stream_pair(capacity=capacity)
    return CompressedStream(here), CompressedStream(there)


async def receive_all(stream: ByteStream) -> bytes:
    received = b""
    with anyio.fail_after(30):
        async for chunk in stream:
            received += chunk
    return received


async def test_each_send_arrives_at_once_and_each_side_ends_for_itself() -> None:
    here, there = compressed_pair()
    with anyio.fail_after(30):
        for text in (b"one\n", b"two\n"):
            await here.send(text)
            assert await there.receive() == text
        await here.send_eof()
        await here.send_eof()
        assert await receive_all(there) == b""
        await there.send(b"answer\n")
        assert await here.receive() == b"answer\n"
        with pytest.raises(anyio.ClosedResourceError):
            await here.send(b"more")


@pytest.mark.parametrize("capacity", [0, 7, 65536])
async def test_megabytes_go_both_ways_at_once(capacity: int) -> None:
    data = bytes(range(256)) * 8192
    here, there = compressed_pair(capacity=capacity)
    async with anyio.create_task_group() as tasks:
        for one, other in ((here, there), (there, here)):

            async def send(stream: CompressedStream = one) -> None:
                await stream.send(data)
                await stream.send_eof()

            async def receive(stream: CompressedStream = other) -> None:
                assert await receive_all(stream) == data

            tasks.start_soon(send)
            tasks.start_soon(receive)


async def test_other_tasks_run_while_megabytes_are_compressed() -> None:
    here, there = memory_stream_pair(capacity=2**22)
    stream, is_sent, turns = CompressedStream(here), anyio.Event(), 0

    async def send() -> None:
        await stream.send(bytes(8 * 2**20))
        is_sent.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        while not is_sent.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()
    assert turns >= 32  # one at least after each 256 KiB
    await stream.aclose()
    assert await receive_all(CompressedStream(there)) == bytes(8 * 2**20)


async def test_lines_of_json_shrink_to_a_fifth_and_less() -> None:
    here, there = memory_stream_pair(capacity=2**20)
    stream = CompressedStream(here)
    for _ in range(200):
        await stream.send(LINE)
    await stream.aclose()
    assert len(await receive_all(there)) < len(LINE) * 200 / 5


async def test_what_is_received_is_never_more_than_what_was_asked_for() -> None:
    here, there = compressed_pair()
    await here.send(b"0123456789")
    assert [await there.receive(3) for _ in range(4)] == [b"012", b"345", b"678", b"9"]


async def test_a_bomb_unfolds_only_as_far_as_it_is_read() -> None:
    bomb = load_zstd().compress(bytes(200 * 2**20))
    assert len(bomb) < 65536
    here, there = memory_stream_pair()
    await here.send(bomb)
    stream = CompressedStream(there)
    await stream.receive()
    tracemalloc.start()
    try:
        for _ in range(100):
            assert len(await stream.receive()) <= 65536
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


async def test_a_frame_that_wants_too_much_memory_is_refused() -> None:
    zstd: Any = load_zstd()
    greedy = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})
    here, there = memory_stream_pair()
    await here.send(greedy.compress(b"x", zstd.ZstdCompressor.FLUSH_BLOCK))
    with pytest.raises(ProtocolError, match="too much memory") as caught:
        await CompressedStream(there).receive()
    assert caught.value.code == "protocol.compression"


@pytest.mark.parametrize(("sent", "said"), [(b"what is this?", "cannot be decompressed"), (b"after the end", "went on after the end")])
async def test_what_is_no_compressed_stream_is_a_protocol_error(sent: bytes, said: str) -> None:
    here, there = memory_stream_pair()
    await here.send(load_zstd().compress(b"") + sent if "end" in said else sent)
    with pytest.raises(ProtocolError, match=said):
        await CompressedStream(there).receive()


async def test_a_peer_that_leaves_inside_its_frame_was_cut_off_after_what_it_said() -> None:
    here, there = memory_stream_pair()
    await CompressedStream(here).send(b"half a ")
    await here.aclose()
    stream = CompressedStream(there)
    assert await stream.receive() == b"half a "
    with pytest.raises(ConnectionLost, match="has no end"):
        await stream.receive()


async def test_closing_ends_the_frame_and_wakes_the_reader() -> None:
    here, there = compressed_pair()
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await here.receive()

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await here.aclose()
        await here.aclose()
    assert await receive_all(there) == b""
    for call in (here.receive, lambda: here.send(b"x")):
        with pytest.raises(anyio.ClosedResourceError):
            await call()


async def test_the_end_of_input_is_told_to_the_medium_too() -> None:
    here, there = memory_stream_pair()
    await CompressedStream(here).send_eof()
    assert (await receive_all(there)).startswith(MAGIC)


async def test_a_cancelled_send_breaks_the_stream_for_sending_and_is_no_end() -> None:
    here, there = compressed_pair(capacity=1)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.send, LINE)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    with pytest.raises(anyio.BrokenResourceError):
        await here.send(LINE)
    await here.aclose()
    with pytest.raises(ConnectionLost):
        await receive_all(there)


async def test_a_cancelled_receive_takes_nothing_along() -> None:
    here, there = compressed_pair()
    await here.send(b"kept")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await there.receive()
    assert scope.cancelled_caught
    assert await there.receive() == b"kept"


# The accepting end.


@pytest.mark.parametrize("chunk_size", [1, 3, 100])
async def test_the_accepting_end_sees_that_its_peer_compresses(chunk_size: int) -> None:
    raw, (ours, theirs) = memory_stream_pair(), memory_stream_pair()
    sender = CompressedStream(raw[0])
    await sender.send(LINE)
    wire = await raw[1].receive()
    assert wire.startswith(MAGIC)
    async with anyio.create_task_group() as tasks:

        async def feed() -> None:
            for at in range(0, len(wire), chunk_size):
                await ours.send(wire[at : at + chunk_size])

        tasks.start_soon(feed)
        accepted = await accept_compression(theirs)
        assert isinstance(accepted, CompressedStream)
        assert await accepted.receive() == LINE


@pytest.mark.parametrize("said", [b"", b"{", LINE, MAGIC[:2], MAGIC[:3] + b"no"])
async def test_the_accepting_end_leaves_plain_bytes_as_they_are(said: bytes) -> None:
    here, there = memory_stream_pair()
    if said:
        await here.send(said)
    await here.send_eof()
    accepted = await accept_compression(there)
    assert not isinstance(accepted, CompressedStream)
    first = await accepted.receive(1) if said else b""
    assert first + await receive_all(accepted) == said
    await accepted.send(b"plain")
    await accepted.send_eof()
    assert await receive_all(here) == b"plain"
    await accepted.aclose()


async def test_the_accepting_end_waits_for_no_more_than_it_needs() -> None:
    here, there = memory_stream_pair()
    await here.send(MAGIC)
    with anyio.fail_after(30):
        assert isinstance(await accept_compression(there), CompressedStream)


# The opener.


async def test_an_opener_compresses_what_goes_through_what_it_opens() -> None:
    inner = MemoryConnectable()
    stream = await CompressedConnectable(inner).connect()
    await stream.send(LINE)
    assert await CompressedStream(await inner.accept()).receive() == LINE


def test_where_there_is_no_zstd_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[zstd\]'") as caught:
        CompressedConnectable(MemoryConnectable())
    assert caught.value.code == "config.missing_extra"


async def test_one_byte_shows_that_a_peer_does_not_compress_and_a_closed_stream_gives_it_no_more() -> None:
    here, there = memory_stream_pair()
    plain: list[ByteStream] = []

    async def accept() -> None:
        plain.append(await accept_compression(here))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        await there.send(b"x")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    (stream,) = plain
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()


async def test_a_reader_of_little_takes_little_from_the_wire_whether_the_peer_compresses_or_not() -> None:
    for compresses in (True, False):
        here, there = memory_stream_pair(capacity=2**20)
        sender: ByteStream = CompressedStream(here) if compresses else here
        data = random.Random(7).randbytes(300_000)
        await sender.send(data)
        wire = Counted(there)
        with anyio.fail_after(30):
            stream = await accept_compression(wire)
            assert isinstance(stream, CompressedStream) == compresses
            received = await stream.receive(1)
            assert received == data[:1]
            received += await stream.receive(4095)
            assert wire.most == 4096
            while len(received) < len(data):
                received += await stream.receive(2**20)
        assert received == data
        assert wire.most == (65536 if compresses else 2**20)
