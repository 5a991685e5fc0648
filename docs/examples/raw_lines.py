"""A fake claude that writes lines of your own: a recorded line, one that is no message, half a line, and then it dies."""

from __future__ import annotations

import json

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, assistant, steps

RECORDED = json.dumps(assistant("Hi.") | {"new_field": 1}).encode()

SCENARIO = Scenario.turns([[RECORDED, b"a line of a debugger", steps.EmitRaw(b'{"type":"assis'), steps.Exit(1)]])


async def main() -> None:
    with FakeClaude(SCENARIO) as fake:
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path))) as query:
            turn = await query.send("Hello")
            try:
                async for message in turn:
                    if isinstance(message, ct.AssistantMessage):
                        print("said:", message.text)
            except ct.ProcessError as error:
                print(error.code, error.exit_code)


if __name__ == "__main__":
    anyio.run(main)
