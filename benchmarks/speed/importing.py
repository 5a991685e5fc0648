"""Processor time of importing what a conversation needs, in a fresh interpreter each time."""

from __future__ import annotations

import os
import sys
import time

from speed.bench import Bench, Table
from speed.harness import Cost, compare, ratio, table

__all__ = ["measure"]

STATEMENTS = {
    "nothing": "pass",
    "ours": "from claude_transport import ClaudeOptions, Query, SubprocessTransport",
    "official": "from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient",
}


def _run(statement: str) -> Cost:
    wall = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", statement], os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, statement
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - wall)


def measure(bench: Bench) -> dict[str, Table]:
    """The import alone: each round's bare interpreter is taken off."""
    costs = compare({name: (lambda statement=statement: _run(statement)) for name, statement in STATEMENTS.items()}, rounds=bench.rounds)
    bare = costs.pop("nothing")
    added = {
        name: [Cost(max(cost.cpu - none.cpu, 1e-4), max(cost.wall - none.wall, 1e-4)) for cost, none in zip(taken, bare, strict=True)]
        for name, taken in costs.items()
    }
    found = {**ratio(added, "official", "ours"), "wall": ratio(added, "official", "ours", clock="wall")}
    return {"import": {"unit": "import", "rows": table(added), "ratios": {"official / ours": found}}}
