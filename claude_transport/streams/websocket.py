"""WebSocket as a byte stream, for client and server, over any byte stream that carries it.

* `WebSocketConnectable` opens a `ws://` or `wss://` URL.
* `accept_websocket()` reads a request on an accepted stream, and answers it.
* `WebSocketStream` is one end of the open connection.
* `cut_messages()` and `MessageReader` translate between a stream of lines and WebSocket messages.

A text message holds whole lines, a binary message any part of the stream, and an empty text message ends the input. The protocol is that
of the package `websockets` (the extra `ws`). Only its classes without I/O are used, and they are imported with the first connection.
"""

from __future__ import annotations

import codecs
import logging
import math
import re
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ProtocolError,
    UsageError,
    without_secrets,
)
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.streams.address import Address, StreamAttribute, parse_address
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT, SocketConnectable
from claude_transport.streams.tls import TLSConnectable
from claude_transport.text.printable import redacted_head
from claude_transport.text.secret_forms import SECRET, find_secrets

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.extensions import Extension
    from websockets.frames import Frame
    from websockets.http11 import Request, Response
    from websockets.protocol import Protocol
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI

logger: logging.Logger = logger_for(__name__)

DEFAULT_MAX_MESSAGE_BYTES = 64 * 2**20
"""Bytes that one message may have after decompression: four times the largest message that this library sends."""

DEFAULT_CLOSE_TIMEOUT = 2.0
"""Seconds for the closing handshake: some round trips, and no longer when the peer does not listen."""

DEFAULT_ACCEPT_TIMEOUT = 10.0
"""Seconds for a client to send its request and take the answer."""

DEFAULT_MAX_REQUEST_BYTES = 16 * 2**10
"""Bytes of a request with its headers. Ten thousand clients can hold 160 MiB at once, and usually hold a thirtieth of that."""

USUAL_MESSAGE_BYTES = 2**20
"""Bytes of a message with several lines: many peers refuse larger ones by default."""

LARGEST_TEXT_BYTES = 16 * 2**20
"""Bytes of the longest line that is sent as one text message. A longer line is sent in pieces, as binary messages."""

_CHUNK_BYTES = 64 * 2**10
_DEFLATED_CHUNK_BYTES = 16 * 2**10
"""Bytes received at once. Deflate turns one byte into 1032 at most, so 16 KiB become 16 MiB before the sizes are checked again."""

_HANDSHAKE_CHUNK_BYTES = 4096

_MAX_PENDING_BYTES = 64 * 2**10
"""Bytes of pongs that wait to be sent. A peer that sends pings and reads nothing gets no more of them, as RFC 6455 5.5.3 allows."""

_MAX_ANSWER_BYTES = 64 * 2**10
"""Bytes of an answer to the handshake with its headers. The rest of a longer error page is not read."""

_SHOWN_CHARS = 200
"""Characters of a refusal's text that the error shows."""

_LINGER_SECONDS = 1.0
"""Seconds for a refused client to hang up. Closing while it still sends could destroy the answer on its way."""

