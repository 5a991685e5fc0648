"""`GatewayApplication`: a gateway as an ASGI application, inside a server that runs already.

The server does TLS, the WebSocket handshake and the limits of a message, also before a client is admitted. The messages carry the same
lines as on the gateway's own listeners. `gateway.py` does the rest.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.errors import ClaudeTransportError, ConfigurationError, UsageError
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.observatory import Viewing
from claude_transport.loggers import logger_for
from claude_transport.serving.pages import Page
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.websocket import HandshakeRequest, MessageReader, cut_messages
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_GOOD: Final = frozenset({1000, 1005})
"""Close codes of a good end, as on the gateway's own listeners."""

_POLICY_VIOLATION: Final = 1008
"""A server without the extension for HTTP answers turns this close code into a 403."""


class GatewayApplication:
    """Serves a gateway inside an ASGI server that runs already: it is an ASGI 3 application.

    A WebSocket at any path below its mount point is a connection to the gateway. `/healthz` and `/metrics` are answered over HTTP, under
    loopback host names, under the address in `server` of the scope, and under the gateway's `hosts`; other paths get 404.

    At the end of the server, its lifespan events drain and close the gateway. Without lifespan events, close the gateway yourself.

    Args:
        gateway: a gateway without `listen`, or with listeners that were started.
        allow_anyone: serve a gateway without tokens, because the server authenticates the clients itself.

    Raises:
        ConfigurationError: the gateway has no tokens, so every client of the server could do what claude can do here.
    """

    def __init__(self, gateway: Gateway, *, allow_anyone: bool = False) -> None:
        self.gateway = gateway
        if not (gateway.needs_token or allow_anyone):
            raise ConfigurationError(
                "the gateway has no tokens, so every client of the server would be admitted: give it tokens, "
                "or allow_anyone=True when the server authenticates its clients",
                option="tokens",
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, request or lifespan. Raises `UsageError` for any other kind of scope."""
        kind = scope["type"]
        if kind == "websocket":
            await self._serve_websocket(scope, receive, send)
        elif kind == "http":
            await self._serve_http(scope, receive, send)
        elif kind == "lifespan":
            await self._serve_lifespan(receive, send)
        else:
            raise UsageError(f"a gateway cannot serve the ASGI scope {kind!r}: it serves websocket, http and lifespan")

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

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request(scope)
        server = scope.get("server")
        here = str(server[0]) if server else None
        host, is_head = request.headers.get("host"), request.method == "HEAD"
        page = self.gateway.page(request.path, token=request.bearer_token, host=host, here=here, method=request.method)
        seen = page if page is not None else self.gateway.observe(request, here=here)
        if isinstance(seen, Viewing):
            if not is_head:
                await self._show(seen, receive, send)
                return
            status, body, headers = 200, b"", seen.headers
        else:
            found = Page(status=404, text="There is nothing here.\n", headers={}) if seen is None else seen
            body = found.text.encode()
            status, headers = found.status, {"content-length": str(len(body)), **found.headers}
        await send({"type": "http.response.start", "status": status, "headers": _encode_headers(headers)})
        await send({"type": "http.response.body", "body": b"" if is_head else body})

    async def _show(self, viewing: Viewing, receive: Receive, send: Send) -> None:
        async def send_part(part: bytes) -> None:
            try:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            except OSError as exc:  # what a server raises after the client has left (ASGI spec 2.4)
                raise anyio.BrokenResourceError from exc

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await send({"type": "http.response.start", "status": 200, "headers": _encode_headers(viewing.headers)})
        await self.gateway.show(viewing, send_part, gone)
        with contextlib.suppress(OSError):  # the observer has left
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request(scope)
        event = await receive()
        if event["type"] != "websocket.connect":
            return  # the client left before the handshake
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
    """The bytes of a WebSocket connection whose frames the ASGI server reads and writes. Its errors are those of a `WebSocketStream`."""

    def __init__(self, receive: Receive, send: Send, *, address: str) -> None:
        self._receive_event = receive
        self._send_event = send
        self._address = address
        self._messages = MessageReader()
        self._unread = b""  # the data of a message; its first `_taken` bytes were received already
        self._taken = 0
        self._end: Exception | None = None
        self._gone = False  # the server has reported that the client left
        self._eof_sent = False
        self._closed = False
        self._receiving: anyio.CancelScope | None = None
        self._sending: anyio.CancelScope | None = None
        self._send_lock = anyio.Lock()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The client's address, and whether it has left."""
        return {StreamAttribute.address: lambda: self._address, StreamAttribute.ended: lambda: self._gone}

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for bytes of the client; return at most `max_bytes`."""
        await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._unread:
                return self._take_unread(max_bytes)
            if self._end is not None:
                raise self._end
            with anyio.CancelScope() as self._receiving:
                self._take(await self._receive_event())

    def _take_unread(self, max_bytes: int) -> bytes:
        start, self._taken = self._taken, self._taken + max_bytes
        data = self._unread[start : self._taken]  # the rest is not copied
        if self._taken >= len(self._unread):
            self._unread, self._taken = b"", 0
        return data

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
        """Send all of `item`."""
        for payload, is_text in cut_messages(bytes(item)):
            await self._send_whole({"type": "websocket.send", **({"text": payload.decode()} if is_text else {"bytes": payload})})

    async def send_eof(self) -> None:
        """Tell the client that nothing more will be sent."""
        if not (self._eof_sent or self._closed):
            await self._send_whole({"type": "websocket.send", "text": ""})
            self._eof_sent = True

    async def _send_whole(self, event: MutableMapping[str, Any]) -> None:
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
        except OSError as exc:  # what a server raises after the client has left (ASGI spec 2.4)
            self._gone = True
            raise anyio.BrokenResourceError("the client is gone") from exc

    async def aclose(self) -> None:
        """Close the connection. Wakes tasks that receive or send."""
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
                    # older servers raise RuntimeError when the client has left
                    logger.debug("an ASGI client left before its connection was closed", exc_info=True)


def _request(scope: Scope) -> HandshakeRequest:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope.get("headers", ()):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    # `path` of the scope begins with the mount point (ASGI 2.3), which is `root_path`
    path, root = str(scope.get("path", "/")), str(scope.get("root_path", "")).rstrip("/")
    below = path.removeprefix(root) or "/" if path == root or path.startswith(f"{root}/") else path
    return HandshakeRequest(path=below, headers=headers, method=scope.get("method", "GET"))


async def _refuse(scope: Scope, send: Send, refused: TurnedAway) -> None:
    if "websocket.http.response" in scope.get("extensions", {}):
        await send({"type": "websocket.http.response.start", "status": refused.status, "headers": _encode_headers(refused.headers)})
        await send({"type": "websocket.http.response.body", "body": f"{refused}\n".encode()})
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    told = {"content-type": "text/plain; charset=utf-8", **headers}
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
