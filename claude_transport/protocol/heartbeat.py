"""When to ask a silent peer whether it is still there, and when to give it up: decided from times that are passed in."""

from __future__ import annotations

from enum import Enum

from claude_transport.errors import ConfigurationError

__all__ = ["DEFAULT_HEARTBEAT", "Heartbeat", "Pulse"]

DEFAULT_HEARTBEAT = 15.0
"""Seconds of silence before a ping: a quarter of the minute after which common proxies and load balancers drop an idle connection."""

_PATIENCE = 2.0
"""A peer is given up after so many intervals of silence: its answer has a whole interval to arrive."""


class Pulse(Enum):
    """What is to be done about a peer."""

    fine = "fine"
    ping = "ping"
    lost = "lost"


class Heartbeat:
    """The judgement of one connection, `interval` seconds of silence at a time. Any byte that arrives is a sign of life.

    Times are seconds on any clock that does not go back. Raises `ConfigurationError` for an interval that is not positive.
    """

    __slots__ = ("_asked", "_heard", "interval")

    def __init__(self, *, interval: float = DEFAULT_HEARTBEAT, now: float) -> None:
        if not interval > 0:
            raise ConfigurationError(f"heartbeat is a number of seconds over 0, not {interval!r}", option="heartbeat")
        self.interval: float = interval
        self._heard = now
        self._asked = False

    def heard(self, now: float) -> None:
        """Bytes have arrived."""
        self._heard = now
        self._asked = False

    @property
    def next_check(self) -> float:
        """The time at which `check()` will have something to say, unless something is heard before."""
        return self._heard + self.interval * (_PATIENCE if self._asked else 1.0)

    def check(self, now: float) -> Pulse:
        """What is to be done now; a ping is asked for once in each silence."""
        silence = now - self._heard
        if silence >= self.interval * _PATIENCE and self._asked:
            return Pulse.lost
        if silence >= self.interval and not self._asked:
            self._asked = True
            # however late this check is, the peer gets a whole interval to answer in
            self._heard = max(self._heard, now - self.interval)
            return Pulse.ping
        return Pulse.fine
