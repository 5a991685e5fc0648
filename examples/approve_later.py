"""Approvals hours later: a tool call waits without any process, and another process goes on with the decision."""

from __future__ import annotations

import json
from collections.abc import Mapping

import anyio

import claude_transport as ct
from claude_transport.testing import Answer, FakeClaude, Scenario, ScriptedTurn, steps


def by_decision(decisions: Mapping[str, bool]) -> dict[str, list[ct.HookMatcher]]:
    """Return hooks that follow `decisions`, by the id of the call, and defer every other shell command."""

    async def decide(tool: ct.hooks.PreToolUseInput, call: str | None, context: ct.client.CallbackContext) -> ct.hooks.PreToolUseDecision:
        decision = decisions.get(call or "")
        if decision is None:
            return ct.hooks.PreToolUseDecision.defer()
        return ct.hooks.PreToolUseDecision.allow() if decision else ct.hooks.PreToolUseDecision.deny("The owner has refused this.")

    return {"PreToolUse": [ct.HookMatcher("Bash", [decide])]}


async def begin(transport: ct.Transport, prompt: str) -> ct.ResultMessage:
    """Run a prompt. A result with `deferred_tool_use` waits for a decision about that call."""
    async with ct.Query(transport, hooks=by_decision({})) as query:
        return await (await query.send(prompt)).result()


async def go_on(transport: ct.Transport, decisions: Mapping[str, bool], *, timeout: float = 3600.0) -> ct.ResultMessage:
    """Let the session that `transport` resumes decide about the call that waits, and work on. No prompt is needed.

    Raises `TimeoutError` after `timeout` seconds: a session in which no call waits says nothing.
    """
    with anyio.fail_after(timeout):
        async with ct.Query(transport, hooks=by_decision(decisions)) as query:
            async for message in query.messages():
                if isinstance(message, ct.ResultMessage):
                    return message
    raise ct.ConnectionLost("the session ended without a result")


async def main() -> None:
    with claude_that_asks() as claude:
        result = await begin(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=str(claude.path))), "Deploy it.")
    row = json.dumps({"session": result.session_id, "call": result.deferred_tool_use})  # for your database
    print("waits:", json.loads(row)["call"]["input"]["command"])

    # hours later, in another process, when the owner has said yes
    waiting = json.loads(row)
    with claude_that_goes_on() as claude:
        options = ct.ClaudeOptions(cli_path=str(claude.path), resume=waiting["session"])
        result = await go_on(ct.SubprocessTransport(options), {waiting["call"]["id"]: True})
    print("done:", result.result)


CALL = {"id": "toolu_1", "name": "Bash", "input": {"command": "make deploy"}}
ASKED = steps.Request(
    {
        "subtype": "hook_callback",
        "callback_id": "{{hook.PreToolUse}}",
        "input": {"hook_event_name": "PreToolUse", "tool_name": CALL["name"], "tool_input": CALL["input"]},
        "tool_use_id": CALL["id"],
    }
)


def claude_that_asks() -> FakeClaude:
    """Stands in for the real `claude`, on which the tests of this library run `begin()` and `go_on()`."""
    deferred = steps.Result(text="", terminal_reason="tool_deferred", extra={"deferred_tool_use": CALL})
    return FakeClaude(Scenario(otherwise=ScriptedTurn([ASKED, deferred])))


def claude_that_goes_on() -> FakeClaude:
    """Does so for the second process, which decides about the call as soon as it has started."""
    resumed = Answer(after=[ASKED, steps.Text("It is deployed."), steps.Result(text="It is deployed.")])
    return FakeClaude(Scenario(answers={"initialize": resumed}))


if __name__ == "__main__":
    anyio.run(main)
