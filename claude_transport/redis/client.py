"""`RedisAddress`: what a URL says about a Redis server, and a client of it for one call."""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.errors import CLIConnectionError, ConfigurationError

_PORT: Final = 6379
_FORM: Final = "url must be redis://user:password@host:port/database, or rediss://… for TLS"
_TLS_SETTINGS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
_NO: Final = ("false", "0", "no", "off")

CALL_TIMEOUT: Final = 30.0
"""Seconds for one call, connecting included."""


class RedisAddress(msgspec.Struct, frozen=True):
    """A server, how to log in there, and the number of the database. Its `repr` hides the password."""

    host: str
    port: int
    username: str | None
    password: str | None
    database: int
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str) -> RedisAddress:
        """Read a URL. With `rediss://`, the certificate and the name in it are checked, unless the query says otherwise.

        The query may have `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs` and `ssl_check_hostname`.

        Raises:
            ConfigurationError: it is no such URL, or a file that it names cannot be read. No message holds a part of the URL, which may be
                the password.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or _PORT
            database = int(parts.path.strip("/") or 0)
        except (ValueError, TypeError, AttributeError):
            raise ConfigurationError(_FORM, option="url") from None
        if not isinstance(url, str) or parts.scheme not in ("redis", "rediss") or not parts.hostname or database < 0:
            raise ConfigurationError(_FORM, option="url")
        settings = dict(parse_qsl(parts.query, keep_blank_values=True))
        if settings.keys() - (_TLS_SETTINGS if parts.scheme == "rediss" else ()):
            allowed = ", ".join(sorted(_TLS_SETTINGS))
            raise ConfigurationError(f"url: with redis:// there is no query; with rediss:// it may have {allowed}", option="url")
        return cls(
            host=unquote(parts.hostname),
            port=port,
            username=unquote(parts.username or "") or None,
            password=unquote(parts.password or "") or None,
            database=database,
            tls=_tls_context(settings) if parts.scheme == "rediss" else None,
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    __repr__ = __str__

    @contextlib.asynccontextmanager
    async def connected(self, *, about: str = "") -> AsyncIterator[Any]:
        """Connect for one call, and yield a client of coredis. Errors name the server and what the call is `about`.

        Raises:
            CLIConnectionError: the server cannot be reached, refused a command, or did not answer in time.
        """
        failure: Exception | None = None
        place = f"{self}: {about}" if about else str(self)
        patience = anyio.CancelScope(deadline=anyio.current_time() + CALL_TIMEOUT)
        try:
            with patience:
                async with await self._dial() as stream, _client_class()(self, stream) as client:
                    yield client
        except Exception as exc:  # noqa: BLE001 - a task group inside wraps each error in a group
            failure = _first_of(exc)
        if failure is not None:
            what = f"{place}: {type(failure).__name__}: {failure}"
            raise CLIConnectionError(self._without_password(what), code="session_store.failed") from None
        if patience.cancelled_caught:
            raise CLIConnectionError(f"{place} did not answer in {CALL_TIMEOUT:g} s", code="session_store.failed")

    async def _dial(self) -> ByteStream:
        if self.tls is None:
            return await anyio.connect_tcp(self.host, self.port)
        return await anyio.connect_tcp(self.host, self.port, tls=True, ssl_context=self.tls, tls_standard_compatible=False)

    def _without_password(self, text: str) -> str:
        return text.replace(self.password, "…") if self.password else text


def _tls_context(settings: dict[str, str]) -> ssl.SSLContext:
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


@functools.cache
def _client_class() -> Callable[[RedisAddress, ByteStream], Any]:
    """Import coredis, and return what makes a client with one connection, on a stream that is open already.

    A connection of coredis that cannot be opened leaves streams behind. And a call is never repeated here: it may have been done.
    """
    from coredis import Redis
    from coredis.connection import TCPConnection, TCPLocation
    from coredis.pool import ConnectionPool
    from coredis.retry import NoRetryPolicy

    class Dialled(TCPConnection):
        """A connection on a stream that is open."""

        def __init__(self, stream: ByteStream, location: TCPLocation, **more: Any) -> None:
            super().__init__(location, **more)
            self._dialled = stream

        async def _connect(self) -> ByteStream:
            return self._dialled

    def make(address: RedisAddress, stream: ByteStream) -> Any:
        made_here: Any = functools.partial(Dialled, stream)
        pool: Any = ConnectionPool(
            connection_class=made_here,
            location=TCPLocation(address.host, address.port),
            max_connections=1,
            username=address.username,
            password=address.password,
            db=address.database,
        )
        return Redis(connection_pool=pool, retry_policy=NoRetryPolicy())

    return make


def _first_of(exc: BaseException) -> Exception:
    """Return the first plain error of nested groups."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc if isinstance(exc, Exception) else RuntimeError(str(exc))
