"""What a warm session saves: time until the session is there, and until the answer to its first prompt, with the real CLI.

    python benchmarks/bench_pool.py                   a table
    python benchmarks/bench_pool.py --cli PATH        a binary other than that of `find_cli()`

The kinds take turns, so a machine that becomes slower does so for all: a new session (cold); lines written by hand, with the prompt after
the answer to `initialize`, or right behind `initialize` (pipelined); a pool with no session ready; a warm pool; a warm pool whose session
goes to another directory or model, or is replaced because the directory is not trusted. The model is a fake Messages API on the loopback
interface that answers at once. Nothing leaves the machine, and no key is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI

Sample = tuple[float, float]
"""Milliseconds until the session is there, and until its first answer."""


@contextlib.asynccontextmanager
async def clean_world(cli: str) -> AsyncIterator[ct.ClaudeOptions]:
    """Return options for a CLI with an empty home that talks to a fake API."""
    async with FakeMessagesAPI(lambda _request: "Hello.") as api:
        with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as folder:
            places = {name: Path(folder) / name for name in ("home", "config", "project", "tmp")}
            for place in places.values():
                place.mkdir()
            env = {"PATH": "/usr/bin:/bin", "HOME": str(places["home"]), "CLAUDE_CONFIG_DIR": str(places["config"]), "LANG": "C.UTF-8"}
            trusted = {"projects": {str(places["project"]): {"hasTrustDialogAccepted": True}}}
            (places["config"] / ".claude.json").write_text(json.dumps(trusted))
            env |= {"TMPDIR": str(places["tmp"]), **api.environment()}
            yield ct.ClaudeOptions(cli_path=cli, cwd=places["project"], env=env, env_mode="exact")


class Stopwatch:
    """Return the milliseconds since this object was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def __call__(self) -> float:
        return (time.perf_counter() - self._began) * 1000


async def cold(options: ct.ClaudeOptions) -> Sample:
    watch = Stopwatch()
    async with ct.Query(ct.SubprocessTransport(options)) as query:
        ready = watch()
        await (await query.send("Hello")).result()
        return ready, watch()


async def by_hand(options: ct.ClaudeOptions, *, pipelined: bool) -> Sample:
    """Measure without a `Query`, which sends no prompt before it is ready."""
    initialize = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}
    prompt = {"type": "user", "message": {"role": "user", "content": "Hello"}}
    watch = Stopwatch()
    ready = 0.0
    async with ct.SubprocessTransport(options) as transport:
        await transport.write(ct.messages.encode_line(initialize) + (ct.messages.encode_line(prompt) if pipelined else b""))
        async for message in transport.read_messages():
            if message["type"] == "control_response":
                ready = watch()
                if not pipelined:
                    await transport.write(ct.messages.encode_line(prompt))
            elif message["type"] == "result":
                break
        return ready, watch()


def directory(options: ct.ClaudeOptions, place: str) -> Path:
    made = Path(str(options.cwd)) / place
    made.mkdir(exist_ok=True)
    return made


async def pooled(options: ct.ClaudeOptions, *, warm: int, model: str | None = None, cwd: Path | None = None) -> Sample:
    async with ct.SessionPool(options, warm=warm, cap=max(1, warm)) as pool:
        await pool.warm_up()
        watch = Stopwatch()
        async with pool.acquire(cwd=cwd, model=model) as query:
            ready = watch()
            await (await query.send("Hello")).result()
            return ready, watch()


WAYS: dict[str, Callable[[ct.ClaudeOptions], Awaitable[Sample]]] = {
    "a session of its own": cold,
    "by hand": lambda options: by_hand(options, pipelined=False),
    "by hand, pipelined": lambda options: by_hand(options, pipelined=True),
    "a pool with none ready": lambda options: pooled(options, warm=0),
    "a warm pool": lambda options: pooled(options, warm=1),
    "warm, another model": lambda options: pooled(options, warm=1, model="haiku"),
    "warm, another directory": lambda options: pooled(options, warm=1, cwd=directory(options, "below")),
    "warm, one not trusted": lambda options: pooled(options, warm=1, cwd=directory(options, "../beside")),
}


async def measure(cli: str, rounds: int) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {name: [] for name in WAYS}
    async with clean_world(cli) as options:
        await cold(options)  # the first session reads the binary from the disk
        for _ in range(rounds):
            for name, way in WAYS.items():
                samples[name].append(await way(options))
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", nargs="?", type=int, default=9, help="samples per row (default 9)")
    parser.add_argument("--cli", help="the claude binary")
    parser.add_argument("--backend", default="asyncio", choices=["asyncio", "trio"])
    arguments = parser.parse_args()
    cli = ct.find_cli(arguments.cli)
    samples = anyio.run(measure, cli.path, arguments.rounds, backend=arguments.backend)
    print(f"{arguments.backend}, {arguments.rounds} rounds; ms, median (least … most)")
    print(f"{'':<26}{'session':>26}{'first answer':>26}")
    for name, row in samples.items():
        cells = [f"{statistics.median(column):.1f} ({min(column):.1f} … {max(column):.1f})" for column in zip(*row, strict=True)]
        print(f"{name:<26}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
