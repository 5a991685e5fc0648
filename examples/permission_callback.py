"""A permission callback that is asked about what matters, and a start that says so when it would not be."""

from __future__ import annotations

from typing import Any

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps


async def guard(tool: str, tool_input: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
    """May take as long as a human takes: the CLI waits."""
    if tool == "Bash" and "rm" in tool_input["command"].split():
        return ct.Deny("Nothing is deleted here.")
    return ct.Allow()


def claude_that_deletes() -> FakeClaude:
    """Stands in for the real CLI: a child process that wants to run one command."""
    question = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "rm -r build"}, "tool_use_id": "toolu_1"}
    return FakeClaude(Scenario(replies=[ScriptedTurn([steps.Request(question), steps.Text("I may not."), steps.Result()])]))


async def main() -> None:
    with claude_that_deletes() as claude:
        async with ct.Query(ct.SubprocessTransport(command=claude.command), can_use_tool=guard) as query:
            turn = await query.send("Clean up.")
            async for message in turn:
                if isinstance(message, ct.AssistantMessage):
                    print(message.text)

    options = ct.ClaudeOptions(permission_mode="bypassPermissions")
    try:
        await ct.Query(ct.SubprocessTransport(options), can_use_tool=guard).start()
    except ct.ConfigurationError as refused:
        print(f"{refused.option}: {refused}")


if __name__ == "__main__":
    anyio.run(main)
