"""A stream that counts what is taken from it."""

from __future__ import annotations

from anyio.abc import ByteStream


class Counted(ByteStream):
    """Carries `inner`. `taken` are the bytes that were received so far, `most` the largest size that was asked for."""

    def __init__(self, inner: ByteStream) -> None:
        self._inner = inner
        self.taken = self.most = 0

    async def receive(self, max_bytes: int = 65536) -> bytes:
        self.most = max(self.most, max_bytes)
        data = await self._inner.receive(max_bytes)
        self.taken += len(data)
        return data

    async def send(self, item: bytes) -> None:
        await self._inner.send(item)

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def aclose(self) -> None:
        await self._inner.aclose()
