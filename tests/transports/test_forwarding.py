"""`forward` carries every line of one transport to another, undecoded."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from children import CAT, python, shell

import claude_transport as ct
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.transports import Forwarded, forward

PATIENCE = 30.0

LINES = [b'{"n":%d,"text":"%s"}' % (number, b"x" * (number * 37 % 90_000)) for number in range(300)]
SIZE = sum(len(line) + 1 for line in LINES)
TALKER = """
import sys
for number in range(300): sys.stdout.write('{"n":%d,"text":"%s"}\\n' % (number, 'x' * (number * 37 % 90_000)))
"""


async def heard_by(target: ct.Transport) -> list[bytes]:
    return [line async for batch in target.read_lines() for line in batch]


async def test_every_line_of_a_process_reaches_another_one_in_order() -> None:
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(command=python(TALKER)) as source, ct.SubprocessTransport(command=CAT) as target:
            heard: list[bytes] = []

            async def listen() -> None:
                heard.extend(await heard_by(target))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                assert await forward(source, target) == Forwarded(lines=300, size=SIZE)
                await target.end_input()
            assert heard == LINES
            assert (source.info.lines_read, source.info.bytes_read, target.info.bytes_written) == (300, SIZE, SIZE)


async def test_any_transport_may_be_the_source_and_any_the_target() -> None:
    with anyio.fail_after(PATIENCE):
        targets = MemoryConnectable()
        async with ct.MockTransport([{"n": 1}, {"n": 2}]) as source, ct.StreamTransport(targets) as target:
            assert await forward(source, target) == Forwarded(lines=2, size=16)
            assert await (await targets.accept()).receive() == b'{"n":1}\n{"n":2}\n'


async def test_blank_lines_are_left_out_and_a_missing_newline_is_added() -> None:
    talker = shell("""printf '\\n{"a":1}\\n\\n\\n{"a":2}'""")
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(command=talker) as source, ct.SubprocessTransport(command=CAT) as target:
            assert await forward(source, target) == Forwarded(lines=2, size=16)
            await target.end_input()
            assert await heard_by(target) == [b'{"a":1}', b'{"a":2}']


async def test_a_line_that_is_too_long_is_an_error_after_the_lines_before_it() -> None:
    talker = shell("""printf '{"a":1}\\n{"a":"%0100d"}\\n{"a":3}\\n' 0""")
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(command=talker, max_line_bytes=50) as source, ct.SubprocessTransport(command=CAT) as target:
            with pytest.raises(ct.LineTooLong) as caught:
                await forward(source, target)
            assert (str(caught.value), caught.value.size, caught.value.limit) == ("line 2 has 108 bytes, over the limit of 50", 108, 50)
            await target.end_input()
            assert await heard_by(target) == [b'{"a":1}']


async def test_a_bad_end_of_the_source_is_raised_after_its_last_line_was_written() -> None:
    with anyio.fail_after(PATIENCE):
        talker = shell("echo '{\"a\":1}'; echo sorry >&2; exit 3")
        async with ct.SubprocessTransport(command=talker) as source, ct.SubprocessTransport(command=CAT) as target:
            with pytest.raises(ct.ProcessError) as caught:
                await forward(source, target)
            assert (caught.value.exit_code, caught.value.stderr_tail) == (3, "sorry")
            await target.end_input()
            assert await heard_by(target) == [b'{"a":1}']


async def test_a_target_that_is_gone_ends_it() -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            ct.SubprocessTransport(command=python("while True: print('{}', flush=True)")) as source,
            ct.SubprocessTransport(command=shell("exit 4")) as target,
        ):
            with pytest.raises(ct.TransportClosed) as caught:
                await forward(source, target)
            assert caught.value.exit_code == 4


async def test_a_target_that_does_not_read_stops_the_source() -> None:
    """Only what the target holds and one block are read: the rest waits in the source."""
    line = b'{"text":"%s"}\n' % (b"x" * 500)
    sources, targets = MemoryConnectable(capacity=4096), MemoryConnectable(capacity=4096)
    with anyio.fail_after(PATIENCE):
        async with ct.StreamTransport(sources) as source, ct.StreamTransport(targets) as target, anyio.create_task_group() as tasks:
            peer = await sources.accept()

            async def talk() -> None:
                while True:
                    await peer.send(line)

            tasks.start_soon(talk)
            tasks.start_soon(forward, source, target)
            for _ in range(1000):  # everything is in memory, so nothing happens outside of these rounds
                await anyio.lowlevel.checkpoint()
            assert 4096 <= source.info.bytes_read <= 4 * 4096
            tasks.cancel_scope.cancel()


class Sink(ByteStream):
    """A stream of frames: it keeps what is sent, piece by piece."""

    def __init__(self) -> None:
        self.sent: list[object] = []

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.sent.append(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.sleep_forever()
        raise anyio.EndOfStream

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()


class ToSink(ByteStreamConnectable):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    async def connect(self) -> ByteStream:
        return self.sink


async def test_a_stream_of_frames_gets_each_block_as_bytes_in_one_piece() -> None:
    sink, door = Sink(), MemoryConnectable(capacity=2**26)
    with anyio.fail_after(PATIENCE):
        async with ct.StreamTransport(door) as source, ct.StreamTransport(ToSink(sink)) as target:
            peer = await door.accept()
            said = b"".join(line + b"\n" for line in LINES)
            for start in range(0, len(said), 100_003):
                await peer.send(said[start : start + 100_003])
            await peer.send_eof()
            assert await forward(source, target) == Forwarded(lines=300, size=SIZE)
            assert target.info.bytes_written == SIZE
    assert [type(each) for each in sink.sent] == [bytes] * len(sink.sent)
    assert b"".join(each for each in sink.sent if isinstance(each, bytes)) == said
    assert all(isinstance(each, bytes) and each.endswith(b"\n") for each in sink.sent)
