"""Lines over the network, in every medium, beside a bare socket and beside the client of `websockets`: JSON, and a page of figures.

    python benchmarks/bench_network.py                     everything, on both event loops; writes the figures into docs/benchmarks
    python benchmarks/bench_network.py --quick             very little of everything, once
    python benchmarks/bench_network.py --check             exit 1 when a figure is under its floor in the best of three tries
    python benchmarks/bench_network.py --only downstream --backend trio --json found.json

Subjects take turns, and each round gives one ratio for every pair. The senders are processes of their own, so the processor time is that
of the reader alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from speed.bench import Bench
from speed.report import about, add_options, backends_of, check
from wire.figures import write_figures
from wire.measuring import TABLES, measure_tables
from wire.sides import serve
from wire.targets import TARGETS

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"


def measure(options: argparse.Namespace, backend: str, names: Collection[str]) -> dict[str, Any]:
    """Measure the tables of one event loop."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        print(f"{backend}: {', '.join(names)} ...", file=sys.stderr, flush=True)
        return measure_tables(Bench(Path(folder), backend, options.rounds, options.scale), names)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser)
    parser.add_argument("--only", choices=list(TABLES), nargs="+", default=list(TABLES), help="these tables; writes no page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, and nowhere else")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 0, 0.002
    return options


def main() -> int:
    options = parse()
    if options.serve:
        serve(*options.serve)
        return 0
    backends = backends_of(options)
    if options.check:
        broken = check({backend: partial(measure, options, backend) for backend in backends}, TARGETS)
        print("\n".join(broken), file=sys.stderr)
        return 1 if broken else 0
    found = {backend: measure(options, backend, options.only) for backend in backends}
    report = {"about": about(options, "websockets"), "backends": found}
    text = json.dumps(report, indent=1) + "\n"
    if options.json is not None:
        options.json.write_text(text, "utf-8")
    elif options.quick or len(options.only) < len(TABLES) or len(backends) < 2:
        print(text)
    else:
        (DOCS / "network.json").write_text(text, "utf-8")
        write_figures(report, DOCS / "network-figures.inc")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
