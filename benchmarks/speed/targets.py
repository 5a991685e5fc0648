"""The targets of the figures, and the floors that make the check fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TARGETS", "AtMost", "Either", "Target"]

_SLACK = 0.15  # a figure may be this much under its target before the check fails: noise of a busy machine


@dataclass(frozen=True)
class Target:
    """A ratio of the report, by its place in it, and the least it should be (1.0: as good as what it is compared with)."""

    what: str
    place: tuple[str, ...]
    least: float

    @property
    def floor(self) -> float:
        """The figure under which the check fails."""
        return self.least * (1 - _SLACK)

    def figure(self, tables: dict[str, Any]) -> float:
        """Return the ratio in the tables of one event loop."""
        found: Any = tables
        for key in self.place:
            found = found[key]
        return float(found["median"])

    def shown(self, tables: dict[str, Any]) -> str:
        """Return the figure as text."""
        figure = self.figure(tables)
        return f"{figure:.2f}" if figure < 100 else f"{figure:,.0f}"


@dataclass(frozen=True)
class AtMost(Target):
    """A target for a figure that must not be larger than `most`, in `unit`. Its ratio is `most` divided by the figure."""

    most: float = 1.0
    unit: str = ""

    def figure(self, tables: dict[str, Any]) -> float:
        return self.most / super().figure(tables)

    def shown(self, tables: dict[str, Any]) -> str:
        return f"{super().figure(tables):.1f} {self.unit}"


@dataclass(frozen=True)
class Either(Target):
    """A target that any of several figures may meet. Its figure is the best of them, divided by what is needed."""

    ways: tuple[Target, ...] = ()

    def figure(self, tables: dict[str, Any]) -> float:
        return max(way.figure(tables) / way.least for way in self.ways)

    def shown(self, tables: dict[str, Any]) -> str:
        return " or ".join(f"{way.figure(tables):.2f} {way.what}" for way in self.ways)


def _reading(what: str, shape: str, ratio: str, least: float) -> Target:
    return Target(what, ("reading", shape, "ratios", ratio), least)


def _forwarding(shape: str) -> Target:
    place = ("carrying", f"forward, {shape}")
    ways = (
        # throughput by the clock, as the other way is: a forwarder mostly waits for its pipes
        Target("of the bare pipe's", (*place, "ratios", "limit / ours", "wall"), 0.6),
        Target("GB/s", (*place, "gigabytes_a_second", "ours"), 1.0),
    )
    return Either("forwarding raw lines of 87 KB: 0.60 of the bare pipe's throughput, or 1.00 GB/s", place, 1.0, ways)


def _asking(what: str, *clock: str) -> Target:
    return Target(what, ("conversing", "control round trip", "ratios", "official / ours", *clock), 1.0)


def _first_conversation(most: float) -> Target:
    what = f"a first conversation, with its imports, above an event loop that does nothing: at most {most:.0f} ms of processor time"
    return AtMost(what, ("importing", "first conversation", "added_ms", "ours, to an event loop"), 1.0, most, "ms")


def _idle_session(most: float) -> Target:
    what = f"resident memory of the host for each idle session: at most {most:.0f} KB"
    return AtMost(what, ("idle", "idle sessions", "rows", "ours", "kb_a_session"), 1.0, most, "KB")


def _import(what: str, table: str) -> Target:
    return Target(f"{what}, against the official SDK", ("importing", table, "ratios", "official / ours"), 6.0)


TARGETS = (
    _reading("small messages as dicts, against the official SDK", "delta, 263 B", "official / ours, dicts", 2.5),
    _reading("small messages typed, through Query, against the official client", "delta, 263 B", "official / ours, Query, typed", 8.0),
    _reading("2.3 KB messages typed, against the official client", "assistant, 2.3 KB", "official / ours, Query, typed", 3.0),
    _reading("1.3 MB messages typed, against the official client", "tool result, 1.3 MB", "official / ours, Query, typed", 1.3),
    _reading("small messages typed, against the limit", "delta, 263 B", "limit / ours, typed", 0.6),
    _forwarding("tool result, 87 KB"),
    Target("a message of 100 sessions, against the official client", ("sessions", "100", "ratios", "official / ours"), 1 / 0.6),
    _asking("a control round trip, against the official client"),
    _asking("a control round trip, against the official client, by the clock", "wall"),
    # the prompt may cost one more, which is none for a batch
    Target("batches of small messages for each wake-up", ("waking", "delta, 263 B", "ratios", "batches / wake-up, ours"), 0.99),
    _import("importing the package", "import of the package"),
    _import("importing what a conversation needs", "import of what a conversation needs"),
    _first_conversation(60.0),
    _idle_session(30.0),
)
