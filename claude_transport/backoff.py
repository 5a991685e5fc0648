"""Decide whether to retry, and when: `Backoff` is a schedule of delays, `RetryPolicy` decides about failed calls. Nothing here waits."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random as randomness
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import force_setattr

from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    CLIVersionMismatch,
    ConfigurationError,
    OutcomeUncertain,
    Overloaded,
    UsageError,
)

DEFAULT_MAX_WAIT: Final = 60.0
"""Maximum seconds to wait because a server asks for it. A longer wait becomes an error at once."""

FailureKind: TypeAlias = Literal["rate_limit", "overloaded", "api", "transport", "connection"]
"""The kinds of failures; each has its own number of retries in `RetryPolicy`."""

_NEVER: Final = frozenset({"auth", "configuration", "usage", "control"})
"""Categories in which the same call fails again, whatever the error's `retryable` says."""

_NEVER_CLASSES: Final = (ConfigurationError, CLIVersionMismatch, OutcomeUncertain)
"""Classes that are never retried, whatever their category."""

_RETRIES: Final[dict[FailureKind, int]] = {"rate_limit": 3, "overloaded": 3, "api": 1, "transport": 1, "connection": 1}
"""How many times a call is made again after failures of each kind, when the caller says nothing."""

_NOT_GIVEN: Final[Any] = msgspec.UNSET
"""The default of a kind, until the policy is made."""

