"""Transports that read in a wrong way."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream
from mutants import LIMIT, Good, breaks, breaks_streaming

import claude_transport as ct
from claude_transport.protocol.framing import LineFramer


class Alters(Good):
    """Passes every chunk through `alter`, and what the framer made of it through `pick`."""

    def alter(self, chunk: bytes) -> bytes:
        return chunk

    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return lines

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream)
        feed = self.framer.feed
        self.framer = _Framer(self, feed, self.framer.finish)


class _Framer:
    def __init__(self, owner: Any, feed: Callable[[bytes], Sequence[bytes]], finish: Callable[[], bytes]) -> None:
        self.owner, self._feed, self.finish = owner, feed, finish

    def feed(self, chunk: bytes) -> Sequence[bytes]:
        return self.owner.pick(self._feed(self.owner.alter(chunk)))


@breaks("read.order")
class SwapsInCrowds(Alters):
    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return lines[::-1] if len(lines) > 20 else lines


@breaks("read.any-chunking")
class DecodesEachChunk(Alters):
    def alter(self, chunk: bytes) -> bytes:
        return chunk.decode("utf-8", "replace").encode()


@breaks("read.only-newline-ends-a-line")
class SplitsLikePython(Alters):
    def alter(self, chunk: bytes) -> bytes:
        return chunk.replace("\u2028".encode(), b"\n")


@breaks("read.only-newline-ends-a-line")
class StumblesOverCRLF(Alters):
    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return [line for line in lines if not line.endswith(b"\r")]


@breaks("read.skips-noise", "read.left-out-is-logged")
class DiesOfNoise(Alters):
    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        if any(line.strip() and not line.startswith((b"{", b"xx")) for line in lines):
            raise ct.ProtocolError("noise")
        return lines


@breaks("read.bad-line-costs-one-line")
class LosesTheNextLine(Alters):
    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        kept: list[bytes] = []
        lose = False
        for line in lines:
            if not lose:
                kept.append(line)
            lose = line.startswith(b"{") and isinstance(ct.decode_message(line), ct.DecodeFailure)
        return kept


@breaks("read.left-out-is-logged")
class LeavesOutInSilence(Alters):
    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return [line for line in lines if not isinstance(ct.decode_message(line), ct.DecodeFailure)]


@breaks_streaming("read.left-out-is-counted")
class DoesNotCount(ct.StreamTransport):
    @property
    def info(self) -> ct.TransportInfo:
        return msgspec.structs.replace(super().info, noise_lines=0)


@breaks("read.line-limit")
class KnowsNoLimit(Good):
    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream)
        self.framer = LineFramer()


@breaks("read.line-limit")
class LimitOffByOne(Alters):
    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return [line for line in lines if len(line) < LIMIT]


@breaks("read.line-limit")
class HoldsWhatItThrowsAway(Alters):
    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream)
        whole = LineFramer()
        self.framer = _Framer(self, whole.feed, whole.finish)

    def pick(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return [line for line in lines if len(line) <= LIMIT]


@breaks("read.final-line-without-newline")
class NeedsTheNewline(Good):
    async def read_more(self) -> bool:
        more = bool(await super().read_more())
        if self.over:
            self.lines = deque(line for line in self.lines if isinstance(ct.decode_message(line), ct.DecodeFailure))
        return more


@breaks("read.truncated-tail-is-reported")
class DropsHalfALine(Good):
    async def read_more(self) -> bool:
        more = bool(await super().read_more())
        if self.over:
            self.lines = deque(line for line in self.lines if not isinstance(ct.decode_message(line), ct.DecodeFailure))
        return more


@breaks("read.clean-eof-stops", "read.cancel-loses-nothing", "end.half-close")
class TakesTheEndForAFailure(Good):
    async def read_more(self) -> bool:
        more = bool(await super().read_more())
        if self.over and not self.lines:
            raise ct.ConnectionLost("the stream ended")
        return more


@breaks("read.clean-eof-stops")
class EndsOnlyOnce(Good):
    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        if self.over:
            await anyio.sleep_forever()
        async for message in super().read_messages():
            yield message


@breaks("read.failure-after-last-message", "ready.not-when-broken")
class TakesAFailureForTheEnd(Good):
    async def read_more(self) -> bool:
        try:
            return bool(await super().read_more())
        except ct.ConnectionLost:
            return False


@breaks("read.failure-after-last-message")
class ForgetsTheLastMessages(Good):
    ahead = False

    async def read_more(self) -> bool:
        more = bool(await super().read_more())
        if len(self.lines) == 20:  # reads on before it has handed out what it has
            with anyio.move_on_after(0.5):
                await super().read_more()
        return more


@breaks("read.one-reader")
class ReadersQueueUp(Good):
    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream)
        self.one_reader = anyio.Lock()

    async def read_more(self) -> bool:
        async with self.one_reader:
            return bool(await super().read_more())


@breaks("read.resumable", "lines.same-position")
class BuffersInTheLoop(Good):
    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        self.lines.clear()
        async for message in super().read_messages():
            yield message


@breaks("read.resumable", "lines.same-position")
class StaysBusyWhileLookedAt(Good):
    looking = False

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        self.refuse_if("new", "closed")
        if self.looking:
            raise ct.Busy("somebody else is reading")
        self.looking = True
        try:
            async for message in super().read_messages():
                yield message
        except anyio.get_cancelled_exc_class():
            self.looking = False
            raise
        self.looking = False


@breaks("read.cancel-loses-nothing")
class LosesWhatItHolds(Good):
    async def read_more(self) -> bool:
        more = bool(await super().read_more())
        held, self.lines = self.lines, deque[bytes]()
        await anyio.lowlevel.checkpoint()
        self.lines = held
        return more


@breaks("read.cancel-loses-nothing")
class ForgetsHalfALineWhenCancelled(Good):
    async def read_more(self) -> bool:
        try:
            return bool(await super().read_more())
        except anyio.get_cancelled_exc_class():
            self.framer = LineFramer(max_line_bytes=LIMIT)
            raise


@breaks("read.unconnected-raises")
class ReadsNothingWithoutComplaint(Good):
    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        if self.state == "closed":
            return
        async for message in super().read_messages():
            yield message


class _Batches:
    """The lines of a transport, through a function."""

    def __init__(self, batches: AsyncIterator[Sequence[bytes]], change: Callable[[bytes], bytes]) -> None:
        self.batches, self.change = batches, change

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        return [self.change(line) for line in await anext(self.batches)]


@breaks("lines.same-messages")
class KeepsTerminators(Good):
    def read_lines(self) -> Any:
        return _Batches(super().read_lines(), lambda line: line + b"\n")


@breaks("lines.same-position")
class LinesBeginAnew(Good):
    def read_lines(self) -> Any:
        self.lines.clear()
        return super().read_lines()
