"""A conversation of two turns with a real process that does what its scenario says."""

from __future__ import annotations

from typing import Any

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps

SCENARIO = Scenario.turns(
    [
        "Hello!",
        [
            steps.ToolUse("Bash", input={"command": "ls"}, output="notes.txt"),
            steps.Text("There is one file."),
            steps.Result(),
        ],
    ]
)


async def allow(tool_name: str, tool_input: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
    print("asked for:", tool_name, tool_input["command"])
    return ct.Allow()


async def main() -> None:
    with FakeClaude(SCENARIO) as fake:
        options = ct.ClaudeOptions(cli_path=str(fake.path))
        async with ct.Query(ct.SubprocessTransport(options), can_use_tool=allow) as query:
            for prompt in ("Hi", "What is here?"):
                turn = await query.send(prompt)
                print("said:", (await turn.result()).result)
        (call,) = fake.calls()
        print("received:", call.prompts, "exit code:", call.exit_code)


if __name__ == "__main__":
    anyio.run(main)
