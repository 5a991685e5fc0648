"""Ours, the official SDK and the limit, in one run: JSON, a page of figures and a chart.

    python benchmarks/bench_speed.py                       everything, on both event loops; writes the figures into docs/benchmarks
    python benchmarks/bench_speed.py --quick               a look whether everything runs: very little of everything, once
    python benchmarks/bench_speed.py --check               exit 1 when a ratio is under its floor in the best of three tries
    python benchmarks/bench_speed.py --only reading --backend trio --json found.json

What is compared is processor time of this process, which a busy machine changes less than time by the clock: subjects take turns, each
round gives a ratio, and the figure is the median of the ratios, between their quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from speed import carrying, conversing, curve, importing, memory, reading, sessions
from speed.bench import Bench
from speed.chart import draw
from speed.figures import write_figures
from speed.targets import TARGETS, Target

BENCHES: dict[str, Callable[[Bench], Any]] = {
    "reading": reading.measure,
    "carrying": carrying.measure,
    "conversing": conversing.measure,
    "sessions": sessions.measure,
    "importing": importing.measure,
    "memory": memory.measure,
    "curve": curve.measure,
}
WORKERS = {"memory": memory.work, "sessions": sessions.work}
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
TRIES = 3  # of a figure that is under its floor, before that counts


def about(options: argparse.Namespace) -> dict[str, Any]:
    names = ("claude-transport", "claude-agent-sdk", "anyio", "trio", "msgspec")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "rounds": options.rounds,
        "scale": options.scale,
        "versions": {name: version(name) for name in names},
    }


def measure(options: argparse.Namespace, backend: str, names: list[str]) -> dict[str, Any]:
    """The tables of one event loop."""
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            print(f"{backend}: {name} ...", file=sys.stderr, flush=True)
            found[name] = BENCHES[name](Bench(Path(folder), backend, options.rounds, options.scale))
    return found


def check(options: argparse.Namespace, backend: str) -> list[str]:
    """A sentence for each target that is under its floor each time."""
    best: dict[Target, float] = {}
    for _ in range(TRIES):
        open_targets = [target for target in TARGETS if best.get(target, 0.0) < target.floor]
        names = [name for name in BENCHES if name in {target.place[0] for target in open_targets}]
        if not names:
            break
        found = measure(options, backend, names)
        for target in open_targets:
            best[target] = max(best.get(target, 0.0), target.figure(found))
    for target, figure in best.items():
        print(f"{backend:8}{figure:7.2f}  target {target.least:.2f}, floor {target.floor:.2f}  {target.what}", flush=True)
    return [f"{backend}: {target.what}: {figure:.2f}" for target, figure in best.items() if figure < target.floor]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of every subject (default 7)")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many messages (default 1.0)")
    parser.add_argument("--backend", choices=["asyncio", "trio", "both"], default="both")
    parser.add_argument("--only", choices=list(BENCHES), nargs="+", default=list(BENCHES), help="these benchmarks; writes no page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, and nowhere else")
    parser.add_argument("--quick", action="store_true", help="as little as runs everything; writes no page")
    parser.add_argument("--check", action="store_true", help="only the figures that have a target")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 0, 0.002
    return options


def main() -> int:
    options = parse()
    if options.worker:
        print(json.dumps(WORKERS[options.worker.pop("name")](**options.worker)))
        return 0
    backends = ["asyncio", "trio"] if options.backend == "both" else [options.backend]
    if options.check:
        broken = [sentence for backend in backends for sentence in check(options, backend)]
        print("\n".join(broken), file=sys.stderr)
        return 1 if broken else 0
    report = {"about": about(options), "backends": {backend: measure(options, backend, options.only) for backend in backends}}
    text = json.dumps(report, indent=1) + "\n"
    if options.json is not None:
        options.json.write_text(text, "utf-8")
    elif options.quick or len(options.only) < len(BENCHES) or len(backends) < 2:
        print(text)
    else:
        (DOCS / "speed.json").write_text(text, "utf-8")
        (DOCS / "speed.svg").write_text(draw(report), "utf-8")
        write_figures(report, DOCS / "speed-figures.inc")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
