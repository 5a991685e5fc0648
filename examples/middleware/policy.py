"""A wrapper that denies tools itself. Its denial goes to the CLI, and the program is not asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import anyio
import msgspec

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.wrappers import LineWrapper, peek


class Policy(LineWrapper):
    """Answers the permission requests for the tools in `denied`."""

    def __init__(self, transport: ct.TransportLike, *, denied: Collection[str]) -> None:
        super().__init__(transport)
        self.denied = denied

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        while True:
            if kept := [line for line in await super().read_batch(source) if not self.answers(line)]:
                return kept

    def answers(self, line: bytes) -> bool:
        if peek(line).subtype != "can_use_tool":  # cheap: most lines are something else
            return False
        asked: dict[str, Any] = msgspec.json.decode(line)
        if asked["request"]["tool_name"] not in self.denied:
            return False
        denial = {"behavior": "deny", "message": "The policy of this machine does not allow it."}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": denial}
        self.send_later(msgspec.json.encode({"type": "control_response", "response": response}))  # a write() could wait for this reader
        return True


async def main() -> None:
    async def allow(tool: str, _input: dict[str, Any], _context: Any) -> ct.Allow:
        print("the program is asked for", tool)
        return ct.Allow()

    calls = [steps.ToolUse("Bash", {"command": "ls"}), steps.ToolUse("Write", {"file_path": "a.txt", "content": "a"})]
    scenario = Scenario(replies=[[*calls, steps.Text("Done.")]])
    with FakeClaude(scenario) as fake:
        transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path))
        async with ct.Query(Policy(transport, denied={"Bash"}), can_use_tool=allow) as query:
            result = await (await query.send("Look around")).result()
    print(result.result, "· denied:", [denial.tool_name for denial in result.permission_denials])


if __name__ == "__main__":
    anyio.run(main)
