"""A conversation with Codex: a question for approval, a tool of this program, and a failure. A fake codex plays the other end."""

from __future__ import annotations

from typing import Any

import anyio

import claude_transport as ct
from claude_transport import codex
from claude_transport.bridge import HostTool
from claude_transport.codex.testing.scenario import CallTool, Fail, RunCommand, Say
from claude_transport.testing import CodexScenario, FakeCodex


async def on_approval(request: codex.ApprovalRequest) -> codex.ApprovalDecision:
    print("asked:", request.command if isinstance(request, codex.CommandApproval) else request.type)
    return "accept"


async def in_stock(arguments: dict[str, Any], context: Any) -> str:
    """How many pieces of a fruit there are."""
    return f"7 {arguments['fruit']}"


async def talk(options: codex.CodexOptions) -> None:
    transport = ct.SubprocessTransport(options)
    async with codex.CodexSession(transport, on_approval=on_approval, tools=[HostTool(name="in_stock", call=in_stock)]) as session:
        turn = await session.send("Count the apples.")
        async for message in turn:
            if isinstance(message, codex.ItemCompleted) and isinstance(message.item, codex.CommandExecutionItem):
                print("ran:", message.item.status, message.item.exit_code)
        print("said:", (await turn.result()).text)

        turn = await session.send("Say it slowly.")
        print("pieces:", [piece async for piece in turn.new_text()])

        result = await (await session.send("Once more.")).result()
        print(result.status, "because", result.error.code if result.error else None)


SCENARIO = CodexScenario.turns(
    [
        [RunCommand("ls fruit"), CallTool("in_stock", arguments={"fruit": "apples"}), Say("There are 7 apples.")],
        [Say("Seven apples.", chunks=["Seven ", "apples."])],
        [Fail("usageLimitExceeded")],
    ]
)


async def main() -> None:
    with FakeCodex(SCENARIO) as fake:
        await talk(codex.CodexOptions(codex_path=fake.path, approval_policy="untrusted"))


if __name__ == "__main__":
    anyio.run(main)
