"""Lines that are poured: handed on where they are noticed, with the same clauses as lines that are asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest
from children import CAT, python, read_all, shell, until

import claude_transport as ct
from claude_transport.protocol.framing import LineBlock
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.transport import PouredBlocks, PouredLines
from claude_transport.transports.stream import StreamTransport

PATIENCE = 30.0


HandOn: TypeAlias = Callable[[Sequence[bytes]], bool]
Pour: TypeAlias = Callable[[ct.Transport, HandOn], Coroutine[Any, Any, bool]]


async def pour_lines(transport: ct.Transport, hand_on: HandOn) -> bool:
    lines = transport.read_lines()
    assert isinstance(lines, PouredLines)
    return await lines.pour(hand_on)


async def pour_blocks(transport: ct.Transport, hand_on: HandOn) -> bool:
    lines = transport.read_lines()
    assert isinstance(lines, PouredBlocks)

    def divide(block: LineBlock) -> bool:
        *whole, rest = bytes(block).split(b"\n")
        assert (len(whole), rest) == (block.count, b"")
        return hand_on(whole)

    return await lines.pour_blocks(divide)


@pytest.fixture(params=[pour_lines, pour_blocks])
def pour(request: pytest.FixtureRequest) -> Pour:
    """Pours the lines of a transport, divided or in blocks."""
    chosen: Pour = request.param
    return chosen


class Heard:
    """Is handed the lines, and has enough at one that is asked for."""

    def __init__(self, *, last: bytes | None = None) -> None:
        self.last = last
        self.lines: list[bytes] = []

    def hand_on(self, lines: Sequence[bytes]) -> bool:
        self.lines += lines
        return self.last in lines


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE):
        yield


async def test_a_flood_arrives_in_order_and_a_good_end_is_told(pour: Pour) -> None:
    child = python("import sys\nfor n in range(50000): sys.stdout.write('{\"n\":%d}\\n' % n)")
    heard = Heard()
    async with ct.SubprocessTransport(command=child) as transport:
        assert not await pour(transport, heard.hand_on)
        assert heard.lines == [b'{"n":%d}' % number for number in range(50000)]
        assert transport.info.lines_read == 50000
        assert transport.info.bytes_read == sum(len(line) + 1 for line in heard.lines)


async def test_a_bad_end_is_raised_after_the_last_line(pour: Pour) -> None:
    heard = Heard()
    async with ct.SubprocessTransport(command=shell("echo '{}'; exit 3")) as transport:
        with pytest.raises(ct.ProcessError) as caught:
            await pour(transport, heard.hand_on)
    assert (heard.lines, caught.value.exit_code) == ([b"{}"], 3)


async def test_a_torn_tail_is_raised(pour: Pour) -> None:
    heard = Heard()
    async with ct.SubprocessTransport(command=shell("echo '{}'; printf '{\"a\":'")) as transport:
        with pytest.raises(ct.TruncatedStream):
            await pour(transport, heard.hand_on)
    assert heard.lines == [b"{}"]


async def test_who_has_had_enough_leaves_the_rest_also_in_the_middle_of_a_line(pour: Pour) -> None:
    script = """echo '{"a":1}'; read go; printf '{"a":2}\\n{"a":'; read go; printf '3}\\n{"a":4}\\n'"""
    heard, ended = Heard(last=b'{"a":2}'), list[bool]()
    async with ct.SubprocessTransport(command=shell(script)) as transport, anyio.create_task_group() as tasks:

        async def read() -> None:
            ended.append(await pour(transport, heard.hand_on))

        tasks.start_soon(read)
        await until(lambda: heard.lines == [b'{"a":1}'])
        await transport.write("go")
        await until(lambda: len(heard.lines) == 2)
        await transport.write("go")
        await until(lambda: ended)
        assert await read_all(transport) == [{"a": 3}, {"a": 4}]


async def test_who_is_cancelled_leaves_everything_to_the_next(pour: Pour) -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        heard = Heard()
        for number in range(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pour, transport, heard.hand_on)
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                await transport.write(b'{"n":%d}' % number)
                for _ in range(number % 7):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        await transport.end_input()
        assert not await pour(transport, heard.hand_on)
        assert heard.lines == [b'{"n":%d}' % number for number in range(20)]


async def test_closing_wakes_who_has_it_poured(pour: Pour) -> None:
    ended: list[bool] = []
    heard = Heard()

    async def read() -> None:
        ended.append(await pour(transport, heard.hand_on))

    async with anyio.create_task_group() as tasks, ct.SubprocessTransport(command=CAT) as transport:
        tasks.start_soon(read)
        await transport.write("{}")
        await until(lambda: heard.lines)
    assert ended == [False]


async def test_there_is_one_reader(pour: Pour) -> None:
    heard = Heard()
    async with ct.SubprocessTransport(command=CAT) as transport, anyio.create_task_group() as tasks:
        tasks.start_soon(pour, transport, heard.hand_on)
        await transport.write("{}")
        await until(lambda: heard.lines)
        with pytest.raises(ct.Busy):
            await anext(transport.read_messages())
        with pytest.raises(ct.Busy):
            await pour(transport, heard.hand_on)
        tasks.cancel_scope.cancel()


async def test_what_the_listener_raises_ends_it_and_the_rest_stays(pour: Pour) -> None:
    def refuse(lines: Sequence[bytes]) -> bool:
        raise LookupError(lines)

    async with ct.SubprocessTransport(command=CAT) as transport:
        for number in range(3):
            await transport.write(b'{"n":%d}' % number)
            with pytest.raises(LookupError):
                await pour(transport, refuse)
        await transport.write("{}")
        assert await anext(transport.read_messages()) == {}


async def test_a_stream_that_has_to_be_asked_is_asked() -> None:
    async with StreamTransport(MemoryConnectable()) as transport:
        assert not isinstance(transport.read_lines(), PouredLines)


async def test_a_stream_that_has_to_be_asked_is_asked_for_blocks() -> None:
    opener, heard = MemoryConnectable(), Heard()
    async with StreamTransport(opener) as transport:
        peer = await opener.accept()
        await peer.send(b'{"a":1}\n{"b"')
        await peer.send(b':2}\n\n{"c":3}')
        await peer.aclose()
        assert not await pour_blocks(transport, heard.hand_on)
    assert heard.lines == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
