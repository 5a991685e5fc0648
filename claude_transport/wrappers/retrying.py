"""`RetryingTransport`: connects in several attempts, repeats writes that certainly sent nothing, and makes the next transport of a session.

Which failed calls of a whole conversation are worth another one is decided in `backoff` (`RetryPolicy`). Why a write is repeated or not is
explained in `docs/explanation/retry-and-resume.md`.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

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
from claude_transport.loggers import logger_for
from claude_transport.transport import Client, SessionTerms, TransportInfo, TransportLike
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.terms_in_use import TermsInUse, close_unconnected

logger: logging.Logger = logger_for(__name__)

T = TypeVar("T")

_LINK_ERRORS = (TransportClosed, ConnectionLost, OSError)
"""Errors of a write that the connection caused, so that another attempt may succeed."""

RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors of `connect()` are worth another attempt: errors of these types, or those for which the function returns True."""

MakeTransport: TypeAlias = Callable[[], TransportLike | Awaitable[TransportLike]]
"""An ordinary or async function that returns a new transport, which is not connected."""

_Action: TypeAlias = Literal["connect", "reconnect", "write"]


class RetryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One finished attempt of a `RetryingTransport`, given to its `on_attempt`: number `number`, counted from 1, of at most `attempts`.

    `action` says what was attempted. `error` is the exception of the attempt, None when it succeeded. `delay` is the time until the next
    attempt in seconds. It is None when there is no next attempt: this one succeeded, was the last one, or failed in a way that is not tried
    again.
    """

    action: _Action
    number: int
    attempts: int
    error: Exception | None = None
    delay: float | None = None


class WriteUncertain(OutcomeUncertain, TransportClosed):
    """The connection broke during a write, and it is unknown whether the peer has received the line.

    It can be caught as `OutcomeUncertain` and as `TransportClosed`. Check the conversation `session_id`, if known, before you repeat the
    line. `exit_code` and `signal` say how the process ended, if that is known.
    """

    category = "transport"


class RetryingTransport(TransportWrapper):
    """Connects `transport` in up to `attempts` attempts, with a growing delay between them. `reconnect()` goes on after a loss.

    Args:
        attempts: the number of attempts in all, 1 or more.
        backoff: the delays between attempts; by default 1 s, then 2 s, each ± 25 %.
        on: which errors are worth another attempt; by default this library's errors whose `retryable` is True. Types narrow this to
            retryable errors of these types, and add exceptions of other libraries. A function decides alone.
        on_attempt: an ordinary function, called after each attempt and before the delay. What it raises is logged.
        sleep: waits the given seconds; pass your own function to wait without time passing.
        make_transport: returns a transport, not connected, for each attempt after the first one to connect, and for each of `reconnect()`:
            an ordinary or async function without arguments. Without it, the same transport is connected again.

    `connect()` raises the error of the last attempt, with a note about the earlier ones. A cancellation ends the waiting at once, and so
    does `close()`, with `TransportClosed`. Errors of use (`UsageError`) are never tried again.

    A failed `write()` is repeated only if nothing of it was sent and the connection still works. If nothing was sent but the connection is
    gone, its error is raised with a note. In all other cases `OutcomeUncertain` is raised; it is a `WriteUncertain` when the write raised
    `TransportClosed`. Lines stay in the order of the calls.

    What `make_transport` returns must ask the layer above for the same as `transport`, for example by the same system prompt, because a
    `Query` learns that once. One that asks for something else ends the attempts, with a `ConfigurationError` that names the difference.

    Raises:
        ConfigurationError: an argument has the wrong type or is out of range; or a `RetryingTransport` is inside.
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
        make_transport: MakeTransport | None = None,
    ) -> None:
        super().__init__(transport)
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigurationError(f"attempts must be a whole number of at least 1, not {attempts!r}", option="attempts")
        if backoff is not None and not isinstance(backoff, Backoff):
            raise ConfigurationError(f"backoff must be a Backoff, not {type(backoff).__name__}", option="backoff")
        if on_attempt is not None and (not callable(on_attempt) or inspect.iscoroutinefunction(on_attempt)):
            raise ConfigurationError("on_attempt must be an ordinary function, because it is not awaited", option="on_attempt")
        if make_transport is not None and not callable(make_transport):
            raise ConfigurationError(
                f"make_transport must be a function that returns a transport, not {type(make_transport).__name__}", option="make_transport"
            )
        taken = "a RetryingTransport is inside, so the attempts of both would multiply. Give all attempts to one of them."
        self.claim("attempts", taken=taken)
        self._make_transport = make_transport
        self._settings: dict[str, Any] = {
            "attempts": attempts,
            "backoff": backoff or Backoff(),
            "on": on,
            "on_attempt": on_attempt,
            "sleep": sleep,
        }
        self._attempts = attempts
        self._backoff: Backoff = self._settings["backoff"]
        self._is_worth_it = _predicate(on)
        self._on_attempt = on_attempt
        self._sleep = sleep
        self._connect_lock = anyio.Lock(fast_acquire=True)
        self._write_lock = anyio.Lock(fast_acquire=True)  # held during a delay, too: later lines must not overtake
        self._runs: set[_RetriedCall] = set()
        self._closing = False
        self._cannot_be_written = False  # a write was torn, so by the contract every later one is refused
        self._in_use = TermsInUse()
        self._is_spent = False  # `transport` has failed to connect
        self._session_id: str | None = None
        self._unsent: Exception | None = None  # the error of a write that provably sent nothing
        self._connect_retries = 0

    @property
    def info(self) -> TransportInfo:
        """What the wrapped transport knows about its connection now, with the `connect_retries` of this one."""
        info = super().info
        if not self._connect_retries:
            return info
        return msgspec.structs.replace(info, connect_retries=info.connect_retries + self._connect_retries)

    @property
    def why_outermost(self) -> str:
        """Why no other wrapper should be around this one: it would not be around what `reconnect()` makes."""
        if self._make_transport is None:
            return ""
        return "it is not around the transport that reconnect() returns. Put it inside: into what make_transport returns."

    def attach(self, client: Client) -> SessionTerms:
        """Return the `SessionTerms` of the wrapped transport, after telling it about `client`, the layer above (usually a `Query`).

        `client` is kept for the transports that are made later, and `session_id` of the `SessionTerms` for an `OutcomeUncertain`.
        """
        terms = self._in_use.announce(client, super().attach(client), may_replace=self._make_transport is not None)
        self._session_id = None if terms.forks_session else terms.session_id  # of a fork, that is the id of the original
        return terms

    async def connect(self) -> None:
        """Connect the wrapped transport, in up to `attempts` attempts. Does nothing when it is connected.

        With `make_transport`, a transport that could not be connected is closed, and the next attempt connects a new one.

        When all attempts fail, or one fails in a way that is not tried again, it raises the error of the last attempt. `close()` ends the
        waiting with `TransportClosed`.
        """
        if self.is_ready():
            await super().connect()
            return
        async with self._connect_lock:
            run = _RetriedCall("connect", is_over=self._closing)
            await self._persist(run, functools.partial(self._connect_once, run), may_repeat=self._is_worth_it)

    async def reconnect(self) -> RetryingTransport:
        """Close this transport, and return a new connected `RetryingTransport` around what `make_transport` returns.

        The new one has the same settings, and is attached to the layer above as this one was. Each attempt makes a new transport. Nothing
        that was written is written again. `close()` of this transport ends a `reconnect()` that is under way, with `TransportClosed`. After
        a failure or a cancellation nothing is open, and `reconnect()` may be called again. When all attempts fail, it raises the error of
        the last one.

        Raises:
            UsageError: there is no `make_transport`, and nothing has happened; or it returned something that is not a transport.
        """
        if self._make_transport is None:
            raise UsageError("this RetryingTransport cannot reconnect: give it make_transport=, a function that returns the next transport")
        run = _RetriedCall("reconnect")
        self._closing = True
        for other in tuple(self._runs):
            if other.action != "reconnect":
                other.give_up()
        replace = functools.partial(self._replace, run, self._make_transport)
        return await self._persist(run, replace, may_repeat=self._is_worth_it)

    async def write(self, data: str | bytes) -> None:
        """Write `data` to the wrapped transport; write it again when that failed, nothing was sent, and the connection still works.

        Raises:
            OutcomeUncertain: it is unknown whether the data has arrived; a `WriteUncertain` when the connection is closed.
            TransportClosed: the connection is gone. Nothing was sent, as with every error except `OutcomeUncertain`.
            UsageError: the wrapped transport has refused `data`, for example before `connect()` or after `end_input()`.
        """
        async with self._write_lock:
            run = _RetriedCall("write", is_over=self._closing)
            try:
                await self._persist(run, functools.partial(self._write_once, data), may_repeat=lambda error: error is self._unsent)
            finally:
                self._unsent = None

    async def end_input(self) -> None:
        """End the input of the wrapped transport. It waits for the writes that came before, with all their attempts. Reading continues."""
        async with self._write_lock:
            await super().end_input()

    async def close(self) -> None:
        """Close the wrapped transport, and make no further attempts. Later calls do nothing and wait for the first.

        A `connect()`, `write()` or `reconnect()` that waits for its next attempt raises `TransportClosed`. A `make_transport` that is
        running is not interrupted; the transport that it returns is closed.
        """
        self._closing = True
        runs = tuple(self._runs)
        for run in runs:
            run.give_up()
        try:
            await super().close()
        finally:
            for run in runs:
                if run.successor is not None:
                    await run.successor.close()

    async def _connect_once(self, run: _RetriedCall) -> None:
        """Connect the transport, or a new one in place of one that has failed."""
        if self._is_spent and self._make_transport is not None and not run.is_over:
            await close_unconnected(self._transport)
            made = await _made_by(self._make_transport)
            if self._closing:  # while it was made
                await close_unconnected(made)
                raise TransportClosed("the transport was closed while it was connecting")
            self._wrap_instead(made)
            self._in_use.take(made, option="make_transport")
        try:
            await super().connect()
        except Exception:
            self._is_spent = True
            raise
        self._is_spent = False  # a reader keeps this one from now on

    async def _replace(self, run: _RetriedCall, make_transport: MakeTransport) -> RetryingTransport:
        """Close this transport, then make, attach and connect the next one."""
        await super().close()
        inside = await _made_by(make_transport)
        successor = RetryingTransport(inside, make_transport=make_transport, **self._settings)
        run.successor = successor
        try:
            if run.is_over:  # close() was called while the successor was made
                await successor.close()
            if self._in_use.client is not None:
                successor.attach(self._in_use.client)
            await inside.connect()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await successor.close()
            raise
        return successor

    # Trying again.

    async def _persist(self, run: _RetriedCall, attempt: Callable[[], Awaitable[T]], *, may_repeat: Callable[[Exception], bool]) -> T:
        """Call `attempt` until it succeeds, and return its result; raise its last error when it must not be tried again."""
        failed: list[str] = []
        self._runs.add(run)
        try:
            while True:
                number = len(failed) + 1
                try:
                    result = await attempt()
                except Exception as error:
                    is_pointless = run.is_over or (isinstance(error, UsageError) and error is not self._unsent)
                    delay = None
                    if number < self._attempts and not is_pointless and may_repeat(error):
                        delay = self._backoff.delay(number - 1)
                    self._tell(RetryAttempt(action=run.action, number=number, attempts=self._attempts, error=error, delay=delay))
                    if delay is None:
                        if failed:
                            error.add_note(f"attempt {number} of {self._attempts} to {run.action}; before it: {', '.join(failed)}")
                        raise
                    failed.append(type(error).__name__)
                    cause = error
                else:
                    if failed or run.action != "write":
                        self._tell(RetryAttempt(action=run.action, number=number, attempts=self._attempts))
                    return result
                try:
                    await run.pause(self._sleep, delay)
                    if run.is_over:
                        raise TransportClosed(f"the transport was closed while it waited to {run.action} again") from cause
                finally:
                    del cause  # it holds this frame, which must not hold it in return
                self._connect_retries += run.action == "connect"
        finally:
            self._runs.discard(run)

    def _tell(self, attempt: RetryAttempt) -> None:
        if attempt.delay is not None:
            logger.info(
                "%s failed (%s), attempt %d of %d; trying again in %.2f s",
                *(attempt.action, type(attempt.error).__name__, attempt.number, attempt.attempts, attempt.delay),
            )
        if self._on_attempt is None:
            return
        try:
            self._on_attempt(attempt)
        except Exception:
            logger.exception("on_attempt failed; the attempts go on")

    # Writing.

    async def _write_once(self, data: str | bytes) -> None:
        before = self.info
        refuses = self._closing or self._cannot_be_written or before.exit_code is not None or before.signal is not None
        try:
            await super().write(data)
        except Exception as error:
            if isinstance(error, UsageError) and not isinstance(error, TransportClosed):
                raise  # not connected, input ended, not text: by the contract these come before anything is sent
            if refuses:
                error.add_note("nothing of it was sent: the connection could not be written to any more before this write began")
                raise
            # A transport that is still ready after a failed write has sent no part of a line, or the next line would be glued to it.
            # Whether it has sent the whole line, its count of bytes says. A count that has never moved proves nothing.
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
        message = f"it is unknown whether the line has arrived: {error}"
        if not isinstance(error, TransportClosed):
            return OutcomeUncertain(message, session_id=session_id)
        facts = {"exit_code": error.exit_code, "signal": error.signal, "stderr_tail": error.stderr_tail}
        return WriteUncertain(message, session_id=session_id, **facts)


