"""Connections that are cut, go silent or refuse, for the tests of the resumable link."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.streams.memory import MemoryConnectable, MemoryStream


class _FrameEnds:
    """Finds the ends of link frames in the bytes that pass."""

    def __init__(self) -> None:
        self._line = b""
        self._left = 0  # bytes of data that are still to come

    def feed(self, data: bytes) -> list[int]:
        """Return the positions in `data` at which a frame ends."""
        ends: list[int] = []
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                if not self._left:
                    ends.append(at)
                continue
            end = data.find(b"\n", at) + 1
            self._line += data[at : end or len(data)]
            at = end or len(data)
            if end:
                if self._line.startswith(b"D "):
                    self._left = int(self._line.split(b" ")[2])
                else:
                    ends.append(at)
                self._line = b""
        return ends


class CutStream(ByteStream):
    """A connection that breaks inside the frame after so many. Sent and received frames are counted apart."""

    def __init__(self, inner: MemoryStream, *, sends: int, receives: int, share: float) -> None:
        self.inner = inner
        self._left = {"send": sends, "receive": receives}
        self._ends = {"send": _FrameEnds(), "receive": _FrameEnds()}
        self._share = share  # the part of the next frame that still gets through

    def _allowed(self, direction: str, data: bytes) -> bytes:
        """Return the part of `data` that gets through."""
        start = 0
        for end in [*self._ends[direction].feed(data), len(data)]:
            if self._left[direction] == 0:
                return data[: start + int((end - start) * self._share)]
            if end < len(data) or not start:
                self._left[direction] -= 1
            start = end
        return data

    async def send(self, item: bytes) -> None:
        allowed = self._allowed("send", bytes(item))
        if allowed:
            await self.inner.send(allowed)
        if len(allowed) < len(item):
            self.inner.break_connection()
            raise anyio.BrokenResourceError

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = await self.inner.receive(max_bytes)
        allowed = self._allowed("receive", data)
        if len(allowed) < len(data):
            self.inner.break_connection()
        if not allowed:
            raise anyio.BrokenResourceError
        return allowed

    async def send_eof(self) -> None:
        await self.inner.send_eof()

    async def aclose(self) -> None:
        self.inner.break_connection()
        await anyio.lowlevel.checkpoint()


class MeteredStream(CutStream):
    """A connection that breaks after so many bytes, sent or received."""

    def __init__(self, inner: MemoryStream, *, sends: int, receives: int) -> None:
        super().__init__(inner, sends=sends, receives=receives, share=0.0)

    def _allowed(self, direction: str, data: bytes) -> bytes:
        allowed = data[: self._left[direction]]
        self._left[direction] -= len(allowed)
        return allowed


class CuttingDoor(MemoryConnectable):
    """Opens connections that are cut within a few frames, until there were `cuts` of them."""

    def __init__(self, *, cuts: int, seed: int, frames: Callable[[random.Random], int]) -> None:
        super().__init__()
        self.left = cuts
        self._random = random.Random(seed)
        self._frames = frames

    async def connect(self) -> ByteStream:  # type: ignore[override]
        inner = await super().connect()
        if self.left == 0:
            return inner
        self.left -= 1
        never = 10**9
        frames = self._frames(self._random)
        where = {"sends": frames, "receives": never} if self._random.random() < 0.5 else {"sends": never, "receives": frames}
        return CutStream(inner, **where, share=self._random.choice([0.0, self._random.random(), 1.0]))


class MeteringDoor(MemoryConnectable):
    """Opens connections that are cut after the bytes in `cuts`, sent or received. Later connections last."""

    def __init__(self, cuts: Iterable[tuple[int, int]]) -> None:
        super().__init__()
        self._cuts = iter(cuts)
        self.used_up = False
        self.connections = 0

    async def connect(self) -> ByteStream:  # type: ignore[override]
        inner = await super().connect()
        self.connections += 1
        for sends, receives in self._cuts:
            return MeteredStream(inner, sends=sends, receives=receives)
        self.used_up = True
        return inner


class SilentStream(ByteStream):
    """A connection that can go silent: nothing gets through any more, and neither end is told (with `stays`, not even of its end)."""

    def __init__(self, inner: MemoryStream) -> None:
        self.inner = inner
        self.lost = False
        self.stays = False
        self.failure: Exception | None = None  # raised by a layer below the link
        self.longest_silence = 0.0
        self._last_byte = anyio.current_time()

    def _byte(self) -> None:
        now = anyio.current_time()
        self.longest_silence = max(self.longest_silence, now - self._last_byte)
        self._last_byte = now

    async def send(self, item: bytes) -> None:
        self._byte()
        if self.lost:
            await anyio.lowlevel.checkpoint()
        else:
            await self.inner.send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self.failure is not None:
            raise self.failure
        data = await self.inner.receive(max_bytes)
        if self.lost:
            await anyio.sleep_forever()
        self._byte()
        return data

    async def send_eof(self) -> None:
        await self.inner.send_eof()

    async def aclose(self) -> None:
        if self.stays:
            await anyio.lowlevel.checkpoint()
        else:
            await self.inner.aclose()


class Door(MemoryConnectable):
    """Opens connections in memory. While it is shut, connecting fails."""

    def __init__(self) -> None:
        super().__init__()
        self.shut = False
        self.asked = 0
        self.streams: list[SilentStream] = []
        self.failures: list[Exception] = []  # of the next connections

    async def connect(self) -> ByteStream:  # type: ignore[override]
        self.asked += 1
        if self.shut:
            raise ConnectionRefusedError("nobody is at home")
        self.streams.append(SilentStream(await super().connect()))
        if self.failures:
            self.streams[-1].failure = self.failures.pop(0)
        return self.streams[-1]
