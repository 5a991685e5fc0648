"""WebSocket as a medium of the kit: `NetworkTransport` in plain mode over `ws://` and `wss://`, to a server of our own on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from claude_transport.testing.conformance.certificates import certificates
from claude_transport.testing.conformance.medium import LiveMedium
from claude_transport.testing.conformance.subject import Subject
from claude_transport.testing.conformance.websocket_peer import WebSocketPeer
from claude_transport.transports.network import NetworkTransport

__all__ = ["WebSocketMedium"]

_LINE_LIMIT = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap."""

_ABSORBS = 12 * 2**20
"""Bytes: a TCP connection on loopback holds up to 4 MiB that were sent and up to 6 MiB that were not received (Linux's defaults)."""

_CLOSE_TIMEOUT = 0.5
"""Seconds that closing a stream may take when the peer does not take part."""


class WebSocketMedium(LiveMedium):
    """`NetworkTransport` over `ws://`, or, `secure`, over `wss://`, which needs `trustme`."""

    def __init__(self, *, secure: bool = False) -> None:
        self._secure = secure
        self.name = "wss" if secure else "ws"

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport to a peer of its own."""
        server = certificates().server_context() if self._secure else None
        client = certificates().client_context() if self._secure else None
        async with WebSocketPeer(ssl_context=server).listening() as peer:
            transport = NetworkTransport(
                f"{self.name}://127.0.0.1:{peer.port}/talk",
                ssl_context=client,
                resume=False,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=_CLOSE_TIMEOUT,
            )
            yield Subject(
                transport=transport,
                peer=peer,
                refuse=peer.refuse,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=_CLOSE_TIMEOUT,
                absorbs=_ABSORBS,
            )
