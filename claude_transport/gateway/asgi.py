"""`GatewayApplication`: a gateway as an ASGI application, for a server that is there already.

The server does the handshake of WebSocket, TLS and the limits of a message; the same messages carry the same lines as on a listener
of the gateway's own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.errors import ClaudeTransportError, ConfigurationError, UsageError
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.printable import printable
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.websocket import HandshakeRequest, MessageReader, cut_messages

logger: logging.Logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_GOOD: Final = frozenset({1000, 1005})
"""Codes of a farewell that are a good end, as on a listener of our own."""

_OK: Final = 200

_UNKNOWN: Final = 401

_REFUSED: Final = 1008
"""Policy violation: what a server without the extension for answers of HTTP makes a 403 of."""


class GatewayApplication:
    """An ASGI 3 callable that serves `gateway`: its WebSocket at any path it is mounted at, `/healthz` and `/metrics` over plain HTTP.

    Those two are answered under a host name of loopback, under the address of this machine that the server names (`server` in the scope),
    and under the names in the gateway's `hosts`.

    With the server's lifespan events the gateway is drained and closed when the server ends. A server or framework that does not send
    them to it leaves that to whoever made the gateway.

    Raises:
        ConfigurationError: the gateway has no tokens, so that whoever reaches the server could do what claude can do here;
            `allow_anyone=True` says that somebody else asks who it is.
    """

    def __init__(self, gateway: Gateway, *, allow_anyone: bool = False) -> None:
        self.gateway = gateway
        page = gateway.health.answer("/metrics", token=None)
        if page is not None and page.status == _OK and not allow_anyone:
            raise ConfigurationError(
                "a gateway without tokens lets in whoever reaches the server: give it tokens, or allow_anyone=True where the server "
                "asks who it is",
                option="tokens",
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, request or lifespan.

        Raises:
            UsageError: it is of a kind that ASGI 3 does not know.
        """
        kind = scope["type"]
        if kind == "websocket":
            await self._serve_websocket(scope, receive, send)
        elif kind == "http":
            await self._serve_http(scope, send)
        elif kind == "lifespan":
            await self._serve_lifespan(receive, send)
        else:
            raise UsageError(f"a gateway serves websocket, http and lifespan, not {kind!r}")

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.gateway.drain()
                await self.gateway.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve_http(self, scope: Scope, send: Send) -> None:
        request = _request(scope)
        server = scope.get("server")
        here = str(server[0]) if server else None
        page = self.gateway.health.answer(_path(scope), token=request.bearer_token, host=request.headers.get("host"), here=here)
        status, text, headers = (page.status, page.text, page.headers) if page is not None else (404, "There is nothing here.\n", {})
        await send({"type": "http.response.start", "status": status, "headers": _encode_headers(headers)})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request(scope)
        event = await receive()
        if event["type"] != "websocket.connect":
            return  # it has left before it came
        try:
            self.gateway.check_upgrade(origin=request.origin, token=request.bearer_token)
        except TurnedAway as exc:
            await _refuse(scope, send, exc)
            return
        await send({"type": "websocket.accept"})
        client = scope.get("client")
        peer = printable(f"{client[0]}:{client[1]}", at_most=200) if client else ""
        stream = _MessageStream(receive, send, address=peer)
        await self.gateway.attend(Arrival(stream, medium="asgi", peer=peer, token=request.bearer_token))


