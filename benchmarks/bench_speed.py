"""Ours, the official SDK and the limit, in one run: JSON, a page of figures and two charts.

    python benchmarks/bench_speed.py                       everything, on both event loops; writes the figures into docs/benchmarks
    python benchmarks/bench_speed.py --resume              continues a stopped run, if the sources have not changed
    python benchmarks/bench_speed.py --quick               very little of everything, once
    python benchmarks/bench_speed.py --check               exit 1 when a ratio is under its floor in the best of three tries
    python benchmarks/bench_speed.py --only reading --backend trio --json found.json
    python benchmarks/bench_speed.py --page                writes page and charts again from docs/benchmarks/speed.json

The figures compare processor time of this process, which a busy machine changes less than time by the clock. Subjects take turns; each
round gives a ratio, and the figure is the median of the ratios, between their quartiles.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from speed import idle, memory, parts, sessions
from speed.bench import Table
from speed.chart import draw
from speed.checking import Tries
from speed.curves import draw_curves
from speed.figures import verdicts, write_figures, write_summary
from speed.parts import PARTS, measure_apart
from speed.report import about, add_options, backends_of, check
from speed.run import NotResumable, run_parts
from speed.targets import TARGETS

WORKERS = {"idle": idle.work, "memory": memory.work, "part": parts.work, "sessions": sessions.work}
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "benchmarks"
KEPT = ROOT / "build" / "speed"
"""The finished parts of a run that writes the page (not under version control)."""

CHECK_ROUNDS, CHECK_SCALE = 5, 0.2
"""A check takes four minutes for each event loop, unless a figure is under its floor."""
CHECK_SECONDS = 1500.0
"""Seconds after which nothing is tried again. To measure everything once takes eight minutes, and twice as long on a slow machine."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser)
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--resume", action="store_true", help="keep what the last run that was stopped has measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, and nowhere else")
    parser.add_argument("--page", action="store_true", help="only make page and charts from the JSON in docs/benchmarks")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        options.rounds, options.scale = min(options.rounds, CHECK_ROUNDS), min(max(options.scale, 0.01), CHECK_SCALE)
    elif options.quick:
        options.rounds, options.scale = 0, 0.002
    return options


def digest() -> str:
    """Return a hash of the measured sources: figures of two versions do not belong in one report."""
    sources = sorted((ROOT / "claude_transport").rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, and return the report. A run for the docs can be resumed; other runs use a temporary folder."""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    facts = {**about(options, "claude-agent-sdk"), "source": digest(), "started": now}
    asked = {"about": facts, "backends": backends_of(options), "names": options.only, "resume": options.resume}
    if is_for_docs(options):
        return run_parts(KEPT, **asked)
    with tempfile.TemporaryDirectory(prefix="bench-run-") as folder:
        return run_parts(Path(folder), **{**asked, "resume": False}, apart=not options.quick)


def is_for_docs(options: argparse.Namespace) -> bool:
    """Return True for a full run without `--json`."""
    return options.json is None and not options.quick and options.backend == "both" and set(options.only) == set(PARTS)


def check_figures(options: argparse.Namespace) -> int:
    """Measure the figures that have a target, and return the exit code."""
    ends = time.monotonic() + CHECK_SECONDS
    targets = [target for target in TARGETS if target.place[0] in options.only]

    def tries_on(backend: str) -> Tries:
        def measure(part: str, tables: Collection[str]) -> dict[str, Table]:
            return measure_apart(part, backend=backend, rounds=options.rounds, scale=options.scale, wanted=tables)

        return Tries(targets, measure=measure, is_over=lambda: time.monotonic() > ends)

    broken = check({backend: tries_on(backend) for backend in backends_of(options)}, targets)
    print("\n".join(broken), file=sys.stderr)
    return 1 if broken else 0


def write_page(report: dict[str, Any]) -> None:
    (DOCS / "speed.svg").write_text(draw(report), "utf-8")
    (DOCS / "speed-curves.svg").write_text(draw_curves(report), "utf-8")
    write_figures(report, DOCS / "speed-figures.inc")
    write_summary(report, DOCS / "speed-summary.inc")


def main() -> int:
    options = parse()
    if options.worker:
        print(json.dumps(WORKERS[options.worker.pop("name")](**options.worker)))
        return 0
    if options.page:
        write_page(json.loads((DOCS / "speed.json").read_text("utf-8")))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the measuring process ends with this one
    if options.check:
        return check_figures(options)
    try:
        report = run(options)
    except NotResumable as exc:
        print(exc, file=sys.stderr)
        return 2
    text = json.dumps(report, indent=1) + "\n"
    if report["failed"]:
        print(f"not measured: {', '.join(report['failed'])}; nothing is written (--resume tries these again)", file=sys.stderr)
    elif options.json is not None:
        options.json.write_text(text, "utf-8")
    elif not is_for_docs(options):
        print(text)
    else:
        (DOCS / "speed.json").write_text(text, "utf-8")
        write_page(report)
        print("\n".join(verdicts(report)), file=sys.stderr)
        print(f"{report['about']['seconds']} s; load now {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
