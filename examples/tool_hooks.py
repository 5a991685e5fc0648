"""Hooks: one refuses a command before it runs, whatever the permission rules say, and one tells the model something with each prompt."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps


async def no_pushes(
    tool: ct.hooks.PreToolUseInput, _tool_use_id: str | None, _context: ct.client.CallbackContext
) -> ct.hooks.PreToolUseDecision | None:
    command = tool.tool_input["command"]
    print("about to run:", command)
    return ct.hooks.PreToolUseDecision.deny("People push here.") if command.startswith("git push") else None


async def house_rule(
    prompt: ct.hooks.UserPromptSubmitInput, _tool_use_id: str | None, _context: ct.client.CallbackContext
) -> ct.hooks.AdditionalContext:
    print("prompt:", prompt.prompt)
    return ct.hooks.AdditionalContext("The main branch is protected.")


def claude_that_pushes() -> FakeClaude:
    """Stands in for the real CLI: a child process that calls the hooks as it would."""
    calls = [steps.ToolUse("Bash", {"command": command}, output="clean", ask=False) for command in ("git status", "git push")]
    return FakeClaude(Scenario.turns([[*calls, steps.Text("I may not push.")]]))


async def main() -> None:
    hooks = {"PreToolUse": [ct.HookMatcher("Bash", [no_pushes])], "UserPromptSubmit": [ct.HookMatcher(hooks=[house_rule])]}
    with claude_that_pushes() as claude:
        async with ct.Query(ct.SubprocessTransport(command=claude.command), hooks=hooks) as query:
            turn = await query.send("Publish it.")
            print((await turn.result()).result)


if __name__ == "__main__":
    anyio.run(main)
