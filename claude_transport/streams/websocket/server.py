"""The accepting end: reads the request, lets the owner decide about it, and answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost, ConnectTimeout, ProtocolError
from claude_transport.streams.websocket.stream import (
    DEFAULT_CLOSE_TIMEOUT,
    DEFAULT_MAX_MESSAGE_BYTES,
    WebSocketStream,
    is_open,
    server_protocol,
)

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.server import ServerProtocol


DEFAULT_ACCEPT_TIMEOUT = 10.0
"""Seconds a client has for its request, and for taking the answer."""

DEFAULT_MAX_REQUEST_BYTES = 16 * 2**10
"""Bytes of a request, headers and all: what ten thousand of them hold at once is 160 MiB, and usually a thirtieth of that."""

_CHUNK_BYTES = 4096

_LINGER_SECONDS = 1.0
"""How long a refused client may take to hang up. Closing while it still sends could destroy the answer on its way."""


class HandshakeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for: the path with its query, and the headers (names in lower case, several of one name joined by commas)."""

    path: str
    headers: Mapping[str, str]

    @property
    def origin(self) -> str | None:
        """The `Origin`, which every browser sends and nobody else has to."""
        return self.headers.get("origin")

    @property
    def bearer_token(self) -> str | None:
        """The token of `Authorization: Bearer …`."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None

    def __repr__(self) -> str:
        return f"HandshakeRequest(path={self.path.partition('?')[0]!r})"  # headers and queries may hold secrets


class HTTPAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of plain HTTP in place of a connection: a refusal, or a page."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = {}


Admit = Callable[[HandshakeRequest], HTTPAnswer | None]


async def accept_websocket(
    stream: ByteStream,
    *,
    admit: Admit | None = None,
    allowed_origins: Collection[str] | None = (),
    compression: bool = False,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    handshake_timeout: float = DEFAULT_ACCEPT_TIMEOUT,
    close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
) -> WebSocketStream | None:
    """The server's end of a WebSocket connection over `stream`, or None when the request was answered by plain HTTP and the stream closed.

    Args:
        stream: a connection that was just accepted; in every case but success it is closed.
        admit: sees the request before it is answered: None admits it, an `HTTPAnswer` is sent instead (401, 404, a page for health checks).
            Not asked when the origin is refused.
        allowed_origins: the origins of web pages that may connect, such as `https://example.com`; without any, no browser may
            (403). None: the owner's `admit` looks at the origin itself.
        compression: agree to permessage-deflate when the client offers it.
        max_message_bytes: a larger message, inflated, ends the connection with code 1009.
        max_request_bytes: a larger request is refused with 431.
        handshake_timeout: seconds in all for request and answer.

    Raises:
        ConfigurationError: the package `websockets` is not installed.
        ConnectTimeout: the client did not ask, or did not take the answer, in time.
        ProtocolError: what came was no HTTP request, or one over the limit.
        ConnectionLost: the client went away.
    """
    try:
        protocol = server_protocol(compression=compression, max_message_bytes=max_message_bytes)
        with anyio.move_on_after(handshake_timeout):
            try:
                request, early = await _read_request(stream, protocol, max_request_bytes)
                response = _decide(protocol, request, admit, allowed_origins)
                accepted = await _answer(stream, protocol, response)
            except (anyio.BrokenResourceError, anyio.EndOfStream, OSError) as exc:
                raise ConnectionLost("the client went away during the handshake of WebSocket") from exc
            if not accepted:
                return None
            connection = WebSocketStream(stream, protocol, address=None, close_timeout=close_timeout)
            connection.take_frames(early)
            return connection
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(stream)
        raise
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(stream)
    raise ConnectTimeout(f"a client did not complete the handshake of WebSocket in {handshake_timeout:g} s", waited=handshake_timeout)


async def _read_request(stream: ByteStream, protocol: ServerProtocol, max_request_bytes: int) -> tuple[Request, list[Any]]:
    """The request, and the frames that came right behind it."""
    size = 0
    while True:
        chunk = await stream.receive(_CHUNK_BYTES)
        size += len(chunk)
        if size > max_request_bytes:  # frames that came with it count as well: a client has to wait for the answer (RFC 6455, 4.1)
            await _answer(stream, protocol, protocol.reject(431, "The request is too large.\n"))
            raise ProtocolError(f"a request of more than {max_request_bytes} bytes in place of a handshake of WebSocket")
        protocol.receive_data(chunk)
        events: list[Any] = protocol.events_received()
        if events:
            return events[0], events[1:]  # the request comes first
        if protocol.handshake_exc is not None:
            await _hang_up(stream, protocol)
            raise ProtocolError("what came is no request for a WebSocket connection") from protocol.handshake_exc


def _decide(protocol: ServerProtocol, request: Request, admit: Admit | None, allowed_origins: Collection[str] | None) -> Response:
    headers: dict[str, str] = {}
    for name, value in request.headers.raw_items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    asked = HandshakeRequest(path=request.path, headers=headers)
    if asked.origin is not None and allowed_origins is not None and asked.origin not in allowed_origins:
        return protocol.reject(403, "Web pages of this origin may not connect.\n")
    answer = admit(asked) if admit is not None else None
    if answer is None:
        return protocol.accept(request)
    response = protocol.reject(answer.status, answer.text)
    for name, value in answer.headers.items():
        if name in response.headers:
            del response.headers[name]  # replaced, not sent twice
        response.headers[name] = value
    return response


async def _answer(stream: ByteStream, protocol: ServerProtocol, response: Response) -> bool:
    """Whether the connection is a WebSocket now; if not, the answer is out and the stream closed."""
    protocol.send_response(response)
    if is_open(protocol):
        await stream.send(b"".join(protocol.data_to_send()))
        return True
    await _hang_up(stream, protocol)
    return False


async def _hang_up(stream: ByteStream, protocol: ServerProtocol) -> None:
    """Send what is to be sent, wait a moment until the client has hung up, and close."""
    try:
        if data := b"".join(protocol.data_to_send()):
            await stream.send(data)
        with anyio.move_on_after(_LINGER_SECONDS):
            try:
                await stream.send_eof()
            except NotImplementedError:  # anyio's TLS cannot end one direction
                pass
            while await stream.receive(_CHUNK_BYTES):
                pass
    except (anyio.BrokenResourceError, anyio.EndOfStream, OSError):
        pass  # it has hung up
    await anyio.aclose_forcefully(stream)
