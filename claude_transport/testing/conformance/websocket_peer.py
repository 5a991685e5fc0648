"""The peer at the other end of a WebSocket connection: a server of our own, on loopback."""

from __future__ import annotations

import contextlib
import ssl

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ClaudeTransportError
from claude_transport.streams.sockets import SocketStream
from claude_transport.streams.tls import TLSStream
from claude_transport.streams.websocket import accept_websocket
from claude_transport.testing.conformance.socket_peer import SocketPeer

__all__ = ["WebSocketPeer"]

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ClaudeTransportError, OSError)


class WebSocketPeer(SocketPeer):
    """A `SocketPeer` that speaks WebSocket, inside TLS when there is an `ssl_context`."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__(ssl_context=ssl_context)

    async def _attend(self, bare: SocketStream) -> None:
        async with bare:
            with contextlib.suppress(*_GONE):
                wire: ByteStream = bare
                if self._ssl_context is not None:
                    wire = await TLSStream.wrap(bare, ssl_context=self._ssl_context, server_side=True)
                stream = await accept_websocket(wire)
                if stream is not None:
                    self._socket, self._stream = bare, stream
                    self._connected.set()
                    try:
                        await self._take_in(stream)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await anyio.aclose_forcefully(stream)

    async def fail(self) -> None:
        """Hang up without the farewell of WebSocket."""
        await self._speaker()
        if self._socket is not None:
            await self._socket.aclose()
