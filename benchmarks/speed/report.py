"""The head of every report, and the check of its targets."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from speed.targets import Target

__all__ = ["about", "add_options", "backends_of", "check"]

TRIES = 3  # measurements of a figure that is under its floor, before the check fails


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all these benchmarks have."""
    parser.add_argument("--rounds", type=int, default=7, help="turns of every subject (default 7)")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many messages (default 1.0)")
    parser.add_argument("--backend", choices=["asyncio", "trio", "both"], default="both")
    parser.add_argument("--quick", action="store_true", help="as little as runs everything; writes no page")
    parser.add_argument("--check", action="store_true", help="only the figures that have a target")


def backends_of(options: argparse.Namespace) -> list[str]:
    """Return the chosen event loops."""
    return ["asyncio", "trio"] if options.backend == "both" else [options.backend]


def about(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return machine, amounts and versions; `names` are the other distributions that are measured."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "rounds": options.rounds,
        "scale": options.scale,
        "versions": {name: version(name) for name in ("claude-transport", *names, "anyio", "trio", "msgspec")},
    }


Measure = Callable[[set[str]], dict[str, Any]]
"""Measures parts, by their names, and returns their tables."""


def check(measures: Mapping[str, Measure], targets: Sequence[Target]) -> list[str]:
    """Return a sentence for each target that stays under its floor on an event loop. `measures` has the loops by name.

    A figure under its floor is measured again when everything was measured once, and then a third time. So what slows the machine for a
    minute, and one side more than the other, does not decide.
    """
    best: dict[tuple[str, Target], float] = {}
    for _ in range(TRIES):
        for backend, measure in measures.items():
            still_open = [target for target in targets if best.get((backend, target), 0.0) < target.floor]
            if still_open:
                found = measure({target.place[0] for target in still_open})
                for target in still_open:
                    best[backend, target] = max(best.get((backend, target), 0.0), target.figure(found))
    for (backend, target), figure in best.items():
        print(f"{backend:8}{figure:10.2f}  target {target.least:.2f}, floor {target.floor:.2f}  {target.what}", flush=True)
    return [f"{backend}: {target.what}: {figure:.2f}" for (backend, target), figure in best.items() if figure < target.floor]
