"""`Bench`: the settings of every measurement: folder, event loop, amount and rounds."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from speed.harness import Cost, compare, fastest, ratio, table

__all__ = ["Bench", "Table", "Tables"]

Table = dict[str, Any]
"""`unit`, `rows` (costs by subject) and `ratios` (by what is compared, of the rounds and of the `fastest` ones), ready for JSON."""

Tables = dict[str, Callable[[], Table]]
"""By name, the function that measures a table. Nothing is measured before the call, so tables can be left out or measured later."""


@dataclass(frozen=True)
class Bench:
    """One run of the benchmarks on one event loop. `scale` multiplies every amount."""

    folder: Path
    backend: str
    rounds: int
    scale: float

    def amount(self, full: int, *, least: int = 4) -> int:
        """Return `full`, scaled, and at least `least`."""
        return max(round(full * self.scale), least)

    def run(self, func: Callable[..., Awaitable[Cost]], *args: Any, **kwargs: Any) -> Callable[[], Cost]:
        """Return a function that runs `func` in a new event loop."""

        def subject() -> Cost:
            return anyio.run(functools.partial(func, *args, **kwargs), backend=self.backend)

        return subject

    def compare(self, runs: Mapping[str, Callable[[], Cost]], *, ratios: Mapping[str, tuple[str, str]], unit: str) -> Table:
        """Measure the subjects in turns. `ratios` names pairs: the first is divided by the second."""
        costs = compare(runs, rounds=self.rounds)
        found: dict[str, dict[str, Any]] = {}
        for name, pair in ratios.items():
            least = {**fastest(costs, *pair), "wall": fastest(costs, *pair, clock="wall")}
            found[name] = {**ratio(costs, *pair), "wall": ratio(costs, *pair, clock="wall"), "fastest": least}
        return {"unit": unit, "rows": table(costs), "ratios": found}
