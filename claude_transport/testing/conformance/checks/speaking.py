"""Clauses of wrappers about lines: those that a reader loses when it is cancelled, and those that the wrapper says by itself."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio.lowlevel

from claude_transport.testing.conformance.bench import Bench, Stand, expect, message, messages, settle, wire
from claude_transport.testing.conformance.clause import clause
from claude_transport.testing.conformance.subject import Inexpressible, Reason
from claude_transport.wrappers.base import LineWrapper


@clause(
    "lines.cancelled-reader-loses-nothing",
    "Cancelling a reader of lines loses none, also while the wrapper waits with lines that it has taken.",
    source="TransportWrapper.read_lines",
    of_wrappers=True,
)
async def cancelled_reader_loses_nothing(bench: Bench) -> None:
    async with bench.around_memory() as stand:
        got: list[dict[str, Any]] = []

        async def read() -> None:
            async for batch in stand.transport.read_lines():
                got.extend(json.loads(line) for line in batch)

        for n in range(12):  # cancel the reader later each time
            reader = bench.start(read)
            await settle()
            await stand.peer.send(wire(message(n)))
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            reader.cancel()
            await reader.end("a cancelled reader")
        await stand.peer.finish()
        await bench.start(read).result("the rest of the lines")
        lost = [n for n in range(12) if message(n) not in got]
        expect(
            not lost,
            f"readers were cancelled, and lines {lost} of 12 are lost: override read_batch() of a LineWrapper, which keeps what "
            "it has taken for the next call; with `keeps_taken_lines`, keep it yourself; and let a cancellation pass",
        )
        expect(got == messages(12), f"readers were cancelled, and 12 lines came as {[each['n'] for each in got]}: hand each on once")


def _speaker(stand: Stand) -> LineWrapper:
    wrapper = stand.transport
    if not isinstance(wrapper, LineWrapper) or not wrapper.speaks:
        raise Inexpressible(Reason.NEVER_SPEAKS)
    return wrapper


@clause(
    "own.injected-once",
    "It comes once, whole, and between the lines of the peer, whether or not a reader waits.",
    source="LineWrapper.inject",
    of_wrappers=True,
)
async def injected_once(bench: Bench) -> None:
    async with bench.around_memory() as stand:
        wrapper = _speaker(stand)
        got: list[dict[str, Any]] = []

        async def read() -> None:
            async for batch in stand.transport.read_lines():
                got.extend(json.loads(line) for line in batch)

        reader = bench.start(read)
        for n in range(0, 12, 2):
            line = wire(message(n))
            await settle()
            await stand.peer.send(line[:9])  # half of one, while the reader waits or has just been woken
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            wrapper.inject(wire(message(n + 1, own=True)))
            await settle()
            expect(
                message(n + 1, own=True) in got,
                "an injected line did not come while the peer said nothing: read_batch() must let pass whatever ends its wait for `source`",
            )
            await stand.peer.send(line[9:])
        await stand.peer.finish()
        await reader.result("the lines of the peer and the injected ones")
        own = [each["n"] for each in got if "own" in each]
        expect(own == [*range(1, 12, 2)], f"lines 1, 3, 5, 7, 9, 11 were injected, and came as {own}: hand each to inject() once")
        theirs = [each["n"] for each in got if "own" not in each]
        expect(theirs == [*range(0, 12, 2)], f"of the lines 0, 2, 4, 6, 8, 10 of the peer, these came beside injected ones: {theirs}")


@clause(
    "own.sent-later-once",
    "It is sent once, in the order of the calls, never in the middle of another line, and before the end of the input.",
    source="LineWrapper.send_later",
    of_wrappers=True,
)
async def sent_later_once(bench: Bench) -> None:
    async with bench.around_memory() as stand:
        wrapper = _speaker(stand)
        flood = message(0, pad="x" * stand.subject.absorbs)
        await stand.peer.stop_reading()
        writer = bench.start(partial(stand.transport.write, wire(flood)))  # it waits in the middle of its line
        await settle()
        for n in range(1, 6):
            wrapper.send_later(wire(message(n)))
        await settle()
        await stand.peer.resume_reading()
        await writer.result("a write() beside lines that are sent later")
        await stand.end_input()
        with bench.within("the end of the input"):
            await stand.peer.wait_input_end()
        lines = stand.peer.received.splitlines()
        whole = [*messages(5, first=1)]
        expect(
            lines[:1] == wire(flood).splitlines(),
            "a line that was sent later came in the middle of another one: hand each to send_later() whole, and leave the writing to it",
        )
        came = lines[1:]
        expect(
            came == wire(*whole).splitlines(),
            f"five lines were sent later, before end_input(), and these came: {came}. Hand each to send_later() once; "
            "an end_input() of yours calls super().end_input(), which waits for them",
        )
