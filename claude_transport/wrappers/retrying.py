"""`RetryingTransport`: what certainly has not happened is tried again; what may have happened is said to be uncertain."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, Self, TypeAlias, TypeVar

import anyio
import msgspec

from claude_transport.backoff import Backoff
from claude_transport.errors import (
    ClaudeTransportError,
    ConfigurationError,
    ConnectionLost,
    OutcomeUncertain,
    TransportClosed,
    UsageError,
)
from claude_transport.transport import Client, SessionTerms, TransportLike
from claude_transport.wrappers.base import TransportWrapper

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

_LINK_ERRORS = (TransportClosed, ConnectionLost, OSError)
"""What a write fails with when it is the connection's doing, and may go well the next time."""

RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors of `connect()` are worth another attempt: these types, or those for which this gives True."""


class RetryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that is over: the `number`-th, from 1, of at most `attempts`.

    `error` is what it failed with, None when it succeeded. `delay` is the number of seconds until the next attempt; None when there
    is none, because this one succeeded, was the last, or failed in a way that is not tried again.
    """

    action: Literal["connect", "reconnect", "write"]
    number: int
    attempts: int
    error: Exception | None = None
    delay: float | None = None


class WriteUncertain(OutcomeUncertain, TransportClosed):
    """The connection broke during a write, and nobody can know whether the peer has got the line: an `OutcomeUncertain` with the facts
    of a `TransportClosed`, and caught as either."""

    category = "transport"


