"""Hooks written for the official SDK answer what they answer there, also what this library's own hooks may not say."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import claude_agent_sdk as sdk
import pytest

from claude_transport import MockTransport, Query
from claude_transport.interop.agent_sdk import options_from

END = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
CONTINUES, BLOCKS = "continue", "block"

# what the hook returns, and what the CLI is told
ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "works on": ({"async_": True}, {"async": True}),
    "works on, and says more": (
        {"async_": True, "asyncTimeout": 2500, "systemMessage": "later"},
        {"async": True, "asyncTimeout": 2500, "systemMessage": "later"},
    ),
    "an unknown field": ({"continue_": True, "newer": {"a": [1]}}, {"continue": True, "newer": {"a": [1]}}),
    "an unknown field beside a decision": (
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "newer": 1}, "extra": {"x": 2}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "newer": 1}, "extra": {"x": 2}},
    ),
    "no event named": (
        {"hookSpecificOutput": {"permissionDecision": "allow"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}},
    ),
}
WRONG: dict[str, Any] = {
    "a misspelt value": {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "Deny"}},
    "another event": {"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "deny"}},
    "no JSON": {"systemMessage": "x", "newer": object()},
    "no mapping": None,
    "no reason": {"reason": 5},
}


async def told(event: str, answer: Any, *, on_failure: Any) -> tuple[dict[str, Any], int]:
    """What the CLI is told of a hook that returns `answer`, and how many callbacks failed."""

    async def hook(*_: object) -> Any:
        return answer

    body = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": event}, "tool_use_id": "t"}
    mock = MockTransport.script().expect(type="user").reply({"type": "control_request", "request_id": "q1", "request": body})
    mock.expect(type="control_response").reply(END)
    matchers: Any = {event: [sdk.HookMatcher(hooks=[hook], on_failure=on_failure)]}
    moved = options_from(sdk.ClaudeAgentOptions(hooks=matchers))
    async with Query(mock, **moved.query_options) as query:
        await (await query.send("Hello")).result()
        return mock.written[-1]["response"], query.failed_callbacks


@pytest.mark.parametrize(("answer", "on_failure"), [*itertools.product(ANSWERS, [None, CONTINUES, BLOCKS])])
async def test_what_an_official_hook_says_is_passed_on(answer: str, on_failure: str | None) -> None:
    says, expected = ANSWERS[answer]
    response, failed = await told("PreToolUse", says, on_failure=on_failure)
    assert (response, failed) == ({"subtype": "success", "request_id": "q1", "response": expected}, 0)


@pytest.mark.parametrize("answer", WRONG)
async def test_an_official_hook_that_says_something_wrong_blocks_when_it_was_told_to(answer: str) -> None:
    response, failed = await told("PreToolUse", WRONG[answer], on_failure=BLOCKS)
    assert response["response"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert failed == 1


@pytest.mark.parametrize("answer", WRONG)
@pytest.mark.parametrize("on_failure", [None, CONTINUES])
async def test_an_official_hook_that_says_something_wrong_has_no_say_otherwise(
    answer: str, on_failure: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        response, failed = await told("PreToolUse", WRONG[answer], on_failure=on_failure)
    assert (response["response"], failed) == ({}, 0)
    assert "a PreToolUse hook failed, and is ignored" in caplog.text


async def test_an_unknown_field_beside_the_answer_to_a_permission_is_passed_on() -> None:
    decision = {"behavior": "deny", "message": "no", "newer": True}
    says = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
    response, failed = await told("PermissionRequest", says, on_failure=BLOCKS)
    assert (response["response"], failed) == (says, 0)


async def test_an_event_that_has_nothing_of_its_own_to_say_may_say_what_is_not_known() -> None:
    says = {"hookSpecificOutput": {"hookEventName": "SessionEnd", "newer": True}}
    response, failed = await told("SessionEnd", says, on_failure=BLOCKS)
    assert (response["response"], failed) == (says, 0)
