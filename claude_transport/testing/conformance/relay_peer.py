"""The peer behind a child process: what `relay.py` does is decided here, over a socket on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from claude_transport.testing.conformance.relay import HEADER
from claude_transport.testing.conformance.subject import Peer

__all__ = ["RelayPeer"]


class RelayPeer(Peer):
    """Tells the relay what to do; `failure` is how it ends badly: an exit code, or a negative signal number."""

    def __init__(self, *, port: int, failure: int) -> None:
        super().__init__()
        self.port = port
        self._failure = failure
        self._link: ByteStream | None = None
        self._linked = anyio.Event()
        self._gone = anyio.Event()
        self._done = anyio.Event()
        self._one_at_a_time = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def listening(cls, *, failure: int) -> AsyncIterator[RelayPeer]:
        """A peer that waits for a relay at its `port` on 127.0.0.1 until the end of the block."""
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            peer = cls(port=listener.extra(SocketAttribute.local_port), failure=failure)  # noqa: S610 - not Django's
            tasks.start_soon(listener.serve, peer._attend)
            try:
                yield peer
            finally:
                tasks.cancel_scope.cancel()

    async def _attend(self, link: ByteStream) -> None:
        self._link = link
        self._linked.set()
        frames = BufferedByteReceiveStream(link)
        try:
            async with link:
                while True:
                    kind, size = HEADER.unpack(await frames.receive_exactly(HEADER.size))
                    payload = await frames.receive_exactly(size) if size else b""
                    if kind == b"D":
                        self.take(payload)
                    elif kind == b"E":
                        self.input_over()
                    else:
                        self._done.set()
        except (anyio.IncompleteRead, anyio.BrokenResourceError, OSError):
            self._gone.set()
            self._done.set()
            self.input_over()

    async def _order(self, kind: bytes, payload: bytes = b"") -> None:
        """Tell the relay, and wait until it has done it; `anyio.BrokenResourceError` when it is gone."""
        async with self._one_at_a_time:
            await self._linked.wait()
            self._done = anyio.Event()
            if self._gone.is_set() or self._link is None:
                raise anyio.BrokenResourceError
            await self._link.send(HEADER.pack(kind, len(payload)) + payload)
            await self._done.wait()

    async def send(self, data: bytes) -> None:
        """Write `data` to its standard output."""
        await self._order(b"S", data)

    async def finish(self) -> None:
        """Exit with 0."""
        await self._leave(0)

    async def fail(self) -> None:
        """Exit or die as it was decided beforehand."""
        await self._leave(self._failure)

    async def _leave(self, how: int) -> None:
        await self._order(*((b"K", b"%d" % -how) if how < 0 else (b"X", b"%d" % how)))
        await self._gone.wait()

    async def stop_reading(self) -> None:
        """Leave what comes in the pipe."""
        await self._order(b"P")

    async def resume_reading(self) -> None:
        """Empty the pipe again."""
        await self._order(b"R")

    async def persist(self) -> None:
        """Stay when the input ends and when SIGTERM comes."""
        await self._order(b"I")
