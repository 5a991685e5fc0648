"""What is promised of the figures, and what makes the check fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TARGETS", "Target"]

_SLACK = 0.15  # a figure may be this much under its target before the check fails: what a busy machine does to a ratio


@dataclass(frozen=True)
class Target:
    """A ratio of the report, by its place in it, and the least it should be (1.0: as good as what it is compared with)."""

    what: str
    place: tuple[str, ...]
    least: float

    @property
    def floor(self) -> float:
        """Under this, the check fails."""
        return self.least * (1 - _SLACK)

    def figure(self, tables: dict[str, Any]) -> float:
        """The ratio in the tables of one event loop."""
        found: Any = tables
        for key in self.place:
            found = found[key]
        return float(found["median"])


def _reading(what: str, shape: str, ratio: str, least: float) -> Target:
    return Target(what, ("reading", shape, "ratios", ratio), least)


TARGETS = (
    _reading("small messages as dicts, against the official SDK", "delta, 263 B", "official / ours, dicts", 2.5),
    _reading("small messages typed, through Query, against the official client", "delta, 263 B", "official / ours, Query, typed", 8.0),
    _reading("2.3 KB messages typed, against the official client", "assistant, 2.3 KB", "official / ours, Query, typed", 3.0),
    _reading("1.3 MB messages typed, against the official client", "tool result, 1.3 MB", "official / ours, Query, typed", 1.3),
    _reading("small messages typed, against the limit", "delta, 263 B", "limit / ours, typed", 0.6),
    Target("forwarding raw lines, against the bare pipe", ("carrying", "forward, tool result, 87 KB", "ratios", "limit / ours"), 0.6),
    Target("a message of 100 sessions, against the official client", ("sessions", "100", "ratios", "official / ours"), 1 / 0.6),
    Target("importing what a conversation needs, against the official client", ("importing", "import", "ratios", "official / ours"), 6.0),
)
