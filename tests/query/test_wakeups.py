"""One wake-up of the reader of messages for a batch of them, however many there are."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Sequence
from typing import Any

import anyio
import pytest
from peers import ForeignTransport, Frame, in_time, result, soon

from claude_transport import Message, Query
from claude_transport.protocol.codec import encode_line

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
