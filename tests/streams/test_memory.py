"""Streams in memory behave as real ones: back pressure, half-close, breaks, cancellation, and the rules of anyio."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from claude_transport.errors import UsageError
from claude_transport.streams.memory import MemoryConnectable, MemoryStream, memory_stream_pair
from claude_transport.transports.stream import StreamTransport


class Sending:
    """A send that is under way."""

    def __init__(self, stream: MemoryStream, data: bytes) -> None:
        self.stream, self.data, self.done = stream, data, False
        self.error: Exception | None = None
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            try:
                await self.stream.send(self.data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
                self.error = exc
            self.done = True


async def receive_all(stream: MemoryStream) -> bytes:
    received = b""
    with anyio.fail_after(30):
        while True:
            try:
                received += await stream.receive()
            except anyio.EndOfStream:
                return received


@pytest.mark.parametrize("capacity", [0, 1, 7, 65536])
async def test_what_one_end_sends_the_other_receives(capacity: int) -> None:
    here, there = memory_stream_pair(capacity=capacity)
    data = bytes(range(256)) * 40
    async with anyio.create_task_group() as tasks:
        for one, other in ((here, there), (there, here)):

            async def send(stream: MemoryStream = one) -> None:
                for at in range(0, len(data), 1000):
                    await stream.send(data[at : at + 1000])
                await stream.send_eof()

            async def receive(stream: MemoryStream = other) -> None:
                assert await receive_all(stream) == data

            tasks.start_soon(send)
            tasks.start_soon(receive)


@pytest.mark.parametrize(("capacity", "sizes"), [(10, [10, 10, 5]), (0, [25])])
async def test_a_send_waits_for_room_and_no_more_is_on_its_way_than_the_capacity(capacity: int, sizes: list[int]) -> None:
    here, there = memory_stream_pair(capacity=capacity)
    sending = Sending(here, b"x" * 25)
    got: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sending.run)
        for _ in sizes:
            await anyio.wait_all_tasks_blocked()
            assert not sending.done or sum(got) + capacity >= 25
            got.append(len(await there.receive()))
    assert got == sizes
    assert sending.done


async def test_in_lockstep_a_send_is_over_with_the_last_byte_received() -> None:
    here, there = memory_stream_pair(capacity=0)
    sending = Sending(here, b"abcd")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sending.run)
        assert await there.receive(3) == b"abc"
        await anyio.wait_all_tasks_blocked()
        assert not sending.done
        assert await there.receive(3) == b"d"
    assert sending.done


async def test_a_cancelled_lockstep_send_takes_back_what_was_not_received() -> None:
    here, there = memory_stream_pair(capacity=0)
    sending = Sending(here, b"abcd")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sending.run)
        assert await there.receive(2) == b"ab"
        sending.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(here.send, b"next")
        assert await there.receive() == b"next"


async def test_after_half_a_close_the_other_half_goes_on() -> None:
    here, there = memory_stream_pair()
    await here.send(b"last")
    await here.send_eof()
    with pytest.raises(anyio.ClosedResourceError):
        await here.send(b"more")
    await there.send(b"reply")
    assert await here.receive() == b"reply"
    assert await receive_all(there) == b"last"
    with pytest.raises(anyio.EndOfStream):
        await there.receive()


async def test_after_a_close_the_peer_gets_what_was_sent_and_the_end_and_cannot_send() -> None:
    here, there = memory_stream_pair()
    await here.send(b"last")
    await here.aclose()
    await here.aclose()
    assert await receive_all(there) == b"last"
    with pytest.raises(anyio.BrokenResourceError):
        await there.send(b"x")
    for call in (here.send(b"x"), here.receive()):
        with pytest.raises(anyio.ClosedResourceError):
            await call


async def test_after_a_break_the_peer_gets_what_was_sent_and_then_the_break() -> None:
    here, there = memory_stream_pair()
    await here.send(b"last")
    here.break_connection()
    assert await there.receive() == b"last"
    for call in (there.receive(), there.receive(), there.send(b"x")):
        with pytest.raises(anyio.BrokenResourceError):
            await call
    with pytest.raises(anyio.ClosedResourceError):
        await here.receive()


@pytest.mark.parametrize("capacity", [0, 10])
@pytest.mark.parametrize(("whose", "error"), [("own", anyio.ClosedResourceError), ("peer", anyio.BrokenResourceError)])
async def test_a_close_wakes_who_sends_and_who_receives(capacity: int, whose: str, error: type[Exception]) -> None:
    here, there = memory_stream_pair(capacity=capacity)
    sending = Sending(here, b"x" * 100)
    ended: list[type[Exception]] = []

    async def receive() -> None:
        try:
            await here.receive()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as exc:
            ended.append(type(exc))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sending.run)
        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        if whose == "own":
            await here.aclose()
        else:
            there.break_connection()
    assert type(sending.error) is error
    assert ended == [error]


async def test_a_cancelled_close_still_closes() -> None:
    here, there = memory_stream_pair()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await here.aclose()
    assert scope.cancelled_caught
    with pytest.raises(anyio.EndOfStream):
        await there.receive()


@pytest.mark.parametrize("capacity", [0, 5])
async def test_a_cancelled_receive_loses_nothing_whenever_it_is_cancelled(capacity: int) -> None:
    here, there = memory_stream_pair(capacity=capacity)
    received: list[bytes] = []

    async def receive(scope: anyio.CancelScope) -> None:
        with scope:
            received.append(await there.receive(2))

    for turns in range(8):
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(receive, scope)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(here.send, b"%d." % turns)
            for _ in range(turns):
                await checkpoint()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            if b"".join(received).count(b".") <= turns:
                received.append(await there.receive())
    assert b"".join(received) == b"0.1.2.3.4.5.6.7."


async def test_a_second_task_in_the_same_direction_is_told_so() -> None:
    here, _there = memory_stream_pair(capacity=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.send, b"xx")
        tasks.start_soon(here.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await here.send(b"y")
        with pytest.raises(anyio.BusyResourceError):
            await here.receive()
        tasks.cancel_scope.cancel()


async def test_both_directions_are_points_of_cancellation_even_when_they_need_not_wait() -> None:
    here, there = memory_stream_pair()
    await here.send(b"x")
    for call in (here.send, there.receive):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await (here.send(b"y") if call is here.send else there.receive())
        assert scope.cancelled_caught
    assert await there.receive() == b"x"


async def test_what_was_sent_may_be_changed_afterwards() -> None:
    here, there = memory_stream_pair()
    data = bytearray(b"before")
    await here.send(data)  # pyright: ignore[reportArgumentType] - programs send bytes-like objects too
    data[:] = b"after!"
    assert await there.receive() == b"before"


async def test_bad_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="capacity"):
        memory_stream_pair(capacity=-1)
    here, _ = memory_stream_pair()
    with pytest.raises(UsageError, match="max_bytes"):
        await here.receive(0)


async def test_an_opener_leaves_the_other_end_to_whoever_accepts() -> None:
    opener = MemoryConnectable()
    async with anyio.create_task_group() as tasks:
        accepted: list[MemoryStream] = []

        async def accept() -> None:
            accepted.append(await opener.accept())

        tasks.start_soon(accept)
        await anyio.wait_all_tasks_blocked()
        async with StreamTransport(opener) as transport:
            await transport.write('{"type":"hello"}')
            await anyio.wait_all_tasks_blocked()
            (peer,) = accepted
            assert await peer.receive() == b'{"type":"hello"}\n'
            await peer.send(b'{"type":"reply"}\n')
            await peer.send_eof()
            assert [message async for message in transport.read_messages()] == [{"type": "reply"}]
        with pytest.raises(anyio.EndOfStream):
            await peer.receive()
