"""How much more a call through the CLI costs than one through the API: cold and warm, without a network and without a key.

    python benchmarks/bench_spawn.py                                 a table
    python benchmarks/bench_spawn.py --runs 30 --backend trio
    python benchmarks/bench_spawn.py --json spawn.json --svg spawn.svg

Both ask the same fake Messages API on loopback, in a process of its own, which answers at once. So the figures hold everything but the
model and the network. `cold` is the first call of a process, with its imports, each in a new process; `warm` are later calls of one
process. A call through the CLI starts and ends a `claude`, cold or warm; `session` is one more prompt to a running `claude`. The kinds
take turns, so a machine that becomes slower does so for all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import anyio
from spawn_chart import draw

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

MIN_RUNS = 10
WAYS = ("cli", "api", "session")
PATIENCE = 60.0  # seconds for a process to end


# In a process of its own.


async def serve() -> None:
    """Run the fake API until stdin ends. Print its environment as a line of JSON."""
    async with FakeMessagesAPI(replies.text("pong", times=None)) as api:
        print(json.dumps(api.environment()), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)


async def take_times(way: str, options: ct.ClaudeOptions) -> None:
    """Make one call for each line of stdin, and print its milliseconds as a line."""
    if way != "session":
        await answer(lambda: ct.complete("ping", model="haiku", transport="cli" if way == "cli" else "api", options=options))
        return
    async with ct.Query(ct.SubprocessTransport(options.replace(model="haiku"))) as query:

        async def ask() -> None:
            await (await query.send("ping")).result()

        await answer(ask)


async def answer(call: Callable[[], Awaitable[object]]) -> None:
    while await anyio.to_thread.run_sync(sys.stdin.readline):
        print(await timed(call), flush=True)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1000


# The measuring.


@contextmanager
def clean_world(cli_path: str) -> Iterator[dict[str, Any]]:
    """Return options, as JSON, for calls that reach only the fake API: an empty home, and nothing of this environment."""
    with tempfile.TemporaryDirectory(prefix="ct-spawn-") as place:
        for name in ("home", "config", "project", "t"):
            Path(place, name).mkdir()
        with subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            env = {"PATH": "/usr/bin:/bin", "HOME": f"{place}/home", "CLAUDE_CONFIG_DIR": f"{place}/config", "TMPDIR": f"{place}/t"}
            yield {"cli_path": cli_path, "cwd": f"{place}/project", "env": {**env, **json.loads(server.stdout.readline())}}
            server.communicate()


class Caller:
    """A process that makes a call whenever it is told to."""

    def __init__(self, way: str, world: dict[str, Any], backend: str) -> None:
        command = [sys.executable, __file__, "--take-times", way, "--backend", backend]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tell(json.dumps(world))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def call(self) -> float:
        """Make one more call, and return its milliseconds."""
        self._tell("call")
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def measure(runs: int, world: dict[str, Any], backend: str) -> dict[str, list[float]]:
    """Return milliseconds by `way, temperature`. A round before the first sample warms the disk cache and the lasting processes."""
    samples: dict[str, list[float]] = {name: [] for name in ("cli, cold", "api, cold", *(f"{way}, warm" for way in WAYS))}
    with ExitStack() as stack:
        stay = {way: stack.enter_context(Caller(way, world, backend)) for way in WAYS}
        for number in range(-1, runs):
            taken = {}
            for way in ("cli", "api"):
                with Caller(way, world, backend) as fresh:
                    taken[f"{way}, cold"] = fresh.call()
            for way in WAYS:
                taken[f"{way}, warm"] = stay[way].call()
            for name, milliseconds in taken.items():
                if number >= 0:
                    samples[name].append(milliseconds)
    return samples


def summarise(values: list[float]) -> dict[str, float]:
    """Return mean, median, 95th percentile (linear between samples) and standard deviation, in milliseconds."""
    ranked = sorted(values)
    place = 0.95 * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "p95": ranked[below] + (place - below) * (ranked[above] - ranked[below]),
        "stddev": statistics.stdev(values),
    }


def deltas(summary: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the CLI's figures minus the API's, at each temperature; not the deviation."""
    measures = ("mean", "median", "p95")
    return {
        f"cli - api, {temperature}": {
            each: summary[f"cli, {temperature}"][each] - summary[f"api, {temperature}"][each] for each in measures
        }
        for temperature in ("cold", "warm")
    }


def print_table(report: dict[str, Any]) -> None:
    print(", ".join(f"{name} {value}" for name, value in report["machine"].items()))
    print(f"{'ms':<18}{'mean':>9}{'median':>9}{'p95':>9}{'stddev':>9}")
    for name, row in {**report["summary"], **report["delta"]}.items():
        print(f"{name:<18}" + "".join(f"{row[each]:>9.1f}" if each in row else f"{'':>9}" for each in ("mean", "median", "p95", "stddev")))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help=f"samples of each row, at least {MIN_RUNS} (default %(default)d)")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--cli-path", help="the claude to start (default: look for it)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there, too; - is stdout, without the table")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw a chart there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--take-times", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.runs < MIN_RUNS and not given.take_times:
        parser.error(f"--runs: fewer than {MIN_RUNS} say nothing")
    return given


def main() -> None:
    given = arguments()
    if given.serve:
        anyio.run(serve)
        return
    if given.take_times:
        nothing_else: dict[str, Any] = {
            "env_mode": "exact",
            "tools": (),
            "system_prompt": "",
            "strict_mcp_config": True,
            "verbatim_prompts": True,
        }
        options = ct.ClaudeOptions(**json.loads(sys.stdin.readline()), **nothing_else)
        anyio.run(take_times, given.take_times, options, backend=given.backend)
        return
    cli = ct.find_cli(given.cli_path)
    with clean_world(str(cli.path)) as world:
        samples = measure(given.runs, world, given.backend)
    machine: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    machine |= {"load": round(os.getloadavg()[0], 1), "backend": given.backend, "runs": given.runs}
    summary = {name: summarise(values) for name, values in samples.items()}
    report = {"unit": "ms", "machine": machine, "summary": summary, "delta": deltas(summary), "samples": samples}
    if given.svg is not None:
        given.svg.write_text(draw(samples, summary, title="One call, from start to answer"), "utf-8")
    if given.json is not None and str(given.json) == "-":
        print(json.dumps(report, indent=1))
        return
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print_table(report)


if __name__ == "__main__":
    main()
