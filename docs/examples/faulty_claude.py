"""Injects faults at fixed places, the same ones in each run."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport import testing
from claude_transport.testing import faults
from claude_transport.wrappers.faulty import FaultyTransport


async def ask(transport: ct.Transport) -> str:
    """The code under test."""
    try:
        async with ct.Query(transport) as query:
            result = await (await query.send("Do it")).result()
            return result.result or ""
    except ct.CLIConnectionError as error:
        return f"no connection, worth another try: {error.retryable}"
    except ct.ClaudeTransportError:
        return "the conversation broke"


async def main() -> None:
    for name, wrong in {
        "in odd pieces": [faults.Split(sizes=(1, 2))],
        "twice": [faults.Duplicate(line=2)],
        "cut": [faults.Cut(after_lines=1)],
        "half written": [faults.FailWrite(write=2, after=True)],
        "not there": [faults.FailConnect(times=1)],
    }.items():
        transport = FaultyTransport(ct.MockTransport([testing.result("Done.")]), wrong, seed=1)
        print(f"{name}: {await ask(transport)} {transport.done}")


if __name__ == "__main__":
    anyio.run(main)
