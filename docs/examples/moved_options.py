"""Options written for the official SDK, hook and all, in a Query of this library. The simulated Claude stands in for the real one."""

from __future__ import annotations

from typing import Any

import anyio
import claude_agent_sdk as sdk

from claude_transport.interop.agent_sdk import options_from
from claude_transport.testing import FakeClaude, Scenario


async def decide(tool_name: str, _tool_input: dict[str, Any], _context: sdk.ToolPermissionContext) -> sdk.PermissionResult:
    if tool_name == "Read":
        return sdk.PermissionResultAllow()
    return sdk.PermissionResultDeny(message="Only reading is allowed.")


async def main() -> None:
    with FakeClaude(Scenario()) as fake:
        options = sdk.ClaudeAgentOptions(cli_path=fake.path, model="haiku", max_turns=0, can_use_tool=decide)
        moved = options_from(options)
        print(moved.options.model, moved.options.max_turns, sorted(moved.query_options))
        async with moved.open_query() as query:
            turn = await query.send("Hello from the other side")
            print((await turn.result()).result)


if __name__ == "__main__":
    anyio.run(main)
