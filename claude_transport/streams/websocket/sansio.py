"""The package `websockets`, of which only the classes without I/O are used: found, configured, and kept from logging what is said."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from claude_transport.errors import ConfigurationError

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.protocol import Protocol
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI

__all__ = ["check_websocket", "client_protocol", "is_open", "parse_url", "server_protocol"]

_WINDOW_BITS = 12
"""Of the windows of compression: each connection holds some 20 KiB for each direction instead of 300."""

_MEMORY_LEVEL = 5


class _WithoutFrames(logging.LoggerAdapter[logging.Logger]):
    """At level DEBUG the protocol would log every header, the token among them, and the frames."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the standard library's name
        return level > logging.DEBUG and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


_logger = _WithoutFrames(logging.getLogger("claude_transport.streams.websocket"), None)


def check_websocket() -> None:
    """Raise `ConfigurationError` when `websockets` is not installed: for who would otherwise find out with the first client."""
    try:
        import websockets.server  # noqa: F401 - used where a connection is made
    except ImportError as exc:
        raise _not_installed() from exc


def parse_url(url: str) -> WebSocketURI:
    """The parts of a `ws://` or `wss://` URL; `ConfigurationError` when it is none, or `websockets` is not installed."""
    try:
        from websockets.exceptions import InvalidURI
        from websockets.uri import parse_uri
    except ImportError as exc:
        raise _not_installed() from exc
    try:
        return parse_uri(url)
    except InvalidURI as exc:
        raise ConfigurationError("the URL is no WebSocket URL: it looks like wss://host:port/path", option="url") from exc


def client_protocol(uri: WebSocketURI, *, compression: bool, max_message_bytes: int) -> ClientProtocol:
    """A connection that has not been asked for yet."""
    from websockets.client import ClientProtocol
    from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

    offer = ClientPerMessageDeflateFactory(client_max_window_bits=True, compress_settings={"memLevel": _MEMORY_LEVEL})
    return ClientProtocol(uri, extensions=[offer] if compression else None, max_size=max_message_bytes, logger=_logger)


def server_protocol(*, compression: bool, max_message_bytes: int) -> ServerProtocol:
    """A connection that has not been asked for yet; `ConfigurationError` when `websockets` is not installed."""
    try:
        from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
        from websockets.server import ServerProtocol
    except ImportError as exc:
        raise _not_installed() from exc

    settings: Mapping[str, Any] = {"memLevel": _MEMORY_LEVEL}
    accepted = ServerPerMessageDeflateFactory(
        server_max_window_bits=_WINDOW_BITS, client_max_window_bits=_WINDOW_BITS, compress_settings=dict(settings)
    )
    return ServerProtocol(extensions=[accepted] if compression else None, max_size=max_message_bytes, logger=_logger)


def is_open(protocol: Protocol) -> bool:
    """Whether messages may be sent: neither end has said that it closes."""
    return protocol.state.name == "OPEN"


def _not_installed() -> ConfigurationError:
    return ConfigurationError("WebSocket needs the package `websockets`: pip install 'claude-transport[ws]'", option="url")