class _MessageStream(ByteStream):
    """The bytes of a WebSocket connection whose frames are the server's matter."""

    def __init__(self, receive: Receive, send: Send, *, address: str) -> None:
        self._receive_event = receive
        self._send_event = send
        self._address = address
        self._messages = MessageReader()
        self._unread = b""
        self._end: Exception | None = None
        self._gone = False  # the server has said that the client is
        self._eof_sent = False
        self._closed = False
        self._receiving: anyio.CancelScope | None = None
        self._sending: anyio.CancelScope | None = None
        self._send_lock = anyio.Lock()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The client's address, and whether it is known to be gone."""
        return {StreamAttribute.address: lambda: self._address, StreamAttribute.ended: lambda: self._gone}

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What the client sent, at most `max_bytes`; errors as those of a `WebSocketStream`."""
        await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._unread:
                data, self._unread = self._unread[:max_bytes], self._unread[max_bytes:]
                return data
            if self._end is not None:
                raise self._end
            with anyio.CancelScope() as self._receiving:
                self._take(await self._receive_event())

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["type"] != "websocket.receive":
            self._gone = True
            good = event.get("code", 1005) in _GOOD
            self._end = anyio.EndOfStream() if good else anyio.BrokenResourceError(f"the client left with {event.get('code')}")
            return
        text = event.get("text")
        try:
            self._unread = self._messages.feed(event.get("bytes") or b"" if text is None else text.encode(), text=text is not None)
        except (ClaudeTransportError, UnicodeEncodeError) as exc:
            self._end = anyio.BrokenResourceError(str(exc))
        if self._messages.ended:
            self._end = anyio.EndOfStream()

    async def send(self, item: bytes) -> None:
        """Send all of `item`; errors as those of a `WebSocketStream`."""
        for payload, is_text in cut_messages(bytes(item)):
            await self._say({"type": "websocket.send", **({"text": payload.decode()} if is_text else {"bytes": payload})})

    async def send_eof(self) -> None:
        """Tell the client that nothing more will be sent."""
        if not (self._eof_sent or self._closed):
            await self._say({"type": "websocket.send", "text": ""})
            self._eof_sent = True

    async def _say(self, event: MutableMapping[str, Any]) -> None:
        with anyio.CancelScope() as self._sending:
            async with self._send_lock:
                if self._closed or self._eof_sent:
                    raise anyio.ClosedResourceError
                if self._gone:
                    raise anyio.BrokenResourceError("the client is gone")
                await self._send_now(event)
                return
        raise anyio.ClosedResourceError  # cancelled by aclose()

    async def _send_now(self, event: MutableMapping[str, Any]) -> None:
        try:
            await self._send_event(event)
        except OSError as exc:  # what ASGI has a server raise after the client has gone (spec 2.4)
            self._gone = True
            raise anyio.BrokenResourceError("the client is gone") from exc

    async def aclose(self) -> None:
        """Close the connection; wakes who receives or sends."""
        if self._closed:
            await anyio.lowlevel.checkpoint()
            return
        self._closed = True
        for scope in (self._receiving, self._sending):
            if scope is not None:
                scope.cancel()
        if not self._gone:
            async with self._send_lock:
                try:
                    await self._send_now({"type": "websocket.close", "code": 1000})
                except (anyio.BrokenResourceError, RuntimeError):
                    # older servers raise RuntimeError for a client that has gone, which is as closed as can be
                    logger.debug("an ASGI client was gone before it was closed", exc_info=True)


def _request(scope: Scope) -> HandshakeRequest:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope.get("headers", ()):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HandshakeRequest(path=_path(scope), headers=headers)


def _path(scope: Scope) -> str:
    """The path below the one it is mounted at: a server's `path` has both in it (ASGI 2.3), `root_path` the latter."""
    path, root = str(scope.get("path", "/")), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) or "/" if path == root or path.startswith(f"{root}/") else path


async def _refuse(scope: Scope, send: Send, refused: TurnedAway) -> None:
    if "websocket.http.response" in scope.get("extensions", {}):
        asked = {"www-authenticate": "Bearer"} if refused.status == _UNKNOWN else {}
        await send({"type": "websocket.http.response.start", "status": refused.status, "headers": _encode_headers(asked)})
        await send({"type": "websocket.http.response.body", "body": f"{refused}\n".encode()})
    else:
        await send({"type": "websocket.close", "code": _REFUSED})


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    told = {"content-type": "text/plain; charset=utf-8", **headers}
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
