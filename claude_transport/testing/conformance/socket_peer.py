"""The peer at the other end of a socket on this machine: a listener that can stop listening between two attempts to connect."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost
from claude_transport.streams.compression import CompressedStream
from claude_transport.streams.sockets import SocketStream
from claude_transport.streams.tls import TLSStream
from claude_transport.testing.conformance.subject import Peer

__all__ = ["SocketPeer"]

_RECEIVE_BUFFER = 64 * 2**10
"""Bytes: set, so that the system does not let it grow to megabytes, which a clause about back pressure would have to fill."""

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionLost, ssl.SSLError, OSError)


class SocketPeer(Peer):
    """Listens on 127.0.0.1, or at the path of a Unix socket; the last connection it took in is the one it speaks on.

    `ssl_context` makes it a TLS server; `compressed` has it expect zstd.
    """

    def __init__(self, *, path: str | None = None, ssl_context: ssl.SSLContext | None = None, compressed: bool = False) -> None:
        super().__init__()
        self.path = path
        self.port: int = 0
        self._ssl_context = ssl_context
        self._compressed = compressed
        self._listener: socket.socket | None = None
        self._listens = anyio.Event()
        self._socket: SocketStream | None = None
        self._stream: ByteStream | None = None
        self._connected = anyio.Event()
        self._may_read = anyio.Event()
        self._may_read.set()
        self._pause = anyio.CancelScope()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[SocketPeer]:
        """Itself, taking connections in until the end of the block."""
        self.refuse(False)
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                while True:
                    tasks.start_soon(self._attend, await self._accept())

            tasks.start_soon(listen)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()
                self.refuse(True)

    def refuse(self, refusing: bool) -> None:
        """Stop listening, or listen at the same place again."""
        if refusing and self._listener is not None:
            self._listens = anyio.Event()
            listener, self._listener = self._listener, None
            anyio.notify_closing(listener)
            listener.close()
        elif not refusing and self._listener is None:
            self._listener = self._listen()
            self._listens.set()

    def _listen(self) -> socket.socket:
        if self.path is None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            listener.bind(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
        else:
            Path(self.path).unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.path)
        listener.setblocking(False)
        listener.listen()
        return listener

    async def _accept(self) -> SocketStream:
        while True:
            await self._listens.wait()
            listener = self._listener
            if listener is None:
                continue
            try:
                await anyio.wait_readable(listener)
                return SocketStream(listener.accept()[0])
            except (BlockingIOError, anyio.ClosedResourceError, ConnectionAbortedError):
                continue  # not listening any more, or whoever knocked has left

    async def _attend(self, bare: SocketStream) -> None:
        async with bare:
            with contextlib.suppress(anyio.EndOfStream, *_GONE):
                stream: ByteStream = bare
                if self._ssl_context is not None:
                    stream = await TLSStream.wrap(bare, ssl_context=self._ssl_context, server_side=True)
                if self._compressed:
                    stream = CompressedStream(stream)
                self._socket, self._stream = bare, stream
                self._connected.set()
                await self._take_in(stream)

    async def _take_in(self, stream: ByteStream) -> None:
        try:
            while True:
                await self._may_read.wait()
                with anyio.CancelScope() as self._pause:
                    self.take(await stream.receive())
        except anyio.EndOfStream:
            if self._stream is stream:
                self.input_over()
        except _GONE:
            if self._stream is stream and self.received:  # else an attempt that was cancelled when it had succeeded: another will come
                self.input_over()
        await anyio.sleep_forever()  # the other direction is still open; the end of the block, or `fail()`, closes it

    async def _speaker(self) -> ByteStream:
        await self._connected.wait()
        if self._stream is None:
            raise anyio.BrokenResourceError
        return self._stream

    async def send(self, data: bytes) -> None:
        """Say `data`."""
        await (await self._speaker()).send(data)

    async def finish(self) -> None:
        """End the sending side."""
        await (await self._speaker()).send_eof()

    async def fail(self) -> None:
        """Break off: with TLS or zstd by leaving without the farewell, else with a reset."""
        await self._speaker()
        if self._socket is not None and (self._ssl_context is not None or self._compressed):
            await self._socket.aclose()
        elif self._socket is not None:
            self._socket.abort()
            await anyio.lowlevel.checkpoint()

    async def stop_reading(self) -> None:
        """Take in nothing more."""
        self._may_read = anyio.Event()
        self._pause.cancel()
        await anyio.lowlevel.checkpoint()

    async def resume_reading(self) -> None:
        """Go on reading."""
        self._may_read.set()
        await anyio.lowlevel.checkpoint()
