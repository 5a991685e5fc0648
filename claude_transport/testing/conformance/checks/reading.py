"""Clauses about `read_messages()` and `read_lines()`: what they deliver, their end, and their readers."""

from __future__ import annotations

import json
import logging
import tracemalloc
from functools import partial
from typing import Any, Self

import anyio.lowlevel

from claude_transport.errors import Busy, ConnectionLost, NotConnected, TransportClosed, TruncatedStream
from claude_transport.testing.conformance.bench import Bench, Stand, Violation, expect, message, messages, settle, wire
from claude_transport.testing.conformance.clause import clause

_SOURCE = "Transport.read_messages"


class Warned(logging.Handler):
    """True when a record of level WARNING or above has reached the root logger inside the block."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store the record."""
        self.records.append(record)

    def __bool__(self) -> bool:
        return bool(self.records)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


_NOISE = (b"Welcome to this machine!\n", b"\n", b" \t \n", b'["an", "array"]\n', b"42\n", b'"text"\n', b"null\n")
_CORRUPT = (b'{"type":"conformance","n":\n', b'{"type": "conf\xff\xfe"\n', b'{"type":"conformance","n":1}}\n', b"{\x00}\n")


def _raw(text: str) -> bytes:
    """Encode a message with `text` unescaped, as one line."""
    return json.dumps(message(0, text=text), ensure_ascii=False).encode() + b"\n"


@clause("read.order", "In the order they were sent.", source=_SOURCE)
async def order(bench: Bench) -> None:
    sent = messages(60)
    chunks = (wire(sent[0]), wire(*sent[1:3]), wire(*sent[3:30]), wire(*sent[30:60]))
    async with bench.connected(says=chunks) as stand:
        expect(await stand.read(60) == sent, "the messages came in another order")


@clause("read.any-chunking", "However the bytes were cut on their way, also inside a UTF-8 sequence.", source=_SOURCE)
async def any_chunking(bench: Bench) -> None:
    data = _raw("é") + _raw("😀") + wire(message(2))
    sent = [json.loads(line) for line in data.splitlines()]
    async with bench.connected(says=tuple(data[at : at + 1] for at in range(len(data)))) as stand:
        expect(await stand.read(3) == sent, "three messages that came byte by byte were not read as they were sent")
    cut = data.index("😀".encode()) + 2
    async with bench.connected(says=(data[:cut], data[cut:])) as stand:
        expect(await stand.read(3) == sent, "messages cut inside a UTF-8 sequence were not read as they were sent")


@clause(
    "read.only-newline-ends-a-line",
    "Only the byte 0x0A ends a line: U+2028, U+2029 and U+0085 inside a string are data, and a CR before it is dropped.",
    source=_SOURCE,
)
async def only_newline_ends_a_line(bench: Bench) -> None:
    for text in ("a\u2028b", "a\u2029b", "a\u0085b"):
        async with bench.connected(says=(_raw(text) + wire(message(1)),)) as stand:
            expect(await stand.read(2) == [message(0, text=text), message(1)], f"a string with {text[1]!r} in it did not survive")
    async with bench.connected(says=(wire(message(0)).replace(b"\n", b"\r\n"), wire(message(1)))) as stand:
        expect(await stand.read(2) == messages(2), "a line that ended in CRLF was not read")


@clause("read.skips-noise", "Lines that hold no JSON object are left out.", source=_SOURCE)
async def skips_noise(bench: Bench) -> None:
    for noise in _NOISE:
        async with bench.connected(says=(noise + wire(message(0)) + noise, wire(message(1)))) as stand:
            expect(await stand.read(2) == messages(2), f"the line {noise!r} was not just left out")


@clause("read.bad-line-costs-one-line", "So is a corrupt line, and the next one is delivered.", source=_SOURCE)
async def bad_line_costs_one_line(bench: Bench) -> None:
    for corrupt in _CORRUPT:
        async with bench.connected(says=(wire(message(0)) + corrupt + wire(message(1)),)) as stand:
            expect(await stand.read(2) == messages(2), f"the corrupt line {corrupt!r} was delivered, or another line was lost with it")


