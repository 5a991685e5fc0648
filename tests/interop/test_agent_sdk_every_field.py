"""Walks what official options are made of: agents, matchers, the context and the answers of callbacks, and the tree of errors.

A field that a newer official SDK brings to one of them fails here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import claude_agent_sdk as sdk
import pytest

import claude_transport as ct
from claude_transport import errors
from claude_transport.interop.agent_sdk import official_error, options_from
from claude_transport.launch.payloads import build_payloads

RULE = {"toolName": "Bash", "ruleContent": "ls"}
UPDATES: tuple[dict[str, Any], ...] = (
    {"type": "addRules", "rules": [RULE], "behavior": "allow", "destination": "session"},
    {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    {"type": "addDirectories", "directories": ["/tmp"], "destination": "session"},
)
QUESTION = {
    "subtype": "can_use_tool",
    "tool_name": "Bash",
    "input": {"command": "ls"},
    "tool_use_id": "toolu_1",
    "agent_id": "agent-1",
    "permission_suggestions": UPDATES,
    "blocked_path": "/etc",
    "decision_reason": "a rule",
    "title": "Run ls?",
    "display_name": "Bash",
    "description": "lists",
}
AGENT = {
    "description": "d",
    "prompt": "p",
    "tools": ["Bash"],
    "disallowedTools": ["Read"],
    "model": "haiku",
    "skills": ["one"],
    "memory": "user",
    "mcpServers": ["sums"],
    "initialPrompt": "begin",
    "maxTurns": 3,
    "background": True,
    "effort": "low",
    "permissionMode": "plan",
}


def names(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def result() -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": "s", "result": "done"}


async def test_a_moved_callback_is_told_every_field_of_the_official_context() -> None:
    contexts: list[sdk.ToolPermissionContext] = []

    async def decide(_tool: str, _input: dict[str, Any], context: sdk.ToolPermissionContext) -> sdk.PermissionResult:
        contexts.append(context)
        return sdk.PermissionResultAllow(updated_input={"command": "pwd"}, updated_permissions=context.suggestions)

    mock = ct.MockTransport.script()
    mock.expect(type="user").reply({"type": "control_request", "request_id": "q1", "request": QUESTION})
    answer = {"behavior": "allow", "updatedInput": {"command": "pwd"}, "updatedPermissions": list(UPDATES)}
    mock.expect(type="control_response", response={"request_id": "q1", "response": answer}).reply(result())
    async with ct.Query(mock, **options_from(sdk.ClaudeAgentOptions(can_use_tool=decide)).query_options) as query:
        await (await query.send("Hi")).result()
    (context,) = contexts
    # nothing sets the signal in the official SDK either
    assert {name for name in names(sdk.ToolPermissionContext) if not getattr(context, name)} == {"signal"}


@pytest.mark.parametrize("interrupt", [False, True])
async def test_a_moved_refusal_has_its_words_and_its_interrupt(interrupt: bool) -> None:
    async def decide(_tool: str, _input: dict[str, Any], _context: Any) -> sdk.PermissionResult:
        return sdk.PermissionResultDeny(message="not here", interrupt=interrupt)

    def as_it_was(response: dict[str, Any]) -> bool:
        return (response["behavior"], response["message"], response.get("interrupt", False)) == ("deny", "not here", interrupt)

    mock = ct.MockTransport.script()
    mock.expect(type="user").reply({"type": "control_request", "request_id": "q1", "request": QUESTION})
    mock.expect(type="control_response", response={"request_id": "q1", "response": as_it_was}).reply(result())
    async with ct.Query(mock, **options_from(sdk.ClaudeAgentOptions(can_use_tool=decide)).query_options) as query:
        await (await query.send("Hi")).result()


def test_the_answers_of_a_callback_have_no_other_fields_than_those_that_are_handed_on() -> None:
    assert names(sdk.PermissionResultAllow) == {"behavior", "updated_input", "updated_permissions"}
    assert names(sdk.PermissionResultDeny) == {"behavior", "message", "interrupt"}
    assert names(sdk.PermissionUpdate) == {"type", "rules", "behavior", "mode", "directories", "destination"}


async def test_a_moved_matcher_keeps_every_field() -> None:
    async def hook(_given: Any, _tool_use_id: str | None, _context: Any) -> Any: ...

    matcher = sdk.HookMatcher("Bash", [hook], timeout=7.5, on_failure="block")
    moved = options_from(sdk.ClaudeAgentOptions(hooks={"PreToolUse": [matcher]})).query_options
    (kept,) = (moved.get("hooks") or {})["PreToolUse"]
    assert (kept.matcher, kept.timeout, len(kept.hooks)) == ("Bash", 7.5, 1)
    assert names(sdk.HookMatcher) == {"matcher", "hooks", "timeout", "on_failure"}  # the last is in how a failure of the hook is taken


def test_every_field_of_an_agent_reaches_the_cli() -> None:
    assert set(AGENT) == names(sdk.AgentDefinition)
    moved = options_from(sdk.ClaudeAgentOptions(agents={"one": sdk.AgentDefinition(**AGENT)}))  # type: ignore[arg-type]
    delivered = build_payloads(moved.options, delivery="initialize", permissions={})
    assert delivered.initialize["agents"] == {"one": AGENT}


@pytest.mark.parametrize("name", [name for name in errors.__all__ if not name.endswith("Warning")])
def test_every_error_has_an_official_one_of_the_same_name_or_of_its_nearest_kin(name: str) -> None:
    ours = getattr(errors, name)("what happened")
    official = official_error(ours)
    assert isinstance(official, sdk.ClaudeSDKError)
    assert official.__cause__ is ours
    same_names = ("CLINotFoundError", "CLIJSONDecodeError", "ProcessError", "CLIConnectionError")
    expected = next((cls.__name__ for cls in type(ours).__mro__ if cls.__name__ in same_names), "")
    if not expected:
        no_connection = (errors.ConfigurationError, errors.ConnectionLost, errors.UsageError, errors.OutcomeUncertain)
        expected = "CLIConnectionError" if isinstance(ours, no_connection) else "ClaudeSDKError"
    assert type(official).__name__ == expected
    if expected != "CLIJSONDecodeError":  # whose words are made there, from the line
        assert "what happened" in str(official)