class RetryingTransport(TransportWrapper):
    """Connects `transport` in up to `attempts` attempts, with a growing delay before each but the first.

    Args:
        attempts: how often in all, 1 or more.
        backoff: the delays between them; by default 1 s, then 2 s, each ± 25 %.
        on: which errors are worth another attempt; by default those of this library that say so (`retryable`). Types narrow this: of
            this library's errors only these, if they are retryable, and also these errors of others. A function decides alone.
        on_attempt: told of each attempt when it is over, before the delay: an ordinary function. What it raises is logged, and no more.
        sleep: does the waiting, in seconds; give your own to wait without time passing.

    `connect()` raises the error of the last attempt as it is, with a note about the others. A `close()` ends the waiting at once, with
    `TransportClosed`; a cancellation as well. Errors of use (`UsageError`) are never tried again. `reconnect()` is tried again likewise,
    until it is cancelled or this transport, the old one, is closed by somebody else meanwhile.

    A `write()` that failed is tried again only if it is certain that nothing of it has gone out, and the connection still stands. If that
    much is certain but the connection is gone, its error comes as it is, with a note. In all other cases it raises `OutcomeUncertain`,
    which is a `TransportClosed` (`WriteUncertain`) where the write raised that. Lines stay in the order of the calls.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        attempts: int = 3,
        backoff: Backoff | None = None,
        on: RetryOn | None = None,
        on_attempt: Callable[[RetryAttempt], object] | None = None,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        super().__init__(transport)
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigurationError(f"attempts is a number of attempts, 1 or more, not {attempts!r}", option="attempts")
        if backoff is not None and not isinstance(backoff, Backoff):
            raise ConfigurationError(f"backoff is a Backoff, not {type(backoff).__name__}", option="backoff")
        _check_hook(on_attempt)
        self._attempts = attempts
        self._backoff = backoff or Backoff()
        self._is_worth_it = _predicate(on)
        self._on_attempt = on_attempt
        self._sleep = sleep
        self._connect_lock = anyio.Lock(fast_acquire=True)
        self._write_lock = anyio.Lock(fast_acquire=True)  # held during a delay, too: the lines behind must not overtake
        self._pauses: set[anyio.CancelScope] = set()
        self._closing = False
        self._closes = 0  # other than those that reconnect() begins with
        self._reconnect_pauses: set[anyio.CancelScope] = set()
        self._cannot_be_written = False  # a write was torn, so by the contract every later one is refused
        self._session_id: str | None = None
        self._unsent: Exception | None = None  # the error of a write that provably handed nothing over

    # ---------------------------------------------------------------------------------------------------------- the contract

    def attach(self, client: Client) -> SessionTerms:
        """Attach the transport inside and return its terms; an `OutcomeUncertain` names the session that they name."""
        terms = super().attach(client)
        self._session_id = None if terms.forks_session else terms.session_id  # of a fork, that is the id of the original
        return terms

    def rewrapped(self, transport: TransportLike) -> Self:
        """Another one that knows the session."""
        another = super().rewrapped(transport)
        another._session_id = self._session_id  # noqa: SLF001 - one of us; the options have not changed with the process
        return another

    async def connect(self) -> None:
        """Connect the transport inside, in several attempts if need be."""
        if self.is_ready():
            await super().connect()
            return
        async with self._connect_lock:
            await self._persist("connect", super().connect, may_repeat=self._is_worth_it)

    async def reconnect(self) -> Self:
        """As `TransportWrapper.reconnect()`, in several attempts if need be."""
        return await self._persist("reconnect", super().reconnect, may_repeat=self._is_worth_it)

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside; see above for what happens when that fails."""
        async with self._write_lock:
            try:
                await self._persist("write", functools.partial(self._write_once, data), may_repeat=lambda error: error is self._unsent)
            finally:
                self._unsent = None

    async def end_input(self) -> None:
        """End the input of the transport inside, after every write that waits for its next attempt."""
        async with self._write_lock:
            await super().end_input()

    async def close(self) -> None:
        """Close the transport inside; nothing is tried again any more, not even a `reconnect()` that is under way."""
        self._closing = True
        pauses = self._pauses
        if not self._closes_to_reconnect():
            self._closes += 1
            pauses = pauses | self._reconnect_pauses
        for pause in tuple(pauses):
            pause.cancel()
        await super().close()

    # --------------------------------------------------------------------------------------------------------- trying again

    async def _persist(
        self,
        action: Literal["connect", "reconnect", "write"],
        attempt: Callable[[], Awaitable[T]],
        *,
        may_repeat: Callable[[Exception], bool],
    ) -> T:
        """What `attempt` gives, in the end; or its last error."""
        failed: list[str] = []
        closes = self._closes
        while True:
            number = len(failed) + 1
            try:
                result = await attempt()
            except Exception as error:
                delay = None
                if number < self._attempts and not self._is_pointless(action, error, closes) and may_repeat(error):
                    delay = self._backoff.delay(number - 1)
                self._tell(RetryAttempt(action=action, number=number, attempts=self._attempts, error=error, delay=delay))
                if delay is None:
                    if failed:
                        error.add_note(f"attempt {number} of {self._attempts} to {action}; before it: {', '.join(failed)}")
                    raise
                failed.append(type(error).__name__)
                cause = error
            else:
                if failed or action != "write":
                    self._tell(RetryAttempt(action=action, number=number, attempts=self._attempts))
                return result
            try:
                await self._pause(delay, action=action)
                if self._is_over(action, closes):
                    raise TransportClosed(f"the transport was closed while it waited to {action} again") from cause
            finally:
                del cause  # it holds this frame, which must not hold it in return

    def _is_pointless(self, action: str, error: Exception, closes: int) -> bool:
        """Whether this must not be tried again whatever the caller thinks of the error."""
        return self._is_over(action, closes) or (isinstance(error, UsageError) and error is not self._unsent)

    def _is_over(self, action: str, closes: int) -> bool:
        """Whether somebody has closed this transport, `closes` times having been before."""
        # by the time a reconnect() fails this transport is closed, which alone is no reason to give up
        return self._closes != closes if action == "reconnect" else self._closing

    async def _pause(self, delay: float, *, action: str) -> None:
        pauses = self._reconnect_pauses if action == "reconnect" else self._pauses
        with anyio.CancelScope() as pause:
            pauses.add(pause)
            try:
                await self._sleep(delay)
            finally:
                pauses.discard(pause)

    def _tell(self, attempt: RetryAttempt) -> None:
        if attempt.delay is not None:
            logger.info(
                "%s failed (%s), attempt %d of %d; again in %.2f s",
                *(attempt.action, type(attempt.error).__name__, attempt.number, attempt.attempts, attempt.delay),
            )
        if self._on_attempt is None:
            return
        try:
            self._on_attempt(attempt)
        except Exception:
            # whoever watches must not decide what happens
            logger.exception("on_attempt failed")

    # -------------------------------------------------------------------------------------------------------------- writing

    async def _write_once(self, data: str | bytes) -> None:
        before = self.info
        refuses = self._closing or self._cannot_be_written or before.exit_code is not None or before.signal is not None
        try:
            await super().write(data)
        except Exception as error:
            if isinstance(error, UsageError) and not isinstance(error, TransportClosed):
                raise  # not connected, input ended, no text: by the contract that is said before anything is handed over
            if refuses:
                error.add_note("nothing of it was handed over: the connection could not be written to any more before this write began")
                raise
            # A transport that is still ready after a failed write has not sent a part of a line, or the next one would be glued to it.
            # That it has not sent all of it is for its own count of bytes to say; one that has never moved is no count.
            counted = 0 < before.bytes_written == self.info.bytes_written
            if counted and self.is_ready() and isinstance(error, _LINK_ERRORS):
                self._unsent = error
                raise
            self._cannot_be_written = not self.is_ready()
            raise self._uncertain(error) from error
        except BaseException:
            self._cannot_be_written = self._cannot_be_written or not self.is_ready()
            raise

    def _uncertain(self, error: Exception) -> OutcomeUncertain:
        session_id = self._session_id
        message = f"whether the line has arrived is not known: {error}"
        if not isinstance(error, TransportClosed):
            return OutcomeUncertain(message, session_id=session_id)
        facts = {"exit_code": error.exit_code, "signal": error.signal, "stderr_tail": error.stderr_tail}
        return WriteUncertain(message, session_id=session_id, **facts)


def _check_hook(hook: object) -> None:
    if hook is not None and (not callable(hook) or inspect.iscoroutinefunction(hook)):
        raise ConfigurationError("on_attempt is an ordinary function, which is called and not awaited", option="on_attempt")


def _predicate(on: object) -> Callable[[Exception], bool]:
    """Whether an error is worth another attempt, as a function that does not fail."""
    if on is None:
        on = ClaudeTransportError
    given: tuple[object, ...] = on if isinstance(on, tuple) else (on,)
    types = tuple(each for each in given if isinstance(each, type) and issubclass(each, Exception))
    if len(types) == len(given):
        return lambda error: isinstance(error, types) and (not isinstance(error, ClaudeTransportError) or error.retryable)
    if isinstance(on, type | tuple) or not callable(on) or inspect.iscoroutinefunction(on):
        raise ConfigurationError(f"on is a type of exception, several in a tuple, or a function of one; {on!r} is neither", option="on")
    decide: Callable[[Exception], object] = on

    def decided(error: Exception) -> bool:
        try:
            return bool(decide(error))
        except Exception:
            # the error that is asked about is the one to be raised
            logger.exception("on failed: not trying again")
            return False

    return decided