@clause("read.left-out-is-logged", "What was left out is logged as a warning, blank lines excepted.", source=_SOURCE)
async def left_out_is_logged(bench: Bench) -> None:
    for line in (_NOISE[0], _CORRUPT[0]):
        with Warned() as warned:
            async with bench.connected(says=(line, wire(message(0)))) as stand:
                await stand.read(1)
        expect(warned, f"no warning was logged for the line {line!r}, which was left out")


@clause("read.left-out-is-counted", "A transport that has an `info` of its own counts there what was left out.", source=_SOURCE)
async def left_out_is_counted(bench: Bench) -> None:
    async with bench.connected(says=(wire(message(0)) + _NOISE[0] + _CORRUPT[0] + _NOISE[3] + wire(message(1)),)) as stand:
        info = stand.own_info
        expect(info.noise_lines == 0, f"info counts {info.noise_lines} lines of noise before any was read")
        await stand.read(2)
        expect(stand.own_info.noise_lines == 3, f"info counts {stand.own_info.noise_lines} lines left out, not 3")


@clause("read.line-limit", "So is a line over the limit; memory stays bounded.", source=_SOURCE)
async def line_limit(bench: Bench) -> None:
    async with bench.opened() as stand:
        limit = stand.line_limit
    empty = len(wire(message(0, pad=""))) - 1
    longest = wire(message(0, pad="x" * (limit - empty)))
    over = wire(message(0, pad="x" * (limit - empty + 1)))
    async with bench.connected(says=(longest, over, wire(message(1)))) as stand:
        first, second = await stand.read(2)
        expect(len(first["pad"]) == limit - empty, f"a line of exactly {limit} bytes was not delivered as it was")
        expect(second == message(1), f"a line of {limit + 1} bytes was delivered, or another line was lost with it")
    bound = 20 * limit + stand.subject.absorbs
    pieces = 3 * bound // limit
    huge = (b'{"pad":"', *[b"x" * limit] * pieces, b'"}\n')
    async with bench.connected(says=(*huge, wire(message(1)))) as stand:
        with _Memory() as memory:
            expect(await stand.read(1) == messages(1, first=1), "the message after a huge line was not delivered")
        expect(memory.peak < bound, f"a line of {pieces * limit} bytes took {memory.peak} bytes of memory, over a limit of {limit}")


@clause("read.final-line-without-newline", "A complete last line counts without its newline.", source=_SOURCE)
async def final_line_without_newline(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(2))[:-1],), then="finish") as stand:
        expect(await stand.read(2) == messages(2), "the last line, which had no newline, is not what was sent")


@clause(
    "read.truncated-tail-is-reported",
    "An incomplete one raises `TruncatedStream`, after everything before it. "
    "When the peer failed as well, it is the `__cause__` of that error.",
    source=_SOURCE,
)
async def truncated_tail_is_reported(bench: Bench) -> None:
    async with bench.connected(says=(wire(message(0)), b'{"type":"conformance","n'), then="finish") as stand:
        expect(await stand.read(1) == messages(1), "the message before the truncated line was not delivered")
        end = await stand.read_end()
        expect(isinstance(end, TruncatedStream), f"the stream ended inside a line, and the iteration with {end!r}")


@clause("read.clean-eof-stops", "The iteration ends when the peer ended well.", source=_SOURCE)
async def clean_eof_stops(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(3)),), then="finish") as stand:
        expect(await stand.read(3) == messages(3), "the last messages before the end were not delivered")
        for which in ("the iteration", "another iteration after the end"):
            end = await stand.read_end()
            expect(end is None, f"{which} raised {end!r} although the peer ended well")


@clause(
    "read.failure-after-last-message",
    "And raises `ConnectionLost` (`ProcessError`) when it did not, after the last message.",
    source=_SOURCE,
)
async def failure_after_last_message(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(20)),), then="fail") as stand:
        expect(await stand.read(20) == messages(20), "the last messages before the failure were not delivered")
        end = await stand.read_end()
        expect(isinstance(end, ConnectionLost), f"the peer failed, and the iteration ended with {end!r}")


@clause(
    "read.unconnected-raises",
    "`NotConnected` before `connect()`, `TransportClosed` after `close()`, at the latest from the first step of the iteration.",
    source=_SOURCE,
    needs_peer=False,
)
async def unconnected_raises(bench: Bench) -> None:
    async with bench.opened() as stand:

        async def read() -> object:
            # a generator raises at its first step, others when they are called; both are allowed
            async for each in stand.transport.read_messages():
                raise Violation(f"a message came out of a transport that is not connected: {each!r}")
            return None

        await bench.expect_raises(NotConnected, read(), "reading before connect()")
        await stand.connect()
        await stand.close()
        await bench.expect_raises(TransportClosed, read(), "reading after close()")


