"""A connection to a Redis or Valkey server, over coredis. No other module imports coredis, and this one inside its functions only.

What goes wrong here is an error of coredis or of anyio. Fleet and session stores make errors of this library from it, each with its own
codes: `first_of()`, `is_of_server()` and `is_answer()` say what happened.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any, Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from claude_transport.errors import ConfigurationError
from claude_transport.redis.address import RedisAddress

COMMAND_TIMEOUT: Final = 5.0
"""Seconds for one command of a fleet. Each is small, and a lease ends if a worker waits long for a server that is gone."""

STORE_TIMEOUT: Final = 30.0
"""Seconds for one call of a session store, connecting included. It is many commands, and they may carry many megabytes."""


def require_coredis(user: str) -> None:
    """Raise `ConfigurationError` when coredis is not installed: `user`, such as `a fleet`, needs the extra."""
    if importlib.util.find_spec("coredis") is None:
        raise ConfigurationError(f"{user} needs the extra redis: pip install 'claude-transport[redis]'", option="url")


def make_client(address: RedisAddress, *, connect_timeout: float | None = None, max_connections: int | None = None) -> Any:
    """Return a client of coredis. `async with` it connects. It repeats no call: the server may have carried it out.

    `connect_timeout` are the seconds for each connection, from its first packet to the answer to the greeting. None has no limit.
    """
    from coredis import Redis
    from coredis.connection import TCPLocation
    from coredis.pool import ConnectionPool
    from coredis.retry import NoRetryPolicy

    pool: Any = ConnectionPool(
        connection_class=_tidy_connection(),
        location=TCPLocation(address.host, address.port),
        max_connections=max_connections,
        db=address.database,
        username=address.username,
        password=address.password,
        ssl_context=address.tls,
        timeout=connect_timeout,
    )
    return Redis(connection_pool=pool, retry_policy=NoRetryPolicy())


@functools.cache
def _tidy_connection() -> Any:
    """Return a class of connections whose buffers are closed, also when they never got to a server, or their pool ended meanwhile."""
    from coredis.connection import TCPConnection

    class TidyConnection(TCPConnection):
        async def _connect(self) -> ByteStream:
            try:
                return await super()._connect()
            except BaseException:
                self._close_buffers()
                raise

        def __del__(self) -> None:
            self._close_buffers()

        def _close_buffers(self) -> None:
            for each in vars(self).values():
                if isinstance(each, MemoryObjectReceiveStream | MemoryObjectSendStream):
                    each.close()

    return TidyConnection


async def run_script(client: Any, text: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
    """Run a script, and return its answer. The text is sent only to a server that does not have it yet."""
    try:
        return await client.evalsha(_digest_of(text), keys=keys, args=args)
    except Exception as exc:
        if type(first_of(exc)).__name__ != "NoScriptError":
            raise
    return await client.eval(text, keys=keys, args=args)


@functools.cache
def _digest_of(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def subscription(client: Any, channel: str) -> Any:
    """Return what `async with` subscribes to a channel. The messages come out of it by `async for`, with their bytes under `data`."""
    from coredis.retry import NoRetryPolicy

    return client.pubsub(channels=[channel], retry_policy=NoRetryPolicy(), ignore_subscribe_messages=True)


def token(word: str) -> Any:
    """Return a word of a command, such as `GT`, as coredis takes it."""
    from coredis import PureToken

    return PureToken[word]


def first_of(exc: BaseException) -> Exception:
    """Return the first plain error of nested groups: task groups inside coredis wrap each error in one.

    Of a connection that could not be made, it is what the system or TLS has said, which coredis puts behind an error of its own.
    """
    leaves = [*leaves_of(exc)]
    exc = next((each for each in leaves if isinstance(each, Exception)), leaves[0])
    if type(exc).__name__ == "ConnectionError" and isinstance(exc.__cause__, OSError):
        exc = exc.__cause__
    return exc if isinstance(exc, Exception) else RuntimeError(type(exc).__name__)


def leaves_of(exc: BaseException) -> Iterator[BaseException]:
    """Yield the errors in nested groups; an error that is no group is the only one."""
    if isinstance(exc, BaseExceptionGroup):
        for each in exc.exceptions:
            yield from leaves_of(each)
    else:
        yield exc


def is_of_server(failure: Exception) -> bool:
    """Return whether an error came from the connection or the server, and not from a mistake in a program."""
    from coredis.exceptions import RedisError

    gone = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, RedisError)
    return isinstance(failure, gone) or failure.__class__ is RuntimeError


def is_answer(failure: Exception) -> bool:
    """Return whether the server has said this error, so that the call was not carried out."""
    from coredis.exceptions import ResponseError

    return isinstance(failure, ResponseError)
