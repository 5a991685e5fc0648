"""The targets of lines over the network."""

from __future__ import annotations

from speed.targets import Target

__all__ = ["TARGETS"]


def _ratio(what: str, ratio: str, least: float) -> Target:
    return Target(what, ("downstream", "ratios", ratio), least)


TARGETS = (
    Target("small messages a second over ws, as dicts", ("downstream", "rates", "ws"), 200_000),
    _ratio("many lines in a WebSocket message, against one in each", "ws, a line a message / ws", 3.0),
    _ratio("a link over tcp costs at most 15 % more than bare lines", "tcp / link over tcp", 1 / 1.15),
    _ratio("a link over ws costs at most 15 % more than bare lines", "ws / link over ws", 1 / 1.15),
)
