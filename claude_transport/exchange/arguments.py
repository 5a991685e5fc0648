"""Checks of arguments that conversations share. What is wrong is a typed error, raised where the argument is given."""

from __future__ import annotations

import math

from claude_transport.errors import ConfigurationError, UsageError


def check_callback(option: str, callback: object) -> None:
    """Raise `ConfigurationError` unless `callback` can be called or is None."""
    if callback is not None and not callable(callback):
        raise ConfigurationError(f"{option} must be an async function, not {type(callback).__name__}", option=option)


def check_number(option: str, value: object, *, positive: bool) -> None:
    """Raise `ConfigurationError` unless `value` is a number of at least 0; with `positive`, above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 if positive else value >= 0):
        raise ConfigurationError(f"{option} must be a number {'above' if positive else 'of at least'} 0, not {value!r}", option=option)


def check_seconds(name: str, value: object) -> None:
    """Raise `UsageError` unless `value` is a number. Negative numbers are accepted, and mean 0 seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name} must be a number of seconds (math.inf for no limit), not {value!r}")
