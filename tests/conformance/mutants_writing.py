"""Transports that are connected, or write, in a wrong way."""

from __future__ import annotations

import contextlib
import os

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream
from mutants import EXAMPLE, LEAKS, Good, breaks, breaks_streaming

import claude_transport as ct
from claude_transport.loops.background import LoopTask


@breaks("connect.not-ready-before")
class ReadyFromBirth(Good):
    def is_ready(self) -> bool:
        return self.state == "new" or super().is_ready()


@breaks("connect.ready-after", "block.connects-and-closes", "connect.cancel-is-clean")
class NeverReady(Good):
    def is_ready(self) -> bool:
        return False


@breaks("connect.twice-is-noop")
class RefusesToConnectTwice(Good):
    async def connect(self) -> None:
        if self.state == "open":
            raise ct.UsageError("connected already")
        await super().connect()


@breaks("connect.twice-is-noop")
class ForgetsOnConnect(Good):
    async def connect(self) -> None:
        self.lines.clear()
        await super().connect()


@breaks_streaming("connect.failure-is-clean")
class FailsRaw(ct.StreamTransport):
    async def connect(self) -> None:
        try:
            await super().connect()
        except ct.CLIConnectionError as exc:
            raise exc.__cause__ or exc from None


@breaks_streaming("connect.failure-is-clean")
class FailsOnlyOnce(ct.StreamTransport):
    failed = False

    async def connect(self) -> None:
        if self.failed:
            raise ct.UsageError("it failed before")
        try:
            await super().connect()
        except ct.CLIConnectionError:
            self.failed = True
            raise


@breaks_streaming("connect.failure-is-clean")
class LeaksWhenItFails(ct.StreamTransport):
    async def connect(self) -> None:
        try:
            await super().connect()
        except ct.CLIConnectionError:
            LEAKS.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            raise


@breaks("connect.cancel-is-clean")
class HalfConnected(Good):
    begun = False

    async def connect(self) -> None:
        if self.begun and self.state == "new":
            return
        self.begun = True
        await anyio.lowlevel.checkpoint()
        await super().connect()


@breaks("connect.closed-meanwhile")
class ConnectsOverAClose(Good):
    async def connect(self) -> None:
        self.refuse_if("closed")
        for _ in range(4):
            await anyio.lowlevel.checkpoint()
        self.state = "open"


@breaks("connect.once-closed-stays-closed", "connect.closed-meanwhile")
class Reopens(Good):
    async def connect(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.state = "open"


@breaks("ready.not-when-broken")
class ReadyThoughBroken(Good):
    def is_ready(self) -> bool:
        return self.state in {"open", "ended", "broken"}


@breaks(
    "ready.not-after-close",
    "connect.once-closed-stays-closed",
    "connect.closed-meanwhile",
    "close.when-cancelled",
    "close.bounded",
    "close.any-task",
    "block.connects-and-closes",
)
class ReadyThoughClosed(Good):
    def is_ready(self) -> bool:
        return self.state == "closed" or super().is_ready()


# --------------------------------------------------------------------------------------------------------------------- write


@breaks("write.whole-lines")
class EncodesTwice(Good):
    async def write(self, data: str | bytes) -> None:
        await super().write(data.encode().decode("latin-1") if isinstance(data, str) else data)


@breaks("write.order")
class Reorders(Good):
    async def write(self, data: str | bytes) -> None:
        text = data.decode() if isinstance(data, bytes) else data
        await super().write("\n".join(reversed(text.rstrip("\n").split("\n"))))


class NoLock:
    """Lets everybody in."""

    async def __aenter__(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def __aexit__(self, *_: object) -> None:
        return None


class InPieces(ByteStream):
    """Sends a piece at a time, and others between them."""

    def __init__(self, inner: ByteStream) -> None:
        self.inner = inner
        self.one_piece = anyio.Lock()

    async def send(self, item: bytes) -> None:
        for at in range(0, len(item), 10_000):
            async with self.one_piece:
                await self.inner.send(item[at : at + 10_000])

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self.inner.receive(max_bytes)

    async def send_eof(self) -> None:
        await self.inner.send_eof()

    async def aclose(self) -> None:
        await self.inner.aclose()


@breaks("write.no-interleaving")
class Interleaves(Good):
    def __init__(self, stream: ByteStream) -> None:
        super().__init__(InPieces(stream))
        self.one_writer = NoLock()


@breaks("write.backpressure", "write.cancel-poisons", "close.wakes-writer", "ready.not-when-broken", "write.broken-stays-broken")
class WritesLater(Good):
    async def write(self, data: str | bytes) -> None:
        self.refuse_if(*EXAMPLE.REFUSALS)
        write = super().write

        async def later() -> None:
            with contextlib.suppress(ct.TransportClosed):
                await write(data)

        LoopTask.spawn(later, name="later")
        await anyio.lowlevel.checkpoint()


@breaks("write.cancel-poisons")
class WritesOnAfterHalfALine(Good):
    async def write(self, data: str | bytes) -> None:
        before = self.state
        try:
            await super().write(data)
        except anyio.get_cancelled_exc_class():
            self.state = before
            raise


@breaks("write.broken-stays-broken", "write.cancel-poisons")
class SaysItOnce(Good):
    said = False

    async def write(self, data: str | bytes) -> None:
        if self.said and self.state == "broken":
            return
        try:
            await super().write(data)
        except ct.TransportClosed:
            self.said = True
            raise


@breaks("write.after-end-raises")
class SwallowsAfterTheEnd(Good):
    async def write(self, data: str | bytes) -> None:
        if self.state != "ended":
            await super().write(data)


@breaks("write.after-close-raises")
class ClosedBeforeItIsConnected(Good):
    async def write(self, data: str | bytes) -> None:
        if self.state == "new":
            raise ct.TransportClosed("not connected")
        await super().write(data)


@breaks("write.large-write-while-peer-writes")
class ReadsAfterWriting(Good):
    async def read_more(self) -> bool:
        async with self.one_writer:
            pass
        return bool(await super().read_more())
