"""How everything is measured: subjects take turns, and each round gives one ratio for every pair."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

__all__ = ["Cost", "Meter", "compare", "fastest", "ratio", "spread"]


class Cost(NamedTuple):
    """Seconds for one unit (a message, a write, a megabyte): processor time of this process, and by the clock."""

    cpu: float
    wall: float


class Meter:
    """Measures the block of a `with`. The garbage collector works as usual, but ignores objects from before the block."""

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
        """Return the cost of one of `units`."""
        return Cost(self._cpu / units, self._wall / units)


def compare(runs: Mapping[str, Callable[[], Cost]], *, rounds: int) -> dict[str, list[Cost]]:
    """Return costs by subject, one for each round. The order changes with each round.

    A round before the first one warms up and is not counted; with `rounds=0` it is the only one, and counts.
    """
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
    """Return median and quartiles; for a single value, that value."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median, "low": low, "high": high}


def ratio(costs: Mapping[str, list[Cost]], dearer: str, cheaper: str, *, clock: str = "cpu") -> dict[str, float]:
    """Return the cost of `dearer` divided by that of `cheaper`: median and quartiles of the ratios of all rounds."""
    pairs = zip(costs[dearer], costs[cheaper], strict=True)
    return spread([getattr(one, clock) / max(getattr(other, clock), 1e-9) for one, other in pairs])


def fastest(costs: Mapping[str, list[Cost]], dearer: str, cheaper: str, *, clock: str = "cpu") -> dict[str, float]:
    """Return the cost of the fastest round of `dearer`, divided by that of the fastest round of `cheaper`.

    What else the machine does only adds time. For rounds that are shorter than such a disturbance, the ratios of rounds differ by half, and
    this ratio does not.
    """
    least = {name: min(getattr(cost, clock) for cost in costs[name]) for name in (dearer, cheaper)}
    return spread([least[dearer] / max(least[cheaper], 1e-9)])


def table(costs: Mapping[str, list[Cost]]) -> dict[str, Any]:
    """Return costs for the report: spreads in microseconds, and every sample."""
    return {
        name: {
            "cpu_us": spread([cost.cpu * 1e6 for cost in taken]),
            "wall_us": spread([cost.wall * 1e6 for cost in taken]),
            "samples_us": [[round(cost.cpu * 1e6, 4), round(cost.wall * 1e6, 4)] for cost in taken],
        }
        for name, taken in costs.items()
    }