class _Memory:
    """The peak growth of Python's memory inside the block, in bytes."""

    peak = 0

    def __enter__(self) -> Self:
        self._tracing = tracemalloc.is_tracing()
        if not self._tracing:
            tracemalloc.start()
        tracemalloc.reset_peak()
        self._before, _ = tracemalloc.get_traced_memory()
        return self

    def __exit__(self, *_: object) -> None:
        self.peak = tracemalloc.get_traced_memory()[1] - self._before
        if not self._tracing:
            tracemalloc.stop()


async def _first(stand: Stand) -> dict[str, Any] | None:
    """Read one message in a new iteration, and leave it."""
    async for each in stand.transport.read_messages():
        return each
    return None


@clause("read.one-reader", "A second reader at the same time gets `Busy`.", source=_SOURCE)
async def one_reader(bench: Bench) -> None:
    async with bench.connected() as stand:
        reader = bench.start(lambda: _first(stand))
        await settle()
        expect(not reader.over, "the first reader did not wait although the peer said nothing")
        await bench.expect_raises(Busy, _first(stand), "a second reader")
        expect(not reader.over, "a second reader ended the first one")


@clause("read.resumable", "Leaving the loop and iterating again loses nothing.", source=_SOURCE)
async def resumable(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(6)),)) as stand:
        got = []
        for _ in range(6):
            with bench.within("a message after the loop was left"):
                got.append(await _first(stand))
        expect(got == messages(6), f"six loops left after one message each gave {[each and each['n'] for each in got]}")


@clause("read.cancel-loses-nothing", "Neither does cancelling a reader.", source=_SOURCE)
async def cancel_loses_nothing(bench: Bench) -> None:
    async with bench.connected() as stand:
        got: list[dict[str, Any]] = []

        async def read() -> None:
            async for each in stand.transport.read_messages():
                got.append(each)  # noqa: PERF401 - a comprehension would lose the messages before the cancellation

        for n in range(12):  # cancel the reader later each time, after a message and after half of one
            reader = bench.start(read)
            await settle()
            line = wire(message(n))
            speaker = bench.start(partial(stand.peer.send, line[:9]))
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            reader.cancel()
            await reader.end("a cancelled reader")
            reader = bench.start(read)
            await speaker.end("the peer's writing")
            speaker = bench.start(partial(stand.peer.send, line[9:]))
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            reader.cancel()
            await reader.end("a cancelled reader")
            reader = bench.start(read)
            await speaker.end("the peer's writing")
            reader.cancel()
            await reader.end("a cancelled reader")
        await stand.peer.finish()
        await bench.start(read).result("the rest of the messages")
        expect(got == messages(12), f"with readers cancelled all the time, these of 12 messages came: {[each['n'] for each in got]}")


@clause(
    "lines.same-messages",
    "It gives the same messages: batches of one line each or more, without terminators.",
    source="Transport.read_lines",
)
async def same_messages(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(3)), wire(*messages(2, first=3)))) as stand:
        lines: list[bytes] = []
        with bench.within("five lines from read_lines()"):
            async for batch in stand.transport.read_lines():
                expect(len(batch) > 0, "read_lines() gave an empty batch")
                lines += batch
                if len(lines) >= 5:
                    break
        expect(
            all(isinstance(line, bytes) and b"\n" not in line for line in lines), f"a line has its terminator, or is not bytes: {lines!r}"
        )
        expect([json.loads(line) for line in lines] == messages(5), f"read_lines() gave other lines than were sent: {lines!r}")


@clause(
    "lines.same-position",
    "Both views are of one stream: what one of them has read, the other does not repeat or lose.",
    source="Transport.read_lines",
)
async def same_position(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(6)),)) as stand:
        got = []
        for _ in range(2):
            with bench.within("a message between lines"):
                got.append(await _first(stand))
            with bench.within("lines between messages"):
                async for batch in stand.transport.read_lines():
                    got += [json.loads(line) for line in batch]
                    break
            if len(got) == 6:
                break
        expect(got == messages(len(got)), f"taking turns between the views gave {got!r}")
