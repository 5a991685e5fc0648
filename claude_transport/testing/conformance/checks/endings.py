"""Clauses about `end_input()`, the block, and what `close()` does to waiting readers and writers."""

from __future__ import annotations

from claude_transport.errors import TransportClosed
from claude_transport.testing.conformance.bench import Bench, expect, messages, settle, wire
from claude_transport.testing.conformance.clause import clause


@clause("end.half-close", "Reading goes on until the peer ends.", source="Transport.end_input")
async def half_close(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.peer.persist()
        await stand.write(wire(*messages(1)))
        await stand.end_input()
        with bench.within("the end of input at the peer"):
            await stand.peer.wait_input_end()
        expect(stand.peer.received == wire(*messages(1)), f"before the end of input the peer got {stand.peer.received!r}")
        speaker = bench.start(lambda: stand.peer.send(wire(*messages(3))))
        expect(await stand.read(3) == messages(3), "what the peer said after the end of its input is not what was read")
        await speaker.result("the peer's writing")
        await stand.peer.finish()
        end = await stand.read_end()
        expect(end is None, f"after end_input() and a good end of the peer the iteration raised {end!r}")


@clause("end.idempotent", "Ending twice does nothing.", source="Transport.end_input", needs_peer=False)
async def end_is_idempotent(bench: Bench) -> None:
    async with bench.connected() as stand:
        for _ in range(3):
            await stand.end_input()


@clause(
    "close.idempotent", "Closing twice does nothing, closing what was never connected neither.", source="Transport.close", needs_peer=False
)
async def close_is_idempotent(bench: Bench) -> None:
    async with bench.connected() as stand:
        for _ in range(3):
            await stand.close()
    async with bench.opened() as stand:
        for _ in range(2):
            await stand.close()


@clause("close.peer-sees-the-end", "The peer sees the end of its input.", source="Transport.close")
async def peer_sees_the_end(bench: Bench) -> None:
    async with bench.connected() as stand:
        await settle()
        expect(not stand.peer.input_ended, "the peer saw the end of its input before close()")
        await stand.close()
        with bench.within("the end of input at the peer"):
            await stand.peer.wait_input_end()


@clause("close.wakes-reader", "The iteration of a waiting reader ends.", source="Transport.close")
async def wakes_reader(bench: Bench) -> None:
    async with bench.connected() as stand:

        async def read() -> int:
            return len([each async for each in stand.transport.read_messages()])

        reader = bench.start(read)
        await settle()
        expect(not reader.over, "the reader did not wait although the peer said nothing")
        await stand.close()
        await reader.end("the end of a waiting reader after close()")
        expect(reader.error is None, f"close() made the waiting reader raise {reader.error!r}")


@clause("close.wakes-writer", "A waiting writer gets `TransportClosed`.", source="Transport.close")
async def wakes_writer(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.peer.stop_reading()
        writer = bench.start(lambda: stand.transport.write(wire(stand.flood)))
        await settle()
        expect(not writer.over, "the writer did not wait although the peer reads nothing")
        await stand.close()
        await writer.end("the end of a waiting writer after close()")
        expect(isinstance(writer.error, TransportClosed), f"close() made the waiting writer end with {writer.error!r}")


@clause(
    "block.connects-and-closes",
    "It connects, and closes at the end of the block, also when it ends by an error.",
    source="Transport.__aenter__",
    needs_peer=False,
)
async def connects_and_closes(bench: Bench) -> None:
    class Ended(Exception):
        """The error that ends the block."""

    for error in (None, Ended()):
        async with bench.opened() as stand:
            transport = stand.transport
            try:
                with bench.within("an `async with` block"):
                    async with transport as entered:
                        expect(entered is transport, "`async with` did not give the transport itself")
                        expect(transport.is_ready(), "inside the block the transport is not ready")
                        if error is not None:
                            raise error
            except Ended as exc:
                expect(exc is error, "the block's error was replaced")
            expect(not transport.is_ready(), "after the block the transport is still ready")
            await bench.expect_raises(TransportClosed, transport.write(wire(*messages(1))), "a write() after the block")


@clause("truth.always", "It is true in a boolean context, whatever its state, and has no length.", source="Transport", needs_peer=False)
async def always_true(bench: Bench) -> None:
    async with bench.opened() as stand:
        for step in (stand.connect, stand.close, None):
            expect(bool(stand.transport) is True, "the transport is false in a boolean context: the official SDK would replace it")
            expect(not hasattr(type(stand.transport), "__len__"), "the transport has a length")
            if step is not None:
                await step()
