"""Clauses about `connect()` and `is_ready()`."""

from __future__ import annotations

import anyio.lowlevel

from claude_transport.errors import CLIConnectionError, ConfigurationError, TransportClosed
from claude_transport.testing.conformance.bench import Bench, Stand, expect, messages, settle, wire
from claude_transport.testing.conformance.census import LASTING, Census
from claude_transport.testing.conformance.clause import clause

_SOURCE = "Transport.connect"
_CHECKPOINTS = (0, 1, 2, 3, 5, 8)
"""The turns of the event loop after which a connect() is cut short. The largest is more than any medium needs before it waits."""


async def _carries(stand: Stand) -> None:
    """Check that a line written after connect() arrives."""
    await stand.write(wire(*messages(1)))
    expect(await stand.receive(1) == messages(1), "what was written after connect() is not what the peer got")


async def _used(bench: Bench) -> Census:
    """Count after one good session, so that everything that sessions share exists by then."""
    async with bench.connected() as stand:
        await stand.close()
    return await Census.rested()


@clause("connect.not-ready-before", "`is_ready()` is False until then.", source=_SOURCE, needs_peer=False)
async def not_ready_before(bench: Bench) -> None:
    async with bench.opened() as stand:
        expect(stand.transport.is_ready() is False, f"is_ready() was {stand.transport.is_ready()!r} before connect()")


@clause("connect.ready-after", "And True from then on.", source=_SOURCE, needs_peer=False)
async def ready_after(bench: Bench) -> None:
    async with bench.connected() as stand:
        expect(stand.transport.is_ready() is True, f"is_ready() was {stand.transport.is_ready()!r} after connect()")
        await settle()
        expect(stand.transport.is_ready() is True, f"is_ready() was {stand.transport.is_ready()!r} a while after connect()")


@clause("connect.twice-is-noop", "Connecting a connected transport does nothing.", source=_SOURCE)
async def twice_is_noop(bench: Bench) -> None:
    async with bench.connected(says=(wire(*messages(2)),)) as stand:
        expect(await stand.read(1) == messages(1), "the first message is not what the peer said first")
        await stand.connect()
        expect(await stand.read(1) == messages(1, first=1), "a second connect() lost messages, or started again")
        await _carries(stand)


@clause("connect.failure-is-clean", "A failure leaves nothing behind, and `connect()` may be tried again.", source=_SOURCE)
async def failure_is_clean(bench: Bench) -> None:
    before = await _used(bench)
    async with bench.opened() as stand:
        refuse = stand.refusal
        calm = await Census.rested()
        refuse(True)
        for _ in range(2):
            await bench.expect_raises((CLIConnectionError, ConfigurationError), stand.transport.connect(), "a connect() that must fail")
            expect(not stand.transport.is_ready(), "is_ready() is True after a failed connect()")
        left = await calm.growth(patience=bench.patience, of=LASTING)
        expect(not left, f"a failed connect() left something behind: {left}")
        refuse(False)
        await stand.connect()
        expect(stand.transport.is_ready(), "is_ready() is False after the connect() that succeeded")
        await _carries(stand)
        await stand.close()
    left = await before.growth(patience=bench.patience, of=LASTING)
    expect(not left, f"failed connects and a good one left something behind: {left}")


@clause("connect.cancel-is-clean", "So does a cancellation.", source=_SOURCE)
async def cancel_is_clean(bench: Bench) -> None:
    before = await _used(bench)
    for turns in _CHECKPOINTS:
        async with bench.opened() as stand:
            attempt = bench.start(stand.transport.connect)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            attempt.cancel()
            await attempt.result("a cancelled connect()")
            if not stand.transport.is_ready():
                await stand.connect()
            expect(stand.transport.is_ready(), f"not ready after a connect() cancelled in turn {turns} and a second one")
            await _carries(stand)
            await stand.close()
    left = await before.growth(patience=bench.patience, of=LASTING)
    expect(not left, f"cancelled connects left something behind: {left}")


@clause("connect.closed-meanwhile", "A `close()` that comes while it waits wins, and nothing stays open.", source=_SOURCE)
async def closed_meanwhile(bench: Bench) -> None:
    before = await _used(bench)
    for turns in _CHECKPOINTS:
        async with bench.opened() as stand:
            attempt = bench.start(stand.transport.connect)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            await stand.close()
            await attempt.end("connect() when close() came in between")
            raised = attempt.error
            expect(
                raised is None or isinstance(raised, TransportClosed),
                f"connect() raised {type(raised).__name__} ({raised}) when close() came in between, not TransportClosed",
            )
            expect(not stand.transport.is_ready(), "is_ready() is True although close() came while it was connecting")
    left = await before.growth(patience=bench.patience, of=LASTING)
    expect(not left, f"a close() during connect() left something behind: {left}")


@clause("connect.once-closed-stays-closed", "After `close()` it raises `TransportClosed`.", source=_SOURCE, needs_peer=False)
async def once_closed_stays_closed(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.close()
        await bench.expect_raises(TransportClosed, stand.transport.connect(), "connect() after close()")
        expect(not stand.transport.is_ready(), "is_ready() is True after close() and connect()")
    async with bench.opened() as stand:
        await stand.close()
        await bench.expect_raises(TransportClosed, stand.transport.connect(), "the first connect(), after close()")


@clause("ready.not-after-close", "It is False once the transport is closed.", source="Transport.is_ready", needs_peer=False)
async def not_ready_after_close(bench: Bench) -> None:
    async with bench.connected() as stand:
        await stand.close()
        expect(stand.transport.is_ready() is False, f"is_ready() was {stand.transport.is_ready()!r} after close()")


@clause("ready.not-when-broken", "Nor after a reader or a writer has been told that the connection is broken.", source="Transport.is_ready")
async def not_ready_when_broken(bench: Bench) -> None:
    async with bench.connected(then="fail") as stand:
        expect(await stand.read_end() is not None, "the peer failed, but the iteration ended without an error")
        expect(stand.transport.is_ready() is False, "is_ready() is True although a reader was told that the peer is gone")
    async with bench.connected() as stand:
        await stand.peer.fail()
        await bench.expect_raises(TransportClosed, stand.transport.write(wire(stand.flood)), "a write to a peer that is gone")
        expect(stand.transport.is_ready() is False, "is_ready() is True although a writer was told that the peer is gone")
