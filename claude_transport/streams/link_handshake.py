"""The first two lines of a connection of a resumable link: hello, and welcome or refusal."""

from __future__ import annotations

from typing import Protocol

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.errors import CLIConnectionError, ProtocolError
from claude_transport.protocol.framing import LineFramer
from claude_transport.protocol.link_frames import LINK_VERSION, Hello, Refusal, UnknownFrame, Welcome, decode_frame, encode_frame

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
    framer: LineFramer
    arrived: list[bytes]


async def open_link_connection(opener: ByteStreamOpener, hello: Hello, *, max_frame_bytes: int) -> LinkConnection:
    """A new connection on which the server has said welcome. Waits for as long as the caller lets it.

    Raises:
        CLIConnectionError: there is nobody, or nobody who speaks the link protocol.
        ClaudeTransportError: the refusal of the server, typed (see `Refusal.to_error`).
    """
    stream = await opener.connect()
    try:
        return await _shake_hands(stream, hello, LineFramer(max_line_bytes=max_frame_bytes))
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


async def _shake_hands(stream: ByteStream, hello: Hello, framer: LineFramer) -> LinkConnection:
    await stream.send(encode_frame(hello))
    while True:
        lines = framer.feed(await stream.receive(65536))
        for number, line in enumerate(lines):
            match decode_frame(line):
                case Welcome() as welcome:
                    if welcome.version > LINK_VERSION:
                        message = f"the server goes on in version {welcome.version} of the link protocol, {LINK_VERSION} was asked for"
                        raise CLIConnectionError(message, code="connect.version", retryable=False)
                    return LinkConnection(stream, welcome, framer, lines[number + 1 :])
                case Refusal() as refusal:
                    raise refusal.to_error()
                case UnknownFrame():
                    continue  # a newer server may say more before its welcome
                case _:
                    raise ProtocolError("the first frame is neither a welcome nor a refusal", code="link.malformed")
