"""What `import claude_transport` costs, in a fresh interpreter each time.

    python benchmarks/bench_import.py                 a table
    python benchmarks/bench_import.py --json          the same as JSON, every sample included
    python benchmarks/bench_import.py --check         exit 1 when the median import takes more than 80 ms

Four commands take turns, so that a machine that gets slower does so for all of them: an interpreter that does nothing, one
that imports the package (their difference is what the import adds to a program's start), one that uses what a conversation
needs (names are loaded on first use, so this is what a program pays in the end), and one that imports the package under
`-X importtime` (the package's own cumulative time, which excludes starting Python, but includes the cost of measuring).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

PACKAGE = "claude_transport"
LIMIT_MS = 80.0  # more would be felt by a program that only wants to print its --help
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "python -c import": ["-c", f"import {PACKAGE}"],
    "python -c Query": ["-c", f"from {PACKAGE} import ClaudeOptions, Query, SubprocessTransport"],
    "python -X importtime": ["-X", "importtime", "-c", f"import {PACKAGE}"],
}


def run(arguments: list[str]) -> tuple[float, str]:
    """Wall time in milliseconds, and what was written to stderr."""
    started = time.perf_counter()
    ran = subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True, timeout=60)
    return (time.perf_counter() - started) * 1000, ran.stderr


def parse_cumulative(report: str) -> float:
    """The package's cumulative import time in milliseconds, from `-X importtime`'s `self | cumulative | name` lines (µs)."""
    for line in report.splitlines():
        fields = line.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[2].strip() == PACKAGE:
            return int(fields[1]) / 1000
    raise SystemExit(f"-X importtime did not mention {PACKAGE}")


def measure(rounds: int) -> dict[str, list[float]]:
    """Samples in milliseconds by row; one round of each command before the first sample warms the disk cache and writes the .pyc files."""
    samples: dict[str, list[float]] = {name: [] for name in COMMANDS}
    samples["importtime, cumulative"] = []
    samples["import, added wall time"] = []
    for number in range(-1, rounds):
        walls = {}
        report = ""
        for name, arguments in COMMANDS.items():
            walls[name], report = run(arguments)
        if number < 0:
            continue
        for name, wall in walls.items():
            samples[name].append(wall)
        samples["importtime, cumulative"].append(parse_cumulative(report))
        samples["import, added wall time"].append(walls["python -c import"] - walls["python -c pass"])
    return samples


def summarise(values: list[float]) -> dict[str, float]:
    """Median, extremes, and the interquartile range (0 for fewer than two samples), in milliseconds."""
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "iqr": quartiles[2] - quartiles[0]}


def print_table(summary: dict[str, dict[str, float]], rounds: int) -> None:
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, {rounds} rounds; ms")
    print(f"{'':<26}{'median':>9}{'min':>9}{'max':>9}{'iqr':>9}")
    for name, row in summary.items():
        print(f"{name:<26}" + "".join(f"{row[column]:>9.1f}" for column in ("median", "min", "max", "iqr")))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", nargs="?", type=int, default=11, help="samples per row (default 11)")
    parser.add_argument("--json", action="store_true", help="print JSON with every sample")
    parser.add_argument("--check", action="store_true", help=f"exit 1 when the median cumulative import time is over {LIMIT_MS:.0f} ms")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("at least one round")
    samples = measure(options.rounds)
    summary = {name: summarise(values) for name, values in samples.items()}
    if options.json:
        print(json.dumps({"python": platform.python_version(), "unit": "ms", "limit": LIMIT_MS, "summary": summary, "samples": samples}))
    else:
        print_table(summary, options.rounds)
    taken = summary["importtime, cumulative"]["median"]
    if options.check and taken > LIMIT_MS:
        print(f"importing {PACKAGE} takes {taken:.1f} ms, more than {LIMIT_MS:.0f} ms", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
