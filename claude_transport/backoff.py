"""When to try again, and whether: `Backoff` is a schedule of delays, `RetryPolicy` the ladder for calls. Pure: nothing here waits."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random as randomness
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

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
"""Seconds a server may make us wait; who says "in five hours" gets an error now, and the caller decides."""

FailureKind: TypeAlias = Literal["rate_limit", "overloaded", "api", "transport", "connection"]
"""What a retry is charged to; each has a budget of its own in `RetryPolicy`."""

_NEVER: Final = frozenset({"auth", "configuration", "usage", "control"})
"""Categories in which the same call fails in the same way, whatever the error itself says."""

_NEVER_CLASSES: Final = (ConfigurationError, CLIVersionMismatch, OutcomeUncertain)
"""Classes that are never retried, whatever their category: a missing binary (`CLINotFoundError`) is still missing a second later."""

_CONNECTION_FAILED: Final = "result.connection_failed"
"""The code of a run whose API could not be reached (`claude_transport.protocol.diagnosis`)."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays in seconds that grow from `first` by `factor` up to `maximum`, each somewhere within `jitter` (a share) of its middle.

    No delay is ever longer than `maximum`. `random` gives numbers from 0 up to 1: with `random.Random(7)` they are always the same.

    Iterating gives the delays, without end. Raises `ConfigurationError` for values that make no schedule.
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
            raise ConfigurationError(f"factor is a number of at least 1, not {self.factor!r}: delays do not shrink", option="factor")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter is a share from 0 to 1, not {self.jitter!r}", option="jitter")
        source: object = self.random
        if not isinstance(source, randomness.Random) and not callable(source):
            message = f"random is a random.Random, or called for numbers from 0 to 1; {source!r} is neither"
            raise ConfigurationError(message, option="random")

    def delay(self, retry: int) -> float:
        """The seconds before retry number `retry`, counted from 0: `first * factor**retry`, with jitter, at most `maximum`."""
        if isinstance(retry, bool) or not isinstance(retry, int) or retry < 0:
            raise UsageError(f"retries are counted from 0: {retry!r} is none of them")
        try:
            growth = float(self.factor) ** retry
        except OverflowError:
            growth = math.inf if self.factor > 1 else 1.0
        middle = min(self.first * growth, self.maximum) if self.first else 0.0
        low, high = middle * (1 - self.jitter), min(middle * (1 + self.jitter), self.maximum)
        rolled = self.random.random() if isinstance(self.random, randomness.Random) else self.random()
        # in this order, a source of randomness that gives nonsense still gives a delay within the bounds
        return min(high, max(low, low + (high - low) * rolled))

    def __iter__(self) -> Iterator[float]:
        return (self.delay(retry) for retry in itertools.count())


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The ladder: how often a failed call is made again for each kind of failure, and how long to wait before.

    * `rate_limit`, `overloaded`: the API says so (429, 529).
    * `api`: the API failed in a way that may pass (500 to 504).
    * `connection`: nobody was reached, so nothing was said: the process did not start, the API did not answer.
    * `transport`: there was somebody, and the conversation broke: a process that died, a torn stream, no result.

    Never made again: what failed for its credential, its configuration or its use; what says of itself that trying again is no use
    (`retryable`); an `OutcomeUncertain`; and whatever may have had side effects.

    `backoff` gives the delays; a `retry-after` or `resets_at` makes a delay longer, never shorter. One that would be longer than
    `max_wait` seconds is not waited for: then there is no retry. Raises `ConfigurationError` for values that make no policy.
    """

    rate_limit: int = 3
    overloaded: int = 3
    api: int = 1
    transport: int = 1
    connection: int = 1
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    max_wait: float = DEFAULT_MAX_WAIT

    def __post_init__(self) -> None:
        for kind in get_args(FailureKind):
            retries = getattr(self, kind)
            if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
                raise ConfigurationError(f"{kind} is a number of retries, 0 or more, not {retries!r}", option=kind)
        if not isinstance(self.backoff, Backoff):
            raise ConfigurationError(f"backoff is a Backoff, not {type(self.backoff).__name__}", option="backoff")
        _check_seconds("max_wait", self.max_wait)

    @classmethod
    def none(cls) -> RetryPolicy:
        """The policy that never tries again."""
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
        """The seconds to wait before the call that failed with `error` is made again; None when it must not be.

        Args:
            earlier: the errors of the attempts before this one; each was charged to the budget of its own kind.
            retry_after: the seconds that the server asked for (see `parse_retry_after`); `error.resets_at` counts as well.
            side_effects: whether the failed attempt may have changed anything. True: never again. False, somebody knows that it did
                not: a conversation that broke may be made again, too. None, nobody knows: only errors that are `retryable`.
            now: for `resets_at`, instead of the clock; in UTC.
        """
        kind = self.kind_of(error, side_effects=side_effects)
        if kind is None:
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
        """What a retry after `error` is charged to; None when there must not be one, whatever the budgets are."""
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
            # these errors cannot know how far the call had come, and so say of themselves that they are not retryable
            return "transport" if error.retryable or nothing_happened else None
        else:
            kind = "api"
        return kind if error.retryable else None


def parse_retry_after(value: str | None, *, now: dt.datetime | None = None) -> float | None:
    """The seconds that a `retry-after` header asks for: a number, or an HTTP date; None for anything else. Never negative."""
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
    """0 for what is no number of seconds: a server's nonsense must not end a call that could be made."""
    return retry_after if retry_after is not None and _is_number(retry_after) else 0.0


def _seconds_until(moment: dt.datetime | None, now: dt.datetime | None) -> float:
    if moment is None:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - (now or dt.datetime.now(dt.UTC))).total_seconds()


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) < math.inf


def _check_seconds(option: str, value: object) -> None:
    if not _is_number(value) or value < 0:  # type: ignore[operator]
        raise ConfigurationError(f"{option} is a number of seconds, 0 or more, not {value!r}", option=option)
