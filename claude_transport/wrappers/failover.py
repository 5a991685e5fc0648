"""`FailoverTransport`: connects the first of several transports that can be connected.

`retrying` tries one transport again. This wrapper tries the next one, and can be wrapped in a `RetryingTransport` for several rounds.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import anyio

from claude_transport.errors import (
    Busy,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectTimeout,
    TransportClosed,
    UsageError,
)
from claude_transport.loggers import logger_for
from claude_transport.transport import Client, SessionTerms, TransportLike, check_transport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.terms_in_use import TermsInUse, close_unconnected

logger: logging.Logger = logger_for(__name__)

DEFAULT_ATTEMPT_TIMEOUT = 15.0
"""Seconds for one transport to connect: less than a `Query` gives connecting in all, so that the next one still has time."""

TransportFactory: TypeAlias = Callable[[str | None], TransportLike]
"""An ordinary function that takes the id of the session to resume, or None for a new one, and returns a transport, not connected."""


class AllTransportsFailed(CLIConnectionError):
    """None of the transports of a `FailoverTransport` could be connected. `failures` has the error of each, in the order of the attempts.

    `codes` has their codes. `retryable` is True when one of them is.
    """

    code = "connect.all_failed"

    def __init__(self, message: str = "", *, failures: Sequence[Exception] = (), **common: Any) -> None:
        super().__init__(message, **common)
        self.failures: tuple[Exception, ...] = tuple(failures)

    @property
    def codes(self) -> tuple[str, ...]:
        """The code of each of `failures`; `transport.failed` for an error that is not from this library."""
        return tuple(map(_code_of, self.failures))


class FailoverTransport(TransportWrapper):
    """Connects the first transport of several that can be connected. Each function of `factories` makes one.

    Args:
        factories: ordinary functions that each take a session id, or None, and return a transport, not connected. The first one is called
            at once, the others when they are needed.
        attempt_timeout: seconds for each transport to connect; None for no limit. A transport that takes longer is closed, and its failure
            is a `ConnectTimeout`.
        session_id: given to each function: the session to resume, or None for a new session.

    `connect()` tries one after the other, and closes each that has failed before it makes the next. Every error counts, except a
    `UsageError`, which is raised at once. When all have failed, it raises `AllTransportsFailed`; with a single function, the error of its
    transport. Nothing is written before `connect()` has returned, and no line is ever written to two of them.

    `info` is that of the transport that was connected, with its address or process. `transport` is that transport.

    A running session stays where it is. When it is lost, `reconnect()` goes on with the next transport.

    All transports must ask the layer above for the same, for example by the same system prompt, because a `Query` learns that once. One
    that asks for something else has failed, with a `ConfigurationError` that names the difference.

    Raises:
        ConfigurationError: `factories` is empty or holds something else than ordinary functions, `attempt_timeout` is not a number above
            0, or the first function returns no transport. What that function raises passes unchanged.
    """

    def __init__(
        self,
        factories: Sequence[TransportFactory],
        *,
        attempt_timeout: float | None = DEFAULT_ATTEMPT_TIMEOUT,
        session_id: str | None = None,
    ) -> None:
        self._factories = _checked(factories)
        if attempt_timeout is not None and (
            isinstance(attempt_timeout, bool) or not isinstance(attempt_timeout, int | float) or not attempt_timeout > 0
        ):
            message = f"attempt_timeout must be a number of seconds above 0, or None, not {attempt_timeout!r}"
            raise ConfigurationError(message, option="attempt_timeout")
        self._attempt_timeout = attempt_timeout
        self._session_id = session_id
        super().__init__(self._made(0))
        self._number = 0  # of the factory that made `transport`
        self._spent = False  # `transport` has failed and is closed
        self._in_use = TermsInUse()
        self._connect_lock = anyio.Lock(fast_acquire=True)
        self._closing = False
        self._reconnecting = False
        self._successor: FailoverTransport | None = None  # the transport that reconnect() is connecting

    def attach(self, client: Client) -> SessionTerms:
        """Return the `SessionTerms` of the transport that is tried first, after telling it about `client`, the layer above.

        The transports that are made later are told the same. The callbacks in the returned terms call those of the transport that is in
        use.
        """
        return self._in_use.announce(client, super().attach(client), may_replace=len(self._factories) > 1)

    async def connect(self) -> None:
        """Connect the first transport that can be connected. Does nothing when one is connected.

        After a failure it may be called again, and begins with the first transport. A cancellation ends it at once.

        Raises:
            AllTransportsFailed: none could be connected. `failures` has the error of each.
            TransportClosed: `close()` was called, before or meanwhile.
        """
        if self.is_ready():
            await super().connect()
            return
        async with self._connect_lock:
            if self._closing:
                raise TransportClosed("the transport was closed")
            if not self.is_ready():
                await self._connect_any()

    async def reconnect(self, *, session_id: str | None = None) -> FailoverTransport:
        """Close this transport, and return a new connected `FailoverTransport` that begins with the transport after the lost one.

        The lost one comes last. The functions get `session_id`, by default the id that the options of the session name, so that they can
        resume it. The layer above is attached as it was. Nothing that was written is written again. After a failure or a cancellation
        nothing is open, and `reconnect()` may be called again. `close()` of this transport ends it.

        Raises:
            AllTransportsFailed: none could be connected.
            Busy: another `reconnect()` is under way.
        """
        if self._reconnecting:
            raise Busy("another task is already reconnecting this transport")
        self._reconnecting = True
        try:
            await self.close()
            named = (
                None if self._in_use.current.forks_session else self._in_use.current.session_id
            )  # of a fork, that is the id of the original
            after = self._number + 1
            successor = FailoverTransport(
                [*self._factories[after:], *self._factories[:after]],
                attempt_timeout=self._attempt_timeout,
                session_id=session_id or named or self._session_id,
            )
            self._successor = successor
            try:
                if self._in_use.client is not None:
                    successor.attach(self._in_use.client)
                await successor.connect()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await successor.close()
                raise
            return successor
        finally:
            self._successor = None
            self._reconnecting = False

    async def close(self) -> None:
        """Close the transport that is in use, and try no other one. Later calls do nothing and wait for the first.

        A `connect()` or `reconnect()` that is under way raises `TransportClosed`.
        """
        self._closing = True
        successor = self._successor
        try:
            await super().close()
        finally:
            if successor is not None:
                await successor.close()

    # Trying one after the other.

    async def _connect_any(self) -> None:
        failures: list[Exception] = []
        try:
            for number in range(len(self._factories)):
                try:
                    if self._spent or number != self._number:
                        await self._drop()
                        self._take(number)
                    await self._connect_once()
                except Exception as error:
                    if isinstance(error, UsageError) or len(self._factories) == 1:
                        raise
                    failures.append(error)
                    code, of = _code_of(error), len(self._factories)
                    logger.warning("transport %d of %d could not be connected (%s)", number + 1, of, code)
                else:
                    return
                await self._drop()
                if self._closing:
                    raise TransportClosed("the transport was closed while it was connecting") from failures[-1]
            raise AllTransportsFailed(
                f"none of {len(failures)} transports could be connected: {'; '.join(map(_told, failures))}",
                failures=failures,
                retryable=any(getattr(error, "retryable", False) for error in failures),
            ) from failures[-1]
        finally:
            del failures  # their tracebacks hold this frame, which must not hold them in return

    async def _connect_once(self) -> None:
        with anyio.move_on_after(self._attempt_timeout) as limit:
            await self._transport.connect()
        if limit.cancelled_caught:
            await self._drop()
            raise ConnectTimeout(f"not connected within {self._attempt_timeout:g} s", waited=self._attempt_timeout)

    async def _drop(self) -> None:
        """Close the transport that has failed. A cancellation waits for that, so that nothing of it stays behind."""
        if self._spent:
            return
        self._spent = True
        await close_unconnected(self._transport)

    def _take(self, number: int) -> None:
        """Make the transport `number`, and attach the layer above to it."""
        transport = self._made(number)
        self._number = number
        self._spent = False
        self._wrap_instead(transport)
        self._in_use.take(transport, option="factories")

    def _made(self, number: int) -> TransportLike:
        transport = self._factories[number](self._session_id)
        check_transport(transport, of="FailoverTransport", option="a function in factories")
        return transport


def _checked(factories: Sequence[TransportFactory]) -> tuple[TransportFactory, ...]:
    if not isinstance(factories, Sequence) or not factories:
        message = f"factories must be a list of functions that each return a transport, not {factories!r}"
        raise ConfigurationError(message, option="factories")
    for factory in factories:
        if not callable(factory) or inspect.iscoroutinefunction(factory):
            what = "an async function" if callable(factory) else type(factory).__name__
            message = f"factories must be ordinary functions that take a session id or None and return a transport, not {what}"
            raise ConfigurationError(message, option="factories")
    return tuple(factories)


def _code_of(error: Exception) -> str:
    return error.code if isinstance(error, ClaudeTransportError) else "transport.failed"


def _told(error: Exception) -> str:
    """Return the code and the text of `error`. The text of a foreign error may hold a secret, so its type stands for it."""
    return f"{_code_of(error)} ({error if isinstance(error, ClaudeTransportError) else type(error).__name__})"
