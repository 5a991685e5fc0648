"""Clauses about `write()`."""

from __future__ import annotations

import json
from functools import partial

from claude_transport.errors import InputClosed, NotConnected, TransportClosed
from claude_transport.testing.conformance.bench import Bench, expect, message, messages, settle, wire
from claude_transport.testing.conformance.clause import clause

_SOURCE = "Transport.write"


@clause("write.whole-lines", "Text is encoded as UTF-8, and a missing final newline is added; exactly one ends each line.", source=_SOURCE)
async def whole_lines(bench: Bench) -> None:
    line = json.dumps(message(0, text="é😀\u2028"), ensure_ascii=False)
    async with bench.connected() as stand:
        for data in (line, line + "\n", line.encode(), line.encode() + b"\n"):
            await stand.write(data)
        await stand.receive(4)
        expect(stand.peer.received == (line.encode() + b"\n") * 4, f"four times the same line arrived as {stand.peer.received!r}")


@clause("write.order", "Lines arrive in the order of the calls.", source=_SOURCE)
async def order(bench: Bench) -> None:
    sent = messages(40)
    async with bench.connected() as stand:
        for first in range(0, 40, 4):  # one line, then three at once
            await stand.write(wire(sent[first]).decode())
            await stand.write(wire(*sent[first + 1 : first + 4]))
        expect(await stand.receive(40) == sent, "the lines arrived in another order")


@clause("write.no-interleaving", "A line is never cut by another one, however many tasks write at once.", source=_SOURCE)
async def no_interleaving(bench: Bench) -> None:
    async with bench.connected() as stand:
        pad = "x" * max(1000, stand.subject.absorbs // 8)
        sent = [message(n, pad=pad) for n in range(12)]
        await stand.peer.stop_reading()  # so that all of them wait, one in the middle of a line
        writers = [bench.start(partial(stand.transport.write, wire(each))) for each in sent]
        await settle()
        await stand.peer.resume_reading()
        for writer in writers:
            await writer.result("one of several writers")
        got = await stand.receive(len(sent))
        expect(sorted(each["n"] for each in got) == list(range(12)), "not every line arrived exactly once")
        expect(all(each["pad"] == pad for each in got), "a line arrived with another one in it")


@clause("write.backpressure", "It returns when the data has been handed over, and waits while the peer does not read.", source=_SOURCE)
async def backpressure(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.peer.stop_reading()
        data = wire(stand.flood)
        writer = bench.start(lambda: stand.transport.write(data))
        await settle()
        expect(not writer.over, f"a write() of {len(data)} bytes returned although the peer reads nothing")
        await stand.peer.resume_reading()
        await writer.result("a write() after the peer has begun to read")
        with bench.within("the data at the peer"):
            await stand.peer.wait_received(len(data))
        expect(stand.peer.received == data, "the peer got other bytes than were written")


@clause(
    "write.cancel-poisons",
    "A call cancelled in the middle of a line leaves the transport broken for writing, rather than the peer with half a line.",
    source=_SOURCE,
)
async def cancel_poisons(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.peer.stop_reading()
        writer = bench.start(lambda: stand.transport.write(wire(stand.flood)))
        await settle()
        writer.cancel()
        await writer.end("a cancelled write()")
        await stand.peer.resume_reading()
        for _ in range(2):
            await bench.expect_raises(TransportClosed, stand.transport.write(wire(message(1))), "a write() after one cancelled in a line")
        await settle()
        # a medium that has accepted the whole line may still deliver it; but no other line may follow a part of it
        whole = wire(stand.flood).startswith(stand.peer.received)
        expect(whole, "after half a line the peer got the end of another one")


@clause("write.broken-stays-broken", "Once broken, every further write says so.", source=_SOURCE)
async def broken_stays_broken(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.peer.fail()
        await bench.expect_raises(TransportClosed, stand.transport.write(wire(stand.flood)), "a write() to a peer that is gone")
        for _ in range(3):
            await bench.expect_raises(TransportClosed, stand.transport.write(wire(message(1))), "another write() to a peer that is gone")


@clause("write.after-end-raises", "`InputClosed` after `end_input()`.", source=_SOURCE, needs_peer=False)
async def after_end_raises(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.end_input()
        await bench.expect_raises(InputClosed, stand.transport.write(wire(message(1))), "a write() after end_input()")


@clause(
    "write.after-close-raises", "`TransportClosed` after `close()`, `NotConnected` before `connect()`.", source=_SOURCE, needs_peer=False
)
async def after_close_raises(bench: Bench) -> None:
    async with bench.opened() as stand:
        await bench.expect_raises(NotConnected, stand.transport.write(wire(message(1))), "a write() before connect()")
        await stand.connect()
        await stand.close()
        await bench.expect_raises(TransportClosed, stand.transport.write(wire(message(1))), "a write() after close()")


@clause(
    "write.large-write-while-peer-writes",
    "Megabytes may be written while the peer writes megabytes, as long as this side reads.",
    source=_SOURCE,
)
async def large_write_while_peer_writes(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.peer.stop_reading()
        data, line = wire(stand.flood), wire(message(0, pad="y" * 10_000))
        count = stand.subject.absorbs // len(line) + 1
        writer = bench.start(lambda: stand.transport.write(data))
        await settle()
        # the peer reads nothing before it has sent everything, so the write ends only if the transport is read meanwhile
        speaker = bench.start(lambda: stand.peer.send(line * count))
        got = await stand.read(count)
        expect(len(got) == count, "not everything that the peer sent was read")
        await speaker.result("the peer's own writing")
        await stand.peer.resume_reading()
        await writer.result("a large write() after the peer has sent everything")
        with bench.within("the data at the peer"):
            await stand.peer.wait_received(len(data))
