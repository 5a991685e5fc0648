"""`Bench`: what every measurement is told: where its files are, which event loop, how much, how often."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from speed.harness import Cost, compare, ratio, table

__all__ = ["Bench", "Table", "Tables"]

Table = dict[str, Any]
"""`unit`, `rows` (costs by subject) and `ratios` (by what is compared), ready for JSON."""

Tables = dict[str, Callable[[], Table]]
"""By name, what has to be called to measure it: nothing is measured before, so any of them can be left out, or done later."""


@dataclass(frozen=True)
class Bench:
    """One run of the benchmarks on one event loop. `scale` multiplies every amount."""

    folder: Path
    backend: str
    rounds: int
    scale: float

    def amount(self, full: int, *, least: int = 4) -> int:
        """`full` of something, scaled."""
        return max(round(full * self.scale), least)

    def run(self, func: Callable[..., Awaitable[Cost]], *args: Any, **kwargs: Any) -> Callable[[], Cost]:
        """A subject: `func` in an event loop of its own."""

        def subject() -> Cost:
            return anyio.run(functools.partial(func, *args, **kwargs), backend=self.backend)

        return subject

    def compare(self, runs: Mapping[str, Callable[[], Cost]], *, ratios: Mapping[str, tuple[str, str]], unit: str) -> Table:
        """The subjects, measured in turns; `ratios` says by name which of them is divided by which."""
        costs = compare(runs, rounds=self.rounds)
        found = {name: {**ratio(costs, *pair), "wall": ratio(costs, *pair, clock="wall")} for name, pair in ratios.items()}
        return {"unit": unit, "rows": table(costs), "ratios": found}