_TOKEN = re.compile(r"[!-~]+")
"""RFC 9110 5.5: characters that no proxy changes in a header."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")
_OTHER_METHOD = re.compile(rb"(?!GET )([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.[01]\r\n")
"""The first line of an HTTP request that does not `GET`: its method and its path."""

_HANDSHAKE_HEADERS = frozenset(
    ("connection", "host", "sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version", "upgrade")
)

_RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})

_IS_TEXT = (None, True, False)
"""By opcode of a data frame (RFC 6455 5.2): continuation, text, binary."""

_FIRST_CONTROL = 8
"""The lowest opcode of a control frame."""

_MAX_HEAD_BYTES = 14
"""Bytes of the head of a frame with its mask (RFC 6455 5.2)."""

_MASK_BYTES = 4

_WIDE_LENGTHS = {126: 2, 127: 8}
"""Bytes of the length behind the first two bytes of a frame, by the short length (RFC 6455 5.2)."""

_END_OF_HEAD = b"\r\n\r\n"

_PONG = 0x8A
"""The first byte of a pong frame."""

_GOOD_CODES = frozenset({1000, 1005})
"""Closing codes (RFC 6455 7.4.1) of a good end: normal closure, and no code, as `socket.close()` of a browser sends."""

_OUR_FAULT_CODES = frozenset({1002, 1003, 1007, 1009, 1010})
"""The peer refuses the form or the size of what it was sent."""

_RETRYABLE_CODES = frozenset({1001, 1012, 1013, 1014})
"""The peer leaves, restarts, is overloaded, or is a proxy in front of such a server."""

_BROKEN = (anyio.BrokenResourceError, OSError, ClaudeTransportError)


# The client's end.


class WebSocketConnectable(ByteStreamConnectable):
    """Opens WebSocket connections to `url`, such as `wss://example.com/claude`.

    Args:
        url: `ws://` or `wss://`. A token, user or password in it is refused.
        token: sent as `Authorization: Bearer …`.
        ssl_context: the client's TLS settings for `wss://`. Default: the certificates that the system trusts.
        headers: more headers for the request, such as a proxy needs.
        compression: offer permessage-deflate.
        max_message_bytes: a larger message of the peer, after decompression, ends the connection.
        handshake_timeout: seconds in all until the connection is open.
        close_timeout: seconds that `aclose()` may take for the closing handshake.
        opener: opens the byte stream that carries the connection, instead of dialling `url`: a proxy, a tunnel, a Unix socket.
            TLS is then its task.

    Raises:
        ConfigurationError: one of the arguments cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        compression: bool = False,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        handshake_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
        opener: ByteStreamConnectable | None = None,
    ) -> None:
        self.address: Address = parse_address(url)
        if not self.address.is_websocket:
            raise ConfigurationError("a WebSocket URL begins with ws:// or wss://", option="url")
        if ssl_context is not None and not self.address.is_encrypted:
            raise ConfigurationError("ws:// is not encrypted, an ssl_context means nothing there: use wss://", option="ssl_context")
        self._headers = _check_headers(headers or {}, token)
        self._compression = compression
        self._max_message_bytes = max_message_bytes
        self._handshake_timeout = handshake_timeout
        self._close_timeout = close_timeout
        self._opener = self._dialler(ssl_context) if opener is None else opener

    def _dialler(self, ssl_context: ssl.SSLContext | None) -> ByteStreamConnectable:
        address, timeout = self.address, self._handshake_timeout
        dialler = SocketConnectable(address, connect_timeout=timeout)
        if not address.is_encrypted:
            return dialler
        return TLSConnectable(dialler, hostname=address.host, address=str(address), ssl_context=ssl_context, handshake_timeout=timeout)

    async def connect(self) -> WebSocketStream:
        """Return an open connection.

        Raises:
            ConfigurationError: the package `websockets` is not installed.
            ConnectTimeout: there was no answer in time.
            AuthenticationError: the server refuses the token, or wants one (401, 403).
            CLIConnectionError: the server refused for another reason (`code` is `connect.http_` and the status; `retryable` depends on
                the status), is no WebSocket server, or could not be reached.
        """
        uri = parse_url(self.address.whole_url)
        with anyio.move_on_after(self._handshake_timeout):
            stream = await self._opener.connect()
            try:
                protocol = client_protocol(uri, compression=self._compression, max_message_bytes=self._max_message_bytes)
                return await self._shake_hands(stream, protocol)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await anyio.aclose_forcefully(stream)
                raise
        waited = self._handshake_timeout
        raise ConnectTimeout(f"{self.address}: no WebSocket connection within {waited:g} s", waited=waited)

    async def _shake_hands(self, stream: ByteStream, protocol: ClientProtocol) -> WebSocketStream:
        request = protocol.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        protocol.send_request(request)
        size = 0
        try:
            await stream.send(b"".join(protocol.data_to_send()))
            # not "until it is open": a server may close the connection right behind its answer
            while protocol.state.name == "CONNECTING" and protocol.handshake_exc is None:
                if size > _MAX_ANSWER_BYTES:
                    raise self._no_server(f"its answer has more than {_MAX_ANSWER_BYTES} bytes")
                chunk = await stream.receive(_HANDSHAKE_CHUNK_BYTES)
                size += len(chunk)
                protocol.receive_data(chunk)
        except anyio.EndOfStream:
            protocol.receive_eof()  # the end of the connection may be the end of the answer
        except (anyio.BrokenResourceError, ConnectionLost, OSError) as exc:
            raise CLIConnectionError(f"{self.address}: the connection broke during the WebSocket handshake") from exc
        if protocol.handshake_exc is not None:
            raise self._refusal(protocol)  # not `from` it: its words are the server's, which may repeat the token
        connection = WebSocketStream(
            stream, protocol, address=str(self.address), close_timeout=self._close_timeout, hide=self._without_token
        )
        connection.take_frames(protocol.events_received()[1:])  # the first event is the answer; frames may follow it
        return connection

    def _without_token(self, text: str) -> str:
        """Return `text` without secrets: a server may repeat the token that it refuses."""
        for secret in sorted(find_secrets(self._headers), key=len, reverse=True):
            text = text.replace(secret, SECRET)
        return without_secrets(text)

    def _refusal(self, protocol: ClientProtocol) -> CLIConnectionError:
        response: Any = getattr(protocol.handshake_exc, "response", None)
        if response is None:
            if isinstance(getattr(protocol.handshake_exc, "__cause__", None), EOFError):
                return CLIConnectionError(f"{self.address}: the peer hung up during the WebSocket handshake", code="connect.hung_up")
            return self._no_server(self._without_token(str(protocol.handshake_exc or "its answer cannot be read")))
        status: int = response.status_code
        text = bytes(response.body or b"").decode("utf-8", "replace")
        shown = redacted_head(text, self._without_token, at_most=_SHOWN_CHARS)[:_SHOWN_CHARS]
        said = "".join(each if each.isprintable() else " " for each in shown).strip()
        message = f"{self.address}: refused with HTTP {status}{f': {said}' if said else ''}"
        reason = said or f"HTTP {status}"
        if status in {401, 403}:
            return AuthenticationError(message, code="connect.auth_failed" if status == 401 else "connect.forbidden", reason=reason)
        return CLIConnectionError(message, code=f"connect.http_{status}", reason=reason, retryable=status in _RETRYABLE_STATUSES)

    def _no_server(self, why: str) -> CLIConnectionError:
        return CLIConnectionError(f"{self.address}: no WebSocket server is there: {why}", code="connect.not_websocket", retryable=False)


