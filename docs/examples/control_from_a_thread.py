"""A turn is read in the event loop, and stopped by a thread that knows nothing of it."""

from __future__ import annotations

import threading

import anyio
import anyio.from_thread
import anyio.to_thread

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps


def endless_claude() -> FakeClaude:
    """Stands in for the real CLI: a child process that talks until it is interrupted."""
    return FakeClaude(Scenario(replies=[ScriptedTurn([steps.Text("On and on ..."), steps.Delay(60)])]))


async def main() -> None:
    with endless_claude() as claude:
        transport = ct.SubprocessTransport(command=claude.command)
        async with ct.Query(transport) as query, anyio.from_thread.BlockingPortal() as portal:
            turn = await query.send("Talk.")
            stop = threading.Thread(target=lambda: portal.call(query.interrupt))
            async for message in turn:
                if isinstance(message, ct.AssistantMessage):
                    print(message.text)
                    stop.start()  # a signal handler, a GUI, a web framework: whatever runs elsewhere
                elif isinstance(message, ct.ResultMessage):
                    print(message.outcome.code)
            await anyio.to_thread.run_sync(stop.join)


if __name__ == "__main__":
    anyio.run(main)
