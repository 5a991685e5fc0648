"""Faults: each does what it says, at the place it names, and the same again with the same seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import ByteStreamConnectable
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.client.query import Query
from claude_transport.errors import CLIConnectionError, ConfigurationError, ConnectionLost, TransportClosed, TruncatedStream
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import memory, wrapped
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.wrappers.faults import Corrupt, Cut, Delay, Drop, Duplicate, FailConnect, FailWrite, Fault, Split
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.retrying import RetryingTransport

LINES = [b'{"n":%d}' % number for number in range(1, 7)]  # 8 bytes each on the wire
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}


async def read(
    faults: Sequence[Fault], *, lines: Sequence[bytes] = LINES, seed: int = 0, **options: Any
) -> tuple[list[list[bytes]], Exception | None]:
    """The batches that arrive, and what the stream ends with."""
    batches: list[list[bytes]] = []
    async with FaultyTransport(MockTransport(lines), faults, seed=seed, **options) as faulty:
        try:
            async for batch in faulty.read_lines():
                batches.append(list(batch))  # noqa: PERF401 - what came before the error counts
        except (ConnectionLost, TruncatedStream) as error:
            return batches, error
    return batches, None


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [line for batch in batches for line in batch]


@pytest.mark.parametrize(
    ("faults", "left"),
    [
        ([Drop(line=1)], LINES[1:]),
        ([Drop(line=6), Drop(line=3)], [LINES[0], LINES[1], LINES[3], LINES[4]]),
        ([Duplicate(line=2)], [LINES[0], LINES[1], *LINES[1:]]),
        ([Drop(rate=1.0)], []),
        ([Corrupt(at_byte=5, value=ord("7"))], [b'{"n":7}', *LINES[1:]]),
        ([Corrupt(at_byte=7, value=ord(" "))], [b'{"n":1} {"n":2}', *LINES[2:]]),
        ([Corrupt(at_byte=10, value=ord("\n"))], [LINES[0], b'{"', b'":2}', *LINES[2:]]),
        ([Corrupt(at_byte=9000)], LINES),
        ([], LINES),
    ],
)
async def test_lines_and_bytes_are_spoilt_where_the_fault_says(faults: list[Fault], left: list[bytes]) -> None:
    batches, error = await read(faults)
    assert (flat(batches), error) == (left, None)


@pytest.mark.parametrize(
    ("cut", "count", "kind", "message"),
    [
        (Cut(after_lines=2), 2, ConnectionLost, "after 16 bytes"),
        (Cut(after_lines=0), 0, ConnectionLost, "after 0 bytes"),
        (Cut(after_bytes=0), 0, ConnectionLost, "after 0 bytes"),
        (Cut(after_bytes=16), 2, ConnectionLost, "after 16 bytes"),
        (Cut(after_bytes=19), 2, ConnectionLost, "after 19 bytes"),
        (Cut(after_bytes=23), 3, ConnectionLost, "after 23 bytes"),
        (Cut(after_bytes=1000, after_lines=3), 3, ConnectionLost, "after 24 bytes"),
        (Cut(after_bytes=19, clean=True), 2, TruncatedStream, "after 3 bytes of it"),
        (Cut(after_bytes=16, clean=True), 2, None, ""),
        (Cut(after_bytes=9000), 6, None, ""),
    ],
)
async def test_a_cut_ends_the_stream_where_it_says(cut: Cut, count: int, kind: type[Exception] | None, message: str) -> None:
    batches, error = await read([cut])
    assert flat(batches) == LINES[:count]
    assert (type(error) if error else None) == kind
    assert message in str(error or "")


async def test_a_stream_that_ends_inside_a_line_says_what_it_had_of_it() -> None:
    _, error = await read([Cut(after_bytes=19, clean=True)])
    assert isinstance(error, TruncatedStream)
    assert error.bytes_tail == LINES[2][:3]


async def test_a_cut_does_not_wait_for_what_would_have_come_next_and_breaks_the_writing_too() -> None:
    claude = MockTransport.script().emit(RESULT).expect(type="user")  # says no more
    async with FaultyTransport(claude, [Cut(after_lines=1)]) as faulty:
        assert faulty.is_ready()
        lines = faulty.read_lines()
        await anext(lines)
        with anyio.fail_after(30):
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    await anext(lines)
        assert not faulty.is_ready()
        with pytest.raises(TransportClosed):
            await faulty.write(b'{"type":"user"}')
        assert claude.written == []
        assert faulty.done == ["cut after 8 bytes".replace("8", str(len(msgspec.json.encode(RESULT)) + 1))]


@pytest.mark.parametrize(("sizes", "batches"), [((8,), [1] * 6), ((16,), [2, 2, 2]), ((1000,), [6]), ((24, 8), [3, 1, 2])])
async def test_a_split_stream_comes_in_chunks_of_these_sizes(sizes: tuple[int, ...], batches: list[int]) -> None:
    class Batched(MockTransport):
        def read_lines(self) -> Any:
            return self.at_once()

        async def at_once(self) -> Any:
            yield LINES

    async with FaultyTransport(Batched(), [Split(sizes=sizes)]) as faulty:
        assert [len(batch) async for batch in faulty.read_lines()] == batches


@given(
    st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip())),
    st.integers(),
    st.lists(st.integers(1, 9), max_size=3),
)
async def test_splitting_changes_nothing_but_the_chunks(lines: list[bytes], seed: int, sizes: list[int]) -> None:
    batches, error = await read(
        [Split(sizes=tuple(sizes), up_to=5)], lines=[b'{"x":"' + line.hex().encode() + b'"}' for line in lines], seed=seed
    )
    assert (flat(batches), error) == ([b'{"x":"' + line.hex().encode() + b'"}' for line in lines], None)


async def test_a_chunk_ends_where_there_is_nothing_more_at_the_moment() -> None:
    claude = MockTransport.script().expect(type="user").reply(RESULT)
    with anyio.fail_after(30):
        async with Query(FaultyTransport(claude, [Split(sizes=(9000,))])) as query:
            assert (await (await query.send("Hi")).result()).result == "done"


async def test_delays_are_slept_before_the_line_they_name() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    batches, _ = await read([Delay(seconds=2.0, line=2), Delay(seconds=0.5), Split(sizes=(1000,))], sleep=sleep)
    assert slept == [0.5, 2.5, 0.5, 0.5, 0.5, 0.5]
    assert flat(batches) == LINES


async def test_lines_that_are_not_delayed_are_not_slept_for() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    batches, _ = await read([Delay(seconds=2.0, line=2)], sleep=sleep)
    assert (slept, flat(batches)) == ([2.0], LINES)


async def test_a_reader_cancelled_in_a_delay_loses_no_line() -> None:
    async def sleep(_seconds: float) -> None:
        slept.append(1)
        if len(slept) == 1:
            await anyio.sleep_forever()

    slept: list[int] = []
    async with FaultyTransport(MockTransport(LINES), [Delay(seconds=1.0)], sleep=sleep) as faulty:
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                await anext(faulty.read_lines())

            tasks.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert [line async for batch in faulty.read_lines() for line in batch] == LINES


async def test_a_close_wakes_a_reader_who_waits_for_a_delayed_line() -> None:
    ended: list[str] = []

    async def read_on() -> None:
        ended.extend([f"got {batch!r}" async for batch in faulty.read_lines()])
        ended.append("the end")

    async with FaultyTransport(MockTransport(LINES), [Delay(seconds=3600.0)]) as faulty:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read_on)
                await anyio.wait_all_tasks_blocked()
                await faulty.close()
    assert ended == ["the end"]


@pytest.mark.parametrize("after", [False, True])
async def test_a_write_fails_before_or_after_it_was_handed_over(after: bool) -> None:
    inside = MockTransport()
    async with FaultyTransport(inside, [FailWrite(write=2, after=after)]) as faulty:
        await faulty.write(b'{"n":1}')
        for number in (2, 3):
            with pytest.raises(TransportClosed):
                await faulty.write(b'{"n":%d}' % number)
        assert not faulty.is_ready()
    assert [message["n"] for message in inside.written] == ([1, 2] if after else [1])


async def test_a_passing_write_fault_fails_one_write_only() -> None:
    inside = MockTransport()
    async with FaultyTransport(inside, [FailWrite(lasting=False)]) as faulty:
        with pytest.raises(TransportClosed, match="write 1 fails before it was handed over"):
            await faulty.write(b'{"n":1}')
        await faulty.write(b'{"n":2}')
        assert faulty.is_ready()
    assert [message["n"] for message in inside.written] == [2]


async def test_connecting_fails_as_often_as_it_should_and_then_works() -> None:
    inside = MockTransport()
    faulty = FaultyTransport(inside, [FailConnect(times=2)])
    for attempt in (1, 2):
        with pytest.raises(CLIConnectionError, match=f"attempt {attempt} of 2") as failed:
            await faulty.connect()
        assert failed.value.retryable
        assert not inside.is_ready()
    async with faulty:
        assert faulty.is_ready()
    assert faulty.done == ["connect 1 failed", "connect 2 failed"]


async def test_after_a_reconnect_the_faults_are_those_of_the_new_stream_and_attempts_are_counted_on() -> None:
    class Opener(ByteStreamConnectable):
        async def connect(self) -> Any:
            ours, self.peer = memory_stream_pair()
            return ours

    faults: list[Fault] = [FailConnect(times=1), Drop(line=1)]
    opener, done = Opener(), list[str]()

    def make() -> FaultyTransport:
        return FaultyTransport(StreamTransport(opener), iter(faults), done=done)

    first = RetryingTransport(make(), make_transport=make, attempts=1)
    with pytest.raises(CLIConnectionError):
        await first.connect()
    await first.connect()
    with anyio.fail_after(30):
        for _ in range(2):
            second = await first.reconnect()
            await opener.peer.send(b'{"n":1}\n{"n":2}\n')
            assert await anext(second.read_messages()) == {"n": 2}
            first = second
        assert done == ["connect 1 failed", "drop of line 1", "drop of line 1"]
        await first.close()


async def test_without_a_fault_for_reading_it_is_idle() -> None:
    inside = MockTransport(LINES)
    async with FaultyTransport(inside, [FailWrite()]) as faulty:
        assert type(faulty.read_lines()) is type(inside.read_lines())
        assert faulty.is_idle
    assert not FaultyTransport(inside, [Drop(line=1)]).is_idle
    assert not FaultyTransport(inside, [Split()]).is_idle


CHANCES: list[Fault] = [Drop(rate=0.3), Duplicate(rate=0.3), Corrupt(at_byte=3), Corrupt(at_byte=30), Split(), Delay(seconds=0.0, rate=0.5)]


async def test_the_same_seed_does_the_same_and_another_one_something_else() -> None:
    lines = LINES * 10
    first, again, other = [await read(CHANCES, lines=lines, seed=seed) for seed in (7, 7, 8)]
    assert first == again
    assert first != other


async def test_one_fault_does_not_move_the_chances_of_another() -> None:
    lines = [b'{"m":%d}' % number for number in range(60)]
    alone = flat((await read([Drop(rate=0.3)], lines=lines))[0])
    beside = flat((await read([Drop(rate=0.3), Drop(line=60)], lines=lines))[0])
    assert beside == [line for line in alone if line != lines[59]]


async def test_what_went_wrong_is_listed() -> None:
    async with FaultyTransport(MockTransport(LINES), [Drop(line=2), Duplicate(line=3), Corrupt(at_byte=1), Cut(after_lines=4)]) as faulty:
        with pytest.raises(ConnectionLost):
            _ = [batch async for batch in faulty.read_lines()]
        assert faulty.done == ["corrupt byte 1", "drop of line 2", "duplicate of line 3", "cut after 32 bytes"]


async def test_a_query_survives_a_corrupt_line_and_is_told_of_a_cut_one() -> None:
    noise = {"type": "system", "subtype": "status", "status": None}
    claude = MockTransport([noise, RESULT, noise, RESULT])
    with anyio.fail_after(30):
        async with Query(FaultyTransport(claude, [Duplicate(line=2), Cut(after_lines=4)])) as query:
            assert (await (await query.send("Hi")).result()).result == "done"
            with pytest.raises((ConnectionLost, TransportClosed)):
                await (await query.send("Hi")).result()


def test_faults_can_be_kept_in_a_file() -> None:
    faults: list[Fault] = [
        Cut(after_bytes=3),
        Delay(seconds=1),
        Split(sizes=(1, 2)),
        Corrupt(at_byte=1),
        Drop(line=1),
        FailWrite(),
        FailConnect(),
    ]
    data = msgspec.json.encode(faults)
    assert msgspec.json.decode(data, type=list[Fault]) == faults
    assert b'{"fault":"Cut","after_bytes":3' in data


@pytest.mark.parametrize(
    "wrong",
    [
        Cut,
        lambda: Cut(after_bytes=-1),
        lambda: Delay(seconds=-1),
        lambda: Delay(seconds=float("nan")),
        lambda: Delay(seconds=1, rate=2),
        lambda: Split(sizes=(0,)),
        lambda: Split(up_to=0),
        lambda: Corrupt(at_byte=-1),
        lambda: Corrupt(at_byte=1, value=256),
        Drop,
        lambda: Drop(line=0),
        lambda: Duplicate(rate=-0.1),
        lambda: FailWrite(write=0),
        lambda: FailConnect(times=0),
        lambda: FaultyTransport(MockTransport(), ["cut"]),  # type: ignore[list-item]
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_when_it_is_made(wrong: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError):
        wrong()


@pytest.mark.parametrize("faults", [[], [Split(sizes=(3, 1))]], ids=["none", "split"])
def test_it_keeps_every_clause_of_the_contract_when_no_fault_breaks_it(faults: list[Fault]) -> None:
    run_conformance(wrapped(memory(), lambda transport: FaultyTransport(transport, faults))).raise_for_failures()
