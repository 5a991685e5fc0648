"""Clauses about `end_input()`, the block, and `close()`: from any task, in bounded time, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib

import anyio
import anyio.lowlevel

from claude_transport.errors import TransportClosed
from claude_transport.testing.conformance.bench import Bench, Stand, expect, messages, settle, wire
from claude_transport.testing.conformance.census import ALL, OWN, Census, unclosed
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
    class BlockEnded(Exception):
        """The error that ends the block."""

    for error in (None, BlockEnded()):
        async with bench.opened() as stand:
            transport = stand.transport
            try:
                with bench.within("an `async with` block"):
                    async with transport as entered:
                        expect(entered is transport, "`async with` did not give the transport itself")
                        expect(transport.is_ready(), "inside the block the transport is not ready")
                        if error is not None:
                            raise error
            except BlockEnded as exc:
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


_SOURCE = "Transport.close"


async def _is_closed(bench: Bench, stand: Stand, how: str) -> None:
    expect(not stand.transport.is_ready(), f"is_ready() is True after {how}")
    await bench.expect_raises(TransportClosed, stand.transport.write(wire(*messages(1))), f"a write() after {how}")
    with bench.within(f"the end of input at the peer after {how}"):
        await stand.peer.wait_input_end()


@clause("close.when-cancelled", "A cancelled close still closes; the cancellation is delivered afterwards.", source=_SOURCE)
async def when_cancelled(bench: Bench) -> None:
    for turns in (None, 0, 1, 2, 4):
        async with bench.connected() as stand:
            if turns is None:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await stand.transport.close()
                    await anyio.lowlevel.checkpoint()
                expect(scope.cancelled_caught, "the cancellation of the closing task was swallowed")
            else:
                closer = bench.start(stand.transport.close)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                closer.cancel()
                await closer.result("a cancelled close()")
            await _is_closed(bench, stand, "a cancelled close()")
    task = None
    with contextlib.suppress(RuntimeError):  # trio has none
        task = asyncio.current_task()
    if task is not None:
        await _cancelled_by_asyncio(bench)


async def _cancelled_by_asyncio(bench: Bench) -> None:
    """Cancel with `Task.cancel()`, which a shield of anyio does not stop."""
    for turns in (1, 2, 4):
        async with bench.connected() as stand:
            task = asyncio.create_task(stand.transport.close())
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            was_over = task.done()
            task.cancel()
            with bench.within("a close() cancelled by asyncio"):
                await asyncio.wait([task])
            expect(was_over or task.cancelled(), "asyncio's cancellation of the closing task was swallowed")
            await _is_closed(bench, stand, "a close() cancelled by asyncio")


_OVERTIME = 1.0
"""Seconds by which a `close()` may exceed its timeout, for its last steps and for a busy machine."""

_TRIES = 3
"""A busy machine may stall for a second, but not in each of three attempts."""


@clause("close.bounded", "It takes at most one second longer than its timeout.", source=_SOURCE)
async def bounded(bench: Bench) -> None:
    for attempt in range(_TRIES):
        took, bound = await _time_close(bench)
        if took <= bound:
            return
        expect(attempt + 1 < _TRIES, f"close() with a peer that neither reads nor exits took {took:.1f} s, and may take {bound:g} s")


async def _time_close(bench: Bench) -> tuple[float, float]:
    """Close while the peer neither reads nor exits. Return the seconds that it took, and the seconds that it may take."""
    async with bench.connected() as stand:
        await stand.peer.persist()
        await stand.peer.stop_reading()
        writer = bench.start(lambda: stand.transport.write(wire(stand.flood)))
        await settle()
        bound = stand.subject.close_timeout + _OVERTIME
        began = anyio.current_time()
        with bench.within("close() with a peer that neither reads nor exits", seconds=bound + bench.patience):
            await stand.transport.close()
        took = anyio.current_time() - began
        await writer.end("a writer after close()")
        expect(not stand.transport.is_ready(), "is_ready() is True after close()")
        return took, bound


@clause("close.any-task", "Any task may call it.", source=_SOURCE)
async def any_task(bench: Bench) -> None:
    async with bench.opened() as stand:
        await bench.start(stand.transport.connect).result("connect() in its own task")
        await bench.start(lambda: stand.transport.write(wire(*messages(1)))).result("write() in another task")
        await bench.start(stand.transport.close).result("close() in a third task")
        expect(not stand.transport.is_ready(), "is_ready() is True after a close() from another task")
    async with bench.connected() as stand:
        closers = [bench.start(stand.transport.close) for _ in range(3)]
        for closer in closers:
            await closer.result("one of three close() at once")
        expect(not stand.transport.is_ready(), "is_ready() is True after three close() at once")


@clause("close.leaves-nothing", "No file descriptor, process, thread or task stays behind.", source=_SOURCE, needs_peer=False)
async def leaves_nothing(bench: Bench) -> None:
    async def session() -> None:
        async with bench.connected() as stand:
            if stand.subject.peer is not None:
                await stand.write(wire(*messages(1)))
            await stand.close()

    empty = await Census.rested()
    with unclosed() as warned:
        await session()
        left = await empty.growth(patience=bench.patience, of=OWN)
        expect(not left, f"a session left something behind: {left}")
        warm = await Census.rested()
        for _ in range(3):
            await session()
        left = await warm.growth(patience=bench.patience, of=ALL)
        expect(not left, f"three more sessions left something behind: {left}")
    expect(not warned, f"something was never closed: {'; '.join(warned)}")