_CONNECTION_FAILED: Final = "result.connection_failed"
"""The code of a run that could not reach the API (`claude_transport.protocol.diagnosis`)."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of delays in seconds: they grow from `first` by `factor`, up to `maximum`. Iterating gives the delays, without end.

    Each delay is varied at random by up to the share `jitter` (0.25 is ± 25 %), but is never longer than `maximum`. `random` returns
    numbers from 0 to 1; `random.Random(7)` gives the same delays every time. It only calculates; the caller waits. Raises
    `ConfigurationError` for invalid values.
    """

    first: float = 1.0
    factor: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.25
    random: randomness.Random | Callable[[], float] = randomness.random

    def __post_init__(self) -> None:
        _check_seconds("first", self.first)
        _check_seconds("maximum", self.maximum)
        if self.maximum < self.first:
            raise ConfigurationError(f"maximum ({self.maximum:g} s) is less than first ({self.first:g} s)", option="maximum")
        if not _is_number(self.factor) or self.factor < 1:
            raise ConfigurationError(f"factor must be a number of at least 1, not {self.factor!r}", option="factor")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter must be a number from 0 to 1, not {self.jitter!r}", option="jitter")
        source: object = self.random
        if not isinstance(source, randomness.Random) and not callable(source):
            raise ConfigurationError(f"random must be a random.Random or a callable, not {source!r}", option="random")

    def delay(self, retry: int) -> float:
        """Return the seconds to wait before retry number `retry`, counted from 0. It does not wait.

        That is `first * factor**retry`, varied at random, and at most `maximum`.

        Raises:
            UsageError: `retry` is not a whole number of 0 or more.
        """
        if isinstance(retry, bool) or not isinstance(retry, int) or retry < 0:
            raise UsageError(f"retry must be a whole number of 0 or more, not {retry!r}")
        try:
            growth = float(self.factor) ** retry
        except OverflowError:
            growth = math.inf if self.factor > 1 else 1.0
        middle = min(self.first * growth, self.maximum) if self.first else 0.0
        low, high = middle * (1 - self.jitter), min(middle * (1 + self.jitter), self.maximum)
        rolled = self.random.random() if isinstance(self.random, randomness.Random) else self.random()
        # this order keeps the delay within its bounds even when `random` returns nonsense
        return min(high, max(low, low + (high - low) * rolled))

    def __iter__(self) -> Iterator[float]:
        return (self.delay(retry) for retry in itertools.count())


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a failed call is made again, for each kind of failure, and how long to wait before. It only decides; the caller waits.

    Each number is how many times a call may be made again after failures of this kind:

    * `rate_limit`, `overloaded`: the API reports it (429, 529).
    * `api`: the API failed in a way that may pass (500 to 504).
    * `connection`: no connection was made, so nothing was sent: the process did not start, or the API did not answer.
    * `transport`: the connection broke: the process died, the stream was cut, the result is missing, an attempt took too long.

    Never retried are errors of credentials, configuration and usage, `OutcomeUncertain`, and calls that may have had side effects. Nor are
    errors whose `retryable` is False, except a broken connection or stream (`transport`) of a call that certainly had no side effects.

    `backoff` gives the delays. A `retry-after` or `resets_at` can make a delay longer, never shorter. When it asks for more than
    `max_wait` seconds, there is no retry; the delays of `backoff` are not limited by `max_wait`. Raises `ConfigurationError` for invalid
    values.

    `attempts` is the most attempts in all, the first one included. With it, a kind that is not given may use them all:
    `RetryPolicy(attempts=3)` is three attempts for whatever may be retried. Without it, a kind that is not given has 3 for `rate_limit` and
    `overloaded`, and 1 for the others.
    """

    rate_limit: int = _NOT_GIVEN
    overloaded: int = _NOT_GIVEN
    api: int = _NOT_GIVEN
    transport: int = _NOT_GIVEN
    connection: int = _NOT_GIVEN
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    max_wait: float = DEFAULT_MAX_WAIT
    attempts: int | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None:
            _check_attempts(self.attempts)
        for kind in get_args(FailureKind):
            retries = getattr(self, kind)
            if retries is _NOT_GIVEN:
                retries = _RETRIES[kind] if self.attempts is None else self.attempts - 1
                force_setattr(self, kind, retries)
            if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
                raise ConfigurationError(f"{kind} must be a number of retries, 0 or more, not {retries!r}", option=kind)
        if not isinstance(self.backoff, Backoff):
            raise ConfigurationError(f"backoff must be a Backoff, not {type(self.backoff).__name__}", option="backoff")
        _check_seconds("max_wait", self.max_wait)

    @classmethod
    def none(cls) -> RetryPolicy:
        """Return a policy that never retries: the number of retries is 0 for each kind of failure."""
        return cls(rate_limit=0, overloaded=0, api=0, transport=0, connection=0)

    def next_delay(
        self,
        error: BaseException,
        *,
        earlier: Sequence[BaseException] = (),
        retry_after: float | None = None,
        side_effects: bool | None = None,
        now: dt.datetime | None = None,
    ) -> float | None:
        """Return the seconds to wait before the failed call is made again; None when it must not be. It does not wait.

        Args:
            error: the error of the failed call.
            earlier: the errors of the attempts before; each one used up a retry of its own kind.
            retry_after: the seconds that the server asked for (see `parse_retry_after`); `error.resets_at` is used as well.
            side_effects: whether the failed attempt had side effects. True: no retry. False: known to have none, so a broken conversation
                can be retried, too. None: unknown; only errors with `retryable` are retried.
            now: the current time in UTC, compared with `resets_at`; None reads the clock.
        """
        kind = self.kind_of(error, side_effects=side_effects)
        if kind is None or (self.attempts is not None and len(earlier) + 1 >= self.attempts):
            return None
        made = sum(self.kind_of(each, side_effects=False) == kind for each in earlier)
        budget: int = getattr(self, kind)
        if made >= budget:
            return None
        asked = max(_seconds_asked(retry_after), _seconds_until(getattr(error, "resets_at", None), now))
        if asked > self.max_wait:
            return None
        return max(self.backoff.delay(made), asked)

    @staticmethod
    def kind_of(error: BaseException, *, side_effects: bool | None = None) -> FailureKind | None:
        """Return the kind of failure that `error` is, whose number of retries counts for it; None when it must never be retried.

        `side_effects` says whether the failed attempt had any. True gives None. False: known to have none, so a broken conversation is of
        the kind `transport`. None: unknown; only errors with `retryable` have a kind.
        """
        if side_effects or not isinstance(error, ClaudeTransportError):
            return None
        if error.category in _NEVER or isinstance(error, _NEVER_CLASSES):
            return None
        nothing_happened = side_effects is False
        if isinstance(error, Overloaded):
            kind: FailureKind = "overloaded"
        elif error.category == "rate_limit":
            kind = "rate_limit"
        elif isinstance(error, CLIConnectionError) or error.code == _CONNECTION_FAILED:
            kind = "connection"
        elif error.category in ("transport", "protocol"):
            # these errors do not know how far the call got, so their `retryable` is False
            return "transport" if error.retryable or nothing_happened else None
        elif error.category == "timeout":
            kind = "transport"
        else:
            kind = "api"
        return kind if error.retryable else None


def parse_retry_after(value: str | None, *, now: dt.datetime | None = None) -> float | None:
    """Return the seconds that a `retry-after` header asks for, never negative; None when `value` is neither a number nor an HTTP date.

    Args:
        value: the value of the header, or None when there was none.
        now: the current time in UTC, subtracted from a date; None reads the clock.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = _seconds_until(parsedate_to_datetime(value), now)
        except ValueError:
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _seconds_asked(retry_after: float | None) -> float:
    """Return `retry_after`, or 0 when it is not a number of seconds: a bad header must not prevent a retry."""
    return retry_after if retry_after is not None and _is_number(retry_after) else 0.0


def _seconds_until(moment: dt.datetime | None, now: dt.datetime | None) -> float:
    if moment is None:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - (now or dt.datetime.now(dt.UTC))).total_seconds()


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) < math.inf


def _check_attempts(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"attempts must be a number of attempts, 1 or more, not {value!r}", option="attempts")


def _check_seconds(option: str, value: object) -> None:
    if not _is_number(value) or value < 0:  # type: ignore[operator]
        raise ConfigurationError(f"{option} must be a number of seconds, 0 or more, not {value!r}", option=option)