async def _made_by(make_transport: MakeTransport) -> TransportLike:
    made = make_transport()
    inside = await made if inspect.isawaitable(made) else made
    if isinstance(inside, type) or not isinstance(inside, TransportLike):
        raise UsageError(f"make_transport returned {inside!r}, not a transport with its six methods")
    return inside


class _RetriedCall:
    """One `connect()`, `reconnect()` or `write()` that is under way, with all its attempts."""

    def __init__(self, action: _Action, *, is_over: bool = False) -> None:
        self.action: _Action = action
        self.is_over = is_over
        self.successor: RetryingTransport | None = None  # the transport that a reconnect() is connecting
        self._pause: anyio.CancelScope | None = None

    def give_up(self) -> None:
        """Make the current attempt the last one, and end the delay after it."""
        self.is_over = True
        if self._pause is not None:
            self._pause.cancel()

    async def pause(self, sleep: Callable[[float], Awaitable[object]], delay: float) -> None:
        with anyio.CancelScope() as self._pause:
            await sleep(delay)
        self._pause = None


def _predicate(on: object) -> Callable[[Exception], bool]:
    """Return a function that tells whether an error is worth another attempt, and never raises."""
    if on is None:
        on = ClaudeTransportError
    given: tuple[object, ...] = on if isinstance(on, tuple) else (on,)
    types = tuple(each for each in given if isinstance(each, type) and issubclass(each, Exception))
    if len(types) == len(given):
        return lambda error: isinstance(error, types) and (not isinstance(error, ClaudeTransportError) or error.retryable)
    if isinstance(on, type | tuple) or not callable(on) or inspect.iscoroutinefunction(on):
        raise ConfigurationError(f"on must be an exception type, a tuple of them, or an ordinary function, not {on!r}", option="on")
    decide: Callable[[Exception], object] = on

    def decided(error: Exception) -> bool:
        try:
            return bool(decide(error))
        except Exception:
            logger.exception("on failed, so this error is not tried again")
            return False

    return decided
