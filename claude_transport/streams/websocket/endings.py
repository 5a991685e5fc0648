"""What the end of a WebSocket connection means: good, broken, or an error with a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from claude_transport.errors import ConnectionLost, ProtocolError

if TYPE_CHECKING:
    from websockets.protocol import Protocol

__all__ = ["ending_of"]

_GOOD = frozenset({1000, 1005})
"""Codes of RFC 6455, 7.4.1: the purpose is fulfilled; or closed without a code, as `socket.close()` of a browser does."""

_OUR_FAULT = frozenset({1002, 1003, 1007, 1009, 1010})
"""The peer says that what it was sent is not allowed, in form or in size."""

_TRY_AGAIN = frozenset({1001, 1012, 1013, 1014})
"""The peer leaves, restarts, is overloaded, or stands before one that is."""


def ending_of(protocol: Protocol) -> Exception:
    """The exception for a reader at the end of what came: `anyio.EndOfStream` when the peer closed the connection in good order.

    `ProtocolError` when one end has broken the rules, or a limit, of the other; `ConnectionLost` when the peer closed with another code
    (`retryable` for those that say so); `anyio.BrokenResourceError` when it went away without a word.
    """
    cause = protocol.parser_exc
    if cause is not None and not isinstance(cause, EOFError):
        too_big = type(cause).__name__ == "PayloadTooBig"
        code = "protocol.message_too_big" if too_big else "protocol.websocket"
        error: Exception = ProtocolError(f"the peer broke the rules of WebSocket: {cause}", code=code)
        error.__cause__ = cause
        return error
    close = protocol.close_rcvd
    if close is None:
        return anyio.BrokenResourceError("the connection ended without the closing handshake of WebSocket")
    if close.code in _GOOD:
        return anyio.EndOfStream()
    said = f"{close.code}{f', {close.reason!r}' if close.reason else ''}"
    if close.code in _OUR_FAULT:
        return ProtocolError(f"the peer did not accept what it was sent, and closed the WebSocket connection with {said}")
    return ConnectionLost(f"the peer closed the WebSocket connection with {said}", retryable=close.code in _TRY_AGAIN)