def _check_headers(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    """Return the headers to send, with the token."""
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigurationError(f"the header {name!r} cannot be sent: names and values are printable ASCII", option="headers")
        if name.lower() in _HANDSHAKE_HEADERS or (token is not None and name.lower() == "authorization"):
            raise ConfigurationError(f"the header {name!r} is set by the handshake itself: leave it out", option="headers")
        checked[name] = value
    if token is not None:
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError("a token is printable ASCII without blanks", option="token")
        checked["Authorization"] = f"Bearer {token}"
    return checked


# The server's end.


class HandshakeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request: the path with its query, the headers, and the method.

    Header names are in lower case, repeated ones are joined by commas. Only `GET` can open a connection; `admit` may answer other methods.
    """

    path: str
    headers: Mapping[str, str]
    method: str = "GET"

    @property
    def origin(self) -> str | None:
        """The `Origin` header. Every browser sends it; other clients need not."""
        return self.headers.get("origin")

    @property
    def bearer_token(self) -> str | None:
        """The token of `Authorization: Bearer …`."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None

    def __repr__(self) -> str:
        return f"HandshakeRequest(path={self.path.partition('?')[0]!r})"  # headers and queries may hold secrets


class HTTPAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A plain HTTP answer instead of a connection: a refusal, or a page.

    With `stays_open`, only its status and headers are sent. The caller then sends the body on the stream, and closes it. The answer to a
    `HEAD` has no body, and never stays open.
    """

    status: int
    text: str = ""
    headers: Mapping[str, str] = {}
    stays_open: bool = False


Admit = Callable[[HandshakeRequest], HTTPAnswer | None]


async def accept_websocket(
    stream: ByteStream,
    *,
    admit: Admit | None = None,
    allowed_origins: Collection[str] | None = (),
    compression: bool = False,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    max_first_bytes: int | None = None,
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    handshake_timeout: float = DEFAULT_ACCEPT_TIMEOUT,
    close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
) -> WebSocketStream | None:
    """Read a WebSocket request on `stream` and answer it. Return the open connection.

    Returns None when the request was answered with plain HTTP; the stream is then closed, unless the answer stays open. It is also closed
    when this raises.

    Args:
        stream: a connection that was just accepted.
        admit: called with the request before the answer. It returns None to accept, or an `HTTPAnswer` to send instead (401, 404, a page
            for health checks). Not called when the origin is refused. A request that it accepts needs the method `GET` (else 405).
        allowed_origins: the origins of web pages that may connect, such as `https://example.com`. The default lets no browser
            connect (403). None: origins are not checked here, `admit` has to.
        compression: accept permessage-deflate when the client offers it.
        max_message_bytes: a larger message, after decompression, ends the connection with code 1009.
        max_first_bytes: the same for all frames in sum until `trust_peer()` of the connection is called. None: the client is trusted.
        max_request_bytes: a larger request is refused with 431.
        handshake_timeout: seconds for request and answer together.
        close_timeout: seconds that `aclose()` may take for the closing handshake.

    Raises:
        ConfigurationError: the package `websockets` is not installed.
        ConnectTimeout: the client did not send its request, or did not take the answer, in time.
        ProtocolError: the data is no HTTP request, or the request is too large.
        ConnectionLost: the client went away.
    """
    try:
        protocol = server_protocol(compression=compression, max_message_bytes=max_message_bytes)
        with anyio.move_on_after(handshake_timeout):
            try:
                asked, request, early = await _read_request(stream, protocol, max_request_bytes)
                response, stays_open = _decide(protocol, asked, request, admit, allowed_origins)
                if stays_open:
                    await stream.send(response.serialize())
                    return None
                accepted = await _answer(stream, protocol, response)
            except (anyio.BrokenResourceError, anyio.EndOfStream, OSError) as exc:
                raise ConnectionLost("the client went away during the WebSocket handshake") from exc
            if not accepted:
                return None
            first = None if max_first_bytes is None else _FirstFrames(max_first_bytes)
            return WebSocketStream(stream, protocol, address=None, close_timeout=close_timeout, early=early, first=first)
        message = f"a client did not complete the WebSocket handshake in {handshake_timeout:g} s"
        raise ConnectTimeout(message, waited=handshake_timeout)  # noqa: TRY301 - the stream is closed below
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(stream)
        raise


async def _read_request(
    stream: ByteStream, protocol: ServerProtocol, max_request_bytes: int
) -> tuple[HandshakeRequest, Request | None, bytes]:
    """Return the request, what `protocol` has made of it, and the bytes that arrived right behind it.

    `protocol` gets a request with `GET` only. Others cannot open a connection, may have a body, and are unknown to older releases of
    `websockets`: for them it is None.
    """
    head = await _read_up_to(b"\n", b"", stream, protocol, max_request_bytes)
    other = _OTHER_METHOD.match(head)
    if other is not None:
        head = await _read_up_to(b"\r\n\r\n", head, stream, protocol, max_request_bytes)
        method, path = (part.decode("latin-1") for part in other.groups())
        lines = (line.partition(":") for line in head[: head.index(b"\r\n\r\n")].decode("latin-1").split("\r\n")[1:])
        told = _join_headers((name, value.strip()) for name, _, value in lines)
        return HandshakeRequest(path=path, headers=told, method=method), None, b""
    size, chunk, before = len(head), head, b""
    while True:
        # frames behind the request wait until it is known what their sender may send
        found = (before + chunk).find(_END_OF_HEAD)
        end = len(chunk) if found < 0 else found + len(_END_OF_HEAD) - len(before)
        protocol.receive_data(chunk[:end])
        events: list[Any] = protocol.events_received()
        if events:
            request = events[0]
            return HandshakeRequest(path=request.path, headers=_join_headers(request.headers.raw_items())), request, chunk[end:]
        before = (before + chunk)[1 - len(_END_OF_HEAD) :]
        if protocol.handshake_exc is not None:
            await _hang_up(stream, protocol)
            raise ProtocolError("the first bytes are no request for a WebSocket connection") from protocol.handshake_exc
        chunk = await stream.receive(_HANDSHAKE_CHUNK_BYTES)
        size += len(chunk)
        await _check_size(size, stream, protocol, max_request_bytes)


async def _read_up_to(mark: bytes, begun: bytes, stream: ByteStream, protocol: ServerProtocol, max_request_bytes: int) -> bytes:
    """Return `begun` and what follows it on the stream, until `mark` is in it."""
    head, searched = bytearray(begun), 0  # each byte is searched once, however small the pieces are
    while head.find(mark, searched) < 0:
        searched = max(0, len(head) - len(mark) + 1)
        head += await stream.receive(_HANDSHAKE_CHUNK_BYTES)
        await _check_size(len(head), stream, protocol, max_request_bytes)
    return bytes(head)


async def _check_size(size: int, stream: ByteStream, protocol: ServerProtocol, max_request_bytes: int) -> None:
    """Refuse a request that is too large. Early frames count too: a client has to wait for the answer (RFC 6455 4.1)."""
    if size > max_request_bytes:
        await _answer(stream, protocol, protocol.reject(431, "The request is too large.\n"))
        raise ProtocolError(f"the WebSocket request has more than {max_request_bytes} bytes")


def _join_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in items:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _decide(
    protocol: ServerProtocol, asked: HandshakeRequest, request: Request | None, admit: Admit | None, allowed_origins: Collection[str] | None
) -> tuple[Response, bool]:
    """Return the answer to a request, and whether the stream stays open for its body."""
    if asked.origin is not None and allowed_origins is not None and asked.origin not in allowed_origins:
        return protocol.reject(403, "Web pages of this origin may not connect.\n"), False
    answer = admit(asked) if admit is not None else None
    if answer is None and request is not None:
        return protocol.accept(request), False
    if answer is None:
        answer = HTTPAnswer(status=405, text="A WebSocket is opened with GET.\n", headers={"allow": "GET"})
    response = protocol.reject(answer.status, answer.text)
    for name, value in answer.headers.items():
        if name in response.headers:
            del response.headers[name]  # an assignment would add a second one
        response.headers[name] = value
    is_head = asked.method == "HEAD"
    if answer.stays_open:
        del response.headers["content-length"]
    if answer.stays_open or is_head:
        response.body = b""
    return response, answer.stays_open and not is_head


async def _answer(stream: ByteStream, protocol: ServerProtocol, response: Response) -> bool:
    """Send the answer. Return True when the connection is open; otherwise the stream is closed."""
    protocol.send_response(response)
    if _is_open(protocol):
        await stream.send(b"".join(protocol.data_to_send()))
        return True
    await _hang_up(stream, protocol)
    return False


async def _hang_up(stream: ByteStream, protocol: ServerProtocol) -> None:
    """Send the rest, wait a moment for the client to hang up, and close the stream."""
    try:
        if data := b"".join(protocol.data_to_send()):
            await stream.send(data)
        with anyio.move_on_after(_LINGER_SECONDS):
            try:
                await stream.send_eof()
            except NotImplementedError:  # anyio's own TLS stream has no half-close
                pass
            while await stream.receive(_HANDSHAKE_CHUNK_BYTES):
                pass
    except (anyio.BrokenResourceError, anyio.EndOfStream, OSError):
        pass  # the client has hung up
    await anyio.aclose_forcefully(stream)


# Both ends, once the connection is open.


class WebSocketStream(ByteStream):
    """One end of an open WebSocket connection. `WebSocketConnectable` and `accept_websocket()` make it.

    One task at a time may send and one may receive (`anyio.BusyResourceError`). Pings and the peer's closing frame are answered
    while a task receives, and after the peer has ended its input.
    """

    def __init__(
        self,
        stream: ByteStream,
        protocol: Protocol,
        *,
        address: str | None,
        close_timeout: float,
        hide: Callable[[str], str] = without_secrets,
        early: bytes = b"",
        first: _FirstFrames | None = None,
    ) -> None:
        """Do not call this.

        `hide` removes secrets from what the peer says about the end. `early` are bytes of frames that were received already. `first` bounds
        what the peer may send before `trust_peer()`.
        """
        self._stream = stream
        self._protocol = protocol
        self._address = address
        self._close_timeout = close_timeout
        self._hide = hide
        self._chunk_bytes = _DEFLATED_CHUNK_BYTES if protocol.extensions else _CHUNK_BYTES
        self._held = early  # bytes that `protocol` did not get yet
        self._first = first
        if first is not None:
            protocol.extensions = [cast("Extension", _BoundedExtension(each, first)) for each in protocol.extensions]
        self._messages = MessageReader()
        self._unread = b""  # the data of messages; its first `_taken` bytes were received already
        self._taken = 0
        self._ending: Exception | None = None  # why the peer sends nothing more
        self._wire_over = False  # the carrying stream is broken: nothing more arrives, not even a closing frame
        self._outgoing: list[bytes] = []  # frames that wait to be sent
        self._outgoing_size = 0
        self._eof_sent = False
        self._torn: BaseException | None = None  # half a frame may have been sent: nothing can follow it
        self._closed = False
        self._receiving = anyio.ResourceGuard("reading from")
        self._sending = anyio.ResourceGuard("writing to")
        self._pump_lock = anyio.Lock(fast_acquire=True)
        self._send_lock = anyio.Lock(fast_acquire=True)
        self._pumping: anyio.CancelScope | None = None
        self._writing: anyio.CancelScope | None = None
        self._flusher: LoopTask | None = None
        self._watcher: LoopTask | None = None

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The attributes of the carrying stream, the address, and whether the peer is known to be gone."""
        own: dict[Any, Callable[[], Any]] = {StreamAttribute.ended: lambda: self._ending is not None}
        if self._address is not None:
            own[StreamAttribute.address] = lambda: self._address
        return {**self._stream.extra_attributes, **own}

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte, and return at most `max_bytes`. A cancelled call loses nothing.

        Raises:
            anyio.EndOfStream: the peer has ended its input, or closed the connection in good order.
            anyio.BrokenResourceError: the connection ended without a closing frame.
            ProtocolError: the peer broke the rules of WebSocket, or sent a message over the limit.
            ConnectionLost: the peer closed the connection for another reason.
            anyio.ClosedResourceError: this end is closed.
        """
        if max_bytes < 1:
            raise UsageError(f"max_bytes must be at least 1, not {max_bytes}")
        with self._receiving:
            if self._unread or self._ending is not None:
                await anyio.lowlevel.checkpoint()
            while True:
                if self._closed:
                    raise anyio.ClosedResourceError
                if self._unread:
                    return self._take(max_bytes)
                if self._messages.ended:
                    raise anyio.EndOfStream
                if self._ending is not None:
                    raise self._ending
                await self._pump()

    def trust_peer(self) -> None:
        """Let the peer send messages up to `max_message_bytes` from now on, as after its admission. Does nothing the second time."""
        if self._first is not None:
            self._first.lift()
            self._first = None

    def _take(self, max_bytes: int) -> bytes:
        start, self._taken = self._taken, self._taken + max_bytes
        data = self._unread[start : self._taken]  # a slice of all bytes is no copy
        if self._taken >= len(self._unread):
            self._unread, self._taken = b"", 0
        return data

    async def _pump(self) -> None:
        """Read once from the carrying stream. `aclose()` interrupts this: then nothing was read."""
        async with self._pump_lock:
            try:
                with anyio.CancelScope() as self._pumping:
                    if self._held:
                        await anyio.lowlevel.checkpoint()
                    else:
                        self._held = await self._stream.receive(self._chunk_bytes if self._first is None else _HANDSHAKE_CHUNK_BYTES)
                    self._feed()
            except anyio.EndOfStream:
                self._protocol.receive_eof()  # which makes it send its own end
                self._settle()
            except (*_BROKEN, anyio.ClosedResourceError) as exc:
                self._wire_over = True
                self._ending = self._ending or exc
            finally:
                self._pumping = None

    def _feed(self) -> None:
        """Give the protocol what was read; of a peer that is not trusted yet, one frame at most."""
        data, self._held = self._held, b""
        if self._first is not None:
            try:
                end = self._first.measure(data)
            except ProtocolError as exc:
                self._ending = exc
                self._protocol.fail(1009, str(exc))
                self._settle()
                return
            data, self._held = data[:end], data[end:]
        self._protocol.receive_data(data)
        self.take_frames(self._protocol.events_received())

    def take_frames(self, frames: Sequence[Any]) -> None:
        """Process frames that the protocol has parsed. The client's handshake calls this too, for frames right behind it."""
        brought = [self._read_frame(frame) for frame in frames if frame.opcode < _FIRST_CONTROL]
        if any(brought) and not self._closed:
            # joined once for each read of the wire: a peer may send each line as a message of its own
            self._unread = b"".join([self._unread[self._taken :], *brought]) if len(brought) > 1 or self._unread else brought[0]
            self._taken = 0
        self._settle()
        if self._messages.ended and self._ending is None and self._watcher is None:
            # no task receives any more, but the peer may still send pings and close
            self._watcher = self._start(self._watch, "watch WebSocket")

    def _read_frame(self, frame: Frame) -> bytes:
        if self._ending is not None:
            return b""
        try:
            return self._messages.feed(bytes(frame.data), text=_IS_TEXT[frame.opcode], final=frame.fin)
        except ProtocolError as exc:
            self._ending = exc
            self._protocol.fail(1007, "not UTF-8")
            return b""

    def _settle(self) -> None:
        """Note the end of the connection, and send the protocol's own answers: pongs, and the closing frame."""
        protocol = self._protocol
        if self._ending is None and (protocol.close_rcvd is not None or protocol.parser_exc is not None or protocol.state.name == "CLOSED"):
            self._ending = _ending_of(protocol, self._hide)
        answers = [each for each in protocol.data_to_send() if each]
        if self._outgoing_size > _MAX_PENDING_BYTES:
            answers = [each for each in answers if each[0] != _PONG]
        self._queue(answers)
        if self._outgoing and self._torn is None and (self._flusher is None or self._flusher.finished):
            # In a task of its own: a reader that waits for its peer to take pongs could wait for a peer that does the same.
            self._flusher = self._start(self._flush_answers, "answer on WebSocket")

    def _start(self, func: Callable[[], Any], name: str) -> LoopTask | None:
        try:
            return LoopTask.spawn(func, name=name)
        except RuntimeError:  # the event loop is ending, and the connection with it
            return None

    async def _watch(self) -> None:
        while self._ending is None and not self._closed:
            await self._pump()

    async def send(self, item: bytes) -> None:
        """Send all of `item`: whole lines in UTF-8 as text messages, anything else as binary messages.

        Raises:
            anyio.BrokenResourceError: the peer is gone, or an earlier call was cancelled half-way.
            anyio.ClosedResourceError: this end is closed, or `send_eof()` was called.
        """
        if item:
            await self._send(cut_messages(bytes(item)))
        else:
            await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will be sent, by an empty text message; receiving goes on."""
        if self._eof_sent or self._closed:
            await anyio.lowlevel.checkpoint()
            return
        await self._send([(b"", True)])
        self._eof_sent = True

    async def _send(self, messages: Any) -> None:
        with self._sending:
            with anyio.CancelScope() as self._writing:
                async with self._send_lock:  # a point of cancellation; the carrying stream lets other tasks run
                    for payload, is_text in messages:
                        self._refuse_if_unwritable()
                        await self._send_message(payload, is_text=is_text)
                    return
            raise anyio.ClosedResourceError  # cancelled by aclose()

    async def _send_message(self, payload: bytes, *, is_text: bool) -> None:
        protocol = self._protocol
        begin = protocol.send_text if is_text else protocol.send_binary
        if len(payload) <= USUAL_MESSAGE_BYTES:
            begin(payload)
            await self._flush()
            return
        for at in range(0, len(payload), USUAL_MESSAGE_BYTES):  # in frames of that size, so that no end holds the whole message twice
            self._refuse_if_unwritable()
            is_last = at + USUAL_MESSAGE_BYTES >= len(payload)
            part = payload[at : at + USUAL_MESSAGE_BYTES]
            if at:
                protocol.send_continuation(part, fin=is_last)
            else:
                begin(part, fin=is_last)
            await self._flush()

    async def _flush(self) -> None:
        """Send the queued frames in order. The caller holds the lock."""
        self._queue(self._protocol.data_to_send())
        while self._outgoing:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            self._outgoing_size = 0
            try:
                await self._stream.send(data)
            except _BROKEN as exc:
                self._torn = exc
                raise anyio.BrokenResourceError(str(exc) or "the connection is broken") from (exc.__cause__ or exc)
            except BaseException as exc:
                self._torn = exc
                raise

    def _queue(self, frames: Sequence[bytes]) -> None:
        self._outgoing.extend(each for each in frames if each)  # an empty one asks for a half-close, which closing does anyway
        self._outgoing_size += sum(map(len, frames))

    async def _flush_answers(self) -> None:
        async with self._send_lock:
            if self._torn is None:
                try:
                    await self._flush()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    logger.debug("the peer of a WebSocket connection was gone before it was answered", exc_info=True)

    def _refuse_if_unwritable(self) -> None:
        if self._closed or self._eof_sent:
            raise anyio.ClosedResourceError
        if self._torn is not None:
            raise anyio.BrokenResourceError("an earlier frame was not sent as a whole") from self._torn
        if not _is_open(self._protocol):
            raise anyio.BrokenResourceError("the WebSocket connection is closed") from self._ending

    async def aclose(self) -> None:
        """Close the connection, and wake tasks that receive or send. The closing handshake may take `close_timeout` seconds."""
        if self._closed:
            await anyio.lowlevel.checkpoint()
            return
        self._closed = True
        for scope in (self._pumping, self._writing):
            if scope is not None:
                scope.cancel()
        is_done = False
        try:
            with anyio.move_on_after(self._close_timeout):
                await self._shake_hands_to_close()
                await self._stream.aclose()
                is_done = True
        except (*_BROKEN, anyio.ClosedResourceError):
            logger.debug("a WebSocket connection was broken when it was closed", exc_info=True)
        finally:
            self._unread, self._taken = b"", 0
            with anyio.CancelScope(shield=True):
                if not is_done:
                    await anyio.aclose_forcefully(self._stream)
                for task in (self._flusher, self._watcher):
                    if task is not None:
                        task.cancel()
                        await task.wait()

    async def _shake_hands_to_close(self) -> None:
        protocol = self._protocol
        async with self._send_lock:
            if self._torn is None:
                if _is_open(protocol):
                    protocol.send_close(1000)
                await self._flush()
        # RFC 6455 7.1.1 lets a client wait until the server has closed the wire too. It is only a SHOULD, and a server may be slow.
        while self._torn is None and protocol.close_rcvd is None and not (self._wire_over or protocol.eof_sent):
            await self._pump()


def _is_open(protocol: Protocol) -> bool:
    """Return True while neither end has sent a closing frame."""
    return protocol.state.name == "OPEN"


def _ending_of(protocol: Protocol, hide: Callable[[str], str]) -> Exception:
    """Return the exception that readers get at the end of the connection.

    `anyio.EndOfStream` when the peer closed it in good order. `ProtocolError` when one end broke a rule or a limit of the other.
    `ConnectionLost` for other closing codes. `anyio.BrokenResourceError` when there was no closing frame. `hide` removes secrets from the
    peer's reason.
    """
    cause = protocol.parser_exc
    if cause is not None and not isinstance(cause, EOFError):
        too_big = type(cause).__name__ == "PayloadTooBig"
        code = "protocol.message_too_big" if too_big else "protocol.websocket"
        error = ProtocolError(f"the peer broke the rules of WebSocket: {cause}", code=code)
        error.__cause__ = cause
        return error
    close = protocol.close_rcvd
    if close is None:
        return anyio.BrokenResourceError("the connection ended without the closing handshake of WebSocket")
    if close.code in _GOOD_CODES:
        return anyio.EndOfStream()
    said = f"{close.code}{f', {hide(close.reason)!r}' if close.reason else ''}"
    if close.code in _OUR_FAULT_CODES:
        return ProtocolError(f"the peer refused what it was sent, and closed the WebSocket connection with {said}")
    return ConnectionLost(f"the peer closed the WebSocket connection with {said}", retryable=close.code in _RETRYABLE_CODES)


class _FirstFrames:
    """What a peer may send before it is trusted: `at_most` bytes, in all frames with their heads, and as they are inflated.

    One frame is parsed at a time. So a frame of any size can follow those that earn the trust.
    """

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._left: float = at_most
        self._head = b""  # the beginning of the current frame
        self._seen = 0  # its bytes so far

    def lift(self) -> None:
        """Trust the peer."""
        self._left = math.inf

    def measure(self, data: bytes) -> int:
        """Return how many bytes of `data` are of the frame that has begun, or of the next one.

        Raises `ProtocolError` for a frame that is too large, when its head has arrived.
        """
        self._head += data[: _MAX_HEAD_BYTES - len(self._head)]
        end = _end_of_frame(self._head)
        if end is None:
            self._seen += len(data)
            return len(data)
        if end > self._left:
            message = f"the peer has sent more than the {self._at_most} bytes that it may send before it is admitted"
            raise ProtocolError(message, code="protocol.message_too_big")
        if end - self._seen > len(data):
            self._seen += len(data)
            return len(data)
        taken = end - self._seen
        self._left -= end
        self._head, self._seen = b"", 0
        return taken

    def most_inflated(self, size: int) -> float:
        """Return how many bytes the measured `size` bytes may become when they are inflated."""
        return size + self._left

    def note_inflated(self, size: int, *, inflated: int) -> None:
        """Count what `size` bytes have become."""
        self._left -= max(0, inflated - size)


class _BoundedExtension:
    """Does what `inner` does, which is permessage-deflate, and inflates no more than `first` allows."""

    def __init__(self, inner: Extension, first: _FirstFrames) -> None:
        self._inner = inner
        self._first = first

    def decode(self, frame: Frame, *, max_size: int) -> Frame:
        size = len(frame.data)
        decoded = self._inner.decode(frame, max_size=int(min(max_size, self._first.most_inflated(size))))
        self._first.note_inflated(size, inflated=len(decoded.data))
        return decoded

    def encode(self, frame: Frame) -> Frame:
        return self._inner.encode(frame)


def _end_of_frame(head: bytes) -> int | None:
    """Return the bytes of a client's frame that begins with `head`, with its head and mask (RFC 6455 5.2); None while that is not known.

    Of a length that has arrived in part, it returns a smaller one. That is enough to go on, because the head is a part of the frame.
    """
    if len(head) < 2:
        return None
    short = head[1] & 0x7F
    wide = _WIDE_LENGTHS.get(short, 0)
    return 2 + wide + _MASK_BYTES + (int.from_bytes(head[2 : 2 + wide]) if wide else short)


# Between a stream of lines and messages.


def cut_messages(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the messages that carry `data`, each with True for text. Text messages hold whole lines, binary ones anything else.

    No message is empty; joined they are `data`.
    """
    if not (data.endswith(b"\n") and _is_utf8(data)):
        yield from ((data[at : at + USUAL_MESSAGE_BYTES], False) for at in range(0, len(data), USUAL_MESSAGE_BYTES))
        return
    start = 0
    while len(data) - start > USUAL_MESSAGE_BYTES:
        end = data.rfind(b"\n", start, start + USUAL_MESSAGE_BYTES) + 1 or data.find(b"\n", start) + 1
        if end - start > LARGEST_TEXT_BYTES:
            yield from ((data[at : min(at + USUAL_MESSAGE_BYTES, end)], False) for at in range(start, end, USUAL_MESSAGE_BYTES))
        else:
            yield data[start:end], True
        start = end
    if start < len(data):
        yield (data[start:] if start else data), True


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class MessageReader:
    """Turns a peer's messages, or the frames they come in, into bytes. `ended` is True after the peer has ended its input."""

    def __init__(self) -> None:
        self.ended: bool = False
        self._is_text = False
        self._size = 0  # bytes of the current message
        self._last = b""  # its last byte so far
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._inside_character = False

    def feed(self, data: bytes, *, text: bool | None, final: bool = True) -> bytes:
        """Return the bytes of the stream that a message, or a part of one, holds.

        `text` is True or False for the first part of a message, None for a continuation; `final` is True for its last part. A newline
        is added to a text message that lacks one at its end. After the end of input, b"" is returned.

        Raises:
            ProtocolError: a text message is not UTF-8.
        """
        if text and final and data and data.isascii():  # the usual message needs no memory of what came before
            whole = data if data.endswith(b"\n") else data + b"\n"
            return b"" if self.ended else whole
        if text is not None:
            self._is_text, self._size, self._last = text, 0, b""
        self._size += len(data)
        self._last = data[-1:] or self._last
        if self._is_text:
            self._check_text(data, final=final)
            if final:
                if not self._size:
                    self.ended = True
                elif self._last != b"\n":
                    data += b"\n"
        return b"" if self.ended else data

    def _check_text(self, data: bytes, *, final: bool) -> None:
        if data.isascii() and not self._inside_character:
            return
        try:
            self._decoder.decode(data, final)
        except UnicodeDecodeError as exc:
            raise ProtocolError(f"a text message of the peer is not UTF-8: {exc.reason}") from exc
        self._inside_character = bool(self._decoder.getstate()[0])


# The package `websockets`: imported late, and kept from logging headers and frames.

_WINDOW_BITS = 12
"""Size of the compression windows: a connection holds some 20 KiB for each direction instead of 300."""

_MEMORY_LEVEL = 5


class _WithoutFrames(logging.LoggerAdapter[logging.Logger]):
    """A logger that drops the level DEBUG, on which the protocol logs every header, tokens included, and the frames."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the standard library's name
        return level > logging.DEBUG and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


_protocol_logger = _WithoutFrames(logger, None)


def check_websocket() -> None:
    """Raise `ConfigurationError` when `websockets` is not installed. A server calls it before the first client arrives."""
    try:
        import websockets.server  # noqa: F401 - used where a connection is made
    except ImportError as exc:
        raise _not_installed() from exc


def parse_url(url: str) -> WebSocketURI:
    """Parse a URL that `parse_address()` has accepted. Raises `ConfigurationError` when `websockets` is not installed."""
    try:
        from websockets.uri import parse_uri
    except ImportError as exc:
        raise _not_installed() from exc
    return parse_uri(url)


def client_protocol(uri: WebSocketURI, *, compression: bool, max_message_bytes: int) -> ClientProtocol:
    """Return the client's state machine for a new connection."""
    from websockets.client import ClientProtocol
    from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

    offer = ClientPerMessageDeflateFactory(client_max_window_bits=True, compress_settings={"memLevel": _MEMORY_LEVEL})
    return ClientProtocol(uri, extensions=[offer] if compression else None, max_size=max_message_bytes, logger=_protocol_logger)


def server_protocol(*, compression: bool, max_message_bytes: int) -> ServerProtocol:
    """Return the server's state machine for a new connection. Raises `ConfigurationError` when `websockets` is not installed."""
    try:
        from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
        from websockets.server import ServerProtocol
    except ImportError as exc:
        raise _not_installed() from exc

    settings: dict[str, Any] = {"memLevel": _MEMORY_LEVEL}
    accepted = ServerPerMessageDeflateFactory(
        server_max_window_bits=_WINDOW_BITS, client_max_window_bits=_WINDOW_BITS, compress_settings=settings
    )
    return ServerProtocol(extensions=[accepted] if compression else None, max_size=max_message_bytes, logger=_protocol_logger)


def _not_installed() -> ConfigurationError:
    return ConfigurationError("WebSocket needs the package `websockets`: pip install 'claude-transport[ws]'", option="url")
