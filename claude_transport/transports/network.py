"""`NetworkTransport`: a transport to a Claude on another machine, behind a gateway or any server that speaks NDJSON.

The connections are made in `streams`: sockets, TLS, WebSocket, compression. The link protocol of a gateway is in `link/carrier.py`.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConfigurationError, ConnectionLost, warn_caller
from claude_transport.launch.options import ClaudeOptions
from claude_transport.link.carrier import LinkConnectable
from claude_transport.link.machine import DEFAULT_HEARTBEAT, Refusal
from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES
from claude_transport.streams.address import Address, check_text, parse_address
from claude_transport.streams.compression import CompressedConnectable
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT, SocketConnectable
from claude_transport.streams.tls import TLSConnectable
from claude_transport.streams.websocket import WebSocketConnectable
from claude_transport.transport import Client, Confidential, SessionTerms, TransportInfo
from claude_transport.transports.stream import DEFAULT_STREAM_CLOSE_TIMEOUT, StreamTransport, check_bounds

_REFUSED = b'"refused"'
"""Is in the last line of a server in plain mode that refuses: a system message of this subtype, with an `error`."""

_FORCE_AFTER = 1.0
"""Seconds after its own timeout until a resumable stream is closed by force."""


class NetworkTransport(StreamTransport, at_once=True):
    """A transport to a remote Claude at `url`: `tcp://host:port`, `tls://host:port`, `unix:///path`, `ws://host[:port]/path`, `wss://…`.

    With `resume` (the default) it speaks the link protocol of a gateway of this library. Connections may be cut, and each line still
    arrives exactly once; `info` reports the end of the remote process as of a local one. Without `resume` it is *plain*: bare lines of
    JSON, as the CLI speaks.

    Args:
        url: the address, without user, password or token.
        token: the token that the server requires. In plain mode it is sent as the `Authorization` header of a WebSocket, elsewhere as the
            first line `{"type": "authenticate", "token": …}`.
        ssl_context: the client's side of `tls://` and `wss://`. By default it trusts the system's certificates and checks the name. A
            context with a certificate of its own gives mutual TLS.
        options: the options that the gateway should start its CLI with: a `ClaudeOptions`, of which every field that differs from its
            default is sent, or a mapping of its fields to JSON values. The gateway refuses a field that it does not let clients choose.
        resume: speak the link protocol; False for a plain server.
        heartbeat: seconds of silence until the server is asked whether it is alive. Only with `resume`; TCP watches plain connections.
        reconnect_timeout: seconds from a cut until the connection is given up with `ConnectionLost`. By default, and at most, the time for
            which the gateway keeps the session, usually 60. Only with `resume`.
        compression: `"zstd"` on tcp, tls and unix, `"deflate"` on ws and wss. The gateway detects it.
        max_line_bytes: the most bytes of a line. A longer line is left out and reported to a `Query` as an `OversizedMessage`; the next
            line is read as usual.
        connect_timeout: seconds for each step of connecting: the host, TLS, WebSocket, the gateway's welcome.
        close_timeout: seconds for `close()`. With `resume`, the remote process must end in this time.
        strict: raise `CLIJSONDecodeError` or `LineTooLong` for a line that holds no message, instead of leaving it out.

    Raises:
        ConfigurationError: the arguments contradict each other, or need an extra that is not installed.

    `connect()` raises `CLIConnectionError` (its `code` is `connect.refused`, `connect.unresolved`, `connect.tls_untrusted`, …),
    `ConnectTimeout` or `AuthenticationError`. Their messages name the address and contain no secret.
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
        reconnect_timeout: float | None = None,
        compression: Literal["zstd", "deflate"] | None = None,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        close_timeout: float = DEFAULT_STREAM_CLOSE_TIMEOUT,
        strict: bool = False,
    ) -> None:
        self._address = parse_address(url)
        _check(self._address, token=token, ssl_context=ssl_context, compression=compression)
        chosen = chosen_options(options)
        check_bounds(connect_timeout=connect_timeout, close_timeout=close_timeout)
        if heartbeat is not None and not resume:
            raise ConfigurationError("heartbeat needs resume=True: a plain connection has no heartbeats", option="heartbeat")
        if reconnect_timeout is not None:
            check_bounds(reconnect_timeout=reconnect_timeout)
            if not resume:
                message = "reconnect_timeout needs resume=True: a plain connection is not made again"
                raise ConfigurationError(message, option="reconnect_timeout")
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
                reconnect_timeout=reconnect_timeout,
                connect_timeout=connect_timeout,
                close_timeout=close_timeout,
            )
        else:
            in_line = None if self._address.is_websocket else token
            connectable = self._greeting = _Greeting(opener, token=in_line, options=chosen, address=str(self._address))
        super().__init__(
            connectable, max_line_bytes=max_line_bytes, close_timeout=close_timeout + (_FORCE_AFTER if resume else 0), strict=strict
        )
        self._confidential = {"token": token, "options": chosen}
        self._structured_output = bool(chosen.get("output_format"))
        self._exposes_token = token is not None and not (self._address.is_encrypted or self._address.stays_here)

    @property
    def confidential(self) -> Confidential:
        """The token and the options that go to the server, in which redactors look for secrets."""
        return Confidential(values=(self._confidential,))

    def attach(self, client: Client) -> SessionTerms:
        """Note which questions of the CLI `client`, the layer above, answers, and its trace. Returns `SessionTerms`.

        The next `connect()` tells the gateway both. The gateway then starts a CLI that asks `client`, and that continues its trace. A plain
        server learns only which questions are answered, and only if a token or options are sent.
        """
        if self._link is not None:
            self._link.set_option("answers", sorted(client.answers))
            self._link.carry_trace(client.trace)
        elif self._greeting is not None:
            self._greeting.answers = sorted(client.answers)
        return msgspec.structs.replace(super().attach(client), structured_output=self._structured_output)

    async def connect(self) -> None:
        """Open the connection. With `resume`, the gateway has started a CLI when this returns. A token without encryption is warned about.

        Raises:
            CLIConnectionError: the connection could not be made, or the server refused it; `code` says why.
            ConnectTimeout: a step took longer than `connect_timeout`.
            AuthenticationError: the token is missing or wrong.
            ConfigurationError: the gateway has refused an option.
            TransportClosed: `close()` was called, before or meanwhile.
        """
        if self._exposes_token:
            warn_caller(f"the token for {self._address} is sent unencrypted: use tls:// or wss://")
        try:
            await super().connect()
        except (CLIConnectionError, ConfigurationError) as exc:
            if str(self._address) not in str(exc):  # the message of a gateway does not name its address
                exc.args = (f"{self._address}: {exc}",)
            raise

    looks_at_lines = True

    def _accept(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        if self._greeting is None or _REFUSED not in lines[-1]:
            return lines
        refusal = _read_refusal(lines[-1], address=str(self._address))
        if refusal is None:
            return lines
        is_first, alone = self._lines_read == len(lines), len(lines) == 1
        # in a conversation that had begun, earlier lines may have had their effect
        error = self._end_reading(refusal if is_first and alone else ConnectionLost(str(refusal)))
        if alone:
            raise error
        return lines[:-1]

    @property
    def info(self) -> TransportInfo:
        """What is known about the connection and the remote process now; `address` is the URL, without its query."""
        return msgspec.structs.replace(super().info, address=str(self._address))


class _Greeting(ByteStreamConnectable):
    """An opener of plain connections that first sends the token, the options and the answers, if there are any."""

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
            return stream  # a bare CLI at the other end would not understand the line
        try:
            await stream.send(encode_line({"type": "authenticate", **said, **more, **({"answers": self.answers} if self.answers else {})}))
        except BaseException as exc:
            await anyio.aclose_forcefully(stream)
            if isinstance(exc, anyio.BrokenResourceError):
                raise CLIConnectionError(f"{self._address}: the server hung up before it received the token") from exc
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
    """Return the opener of one bare connection: a socket, with TLS or WebSocket, and compression."""
    if address.is_websocket:
        deflate = compression == "deflate"
        return WebSocketConnectable(url, token=token, ssl_context=ssl_context, compression=deflate, handshake_timeout=timeout)
    opener: ByteStreamConnectable = SocketConnectable(address, connect_timeout=timeout)
    if address.is_encrypted:
        opener = TLSConnectable(opener, hostname=address.host, address=str(address), ssl_context=ssl_context, handshake_timeout=timeout)
    return opener if compression is None else CompressedConnectable(opener)


def _check(address: Address, *, token: str | None, ssl_context: ssl.SSLContext | None, compression: str | None) -> None:
    """Raise `ConfigurationError` for arguments that contradict each other."""
    if token is not None:
        check_text(token, option="token")
        if not token.strip():
            raise ConfigurationError("token must be a string that is not blank, or None", option="token")
    if ssl_context is not None and not address.is_encrypted:
        raise ConfigurationError(
            f"ssl_context needs an encrypted connection, and {address.scheme}:// is not encrypted: use tls:// or wss://",
            option="ssl_context",
        )
    fitting = "deflate" if address.is_websocket else "zstd"
    if compression is not None and compression != fitting:
        raise ConfigurationError(f"the compression for {address.scheme}:// must be {fitting!r}, not {compression!r}", option="compression")


def chosen_options(options: ClaudeOptions | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the chosen options by name. Raises `ConfigurationError` for a value that JSON cannot hold, such as a function or a path."""
    store = options.session_store if isinstance(options, ClaudeOptions) else (options or {}).get("session_store")
    if store is not None:  # it may be a dataclass, of which JSON could be made
        raise ConfigurationError(
            "session_store is not sent over a network: the gateway owns the store, so give it to the options of the gateway",
            option="session_store",
        )
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
        raise ConfigurationError(f"options must be names and JSON values{where}", option="options") from exc
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
    """Return the typed error of a server that refuses; None when the line is another message."""
    try:
        said = msgspec.json.decode(line, type=_RefusedLine)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if (said.type, said.subtype) != ("system", "refused"):
        return None
    refused = said.error
    return Refusal(code=refused.code, text=f"{address}: {refused.message or refused.code}", retryable=refused.retryable).to_error()
