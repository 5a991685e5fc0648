"""`PoolLimits`: how many sessions, how old and how large: what is to be started, and what has to go. Pure: no clock, no task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from claude_transport.errors import ConfigurationError

__all__ = ["PoolLimits", "Retirement"]


class Retirement(StrEnum):
    """Why a session was ended."""

    used = "used"
    """It has served its one use."""
    died = "died"
    """It had ended by itself while it waited."""
    silent = "silent"
    """It is there, but did not answer."""
    age = "age"
    """It waited for longer than `max_age`."""
    memory = "memory"
    """Its process holds more than `max_rss_bytes`."""
    surplus = "surplus"
    """It is one more than `warm`, and nobody wanted it for `idle_ttl` seconds."""
    closing = "closing"
    """The pool was closed."""


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one pool; times in seconds, sizes in bytes. Raises `ConfigurationError` for values that make no pool."""

    warm: int = 1
    cap: int = 8
    idle_ttl: float = 300.0
    max_age: float = 3600.0
    max_rss_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_count("cap", self.cap, least=1)
        _check_count("warm", self.warm, least=0)
        if self.warm > self.cap:
            raise ConfigurationError(f"warm ({self.warm}) is more than cap ({self.cap}), which counts every session", option="warm")
        _check_seconds("idle_ttl", self.idle_ttl)
        _check_seconds("max_age", self.max_age)
        if self.max_rss_bytes is not None:
            _check_count("max_rss_bytes", self.max_rss_bytes, least=1)

    def sessions_to_start(self, *, waiting: int, idle: int, starting: int, live: int, may_warm: bool = True) -> int:
        """How many more to start: one for everybody who waits, `warm` for those who will, and never more than `cap` in all.

        `live` counts every session that has, or may have, a process: idle, starting, in use, and ending.
        """
        wanted = waiting + (self.warm if may_warm else 0)
        return max(0, min(wanted - idle - starting, self.cap - live))

    def retirement(self, *, has_ended: bool, age: float, rss_bytes: int | None) -> Retirement | None:
        """Why a session that waits must not be handed out; None when it may. An unknown size is no reason."""
        if has_ended:
            return Retirement.died
        if age >= self.max_age:
            return Retirement.age
        if self.max_rss_bytes is not None and rss_bytes is not None and rss_bytes > self.max_rss_bytes:
            return Retirement.memory
        return None

    def surplus(self, idle_for: Sequence[float]) -> int:
        """How many of those that wait to let go: of what is more than `warm`, those that waited for `idle_ttl`, longest first.

        `idle_for` is how long each has waited, the longest wait first.
        """
        overdue = sum(waited >= self.idle_ttl for waited in idle_for)
        return max(0, min(overdue, len(idle_for) - self.warm))


def _check_count(option: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{option} is a whole number of at least {least}, not {value!r}", option=option)


def _check_seconds(option: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise ConfigurationError(f"{option} is a number of seconds above 0 (math.inf for no limit), not {value!r}", option=option)
