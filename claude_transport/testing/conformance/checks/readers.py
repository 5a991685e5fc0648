"""Clauses about who reads, when they stop, and what the next one finds; and about `read_lines()`."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio.lowlevel

from claude_transport.errors import Busy
from claude_transport.testing.conformance.bench import Bench, Stand, expect, message, messages, settle, wire
from claude_transport.testing.conformance.clause import clause

_SOURCE = "Transport.read_messages"


async def _first(stand: Stand) -> dict[str, Any] | None:
    """The next message, by an iteration of its own that is left at once."""
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


@clause("read.resumable", "Leaving the loop and iterating again loses nothing.", source=f"{_SOURCE}; L10")
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
                got.append(each)  # noqa: PERF401 - not a comprehension: what came before the cancellation counts

        for n in range(12):  # the reader is cancelled ever later after a message, and half of one, has been sent
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
            all(isinstance(line, bytes) and b"\n" not in line for line in lines), f"a line has its terminator, or is no bytes: {lines!r}"
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
