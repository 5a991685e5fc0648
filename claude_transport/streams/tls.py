"""TLS around any byte stream, with a half-close, which anyio's own TLS stream does not have.

`close_notify` ends one direction (RFC 8446 6.1); the other direction goes on until the peer sends it too. Data that arrives after
our `close_notify` must still be decrypted; `TLSStream._send_closing()` says how.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ByteStream, ByteStreamConnectable
from anyio.streams.tls import TLSAttribute

from claude_transport.errors import AuthenticationError, ClaudeTransportError, CLIConnectionError, ConnectionLost, ConnectTimeout
from claude_transport.streams.layer import Layer
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT

_CHUNK_BYTES = 64 * 2**10
"""Bytes encrypted, and asked for, at a time: four records of the largest size."""

_LEAST_CHUNK_BYTES = 4096
"""Bytes asked for at a time in a handshake, and for a reader that asks for no more, as before a client is admitted."""

_REFUSED_US = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "UNKNOWN_PSK")
"""Parts of the names of the alerts by which a peer refuses our certificate."""


class TLSConnectable(ByteStreamConnectable):
    """Opens the stream of `opener`, and TLS inside it, as the client.

    Args:
        opener: opens the stream that carries TLS.
        hostname: the name that the peer's certificate must have.
        address: names the peer in error messages.
        ssl_context: the client's settings. Default: the certificates that the system trusts, and the name is checked.
        handshake_timeout: seconds for the TLS handshake.
    """

    def __init__(
        self,
        opener: ByteStreamConnectable,
        *,
        hostname: str | None,
        address: str,
        ssl_context: ssl.SSLContext | None = None,
        handshake_timeout: float = DEFAULT_CONNECT_TIMEOUT,
    ) -> None:
        self._opener = opener
        self._hostname = hostname
        self._address = address
        self._ssl_context = ssl_context
        self._handshake_timeout = handshake_timeout

    async def connect(self) -> TLSStream:
        """Return an encrypted stream whose peer has proved its name.

        Raises:
            ConnectTimeout: the handshake took too long.
            AuthenticationError: the peer refuses our certificate, or wants one. A TLS 1.3 peer says so after the handshake only:
                then reading raises it.
            CLIConnectionError: the peer's certificate is not trusted (`code` is `connect.tls_untrusted`), or the two ends find no
                common TLS (`connect.tls_failed`).
        """
        if self._ssl_context is None:
            self._ssl_context = await anyio.to_thread.run_sync(ssl.create_default_context)  # it reads files
        stream = await self._opener.connect()
        try:
            with anyio.fail_after(self._handshake_timeout):
                return await TLSStream.wrap(stream, ssl_context=self._ssl_context, hostname=self._hostname)
        except BaseException as exc:
            await anyio.aclose_forcefully(stream)
            if isinstance(exc, TimeoutError):
                message = f"{self._address}: no TLS handshake within {self._handshake_timeout:g} s"
                raise ConnectTimeout(message, waited=self._handshake_timeout) from exc
            if isinstance(exc, ssl.SSLError | OSError | anyio.EndOfStream | anyio.BrokenResourceError):
                raise _handshake_error(self._address, exc) from exc
            raise


class TLSStream(Layer):
    """A byte stream inside TLS, for client or server.

    When the peer leaves without `close_notify`, the stream was cut: `receive()` raises `ConnectionLost`, not `EndOfStream`.
    """

    _PIECE = "TLS record"

    def __init__(self, stream: ByteStream, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        """Do not call this: `wrap()` does the handshake first."""
        super().__init__(stream)
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._plain = bytearray()  # decrypted bytes that were not received yet
        self._end: Exception | None = None  # raised by `receive()` when `_plain` is empty

    @classmethod
    async def wrap(
        cls, stream: ByteStream, *, ssl_context: ssl.SSLContext, hostname: str | None = None, server_side: bool = False
    ) -> TLSStream:
        """Do the handshake on `stream`, and return the encrypted stream. The caller sets a time limit, and closes `stream` on failure.

        Raises:
            ssl.SSLError: the two ends do not agree, or the peer did not prove its name.
            anyio.EndOfStream, anyio.BrokenResourceError: the peer left during the handshake.
        """
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ssl_context.wrap_bio(incoming, outgoing, server_side=server_side, server_hostname=None if server_side else hostname)
        self = cls(stream, tls, incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                incoming.write(await stream.receive(_LEAST_CHUNK_BYTES))
            except ssl.SSLError:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._flush()  # the alert with the reason
                raise
            else:
                await self._flush()
                return self

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte, and return at most `max_bytes`.

        Raises:
            anyio.EndOfStream: the peer has sent `close_notify`.
            ConnectionLost: the peer left without it, or the data is not TLS.
            AuthenticationError: the peer refuses our certificate.
            anyio.BrokenResourceError, anyio.ClosedResourceError: as the inner stream.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            self._decrypt(max_bytes)
            if self._plain:
                data = bytes(self._plain if len(self._plain) <= max_bytes else self._plain[:max_bytes])
                del self._plain[:max_bytes]
                return data
            if self._end is not None:
                raise self._end
            if self._outgoing.pending and not self._sending.locked():
                async with self._sending:
                    await self._flush()  # TLS itself has an answer to send; when the lock is held, the sender sends it
            try:
                self._incoming.write(await self._stream.receive(min(max(max_bytes, _LEAST_CHUNK_BYTES), _CHUNK_BYTES)))
            except anyio.EndOfStream:
                self._end = ConnectionLost("the connection was cut: the peer left without the closing message of TLS")

    def _decrypt(self, size: int) -> None:
        """Decrypt into `_plain` until it has `size` bytes, or nothing is left to decrypt."""
        while self._end is None and len(self._plain) < size:
            try:
                data = self._tls.read(size - len(self._plain))
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as exc:
                self._end = _reading_error(exc)
                return
            if not data:
                self._end = anyio.EndOfStream()
                return
            self._plain += data

    async def _send_piece(self, rest: memoryview) -> int:
        try:
            taken = self._tls.write(rest[:_CHUNK_BYTES])
        except ssl.SSLError as exc:
            raise anyio.BrokenResourceError from exc
        await self._flush()
        return taken

    async def _send_closing(self) -> None:
        """Send `close_notify`.

        `unwrap()` sends it and then looks for the peer's. Application data in front of that would be an error that ends the connection.
        So everything that has arrived is decrypted first (one chunk at most), and `unwrap()` finds nothing: `SSLWantReadError`.
        Later data is for `receive()`.
        """
        self._decrypt(len(self._plain) + 2 * _CHUNK_BYTES)
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            pass  # as said above
        except (ssl.SSLError, OSError) as exc:
            raise anyio.BrokenResourceError from exc
        await self._flush()

    async def _flush(self) -> None:
        """Send what is encrypted. The caller holds the lock, or is the only user."""
        while self._outgoing.pending:
            await self._pass_on(self._outgoing.read())

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {
            **super().extra_attributes,
            TLSAttribute.ssl_object: lambda: self._tls,
            TLSAttribute.peer_certificate: self._tls.getpeercert,  # pyright: ignore[reportUnhashable] - it takes the marker for its value
            TLSAttribute.tls_version: self._tls.version,
            TLSAttribute.server_side: lambda: self._tls.server_side,
        }


def _handshake_error(address: str, exc: Exception) -> CLIConnectionError:
    """Return the typed error for a handshake that failed."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        message = f"{address}: its certificate is not trusted: {exc.verify_message}"
        return CLIConnectionError(message, code="connect.tls_untrusted", retryable=False)
    if not isinstance(exc, ssl.SSLError):
        return CLIConnectionError(f"{address}: the peer hung up during the TLS handshake", code="connect.tls_failed")
    if _refuses_us(exc):
        return AuthenticationError(f"{address}: the server refuses our certificate, or wants one ({_reason(exc)}): give `ssl_context=`")
    # An alert is TLS, so the peer speaks it. Under TLS 1.2 a peer also sends one when it wants a certificate.
    guess = "perhaps it wants a certificate of ours" if "ALERT" in _reason(exc) else "does it speak TLS at all?"
    message = f"{address}: no agreement on TLS ({_reason(exc)}); {guess}"
    return CLIConnectionError(message, code="connect.tls_failed", retryable=False)


def _reading_error(exc: ssl.SSLError) -> ClaudeTransportError:
    error: ClaudeTransportError
    if _refuses_us(exc):
        error = AuthenticationError(f"the server refuses our certificate, or wants one ({_reason(exc)}): give `ssl_context=`")
    else:
        error = ConnectionLost(f"the TLS connection broke ({_reason(exc)})")
    error.__cause__ = exc
    return error


def _refuses_us(exc: ssl.SSLError) -> bool:
    reason = _reason(exc)
    return "ALERT" in reason and any(word in reason for word in _REFUSED_US)


def _reason(exc: ssl.SSLError) -> str:
    return exc.reason or exc.__class__.__name__
