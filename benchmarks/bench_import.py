"""What `import claude_transport` costs, and what a first conversation imports, in a fresh interpreter each time.

    python benchmarks/bench_import.py                 a table
    python benchmarks/bench_import.py --json          the same as JSON, every sample included
    python benchmarks/bench_import.py --check         exit 1 when the import takes more than 80 ms, or a sixth of the official SDK's
    python benchmarks/bench_import.py --modules 20    the modules that take longest, without the modules that they import

The commands take turns, so a machine that becomes slower does so for all: a bare interpreter; imports of the package, and of the names that
a conversation needs (they are loaded on first use); and the same of the official SDK, where it is installed. The time of the bare
interpreter is subtracted. One more imports the package under `-X importtime` (the package's own cumulative time,
which excludes starting Python, but includes the cost of measuring).
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
from importlib.util import find_spec

PACKAGE = "claude_transport"
OFFICIAL = "claude_agent_sdk"
LIMIT_MS = 80.0  # more would be noticed in a program that only prints its --help
LEAST_RATIO = 6.0  # time of the official SDK, divided by ours
CONVERSATION = f"from {PACKAGE} import ClaudeOptions, Query, SubprocessTransport"
STATEMENTS = {"import": f"import {PACKAGE}", "conversation": CONVERSATION}
if find_spec(OFFICIAL) is not None:
    STATEMENTS |= {"import, official": f"import {OFFICIAL}", "conversation, official": f"from {OFFICIAL} import ClaudeSDKClient"}
# The first round writes the .pyc files, as the first start of an installed program does.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(*arguments: str) -> tuple[float, str]:
    """Run a command, and return its time by the clock in milliseconds and its stderr."""
    command = [sys.executable, *arguments]
    started = time.perf_counter()
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True, timeout=60, env=ENVIRONMENT)
    return (time.perf_counter() - started) * 1000, ran.stderr


def parse_importtime(report: str) -> dict[str, tuple[float, float]]:
    """Parse the `self | cumulative | name` lines (µs) of `-X importtime`: by module, its own and its cumulative milliseconds."""
    fields = [line.removeprefix("import time:").split("|") for line in report.splitlines() if line.startswith("import time:")]
    return {name.strip(): (int(own) / 1000, int(whole) / 1000) for own, whole, name in fields if own.strip().isdigit()}


def measure(rounds: int) -> dict[str, list[float]]:
    """Return samples in milliseconds by row. A round before the first sample warms the disk cache and writes the .pyc files."""
    samples: dict[str, list[float]] = {name: [] for name in ("python -c pass", *STATEMENTS, "importtime, cumulative")}
    for number in range(-1, rounds):
        bare = run("-c", "pass")[0]
        added = {name: run("-c", statement)[0] - bare for name, statement in STATEMENTS.items()}
        report = run("-X", "importtime", "-c", STATEMENTS["import"])[1]
        if number < 0:
            continue
        for name, taken in {"python -c pass": bare, **added}.items():
            samples[name].append(taken)
        samples["importtime, cumulative"].append(parse_importtime(report)[PACKAGE][1])
    return samples


def slowest_modules(rounds: int) -> list[tuple[str, float]]:
    """Return modules and their own milliseconds: the minimum of all rounds, as on a quiet machine."""
    best: dict[str, float] = {}
    for _ in range(rounds + 1):
        for name, (own, _) in parse_importtime(run("-X", "importtime", "-c", CONVERSATION)[1]).items():
            best[name] = min(own, best.get(name, own))
    return sorted(best.items(), key=lambda item: -item[1])


def summarise(values: list[float]) -> dict[str, float]:
    """Return median, extremes, and the interquartile range (0 for fewer than two samples), in milliseconds."""
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "iqr": quartiles[2] - quartiles[0]}


def print_table(summary: dict[str, dict[str, float]], rounds: int) -> None:
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, {rounds} rounds; ms")
    print(f"{'':<26}{'median':>9}{'min':>9}{'max':>9}{'iqr':>9}")
    for name, row in summary.items():
        print(f"{name:<26}" + "".join(f"{row[column]:>9.1f}" for column in ("median", "min", "max", "iqr")))


def broken_promises(summary: dict[str, dict[str, float]]) -> list[str]:
    """Return a sentence for each limit that is exceeded."""
    broken = []
    taken = summary["importtime, cumulative"]["median"]
    if taken > LIMIT_MS:
        broken.append(f"importing {PACKAGE} takes {taken:.1f} ms, more than {LIMIT_MS:.0f} ms")
    for name in ("import", "conversation"):
        if (official := summary.get(f"{name}, official")) is not None:
            ratio = official["median"] / summary[name]["median"]
            if ratio < LEAST_RATIO:
                broken.append(f"{name}: the official SDK takes {ratio:.1f} times as long, not {LEAST_RATIO:g} times")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", nargs="?", type=int, default=11, help="samples per row (default 11)")
    parser.add_argument("--json", action="store_true", help="print JSON with every sample")
    parser.add_argument("--check", action="store_true", help="exit 1 when importing takes longer than is promised")
    parser.add_argument("--modules", type=int, metavar="N", help="print the N modules that take longest, and nothing else")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("at least one round")
    if options.modules is not None:
        for name, own in slowest_modules(options.rounds)[: options.modules]:
            print(f"{own:8.2f} ms  {name}")
        return 0
    samples = measure(options.rounds)
    summary = {name: summarise(values) for name, values in samples.items()}
    if options.json:
        print(json.dumps({"python": platform.python_version(), "unit": "ms", "limit": LIMIT_MS, "summary": summary, "samples": samples}))
    else:
        print_table(summary, options.rounds)
    broken = broken_promises(summary) if options.check else []
    print("\n".join(broken), file=sys.stderr, end="\n" if broken else "")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
