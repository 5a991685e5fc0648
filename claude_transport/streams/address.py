"""`Address`: where a byte stream leads, read from a URL and written as one, without a secret in it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import msgspec
from anyio import TypedAttributeSet, typed_attribute

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.redaction import is_secret_name

# --- What a stream may tell about itself, through any number of wrappers (anyio's typed attributes).


class StreamAttribute(TypedAttributeSet):
    """Facts about what is at the other end; a stream provides those that make sense for it."""

    address: str = typed_attribute()
    pid: int = typed_attribute()
    exit_code: int | None = typed_attribute()
    signal: int | None = typed_attribute()
    killed: bool = typed_attribute()
    stderr_tail: str = typed_attribute()
    started_at: dt.datetime = typed_attribute()
    ended: bool = typed_attribute()  # the peer is known to be gone; bytes of it may still wait to be read


SCHEMES = ("tcp", "tls", "unix", "ws", "wss")
"""What a URL may begin with."""

_DEFAULT_PORTS = {"ws": 80, "wss": 443}
"""RFC 6455 3; the others have no port of their own."""

_INSTEAD = {"http": "ws", "https": "wss", "ssl": "tls", "tcps": "tls"}

_MAX_UNIX_PATH_BYTES = 103
"""The shortest limit there is (macOS: 104 with the final zero; Linux has 108): what works here works there."""

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect, or where to listen: `host` and `port`, or the `path` of a socket; `target` is what a WebSocket asks for."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    target: str = ""

    @property
    def is_encrypted(self) -> bool:
        """True for the schemes that are TLS."""
        return self.scheme in {"tls", "wss"}

    @property
    def is_websocket(self) -> bool:
        """True for the schemes whose bytes travel in WebSocket messages."""
        return self.scheme in {"ws", "wss"}

    @property
    def stays_here(self) -> bool:
        """True when what is said does not leave this machine."""
        if self.scheme == "unix" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        """The URL; what is asked for with a query is left out of it, since nobody knows what it says."""
        if self.scheme == "unix":
            return f"unix://{quote(self.path)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target.partition('?')[0].rstrip('/')}"


def parse_address(url: str) -> Address:
    """The address that `url` names: `tcp://host:port`, `tls://host:port`, `unix:///path`, `ws://host[:port]/path`, `wss://…`.

    Raises:
        ConfigurationError: it is none of these, or has a secret in it; the URL itself is never repeated, since it may hold one.
    """
    if not isinstance(url, str):
        raise _wrong(f"a URL is a string, not {type(url).__name__}")
    if _UNPRINTABLE.search(url):
        raise _wrong("there is a blank or a control character in the URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _wrong("the URL's host or port cannot be read; a port is a number up to 65535, an IPv6 address stands in brackets") from None
    _check_scheme(url, parts.scheme)
    if "@" in parts.netloc:
        raise _wrong("a user, password or token has no place in a URL, where logs and process lists show it: give `token=`")
    _check_query(parts)
    if parts.scheme == "unix":
        return _unix(parts)
    return _internet(parts, port)


def _check_scheme(url: str, scheme: str) -> None:
    if "://" not in url:
        raise _wrong("a URL begins with a scheme, such as tcp://host:port or unix:///path/to/socket")
    if scheme not in SCHEMES:
        hint = f" (did you mean {_INSTEAD[scheme]}://?)" if scheme in _INSTEAD else ""
        raise _wrong(f"there is no scheme {scheme}://{hint}: it is one of {', '.join(f'{each}://' for each in SCHEMES)}")


def _check_query(parts: SplitResult) -> None:
    if parts.fragment:
        raise _wrong("a fragment (what follows a #) means nothing in such a URL")
    if parts.query and parts.scheme not in {"ws", "wss"}:
        raise _wrong(f"a query (what follows a ?) means nothing in a {parts.scheme}:// URL; a token is given as `token=`")
    for name, _value in parse_qsl(parts.query, keep_blank_values=True):
        if is_secret_name(name):
            raise _wrong(f"the URL has a secret in it ({name!r}), where logs and proxies show it: give `token=`")


def _unix(parts: SplitResult) -> Address:
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/"):
        raise _wrong("the path of a socket is absolute: unix:///path/to/socket, with three slashes")
    if "\0" in path:
        raise _wrong("the path of a socket has no zero byte in it")
    if len(path.encode()) > _MAX_UNIX_PATH_BYTES:
        raise _wrong(f"the path of a socket may have {_MAX_UNIX_PATH_BYTES} bytes, and this one has {len(path.encode())}")
    return Address(scheme="unix", path=path)


def _internet(parts: SplitResult, port: int | None) -> Address:
    if not parts.hostname:
        raise _wrong(f"the URL names no host: {parts.scheme}://host:port")
    if not parts.hostname.isascii():
        try:
            parts.hostname.encode("idna")
        except UnicodeError:
            raise _wrong("the URL's host is no name that a host can have") from None
    if port is None:
        port = _DEFAULT_PORTS.get(parts.scheme)
    if port is None:
        raise _wrong(f"the URL names no port: {parts.scheme}://host:port")
    if parts.scheme in {"ws", "wss"}:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Address(scheme=parts.scheme, host=parts.hostname, port=port, target=target)
    if parts.path not in {"", "/"}:
        raise _wrong(f"a path means nothing in a {parts.scheme}:// URL")
    return Address(scheme=parts.scheme, host=parts.hostname, port=port)


def _wrong(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="url")
