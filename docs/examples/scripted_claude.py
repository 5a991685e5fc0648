"""A scripted mock: what the program must write, what it reads, and a failure that names the step."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport import testing

QUESTION = {
    "type": "control_request",
    "request_id": "q1",
    "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "mv a b"}, "tool_use_id": "toolu_1"},
}


async def rename(transport: ct.Transport, *, model: str) -> str:
    """The code under test: it chooses a model, sends a prompt, and allows `mv` only."""

    async def only_mv(_tool: str, tool_input: dict[str, str], _context: object) -> ct.Allow | ct.Deny:
        return ct.Allow() if tool_input["command"].startswith("mv ") else ct.Deny("only mv")

    async with ct.Query(transport, can_use_tool=only_mv) as query:
        await query.request("set_model", model=model)
        result = await (await query.send("Rename a to b")).result()
        return result.result or ""


def scripted_claude() -> ct.MockTransport:
    return (
        ct.MockTransport.script()
        .expect_control("set_model", model="haiku")
        .reply({"model": "claude-haiku"})
        .expect(type="user", message={"content": "Rename a to b"})
        .reply(QUESTION)
        .expect(type="control_response", response={"request_id": "q1", "response": {"behavior": "allow"}})
        .reply(testing.result("Renamed."))
    )


async def main() -> None:
    claude = scripted_claude()
    print(await rename(claude, model="haiku"))
    claude.assert_exhausted()

    try:
        await rename(scripted_claude(), model="opus")
    except AssertionError as failed:
        print(failed)


if __name__ == "__main__":
    anyio.run(main)
