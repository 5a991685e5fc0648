"""`NetworkTransport`: a Claude somewhere else, behind a gateway or behind anything that speaks NDJSON."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import anyio
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConfigurationError, ConnectionLost
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES
from claude_transport.protocol.link import DEFAULT_HEARTBEAT, Refusal
from claude_transport.streams.address import Address, parse_address
from claude_transport.streams.compression import CompressedConnectable
from claude_transport.streams.link import LinkConnectable
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT, SocketConnectable
from claude_transport.streams.tls import TLSConnectable
from claude_transport.streams.websocket import WebSocketConnectable
from claude_transport.transport import Client, SessionTerms, TransportInfo
from claude_transport.transports.stream import DEFAULT_STREAM_CLOSE_TIMEOUT, StreamTransport, check_bounds

logger: logging.Logger = logging.getLogger(__name__)

_REFUSED = b'"refused"'
"""What is in the last line of a server in plain mode that refuses: a system message of this subtype, with an `error`."""

_FORCE_AFTER = 1.0
"""Seconds after which a resumable stream that was given its time to close is closed by force."""


class NetworkTransport(StreamTransport):
    """A transport to a remote Claude at `url`: `tcp://host:port`, `tls://host:port`, `unix:///path`, `ws://host[:port]/path`, `wss://…`.

    With `resume` (the default) it speaks the link protocol of a gateway: connections may be cut, each line still arrives exactly once, and
    how the far process ended is told as of a local one. Without, it is *plain*: bare lines of JSON, as the CLI itself speaks them.

    Args:
        url: where to; no user, password or token in it.
        token: what the server asks for. Plain, it is the `Authorization` header of a WebSocket, elsewhere the first line
            `{"type": "authenticate", "token": …}`.
        ssl_context: for `tls://` and `wss://`, the client's side (default: the certificates that the system trusts, the name checked). One
            with a certificate of its own makes it mutual TLS.
        options: what the gateway is asked to start its CLI with: a `ClaudeOptions`, of which every field that differs from its default
            is sent, or names and values of one, as JSON would have them. A field that a gateway does not let clients choose is refused.
        resume: speak the link protocol; False for a plain server.
        heartbeat: seconds of silence after which the server is asked whether it is there (only with `resume`; plain connections are
            watched by TCP alone).
        compression: `"zstd"` on tcp, tls and unix, `"deflate"` on ws and wss; the gateway sees it by itself.
        max_line_bytes: a longer line costs that one message, never the stream.
        connect_timeout: seconds for each step to a connection: the host, TLS, WebSocket, the gateway's welcome.
        close_timeout: seconds that `close()` may take; with `resume`, in which the far process has to have ended.
        strict: raise for a bad line instead of leaving it out.

    Raises:
        ConfigurationError: these do not go together, or need an extra that is not installed.

    `connect()` raises `CLIConnectionError` (`code` says which: `connect.refused`, `connect.unresolved`, `connect.tls_untrusted`, …),
    `ConnectTimeout` or `AuthenticationError`, each with the address and none with a secret.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        options: ClaudeOptions | Mapping[str, Any] | None = None,
        resume: bool = True,
        heartbeat: float | None = None,
        compression: Literal["zstd", "deflate"] | None = None,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        close_timeout: float = DEFAULT_STREAM_CLOSE_TIMEOUT,
        strict: bool = False,
    ) -> None:
        self._address = parse_address(url)
        _check(self._address, token=token, ssl_context=ssl_context, compression=compression)
        chosen = _chosen(options)
        check_bounds(max_line_bytes=max_line_bytes, connect_timeout=connect_timeout, close_timeout=close_timeout)
        if heartbeat is not None and not resume:
            raise ConfigurationError("only a resumable link has heartbeats; resume=False leaves it to TCP", option="heartbeat")
        opener = _opener(url, self._address, token=token, ssl_context=ssl_context, compression=compression, timeout=connect_timeout)
        self._link: LinkConnectable | None = None
        self._greeting: _Greeting | None = None
        connectable: ByteStreamConnectable
        if resume:
            connectable = self._link = LinkConnectable(
                opener,
                token=token,
                options=chosen,
                heartbeat=DEFAULT_HEARTBEAT if heartbeat is None else heartbeat,
                connect_timeout=connect_timeout,
                close_timeout=close_timeout,
            )
        else:
            in_line = None if self._address.is_websocket else token
            connectable = self._greeting = _Greeting(opener, token=in_line, options=chosen, address=str(self._address))
        super().__init__(
            connectable, max_line_bytes=max_line_bytes, close_timeout=close_timeout + (_FORCE_AFTER if resume else 0), strict=strict
        )
        self._structured_output = bool(chosen.get("output_format"))
        self._client: Client | None = None
        self._exposes_token = token is not None and not (self._address.is_encrypted or self._address.stays_here)

    def attach(self, client: Client) -> SessionTerms:
        """Tell the gateway, at the next `connect()`, what `client` answers and which trace the CLI goes on with.

        A plain server learns the answers with the token or the options, and no trace.
        """
        self._client = client
        if self._link is not None:
            self._link.set_option("answers", sorted(client.answers))
            self._link.carry_trace(client.trace)
        elif self._greeting is not None:
            self._greeting.answers = sorted(client.answers)
        return msgspec.structs.replace(super().attach(client), structured_output=self._structured_output)

    async def connect(self) -> None:
        """Open the connection; with `resume`, the gateway has a CLI started when this returns."""
        if self._exposes_token:
            self._exposes_token = False  # once is enough
            logger.warning("the token for %s travels unencrypted: use tls:// or wss://", self._address)
        try:
            await super().connect()
        except (CLIConnectionError, ConfigurationError) as exc:
            if str(self._address) not in str(exc):  # what a gateway says of its own accord does not name it
                exc.args = (f"{self._address}: {exc}",)
            raise

    def _another(self) -> Self:
        another = super()._another()
        if self._client is not None:
            another.attach(self._client)
        return another

    def _accept(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        if self._greeting is None or _REFUSED not in lines[-1]:
            return lines
        refusal = _read_refusal(lines[-1], address=str(self._address))
        if refusal is None:
            return lines
        is_first, alone = self._lines_read == len(lines), len(lines) == 1
        # of a conversation that had begun: what was said in it may have had its effect
        error = self._end_reading(refusal if is_first and alone else ConnectionLost(str(refusal)))
        if alone:
            raise error
        return lines[:-1]

    @property
    def info(self) -> TransportInfo:
        """What is known at this moment; `address` is the URL, without its query."""
        return msgspec.structs.replace(super().info, address=str(self._address))


class _Greeting(ByteStreamConnectable):
    """An opener of plain connections that says who it is before anything else, if there is something to say."""

    def __init__(self, opener: ByteStreamConnectable, *, token: str | None, options: Mapping[str, Any] | None, address: str) -> None:
        self._opener = opener
        self._token = token
        self._options = options
        self._address = address
        self.answers: Sequence[str] = ()

    async def connect(self) -> ByteStream:
        stream = await self._opener.connect()
        said = {"token": self._token} if self._token is not None else {}
        more = {"options": self._options} if self._options else {}
        if not said and not more:
            return stream  # a bare CLI at the other end would not know what is meant
        try:
            await stream.send(encode_line({"type": "authenticate", **said, **more, **({"answers": self.answers} if self.answers else {})}))
        except BaseException as exc:
            await anyio.aclose_forcefully(stream)
            if isinstance(exc, anyio.BrokenResourceError):
                raise CLIConnectionError(f"{self._address}: it hung up before it was told who we are") from exc
            raise
        return stream


def _opener(
    url: str,
    address: Address,
    *,
    token: str | None,
    ssl_context: ssl.SSLContext | None,
    compression: str | None,
    timeout: float,
) -> ByteStreamConnectable:
    """What opens one bare connection: the socket, TLS or WebSocket around it, compression around that."""
    if address.is_websocket:
        deflate = compression == "deflate"
        return WebSocketConnectable(url, token=token, ssl_context=ssl_context, compression=deflate, handshake_timeout=timeout)
    opener: ByteStreamConnectable = SocketConnectable(address, connect_timeout=timeout)
    if address.is_encrypted:
        opener = TLSConnectable(opener, hostname=address.host, address=str(address), ssl_context=ssl_context, handshake_timeout=timeout)
    return opener if compression is None else CompressedConnectable(opener)


def _check(address: Address, *, token: str | None, ssl_context: ssl.SSLContext | None, compression: str | None) -> None:
    """Raise `ConfigurationError` for what cannot be meant."""
    if token is not None and (not isinstance(token, str) or not token.strip()):
        raise ConfigurationError("a token is a string with something in it, or None", option="token")
    if ssl_context is not None and not address.is_encrypted:
        raise ConfigurationError(f"an ssl_context means nothing for {address.scheme}://, which is not encrypted", option="ssl_context")
    fitting = "deflate" if address.is_websocket else "zstd"
    if compression is not None and compression != fitting:
        raise ConfigurationError(f"the compression for {address.scheme}:// is {fitting!r}, not {compression!r}", option="compression")


def _chosen(options: ClaudeOptions | Mapping[str, Any] | None) -> dict[str, Any]:
    """What is asked for by name. Raises `ConfigurationError` for what JSON cannot say: a function or a path means nothing elsewhere."""
    if isinstance(options, ClaudeOptions):
        defaults = ClaudeOptions()
        fields = {name: getattr(options, name) for name in options.__struct_fields__}
        options = {name: value for name, value in fields.items() if value != getattr(defaults, name)}
    chosen: dict[str, Any] = {}
    try:
        chosen.update(options or {})
        msgspec.json.encode(chosen)
    except (TypeError, ValueError) as exc:
        named = ", ".join(sorted(str(name) for name, value in chosen.items() if not _is_json(value)))
        where = f" ({named})" if named else ""
        raise ConfigurationError(f"options are names and values as JSON has them{where}", option="options") from exc
    return chosen


def _is_json(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    return True


class _Refused(msgspec.Struct):
    code: str = "refused"
    message: str = ""
    retryable: bool = False


class _RefusedLine(msgspec.Struct):
    type: str
    subtype: str
    error: _Refused


def _read_refusal(line: bytes, *, address: str) -> ClaudeTransportError | None:
    """The typed error of a server that refuses; None when the line is another message."""
    try:
        said = msgspec.json.decode(line, type=_RefusedLine)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if (said.type, said.subtype) != ("system", "refused"):
        return None
    refused = said.error
    return Refusal(code=refused.code, text=f"{address}: {refused.message or refused.code}", retryable=refused.retryable).to_error()
