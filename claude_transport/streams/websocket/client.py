"""`WebSocketConnectable`: the opener of a `ws://` or `wss://` address."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import AuthenticationError, CLIConnectionError, ConfigurationError, ConnectionLost, ConnectTimeout
from claude_transport.streams.address import Address, parse_address
from claude_transport.streams.layer import Opener
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT, SocketConnectable
from claude_transport.streams.tls import TLSConnectable
from claude_transport.streams.websocket.stream import (
    DEFAULT_CLOSE_TIMEOUT,
    DEFAULT_MAX_MESSAGE_BYTES,
    WebSocketStream,
    client_protocol,
    parse_url,
)

if TYPE_CHECKING:
    from websockets.client import ClientProtocol


_CHUNK_BYTES = 4096

_MAX_ANSWER_BYTES = 64 * 2**10
"""Bytes of an answer to the handshake, headers and all; a page of an error that is longer is not read to its end."""

_SAID_CHARACTERS = 200
"""Characters of a refusal's text that are repeated in the error."""

_TOKEN = re.compile(r"[!-~]+")
"""RFC 9110, 5.5: what may stand in a header without being changed by somebody on the way."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")

_OURS = ("connection", "host", "sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version", "upgrade")
"""Headers of the handshake itself."""

_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may be another one in a moment."""


class WebSocketConnectable:
    """Opens WebSocket connections to `url`, such as `wss://example.com/claude`.

    Args:
        url: `ws://` or `wss://`; a token, user or password in it is refused.
        token: sent as `Authorization: Bearer …`.
        ssl_context: for `wss://`, the client's side of TLS (default: the certificates that the system trusts).
        headers: more headers for the request, for what stands between.
        compression: offer permessage-deflate.
        max_message_bytes: a larger message of the peer, inflated, ends the connection.
        handshake_timeout: seconds in all until the connection is open.
        close_timeout: seconds that `aclose()` may take for the closing handshake.
        opener: gives the byte stream that carries it, in place of dialling `url`: a proxy, a tunnel, a Unix socket; TLS is then its matter.

    Raises:
        ConfigurationError: any of these cannot be used.
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
        opener: Opener | None = None,
    ) -> None:
        self.address: Address = parse_address(url)
        if not self.address.is_websocket:
            raise ConfigurationError("a WebSocket URL begins with ws:// or wss://", option="url")
        if ssl_context is not None and not self.address.is_encrypted:
            raise ConfigurationError("ws:// is not encrypted, an ssl_context means nothing there: use wss://", option="ssl_context")
        self._url = url
        self._headers = _check_headers(headers or {}, token)
        self._compression = compression
        self._max_message_bytes = max_message_bytes
        self._handshake_timeout = handshake_timeout
        self._close_timeout = close_timeout
        self._opener: Opener = opener if opener is not None else self._dialler(ssl_context)

    def _dialler(self, ssl_context: ssl.SSLContext | None) -> Opener:
        address, timeout = self.address, self._handshake_timeout
        dialler = SocketConnectable(address, connect_timeout=timeout)
        if not address.is_encrypted:
            return dialler
        return TLSConnectable(
            dialler, hostname=address.host, address=str(address), ssl_context=ssl_context, handshake_timeout=self._handshake_timeout
        )

    async def connect(self) -> WebSocketStream:
        """An open connection.

        Raises:
            ConfigurationError: the package `websockets` is not installed.
            ConnectTimeout: there was no answer in time.
            AuthenticationError: the server does not accept the token, or that there is none (401, 403).
            CLIConnectionError: the server refused for another reason (`code` is `connect.http_` and the status; `retryable` as the status
                says), or is no WebSocket server, or could not be reached.
        """
        uri = parse_url(self._url)
        with anyio.move_on_after(self._handshake_timeout):
            stream = await self._opener.connect()
            try:
                return await self._shake_hands(
                    stream, client_protocol(uri, compression=self._compression, max_message_bytes=self._max_message_bytes)
                )
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
            # not "until it is open": with its answer, a server may have sent its farewell as well
            while protocol.state.name == "CONNECTING" and protocol.handshake_exc is None:
                if size > _MAX_ANSWER_BYTES:
                    raise self._no_server("its answer does not end")
                chunk = await stream.receive(_CHUNK_BYTES)
                size += len(chunk)
                protocol.receive_data(chunk)
        except anyio.EndOfStream:
            protocol.receive_eof()  # an answer may end with the connection
        except (anyio.BrokenResourceError, ConnectionLost, OSError) as exc:
            raise CLIConnectionError(f"{self.address}: the connection broke during the handshake of WebSocket") from exc
        if protocol.handshake_exc is not None:
            raise self._refusal(protocol) from protocol.handshake_exc
        connection = WebSocketStream(stream, protocol, address=str(self.address), close_timeout=self._close_timeout)
        connection.take_frames(protocol.events_received()[1:])  # what the server said right behind its answer, which is the first
        return connection

    def _refusal(self, protocol: ClientProtocol) -> CLIConnectionError:
        response: Any = getattr(protocol.handshake_exc, "response", None)
        if response is None:
            if isinstance(getattr(protocol.handshake_exc, "__cause__", None), EOFError):
                return CLIConnectionError(f"{self.address}: it hung up during the handshake of WebSocket", code="connect.hung_up")
            return self._no_server(str(protocol.handshake_exc or "its answer cannot be read"))
        status: int = response.status_code
        text = bytes(response.body or b"").decode("utf-8", "replace")
        said = "".join(each if each.isprintable() else " " for each in text[:_SAID_CHARACTERS]).strip()
        message = f"{self.address}: refused with HTTP {status}{f': {said}' if said else ''}"
        if status in {401, 403}:
            return AuthenticationError(message, code="connect.auth_failed" if status == 401 else "connect.forbidden")
        return CLIConnectionError(message, code=f"connect.http_{status}", retryable=status in _TRY_AGAIN)

    def _no_server(self, why: str) -> CLIConnectionError:
        return CLIConnectionError(f"{self.address}: no WebSocket server is there: {why}", code="connect.not_websocket", retryable=False)


def _check_headers(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    """The headers to send, the token among them."""
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigurationError(f"the header {name!r} cannot be sent: names and values are printable ASCII", option="headers")
        if name.lower() in _OURS or (token is not None and name.lower() == "authorization"):
            raise ConfigurationError(f"the header {name!r} belongs to the handshake itself", option="headers")
        checked[name] = value
    if token is not None:
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError("a token is printable ASCII without blanks", option="token")
        checked["Authorization"] = f"Bearer {token}"
    return checked
