"""TLS around any byte stream, with the half-close that TLS has and anyio's own stream does not offer.

Saying `close_notify` ends one direction (RFC 8446 6.1); the other goes on until the peer says it, too. What arrives after our farewell has
to be decrypted as ever, so the farewell is sent while nothing undecrypted lies in front of it: see `_say_farewell()`.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute

from claude_transport.errors import AuthenticationError, ClaudeTransportError, CLIConnectionError, ConnectionLost, ConnectTimeout
from claude_transport.streams.layer import Layer, Opener
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT

_CHUNK_BYTES = 64 * 2**10
"""Bytes encrypted, and asked for, at a time: four records of the largest size."""

_REFUSED_US = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "UNKNOWN_PSK")
"""What is in the name of an alert by which a peer says that it does not accept who we are."""


class TLSConnectable:
    """Opens `opener`'s stream and makes it a TLS one.

    `ssl_context` is the client's (default: the certificates that the system trusts, the name checked); `hostname` is whom the peer has to
    prove to be; `address` is for messages.
    """

    def __init__(
        self,
        opener: Opener,
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
        """An encrypted stream whose peer has proved who it is.

        Raises:
            ConnectTimeout: the handshake took too long.
            AuthenticationError: the peer does not accept our certificate, or that we have none. (A TLS 1.3 peer says so only
                afterwards: then reading raises it.)
            CLIConnectionError: its certificate is not trusted (`code` is `connect.tls_untrusted`), or it does not speak TLS as we do
                (`connect.tls_failed`).
        """
        if self._ssl_context is None:
            self._ssl_context = await anyio.to_thread.run_sync(ssl.create_default_context)  # reads files
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
    """A byte stream inside TLS, for either end.

    A peer that leaves without its farewell was cut off, or somebody cut it off: that is `ConnectionLost`, not the end.
    """

    _PIECE = "TLS record"

    def __init__(self, stream: ByteStream, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        """Not to be called: `wrap()` shakes hands first."""
        super().__init__(stream)
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._plain = bytearray()  # decrypted, and not received yet
        self._end: Exception | None = None  # what reading ends with, once `_plain` is empty

    @classmethod
    async def wrap(
        cls, stream: ByteStream, *, ssl_context: ssl.SSLContext, hostname: str | None = None, server_side: bool = False
    ) -> TLSStream:
        """The encrypted stream, after the handshake, which the caller bounds; closing `stream` after a failure is the caller's, too.

        Raises:
            ssl.SSLError: no agreement, or the peer did not prove who it is.
            anyio.EndOfStream, anyio.BrokenResourceError: it left meanwhile.
        """
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ssl_context.wrap_bio(incoming, outgoing, server_side=server_side, server_hostname=None if server_side else hostname)
        self = cls(stream, tls, incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                incoming.write(await stream.receive(_CHUNK_BYTES))
            except ssl.SSLError:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._flush()  # the alert that says why
                raise
            else:
                await self._flush()
                return self

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes, at most `max_bytes`.

        Raises:
            anyio.EndOfStream: the peer has said its farewell.
            ConnectionLost: it left without; or what came is no TLS.
            AuthenticationError: it does not accept our certificate.
            anyio.BrokenResourceError, anyio.ClosedResourceError: as the stream inside.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            self._decrypt(max_bytes)
            if self._plain:
                return self._take(max_bytes)
            if self._end is not None:
                raise self._end
            if self._outgoing.pending and not self._sending.locked():
                async with self._sending:
                    await self._flush()  # an answer that the peer waits for; a sender takes it along otherwise
            try:
                self._incoming.write(await self._stream.receive(_CHUNK_BYTES))
            except anyio.EndOfStream:
                self._end = ConnectionLost("the peer was cut off: it left without the farewell that TLS asks for")

    def _take(self, max_bytes: int) -> bytes:
        data = bytes(self._plain if len(self._plain) <= max_bytes else self._plain[:max_bytes])
        del self._plain[:max_bytes]
        return data

    def _decrypt(self, size: int) -> None:
        """Decrypt into `_plain` until it has `size` bytes, or there is nothing more to decrypt."""
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

    async def _say_farewell(self) -> None:
        """Send `close_notify`.

        `unwrap()` sends it and then looks for the peer's; application data that it found there would be an error that ends the connection.
        So what has arrived is decrypted first, and it finds nothing: `SSLWantReadError`, and what comes later is for `receive()`. At
        most one chunk has arrived and not been decrypted.
        """
        self._decrypt(len(self._plain) + 2 * _CHUNK_BYTES)
        with contextlib.suppress(ssl.SSLWantReadError):
            try:
                self._tls.unwrap()
            except ssl.SSLWantReadError:
                raise
            except (ssl.SSLError, OSError) as exc:
                raise anyio.BrokenResourceError from exc
        await self._flush()

    async def _flush(self) -> None:
        """Send what is encrypted; whoever calls this holds the lock, or is alone."""
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
    """The typed error for a handshake that failed."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        message = f"{address}: its certificate is not trusted: {exc.verify_message}"
        return CLIConnectionError(message, code="connect.tls_untrusted", retryable=False)
    if not isinstance(exc, ssl.SSLError):
        return CLIConnectionError(f"{address}: it hung up during the TLS handshake", code="connect.tls_failed")
    if _refuses_us(exc):
        return AuthenticationError(f"{address}: it does not accept our certificate, or that there is none ({_reason(exc)})")
    # an alert is TLS: such a peer speaks it, and under TLS 1.2 this is also how it says that it wants a certificate
    guess = "perhaps it wants a certificate of ours" if "ALERT" in _reason(exc) else "does it speak TLS at all?"
    message = f"{address}: no agreement on TLS ({_reason(exc)}); {guess}"
    return CLIConnectionError(message, code="connect.tls_failed", retryable=False)


def _reading_error(exc: ssl.SSLError) -> ClaudeTransportError:
    error: ClaudeTransportError
    if _refuses_us(exc):
        error = AuthenticationError(f"the peer does not accept our certificate, or that there is none ({_reason(exc)})")
    else:
        error = ConnectionLost(f"the TLS connection broke ({_reason(exc)})")
    error.__cause__ = exc
    return error


def _refuses_us(exc: ssl.SSLError) -> bool:
    reason = _reason(exc)
    return "ALERT" in reason and any(word in reason for word in _REFUSED_US)


def _reason(exc: ssl.SSLError) -> str:
    return exc.reason or exc.__class__.__name__
