"""The numbers that bound a transport, checked when it is made: a limit of nothing would lose every line, a NaN would never expire."""

from __future__ import annotations

from claude_transport.errors import ConfigurationError

__all__ = ["check_bounds"]


def check_bounds(**bounds: object) -> None:
    """Return when every `…_bytes` is an int of at least 1, and every timeout a number of seconds that is not negative.

    Raises `ConfigurationError` with the name of the first that is not.
    """
    for option, value in bounds.items():
        if option.endswith("_bytes"):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"{option} is a whole number of at least 1 byte, not {value!r}", option=option)
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigurationError(f"{option} is a number of seconds, 0 or more, not {value!r}", option=option)
