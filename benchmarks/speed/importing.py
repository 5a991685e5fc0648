"""Measure the time before the first message, in a fresh interpreter each time: importing, and a whole first conversation."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any

from speed.bench import Bench, Table, Tables
from speed.harness import Cost, compare, ratio, spread, table
from speed.peers import handshake_peer
from speed.workload import Workload, lines_of

__all__ = ["tables"]

_PACKAGES = {"ours": "import claude_transport", "official": "import claude_agent_sdk"}
_NAMES = {
    "ours": "from claude_transport import ClaudeOptions, Query, SubprocessTransport",
    "official": "from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient",
}
_CONVERSATIONS = {
    "ours": """
import anyio
from claude_transport import ClaudeOptions, Query, ResultMessage, SubprocessTransport

async def main():
    async with Query(SubprocessTransport(ClaudeOptions(cli_path={peer!r}))) as query:
        said = [message async for message in await query.send("go")]
        assert isinstance(said[-1], ResultMessage), said

anyio.run(main, backend={backend!r})
""",
    "official": """
import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

async def main():
    async with ClaudeSDKClient(options=ClaudeAgentOptions(cli_path={peer!r})) as client:
        await client.query("go")
        said = [message async for message in client.receive_response()]
        assert isinstance(said[-1], ResultMessage), said

anyio.run(main, backend={backend!r})
""",
}


# The round that is not counted writes the .pyc files, as the first start of an installed program does.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def tables(bench: Bench) -> Tables:
    """Return the tables: the package, the names that a conversation needs, and a conversation from the start of Python to its end."""
    return {
        "import of the package": functools.partial(_imports, bench, _PACKAGES),
        "import of what a conversation needs": functools.partial(_imports, bench, _NAMES),
        "first conversation": functools.partial(_conversation, bench),
    }


def _run(program: str) -> Cost:
    wall = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", program], _ENVIRONMENT)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, program
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - wall)


def _run_often(program: str, times: int) -> Cost:
    """Return the mean of several runs: one takes a tenth of a second, and what else the machine does shows in it."""
    costs = [_run(program) for _ in range(times)]
    return Cost(sum(cost.cpu for cost in costs) / times, sum(cost.wall for cost in costs) / times)


def _imports(bench: Bench, statements: dict[str, str]) -> Table:
    """Return the cost of the import alone: each round minus its bare interpreter."""
    runs = {name: functools.partial(_run, statement) for name, statement in {"nothing": "pass", **statements}.items()}
    costs = compare(runs, rounds=bench.rounds)
    bare = costs.pop("nothing")
    added = {
        name: [Cost(max(cost.cpu - none.cpu, 1e-4), max(cost.wall - none.wall, 1e-4)) for cost, none in zip(taken, bare, strict=True)]
        for name, taken in costs.items()
    }
    found = {**ratio(added, "official", "ours"), "wall": ratio(added, "official", "ours", clock="wall")}
    return {"unit": "import", "rows": table(added), "ratios": {"official / ours": found}}


_LOOP, _ASYNCIO = "an empty event loop", "an empty loop of asyncio"
_EMPTY_LOOP = """
import anyio

async def main():
    pass

anyio.run(main, backend={backend!r})
"""


def _conversation(bench: Bench) -> Table:
    """Run a process, and return its cost with that of the children it waited for; also what it adds to Python, and to an event loop.

    Importing the event loop alone takes as long as a conversation: 60 ms for asyncio, 110 for trio. Which one runs is the program's choice.
    """
    work = Workload.write(bench.folder, "first", line=lines_of(2500), count=1)
    peer = handshake_peer(bench.folder, work.files)
    programs = {name: text.format(peer=peer, backend=bench.backend) for name, text in _CONVERSATIONS.items()}
    programs |= {"nothing": "pass", _LOOP: _EMPTY_LOOP.format(backend=bench.backend), _ASYNCIO: _EMPTY_LOOP.format(backend="asyncio")}
    runs = {name: functools.partial(_run_often, program, 2 if name == "official" else 5) for name, program in programs.items()}
    return with_added(bench.compare(runs, ratios={"official / ours": ("official", "ours")}, unit="process"))


def with_added(table: Table) -> Table:
    """Add what a conversation adds to Python and to an event loop, and compare it. The table has the costs of `_conversation`."""
    rows = table["rows"]
    table["added_ms"] = {
        f"{subject}, to {name}": spread([each / 1000 for each in _added_us(rows, subject, less)])
        for subject in ("ours", "official")
        for name, less in (("Python", "nothing"), ("an event loop", _LOOP))
    }
    ours = _added_us(rows, "ours", _LOOP)
    costs = {"official": _added_us(rows, "official", _LOOP), "asyncio's loop": _added_us(rows, _ASYNCIO, "nothing")}
    table["added_ratios"] = {
        f"{name} / ours": spread([each / mine for each, mine in zip(taken, ours, strict=True)]) for name, taken in costs.items()
    }
    return table


def _added_us(rows: dict[str, Any], subject: str, less: str) -> list[float]:
    """Return the processor time that one program takes above another, in microseconds, for each round."""
    pairs = zip(rows[subject]["samples_us"], rows[less]["samples_us"], strict=True)
    return [max(taken - bare, 1.0) for (taken, _), (bare, _) in pairs]
