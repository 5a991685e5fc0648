"""Sessions that share a login start one after the other, and a change of their CLI is told."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario


async def main() -> None:
    with FakeClaude(Scenario.echo()) as claude, tempfile.TemporaryDirectory() as folder:
        options = ct.ClaudeOptions(cli_path=str(claude.path), pin_cli=True)
        gate = ct.transports.StartGate(Path(folder) / "start-gate")  # a service gives a path that all of its processes know

        async def session(name: str) -> None:
            async with gate.turn():
                query = ct.Query(ct.SubprocessTransport(options))
                await query.start()
                turn = await query.send(name)
                await anext(aiter(turn))  # from here on, the login has been renewed if it had to be
            print((await turn.result()).result)
            await query.aclose()

        warnings.filterwarnings("ignore", message=".*pin_cli", category=ct.errors.ClaudeTransportWarning)  # the listener tells it
        stop = ct.launch.on_cli_change(lambda change: print("another CLI:", change.now.path == change.before.path))
        try:
            await session("first")
            os.utime(claude.path, (0, 0))  # somebody installs another one
            await session("second")
        finally:
            stop()


if __name__ == "__main__":
    anyio.run(main)
