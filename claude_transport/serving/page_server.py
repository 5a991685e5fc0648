"""`PageServer`: a listener for probes and Prometheus. It answers plain HTTP requests for pages, and opens no WebSocket.

A gateway answers them on its own listeners. A worker of a fleet has no others.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.loggers import logger_for
from claude_transport.serving.door import Door, GatewayLimits
from claude_transport.serving.listeners import Listener, accept_all, local_address, open_listeners
from claude_transport.serving.pages import Pages
from claude_transport.streams.address import Address
from claude_transport.streams.sockets import SocketStream
from claude_transport.streams.websocket import HandshakeRequest, HTTPAnswer, accept_websocket, check_websocket

logger: logging.Logger = logger_for(__name__)


class PageServer:
    """Answers the requests for `pages` at one address; every other path gets 404.

    Args:
        address: where to listen, with the scheme `http`.
        pages: the answers.
        door: bounds the requests under way, in number and in time.
        limits: the limits of the door.

    Raises:
        ConfigurationError: the package `websockets`, which reads the requests, is not installed.
    """

    def __init__(self, address: Address, *, pages: Pages, door: Door, limits: GatewayLimits) -> None:
        check_websocket()
        self._address = address
        self._pages = pages
        self._door = door
        self._limits = limits
        self._listeners: list[Listener] = []

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it listens: `http://host:port`, with the real port. Empty while it does not."""
        return tuple(str(each.address) for each in self._listeners)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer requests while the block runs. Raises `ConfigurationError` when the address is taken or not allowed."""
        self._listeners = await open_listeners(self._address)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept_all, self._listeners, self._attend)
                for url in self.urls:
                    logger.info("%s/metrics and %s/healthz are answered", url, url)
                yield
                tasks.cancel_scope.cancel()
        finally:
            for listener in self._listeners:
                listener.close()
            self._listeners = []

    async def _attend(self, stream: SocketStream, address: Address, peer: str) -> None:
        """Answer one request. No error leaves here: it concerns this connection only."""
        here = local_address(stream)

        def answer(request: HandshakeRequest) -> HTTPAnswer:
            host = request.headers.get("host")
            page = self._pages.answer(request.path, token=request.bearer_token, host=host, here=here, method=request.method)
            if page is None:
                return HTTPAnswer(status=404, text="There is nothing here.\n")
            return HTTPAnswer(status=page.status, text=page.text, headers=page.headers)

        try:
            with self._door.knock(peer):
                await accept_websocket(
                    stream,
                    admit=answer,
                    allowed_origins=None,  # the host name is checked, and no connection is opened
                    max_request_bytes=self._limits.first_line_bytes,
                    handshake_timeout=self._limits.handshake_timeout,
                )
        except (ClaudeTransportError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as exc:
            logger.debug("a request from %s was not answered (%s)", peer, type(exc).__name__)
        except Exception:  # an unknown fault of one request must not end the others
            logger.exception("answering a request from %s failed", peer)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
