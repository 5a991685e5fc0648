"""Where a byte stream leads: `Address` (a parsed URL), and `StreamAttribute` (the facts a stream tells about its peer).

A secret is refused in a URL: logs and process lists show URLs. Connecting to an address is the task of `streams.sockets`.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import msgspec
from anyio import TypedAttributeSet, typed_attribute

from claude_transport.errors import ConfigurationError
from claude_transport.text.printable import is_encodable
from claude_transport.text.secret_forms import is_secret_name

SCHEMES = ("tcp", "tls", "unix", "ws", "wss")
"""The schemes that a URL may have."""

_DEFAULT_PORTS = {"ws": 80, "wss": 443}
"""RFC 6455 3; the other schemes have no default port."""

_INSTEAD = {"http": "ws", "https": "wss", "ssl": "tls", "tcps": "tls"}

_MAX_UNIX_PATH_BYTES = 103
"""The smallest limit of any system: macOS has 104 with the final zero byte, Linux 108. A path that works here works everywhere."""

UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
"""What no URL has: blanks and control characters."""

_NON_ASCII = re.compile(r"[^\x00-\x7f]+")


class StreamAttribute(TypedAttributeSet):
    """Facts about the peer of a byte stream, as typed attributes of anyio. A stream provides those that apply to it."""

    address: str = typed_attribute()
    pid: int = typed_attribute()
    exit_code: int | None = typed_attribute()
    signal: int | None = typed_attribute()
    killed: bool = typed_attribute()
    stderr_tail: str = typed_attribute()
    started_at: dt.datetime = typed_attribute()
    ended: bool = typed_attribute()  # the peer is known to be gone; unread bytes of it may remain


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect or listen: `host` and `port`, or the `path` of a Unix socket. `target` is the path of a WebSocket request.

    `target` is as it is sent: in ASCII. The `scheme` is one of `SCHEMES`, or `http` where pages are served and nothing else.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    target: str = ""

    @property
    def is_encrypted(self) -> bool:
        """True for `tls` and `wss`."""
        return self.scheme in {"tls", "wss"}

    @property
    def is_websocket(self) -> bool:
        """True for `ws` and `wss`."""
        return self.scheme in {"ws", "wss"}

    @property
    def stays_here(self) -> bool:
        """True when the data does not leave this machine: a Unix socket, or a loopback address."""
        if self.scheme == "unix" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        """Return the URL without its query, which may hold a secret."""
        if self.scheme == "unix":
            return f"unix://{quote(self.path)}"
        path = self.target.partition("?")[0]
        return f"{self.scheme}://{_in_url(self.host)}:{self.port}{'' if path == '/' else path}"

    @property
    def sent_host(self) -> str:
        """The host as HTTP sends it: in ASCII (IDNA), and an IPv6 address in brackets."""
        return _in_url(self.host if self.host.isascii() else self.host.encode("idna").decode())

    @property
    def whole_url(self) -> str:
        """The URL of a WebSocket in ASCII, with its query, which is not for logs."""
        return f"{self.scheme}://{self.sent_host}:{self.port}{self.target}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def check_text(value: object, *, option: str) -> None:
    """Raise `ConfigurationError` for a value that is no text, or that UTF-8 cannot hold. The message names `option`, and not the value."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{option} must be a text, not {type(value).__name__}", option=option)
    if not is_encodable(value):
        raise ConfigurationError(f"{option} holds half of a surrogate pair, which cannot be sent: give other characters", option=option)


def parse_address(url: str) -> Address:
    """Parse `tcp://host:port`, `tls://host:port`, `unix:///path`, `ws://host[:port]/path` or `wss://host[:port]/path`.

    Raises:
        ConfigurationError: `url` is none of these, or holds a secret. The message never repeats the URL.
    """
    if not isinstance(url, str):
        raise _wrong(f"a URL is a string, not {type(url).__name__}")
    check_text(url, option="url")
    if UNPRINTABLE.search(url):
        raise _wrong("the URL contains a blank or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _wrong("the URL's host or port cannot be read; a port is a number up to 65535, an IPv6 address is in brackets") from None
    if "://" not in url:
        raise _wrong("a URL begins with a scheme, such as tcp://host:port or unix:///path/to/socket")
    if parts.scheme not in SCHEMES:
        hint = f" (did you mean {_INSTEAD[parts.scheme]}://?)" if parts.scheme in _INSTEAD else ""
        raise _wrong(f"there is no scheme {parts.scheme}://{hint}: use one of {', '.join(f'{each}://' for each in SCHEMES)}")
    if "@" in parts.netloc:
        raise _wrong("a user, password or token has no place in a URL, where logs and process lists show it: give `token=`")
    _check_query(parts)
    return _parse_unix(parts) if parts.scheme == "unix" else _parse_internet(parts, port)


def _check_query(parts: SplitResult) -> None:
    if parts.fragment:
        raise _wrong("a fragment (the part after #) means nothing in such a URL: remove it")
    if parts.query and parts.scheme not in {"ws", "wss"}:
        raise _wrong(f"a query (the part after ?) means nothing in a {parts.scheme}:// URL; a token is given as `token=`")
    for name, _value in parse_qsl(parts.query, keep_blank_values=True):
        if is_secret_name(name):
            raise _wrong(f"the URL has a secret in it ({name!r}), where logs and proxies show it: give `token=`")


def _parse_unix(parts: SplitResult) -> Address:
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/"):
        raise _wrong("the path of a Unix socket must be absolute: unix:///path/to/socket, with three slashes")
    if "\0" in path:
        raise _wrong("the path of a Unix socket can have no zero byte")
    if len(path.encode()) > _MAX_UNIX_PATH_BYTES:
        raise _wrong(f"the path of a Unix socket may have {_MAX_UNIX_PATH_BYTES} bytes, and this one has {len(path.encode())}")
    return Address(scheme="unix", path=path)


def _parse_internet(parts: SplitResult, port: int | None) -> Address:
    scheme, host = parts.scheme, parts.hostname
    if not host:
        raise _wrong(f"the URL names no host: {scheme}://host:port")
    if not host.isascii():
        try:
            host.encode("idna")
        except UnicodeError:
            raise _wrong("the URL's host is no name that a host can have") from None
    port = _DEFAULT_PORTS.get(scheme) if port is None else port
    if port is None:
        raise _wrong(f"the URL names no port: {scheme}://host:port")
    if scheme in {"ws", "wss"}:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # as every client sends it (RFC 3987 3.1); what is escaped already stays so
        target = _NON_ASCII.sub(lambda found: quote(found[0]), target)
        return Address(scheme=scheme, host=host, port=port, target=target)
    if parts.path not in {"", "/"}:
        raise _wrong(f"a path means nothing in a {scheme}:// URL")
    return Address(scheme=scheme, host=host, port=port)


def _wrong(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="url")
