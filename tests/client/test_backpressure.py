"""A consumer that does not read, or reads something else: memory stays bounded, and nobody waits for what cannot come."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from peers import ForeignTransport, Frame, answer_to, in_time, permission, result, said, soon
from virtual_time import virtual_time

from claude_transport import Allow, InterruptOutcome, Query, ResultMessage, SubprocessTransport, Transport
from claude_transport.protocol.envelope import encode_line
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps

KB = 1024
MB = 1024 * KB


class Firehose(Transport):
    """Says `total_bytes` in answer to the first prompt, as fast as it is read, and then the result. Never waits for anybody."""

    def __init__(self, total_bytes: int, *, line_bytes: int = 4 * KB, batch: int = 16, kind: str = "assistant") -> None:
        text = "x" * line_bytes
        frame = (
            said(text)
            if kind == "assistant"
            else {"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}}
        )
        self.line = encode_line(frame)[:-1]
        self.batch = batch
        self.total = total_bytes
        self.said_bytes = 0
        self.flowing = False
        self.control: list[bytes] = []
        self.ended = False
        self.news = anyio.Event()

    async def connect(self) -> None:
        pass

    async def write(self, data: str | bytes) -> None:
        for line in data.encode().splitlines() if isinstance(data, str) else data.splitlines():
            frame = msgspec.json.decode(line)
            if frame["type"] == "control_request":
                self.control.append(encode_line(answer_to(frame))[:-1])
            self.flowing = self.flowing or frame["type"] == "user"
        self.news.set()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        raise NotImplementedError

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        while not self.ended:
            if self.control:
                yield [self.control.pop(0)]
            elif self.flowing and self.said_bytes < self.total:
                # new bytes objects, as a real transport's: otherwise nothing would ever take memory
                lines = [bytes(bytearray(self.line)) for _ in range(self.batch)]
                self.said_bytes += sum(map(len, lines))
                yield lines
            elif self.flowing and self.said_bytes < 2 * self.total:
                self.said_bytes = 2 * self.total
                yield [encode_line(result())[:-1]]
            else:
                self.news = anyio.Event()
                await self.news.wait()

    async def end_input(self) -> None:
        self.ended = True
        self.news.set()

    async def close(self) -> None:
        await self.end_input()

    def is_ready(self) -> bool:
        return False


async def test_reading_goes_on_for_a_reader_that_takes_what_is_there_and_never_waits() -> None:
    transport = Firehose(6 * MB)
    async with Query(transport, max_buffered_bytes=MB) as query:
        messages, found = query.messages(), None
        await query.send("go")
        with anyio.fail_after(30):
            while not isinstance(found, ResultMessage):
                await soon(lambda: query.buffered_bytes > MB or transport.said_bytes > transport.total)
                while (found := messages.take()) is not None and not isinstance(found, ResultMessage):
                    pass
    assert transport.said_bytes > transport.total


async def test_reading_pauses_when_nobody_reads_and_goes_on_when_somebody_does() -> None:
    transport = Firehose(10 * MB)
    async with Query(transport, max_buffered_bytes=MB) as query:
        turn = await query.send("go")
        await soon(lambda: query.buffered_bytes > MB)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert transport.said_bytes < 2 * MB
        most = max([query.buffered_bytes async for _ in turn])
        assert most < MB + 128 * KB
        assert (await turn.result()).type == "result"
        assert query.dropped_messages == 0


@pytest.mark.parametrize("hold", [True, False], ids=["turn held", "turn dropped"])
async def test_an_interrupt_is_answered_while_a_hundred_megabytes_wait(hold: bool) -> None:
    transport = Firehose(100 * MB)
    async with Query(transport, max_buffered_bytes=256 * KB) as query:
        turn = await query.send("go")
        if not hold:
            del turn
            gc.collect()
        await soon(lambda: query.buffered_bytes > 256 * KB)  # also when what was read before is gone with the handle
        assert await in_time(query.interrupt()) is InterruptOutcome.ACKNOWLEDGED
        assert query.buffered_bytes < 512 * KB


@pytest.mark.parametrize("kind", ["assistant", "stream_event"])
async def test_a_result_comes_without_reading_and_memory_stays_bounded(kind: str) -> None:
    transport = Firehose(100 * MB, kind=kind)
    async with Query(transport, max_buffered_bytes=512 * KB) as query:
        turn = await query.send("go")
        tracemalloc.start()
        try:
            assert isinstance(await in_time(turn.result()), ResultMessage)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 * MB
        kept = len([message async for message in turn])
        assert query.dropped_messages >= 100 * MB // (5 * KB) - kept
        assert query.dropped_messages > 20_000


async def test_partial_messages_are_given_up_first_and_the_newest_stay() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=8 * KB) as query:
        turn = await query.send("go")
        partials: list[Frame] = [{"type": "stream_event", "event": {"n": n}, "pad": "x" * 500} for n in range(100)]
        wholes = [said(f"{n}" + "x" * 500) for n in range(4)]
        transport.say(*[frame for n in range(4) for frame in (*partials[n::4], wholes[n])], result())
        await in_time(turn.result())
        kept = [message async for message in turn]
        assert isinstance(kept[-1], ResultMessage)
        assert {message.type for message in kept[:-5]} <= {"assistant", "stream_event"}
        assert query.dropped_messages > 50
        assert [message.type for message in kept].count("assistant") >= 3


async def test_what_a_reader_is_reading_is_never_given_up() -> None:
    transport = Firehose(20 * MB)
    async with Query(transport, max_buffered_bytes=1) as query:
        turn = await query.send("go")
        count = sum([1 async for _ in turn])
        assert query.dropped_messages == 0
        assert count == 1 + -(-20 * MB // (len(transport.line) * transport.batch)) * transport.batch


async def test_the_reader_of_a_later_turn_does_not_wait_for_the_one_that_nobody_reads() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=4 * KB) as query:
        unread, read = await query.send("a"), await query.send("b")
        transport.say(*[said("x" * 1000) for _ in range(50)], result("1"), said("here"), result("2"))
        assert [message.type for message in [await in_time(anext(read)), await in_time(anext(read))]] == ["assistant", "result"]
        assert query.dropped_messages > 0
        assert (await unread.result()).result == "1"


async def test_a_handle_that_is_held_but_not_read_does_not_stop_the_reader_of_everything() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=4 * KB) as query:
        everything = query.messages()
        turn = await query.send("a")
        transport.say(*[said("x" * 1000) for _ in range(50)], result())
        read = [await in_time(anext(everything)) for _ in range(51)]
        assert isinstance(read[-1], ResultMessage)
        assert (await turn.result()) is read[-1]


async def test_a_pause_ends_with_the_close() -> None:
    transport = Firehose(10 * MB)
    async with Query(transport, max_buffered_bytes=KB) as query:
        turn = await query.send("go")
        await soon(lambda: query.buffered_bytes > KB)
        await in_time(query.aclose())
    assert turn is not None


async def test_a_real_child_is_held_back_and_still_interrupted() -> None:
    with FakeClaude(Scenario(replies=[ScriptedTurn([steps.Flood(10 * MB), steps.Result()])])) as fake:
        async with Query(SubprocessTransport(command=fake.command), max_buffered_bytes=MB) as query:
            turn = await query.send("go")
            await soon(lambda: query.buffered_bytes > MB)
            assert await in_time(query.request("mcp_status")) is not None
            assert query.buffered_bytes < 2 * MB
            await query.aclose(timeout=0)
            assert turn is not None


@virtual_time
async def test_an_interrupt_is_answered_within_a_second_while_ten_thousand_messages_wait() -> None:
    """The clock jumps, so the second is one in which something waits: reading the messages takes none of it."""
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("go")
        transport.say(*[said(f"{n}") for n in range(10_000)])
        begun = anyio.current_time()
        assert await in_time(query.interrupt()) is InterruptOutcome.ACKNOWLEDGED
        assert anyio.current_time() - begun < 1
        transport.say(result())
        assert [message.type async for message in turn] == [*["assistant"] * 10_000, "result"]
        assert query.dropped_messages == 0


class Measured(Firehose):
    """Notes how much was stored whenever more is asked for."""

    query: Query
    most = 0

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        async for lines in super().read_lines():
            yield lines
            self.most = max(self.most, self.query.buffered_bytes)


@pytest.mark.parametrize("waits", ["for the result", "for an answer", "for every message", "for nothing"])
@pytest.mark.parametrize("bound", [1, 300 * KB])
async def test_no_more_is_stored_than_the_bound_and_one_batch(bound: int, waits: str) -> None:
    transport = Measured(8 * MB)
    transport.query = query = Query(transport, max_buffered_bytes=bound)
    async with query:
        turn = await query.send("go")
        if waits == "for the result":
            await in_time(turn.result())
        elif waits == "for an answer":
            await soon(lambda: query.buffered_bytes > bound)
            for _ in range(20):
                await in_time(query.request("mcp_status"))
        elif waits == "for every message":
            assert sum([1 async for _ in turn]) > 1000
        else:
            await soon(lambda: query.buffered_bytes > bound)
        assert transport.most <= bound + transport.batch * (len(transport.line) + 1)


async def allow(*_: Any) -> Allow:
    return Allow()


async def test_a_question_that_was_read_is_answered_while_nobody_reads_messages() -> None:
    transport = ForeignTransport()
    async with Query(transport, can_use_tool=allow, max_buffered_bytes=32 * KB) as query:
        turn = await query.send("go")
        transport.say(*[said("x" * 100) for _ in range(20)], permission("q1"), said("x" * 20 * KB), said("behind the pause"))
        await soon(transport.responses)
        assert query.buffered_bytes > 32 * KB
        assert turn.is_open()


@pytest.mark.parametrize("waits", ["reads", "awaits the result", "asks", "drops the handle"])
async def test_a_question_behind_the_pause_is_answered_once_the_host_does_anything_at_all(waits: str) -> None:
    transport = ForeignTransport()
    async with Query(transport, can_use_tool=allow, max_buffered_bytes=8 * KB) as query:
        turn = await query.send("go")
        transport.say(said("x" * 10 * KB), permission("q1"))
        await soon(lambda: query.buffered_bytes > 8 * KB)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert transport.responses() == {}
        async with anyio.create_task_group() as tasks:
            if waits == "reads":
                await anext(turn)
            elif waits == "awaits the result":
                tasks.start_soon(turn.result)
            elif waits == "asks":
                await in_time(query.request("mcp_status"))
            else:
                del turn
                gc.collect()
            await soon(transport.responses)
            transport.say(result())
