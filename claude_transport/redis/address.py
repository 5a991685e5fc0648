"""`RedisAddress`: what a URL says about a Redis or Valkey server. How it is connected to is in `claude_transport.redis.client`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.text.printable import is_encodable

_PORT: Final = 6379
_FORM: Final = "url must be redis://user:password@host:port/database, or rediss://… for TLS"
_TLS_PARAMETERS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
_NO: Final = ("false", "0", "no", "off")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_DATABASE: Final = re.compile(r"\d{1,5}", re.ASCII)


class RedisAddress(msgspec.Struct, frozen=True):
    """A server, how to log in there, and the number of the database. Its text hides the password.

    `parameters` are those of the query that the caller of `of()` has asked for.
    """

    host: str
    port: int
    username: str | None
    password: str | None
    database: int
    tls: ssl.SSLContext | None
    parameters: Mapping[str, str]

    @classmethod
    def of(cls, url: str, *, parameters: Collection[str] = (), ssl_context: ssl.SSLContext | None = None) -> RedisAddress:
        """Read a URL. With `rediss://`, the certificate and the name in it are checked, unless the query or `ssl_context` says otherwise.

        The query may have `parameters`, and with `rediss://` also `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs` and
        `ssl_check_hostname`.

        Raises:
            ConfigurationError: it is no such URL, a file that it names cannot be read, or `ssl_context` does not go with it. No message
                holds a part of the URL, which may be the password.
        """
        parts, port = _split(url)
        path = parts.path.strip("/") or "0"
        if not _DATABASE.fullmatch(path):
            raise ConfigurationError(f"{_FORM}; the database is a number", option="url")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        settings = {name: query.pop(name) for name in _TLS_PARAMETERS & query.keys()}
        has_tls = parts.scheme == "rediss"
        if query.keys() - set(parameters) or (settings and not has_tls) or parts.fragment:
            also = f"{' and '.join(parameters)}, and " if parameters else ""
            allowed = f"{also}{', '.join(sorted(_TLS_PARAMETERS))} with rediss://"
            raise ConfigurationError(f"url: the query may have {allowed}; nothing else, and no fragment", option="url")
        if ssl_context is not None and (settings or not has_tls):
            raise ConfigurationError("ssl_context needs rediss://, and no ssl_… in the query", option="ssl_context")
        return cls(
            host=unquote(parts.hostname or ""),
            port=port,
            username=unquote(parts.username or "") or None,
            password=unquote(parts.password or "") or None,
            database=int(path),
            tls=(ssl_context or _tls_context(settings)) if has_tls else None,
            parameters=query,
        )

    def __str__(self) -> str:
        return f"redis{'s' if self.tls else ''}://{self.host}:{self.port}/{self.database}"

    __repr__ = __str__

    def without_password(self, text: str) -> str:
        """Return `text` without the password, which a server or a client may repeat."""
        return text.replace(self.password, "***") if self.password else text


def _split(url: str) -> tuple[SplitResult, int]:
    """Return the parts of a URL of Redis, and the port."""
    if not isinstance(url, str) or not is_encodable(url) or _UNPRINTABLE.search(url):
        raise ConfigurationError(f"{_FORM}; without blanks and control characters", option="url")
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError:
        raise ConfigurationError(f"{_FORM}; the host or the port cannot be read", option="url") from None
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ConfigurationError(_FORM, option="url")
    return parts, port


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl_ca_certs"))
        if certificate := settings.get("ssl_certfile"):
            context.load_cert_chain(certificate, settings.get("ssl_keyfile"))
    except OSError as exc:  # ssl.SSLError is one, too
        raise ConfigurationError(f"url: a certificate cannot be read: {exc}", option="url") from exc
    is_checked = settings.get("ssl_cert_reqs", "required") != "none"
    context.check_hostname = is_checked and settings.get("ssl_check_hostname", "true").lower() not in _NO
    context.verify_mode = ssl.CERT_REQUIRED if is_checked else ssl.CERT_NONE
    return context
