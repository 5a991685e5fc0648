"""The first two lines of a connection of a resumable link: hello, and welcome or refusal."""

from __future__ import annotations

from typing import Protocol

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.errors import CLIConnectionError, ConnectionLost, ProtocolError
from claude_transport.protocol.link_frames import (
    LINK_VERSION,
    MAX_CONTROL_FRAME_BYTES,
    Hello,
    Refusal,
    UnknownFrame,
    Welcome,
    decode_frame,
    encode_frame,
)

__all__ = ["ByteStreamOpener", "LinkConnection", "open_link_connection"]


class ByteStreamOpener(Protocol):
    """What opens a connection of the link."""

    async def connect(self) -> ByteStream:
        """A new, open stream; a `ClaudeTransportError` or an `OSError` when there can be none."""
        ...


class LinkConnection(msgspec.Struct, frozen=True):
    """A connection behind its handshake, and what was read of it beyond the welcome."""

    stream: ByteStream
    welcome: Welcome
    unread: bytes


async def open_link_connection(opener: ByteStreamOpener, hello: Hello) -> LinkConnection:
    """A new connection on which the server has said welcome. Waits for as long as the caller lets it.

    Raises:
        CLIConnectionError: there is nobody, or nobody who speaks the link protocol.
        ClaudeTransportError: the refusal of the server, typed (see `Refusal.to_error`).
    """
    stream = await opener.connect()
    try:
        return await _shake_hands(stream, hello)
    except BaseException as exc:
        with anyio.CancelScope(shield=True):  # forcefully: it does not wait for anybody
            await anyio.aclose_forcefully(stream)
        match exc:
            case anyio.EndOfStream() | anyio.BrokenResourceError() | anyio.ClosedResourceError():
                raise CLIConnectionError("the connection ended before the other side had said welcome") from exc
            case ProtocolError(code="link.malformed"):
                message = "what answers there does not speak the link protocol (resume=False would talk to a plain server)"
                raise CLIConnectionError(message, code="connect.not_a_link", retryable=False) from exc
            case _:
                raise


async def _shake_hands(stream: ByteStream, hello: Hello) -> LinkConnection:
    await stream.send(encode_frame(hello))
    unread = bytearray()
    while True:
        line = await _next_line(stream, unread)
        match decode_frame(line):
            case Welcome() as welcome:
                if welcome.version > LINK_VERSION:
                    message = f"the server goes on in version {welcome.version} of the link protocol, {LINK_VERSION} was asked for"
                    raise CLIConnectionError(message, code="connect.version", retryable=False)
                return LinkConnection(stream, welcome, bytes(unread))
            case Refusal() as refusal:
                raise refusal.to_error()
            case UnknownFrame():
                continue  # a newer server may say more before its welcome
            case _:
                raise ProtocolError("the first frame is neither a welcome nor a refusal", code="link.malformed")


async def _next_line(stream: ByteStream, unread: bytearray) -> bytes:
    """The next line, taken out of `unread`, to which what more is received is added."""
    searched = 0
    while (end := unread.find(b"\n", searched)) < 0:
        if len(unread) > MAX_CONTROL_FRAME_BYTES:
            raise ProtocolError("what came is no frame of the link protocol", code="link.malformed")
        searched = len(unread)
        try:
            unread += await stream.receive(65536)
        except (ConnectionLost, ProtocolError) as exc:  # of TLS, compression or WebSocket: the server has not said this of the session
            message = f"the connection broke before the other side had said welcome: {exc}"
            raise CLIConnectionError(message, retryable=isinstance(exc, ConnectionLost)) from exc
    line = bytes(unread[:end])
    del unread[: end + 1]
    return line
