"""The schedule of delays, and the ladder: which failed call is made again, after how long. All of it without an event loop."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Callable
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport import errors
from claude_transport.backoff import Backoff, RetryPolicy, parse_retry_after

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
EXACT = Backoff(jitter=0.0)


def connection_failed() -> errors.APIFailed:
    """What a run says whose API could not be reached."""
    return errors.APIFailed(code="result.connection_failed", category="transport", retryable=True)


def server_error() -> errors.APIFailed:
    return errors.APIFailed(code="result.server_error", retryable=True)


# --------------------------------------------------------------------------------------------------------------- the schedule


def test_delays_double_from_one_second_up_to_the_maximum() -> None:
    assert [*itertools.islice(EXACT, 7)] == [1, 2, 4, 8, 16, 30, 30]
    assert [*itertools.islice(Backoff(first=0.1, factor=10, maximum=5, jitter=0), 4)] == [0.1, 1, 5, 5]
    assert [*itertools.islice(Backoff(first=3, factor=1, jitter=0), 3)] == [3, 3, 3]
    assert [*itertools.islice(Backoff(first=0), 3)] == [0, 0, 0]


@pytest.mark.parametrize(("rolled", "share"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
def test_jitter_is_a_quarter_to_either_side(rolled: float, share: float) -> None:
    assert [*itertools.islice(Backoff(random=lambda: rolled), 4)] == [share, 2 * share, 4 * share, 8 * share]


def test_the_same_randomness_gives_the_same_delays_and_other_randomness_others() -> None:
    def delays(seed: int) -> list[float]:
        return [*itertools.islice(Backoff(random=random.Random(seed).random), 5)]

    assert delays(7) == delays(7)
    assert delays(7) != delays(8)
    assert [*itertools.islice(Backoff(random=random.Random(7)), 5)] == delays(7)


def test_delays_at_the_maximum_are_still_spread() -> None:
    delays = {Backoff(random=random.Random(seed).random).delay(50) for seed in range(20)}
    assert len(delays) == 20
    assert all(0.75 * 30 <= delay <= 30 for delay in delays)


@given(
    first=st.floats(0, 1e6),
    factor=st.one_of(st.floats(1, 1e300), st.integers(1, 10**9)),
    above=st.floats(0, 1e9),
    jitter=st.floats(0, 1),
    rolled=st.floats(),
    retry=st.integers(0, 10**18),
)
def test_a_delay_is_within_its_bounds_whatever_the_numbers(
    first: float, factor: float, above: float, jitter: float, rolled: float, retry: int
) -> None:
    delay = Backoff(first=first, factor=factor, maximum=first + above, jitter=jitter, random=lambda: rolled).delay(retry)
    assert first * (1 - jitter) <= delay <= first + above


@pytest.mark.parametrize(
    ("nonsense", "option"),
    [
        ({"first": -1}, "first"),
        ({"first": math.nan}, "first"),
        ({"first": "1"}, "first"),
        ({"first": True}, "first"),
        ({"first": 2, "maximum": 1}, "maximum"),
        ({"maximum": math.inf}, "maximum"),
        ({"factor": 0.5}, "factor"),
        ({"factor": math.inf}, "factor"),
        ({"factor": None}, "factor"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
        ({"jitter": math.nan}, "jitter"),
        ({"random": 7}, "random"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_by_the_name_of_its_option(nonsense: dict[str, Any], option: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        Backoff(**nonsense)
    assert caught.value.option == option


@pytest.mark.parametrize("retry", [-1, True, 1.5, None])
def test_a_retry_that_cannot_be_counted_is_refused(retry: Any) -> None:
    with pytest.raises(errors.UsageError):
        EXACT.delay(retry)


# ----------------------------------------------------------------------------------------------------------------- the ladder

# error, side effects known or not → the delays until there is no retry any more
LADDER: list[tuple[Callable[[], BaseException], bool | None, list[float]]] = [
    (errors.RateLimited, None, [1, 2, 4]),
    (errors.RateLimited, False, [1, 2, 4]),
    (errors.RateLimited, True, []),
    (errors.Overloaded, None, [1, 2, 4]),
    (errors.Overloaded, True, []),
    (server_error, None, [1]),
    (server_error, True, []),
    (errors.APIFailed, None, []),  # refused as invalid: the same request will be refused again
    (errors.APIFailed, False, []),
    (connection_failed, None, [1]),
    (errors.CLIConnectionError, None, [1]),
    (errors.SpawnError, None, [1]),
    (errors.ConnectTimeout, None, [1]),
    (errors.WorkingDirectoryError, False, []),
    (errors.NotExecutableError, False, []),
    (errors.AuthenticationError, False, []),
    (errors.AuthFailed, False, []),
    (errors.BillingFailed, False, []),
    (errors.CLINotFoundError, False, []),
    (errors.ConfigurationError, False, []),
    (lambda: errors.ConfigurationError(category="transport", retryable=True), False, []),
    (errors.ConnectionLost, None, []),
    (errors.ConnectionLost, False, [1]),
    (errors.ConnectionLost, True, []),
    (errors.ProcessError, None, []),
    (errors.ProcessError, False, [1]),
    (errors.CLIVersionMismatch, False, []),
    (errors.TruncatedStream, None, []),
    (errors.TruncatedStream, False, [1]),
    (errors.CLIJSONDecodeError, False, [1]),
    (errors.MissingResult, None, []),
    (errors.MissingResult, False, [1]),
    (errors.MaxTurnsReached, False, []),
    (errors.BudgetExceeded, False, []),
    (errors.Refused, False, []),
    (errors.PromptTooLong, False, []),
    (errors.StructuredOutputMissing, False, []),
    (errors.TransportClosed, False, []),
    (errors.NotConnected, False, []),
    (errors.ControlTimeout, False, []),
    (errors.OutcomeUncertain, None, []),
    (errors.OutcomeUncertain, False, []),
    (lambda: errors.OutcomeUncertain(retryable=True), False, []),
    (lambda: errors.AuthFailed(retryable=True), False, []),
    (ValueError, False, []),
    (OSError, False, []),
    (KeyboardInterrupt, False, []),
]


@pytest.mark.parametrize(("make", "side_effects", "delays"), LADDER)
def test_the_ladder(make: Callable[[], BaseException], side_effects: bool | None, delays: list[float]) -> None:
    policy = RetryPolicy(backoff=EXACT)
    earlier: list[BaseException] = []
    found: list[float] = []
    while (delay := policy.next_delay(make(), earlier=earlier, side_effects=side_effects)) is not None:
        found.append(delay)
        earlier.append(make())
    assert found == delays


@pytest.mark.parametrize("make", [row[0] for row in LADDER])
def test_the_policy_none_never_tries_again(make: Callable[[], BaseException]) -> None:
    assert RetryPolicy.none().next_delay(make(), side_effects=False) is None


def test_every_error_there_is_has_a_place_on_the_ladder() -> None:
    named = {make for make, *_ in LADDER}
    concrete = {getattr(errors, name) for name in errors.__all__ if not name.endswith("Warning")}
    for error in concrete - named:
        assert error().retryable is (RetryPolicy(backoff=EXACT).next_delay(error()) is not None), error


def test_each_kind_of_failure_has_its_own_budget() -> None:
    policy = RetryPolicy(backoff=EXACT)
    limited, failed, unreachable = errors.RateLimited(), server_error(), connection_failed()
    assert policy.next_delay(unreachable, earlier=[limited, limited]) == 1
    assert policy.next_delay(limited, earlier=[unreachable, limited, failed]) == 2
    assert policy.next_delay(unreachable, earlier=[limited, unreachable]) is None
    assert policy.next_delay(errors.Overloaded(), earlier=[limited] * 3) == 1
    assert RetryPolicy(connection=0).next_delay(unreachable) is None
    assert RetryPolicy(rate_limit=1, backoff=EXACT).next_delay(limited, earlier=[limited]) is None
    assert (
        RetryPolicy(transport=2, backoff=EXACT).next_delay(errors.ProcessError(), earlier=[errors.TruncatedStream()], side_effects=False)
        == 2
    )


@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [(None, 1), (0.5, 1), (5, 5), (60, 60), (60.1, None), (86400, None), (-3, 1), (math.nan, 1), (math.inf, 1)],
)
def test_retry_after_makes_a_delay_longer_but_not_longer_than_the_policy_waits(retry_after: float | None, delay: float | None) -> None:
    assert RetryPolicy(backoff=EXACT).next_delay(errors.Overloaded(), retry_after=retry_after) == delay


@pytest.mark.parametrize(("seconds", "delay"), [(-100, 1), (0, 1), (30, 30), (60, 60), (61, None), (5 * 3600, None)])
def test_a_limit_that_lifts_soon_is_waited_for_and_one_that_lifts_late_is_not(seconds: int, delay: float | None) -> None:
    limited = errors.RateLimited(resets_at=NOW + dt.timedelta(seconds=seconds))
    assert RetryPolicy(backoff=EXACT).next_delay(limited, now=NOW) == delay


def test_a_moment_without_a_time_zone_is_in_utc_and_the_longer_of_two_hints_counts() -> None:
    limited = errors.RateLimited(resets_at=(NOW + dt.timedelta(seconds=20)).replace(tzinfo=None))
    policy = RetryPolicy(backoff=EXACT)
    assert policy.next_delay(limited, now=NOW) == 20
    assert policy.next_delay(limited, now=NOW, retry_after=25) == 25
    assert policy.next_delay(limited, now=NOW, retry_after=5) == 20


def test_without_a_time_given_the_clock_counts() -> None:
    assert RetryPolicy().next_delay(errors.RateLimited(resets_at=dt.datetime.now(dt.UTC) + dt.timedelta(days=1))) is None
    assert RetryPolicy(backoff=EXACT).next_delay(errors.RateLimited(resets_at=dt.datetime.now(dt.UTC) - dt.timedelta(days=1))) == 1


def test_how_long_a_policy_waits_can_be_set() -> None:
    assert RetryPolicy(backoff=EXACT, max_wait=7200).next_delay(errors.RateLimited(), retry_after=3600) == 3600
    assert RetryPolicy(backoff=EXACT, max_wait=0).next_delay(errors.RateLimited(), retry_after=1) is None
    assert RetryPolicy(backoff=EXACT, max_wait=0).next_delay(errors.RateLimited()) == 1


@pytest.mark.parametrize(
    ("nonsense", "option"),
    [
        ({"rate_limit": -1}, "rate_limit"),
        ({"overloaded": 1.5}, "overloaded"),
        ({"api": True}, "api"),
        ({"transport": "1"}, "transport"),
        ({"connection": None}, "connection"),
        ({"backoff": 2.0}, "backoff"),
        ({"max_wait": -1}, "max_wait"),
        ({"max_wait": math.inf}, "max_wait"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_the_name_of_its_option(nonsense: dict[str, Any], option: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        RetryPolicy(**nonsense)
    assert caught.value.option == option


# ----------------------------------------------------------------------------------------------------------------- the header


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Fri, 99 Foo 2026", None),
        ("0", 0),
        ("1", 1),
        (" 2.5 ", 2.5),
        ("-4", 0),
        (format_datetime(NOW + dt.timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(NOW - dt.timedelta(seconds=90), usegmt=True), 0),
    ],
)
def test_a_retry_after_header_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, now=NOW) == seconds


@given(st.text())
def test_any_header_gives_seconds_or_none(value: str) -> None:
    seconds = parse_retry_after(value, now=NOW)
    assert seconds is None or 0 <= seconds < math.inf


# ------------------------------------------------------------------------------------------------------- attempts, in all


def delays_after(policy: RetryPolicy, *failures: errors.ClaudeTransportError) -> list[float | None]:
    return [policy.next_delay(failure, earlier=failures[:index]) for index, failure in enumerate(failures)]


@pytest.mark.parametrize("failure", [errors.RateLimited("x"), errors.Overloaded("x"), server_error(), connection_failed()], ids=repr)
def test_so_many_attempts_are_so_many_whatever_the_failure(failure: errors.ClaudeTransportError) -> None:
    policy = RetryPolicy(attempts=3, backoff=EXACT)
    assert delays_after(policy, failure, failure, failure) == [1, 2, None]
    assert delays_after(RetryPolicy(attempts=1), failure) == [None]


def test_so_many_attempts_are_so_many_when_the_failures_are_of_several_kinds() -> None:
    mixed = (errors.RateLimited("x"), server_error(), connection_failed())
    assert delays_after(RetryPolicy(attempts=3, backoff=EXACT), *mixed) == [1, 1, None]
    assert delays_after(RetryPolicy(attempts=2, backoff=EXACT), *mixed) == [1, None, None]
    assert None not in delays_after(RetryPolicy(backoff=EXACT), *mixed)


def test_so_many_attempts_keep_the_other_rules() -> None:
    policy = RetryPolicy(attempts=5, backoff=EXACT, max_wait=2)
    assert policy.next_delay(errors.RateLimited("x"), retry_after=3) is None
    assert policy.next_delay(errors.AuthFailed("x")) is None
    assert policy.next_delay(server_error(), side_effects=True) is None


def test_a_kind_that_is_given_keeps_its_number() -> None:
    policy = RetryPolicy(attempts=4, api=1, backoff=EXACT)
    assert (policy.rate_limit, policy.api, policy.connection) == (3, 1, 3)
    assert delays_after(policy, server_error(), server_error()) == [1, None]
    assert RetryPolicy() == RetryPolicy(rate_limit=3, overloaded=3, api=1, transport=1, connection=1)


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True, "3"])
def test_what_is_no_number_of_attempts_is_refused(attempts: Any) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        RetryPolicy(attempts=attempts)
    assert str(caught.value) == f"attempts must be a number of attempts, 1 or more, not {attempts!r}"
    assert caught.value.option == "attempts"


def test_an_attempt_that_took_too_long_is_of_the_kind_of_a_broken_connection() -> None:
    late = errors.MissingResult("x", code="exec.cli.timeout", category="timeout", retryable=True)
    assert RetryPolicy.kind_of(late) == "transport"
    final = errors.MissingResult("x", code="exec.cli.timeout", category="timeout")
    assert RetryPolicy.kind_of(final, side_effects=False) is None
