"""One wake-up of the reader of messages for a batch of them, however many there are."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from peers import PATIENCE, ForeignTransport, Frame, in_time, result, soon

from claude_transport import Message, Query
from claude_transport.client.connection import Connection
from claude_transport.exchange.ending import TransportEnd
from claude_transport.protocol.conversation import Conversation
from claude_transport.protocol.envelope import encode_line
from claude_transport.transport import PouredLines
from claude_transport.transports.stream import StreamTransport

BATCHES, MESSAGES = 20, 200


class Resumed:
    """Awaits a coroutine, and counts how often it was resumed."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.coroutine = coroutine
        self.times = 0

    def __await__(self) -> Generator[Any, Any, None]:
        answer: Any = None
        while True:
            try:
                request = self.coroutine.send(answer)
            except StopIteration:
                return
            answer = yield request
            self.times += 1


class InBatches(ForeignTransport):
    """Hands on as one batch what is said as one."""

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = anyio.create_memory_object_stream[Sequence[bytes]](0)

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        frames = self.read_messages()
        assert isinstance(frames, AsyncGenerator)
        async with contextlib.aclosing(frames):
            async for frame in frames:
                yield [encode_line(frame)[:-1]]
                if frame["type"] == "control_response":
                    break
        async for lines in self.receiver:
            yield lines


class HeldUp(ForeignTransport):
    """Its lines are poured, and a reader that has had enough with a result never gets to know: as one that is cancelled in that moment."""

    is_held_up = False

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        return HeldUpLines(self)


class HeldUpLines(PouredLines):
    """The lines of such a transport."""

    def __init__(self, transport: HeldUp) -> None:
        self.transport = transport
        self.frames = transport.read_messages()

    def __aiter__(self) -> AsyncIterator[Sequence[bytes]]:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        raise AssertionError("they are poured")

    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        async for frame in self.frames:
            is_enough = hand_on([encode_line(frame)[:-1]])
            if frame["type"] == "result":
                self.transport.is_held_up = True
                await anyio.sleep_forever()
            if is_enough:
                return True
        return False

    async def aclose(self) -> None:
        assert isinstance(self.frames, AsyncGenerator)
        await self.frames.aclose()


class Endless(ByteStream):
    """Has always something to say, and never waits."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return b'{"type":"keep_alive"}\n'

    async def send(self, item: bytes) -> None:
        raise AssertionError("nothing is sent")

    async def send_eof(self) -> None:
        raise AssertionError("nothing ends")

    async def aclose(self) -> None:
        pass


class OpensEndless(ByteStreamConnectable):
    """An opener."""

    async def connect(self) -> Endless:
        return Endless()


def words(number: int) -> Frame:
    delta = {"type": "text_delta", "text": f"word {number}"}
    return {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": delta}}


@pytest.mark.parametrize("view", ["the turn", "all messages"])
async def test_a_batch_wakes_its_reader_once(view: str) -> None:
    transport = InBatches()
    read: list[Message] = []

    async def read_all(messages: AsyncIterator[Message], is_over: Callable[[], bool]) -> None:
        async for message in messages:
            read.append(message)
            if is_over():
                break

    async with Query(transport) as query, transport.receiver, transport.sender:
        turn = await query.send("go")
        total = BATCHES * MESSAGES + 1
        reading = Resumed(read_all(turn if view == "the turn" else query.messages(), lambda: len(read) == total))

        async def consume() -> None:
            await reading

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            for batch in range(BATCHES):
                await in_time(transport.sender.send([encode_line(words(number))[:-1] for number in range(MESSAGES)]))
                await soon(lambda expected=(batch + 1) * MESSAGES: len(read) == expected)
            await in_time(transport.sender.send([encode_line(result())[:-1]]))
            await soon(lambda: len(read) == total)
        del turn
    assert reading.times == BATCHES + 1


async def test_a_result_that_was_read_while_the_reader_was_cancelled_counts() -> None:
    transport = HeldUp()
    async with Query(transport) as query:
        turn = await query.send("go")
        transport.say(result())
        await soon(lambda: transport.is_held_up)
        await in_time(query.aclose(timeout=0))
        assert (await in_time(turn.result())).subtype == "success"


async def test_others_get_their_turn_while_a_stream_never_waits() -> None:
    transport = StreamTransport(OpensEndless())
    turns = 0

    def count(lines: Sequence[bytes]) -> bool:
        nonlocal handed_on
        handed_on += len(lines)
        return handed_on >= 10_000

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    handed_on = 0
    async with transport, anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        end = TransportEnd(transport, transport_close_timeout=PATIENCE, close_timeout=None)
        async with Connection(transport, Conversation(), end=end).batches() as batches:
            assert await in_time(batches.pour(count))
        tasks.cancel_scope.cancel()
    assert turns > 100
