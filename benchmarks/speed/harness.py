"""How everything is measured here: subjects take turns, and each turn of all of them gives one ratio for every pair."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

__all__ = ["Cost", "Meter", "compare", "ratio", "spread"]


class Cost(NamedTuple):
    """Seconds of one unit (a message, a write, a megabyte): of this process's processor time, and by the clock on the wall."""

    cpu: float
    wall: float


class Meter:
    """Measures what is done inside `with`. The garbage collector works as it always does, but does not see what was there before."""

    def __enter__(self) -> Self:
        gc.collect()
        gc.freeze()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._cpu = time.process_time() - self._cpu
        self._wall = time.perf_counter() - self._wall
        gc.unfreeze()

    def cost(self, units: float) -> Cost:
        """What one of `units` cost."""
        return Cost(self._cpu / units, self._wall / units)


def compare(runs: Mapping[str, Callable[[], Cost]], *, rounds: int) -> dict[str, list[Cost]]:
    """Costs by subject, one for each round. Who goes first changes, and a round before the first one
    warms everything up; with no rounds, that one is all there is."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    names = list(runs)
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            cost = runs[name]()
            if number or not rounds:
                costs[name].append(cost)
    return costs


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles (of one value: that value)."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median, "low": low, "high": high}


def ratio(costs: Mapping[str, list[Cost]], dearer: str, cheaper: str, *, clock: str = "cpu") -> dict[str, float]:
    """How many times as much `dearer` costs: median and quartiles of the ratios of all rounds."""
    pairs = zip(costs[dearer], costs[cheaper], strict=True)
    return spread([getattr(one, clock) / max(getattr(other, clock), 1e-9) for one, other in pairs])


def table(costs: Mapping[str, list[Cost]]) -> dict[str, Any]:
    """Costs as they go into the report: spreads in microseconds, and every sample."""
    return {
        name: {
            "cpu_us": spread([cost.cpu * 1e6 for cost in taken]),
            "wall_us": spread([cost.wall * 1e6 for cost in taken]),
            "samples_us": [[round(cost.cpu * 1e6, 4), round(cost.wall * 1e6, 4)] for cost in taken],
        }
        for name, taken in costs.items()
    }
