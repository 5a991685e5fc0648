"""WebSocket as a byte stream: one class for both ends, over any byte stream that carries it, on asyncio and trio.

The protocol itself is that of the package `websockets` (the extra `ws`), of which only the classes without any I/O are used; they are
imported when a connection is made. A message of text holds whole lines, a message of bytes a piece of the stream as it is, and an empty
message of text says that nothing more will be sent.
"""

from __future__ import annotations

from claude_transport.streams.websocket.client import WebSocketConnectable
from claude_transport.streams.websocket.server import HandshakeRequest, HTTPAnswer, accept_websocket
from claude_transport.streams.websocket.stream import (
    DEFAULT_MAX_MESSAGE_BYTES,
    MessageReader,
    WebSocketStream,
    check_websocket,
    cut_messages,
)

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "HTTPAnswer",
    "HandshakeRequest",
    "MessageReader",
    "WebSocketConnectable",
    "WebSocketStream",
    "accept_websocket",
    "check_websocket",
    "cut_messages",
]
