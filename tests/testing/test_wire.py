"""`assistant()`, `tool_use()` and `result()`: messages as the CLI writes them, for a mock, for a fake process, and for the official SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import claude_agent_sdk
import pytest

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, assistant, result, tool_use

RECORDED_KEYS = json.loads(Path(__file__).with_name("recorded_frame_keys.json").read_text("utf-8"))
PATIENCE = 30
ASKED = {"type": "user", "message": {"role": "user", "content": "Hello"}}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("assistant", assistant("Hi")),
        ("assistant", assistant([{"type": "thinking", "thinking": "…", "signature": ""}], parent_tool_use_id="toolu_1")),
        ("assistant", tool_use("Bash", {"command": "ls"})),
        ("result/success", result("Done.")),
        ("result/success", result("API Error: 429", is_error=True, api_error_status=429)),
        ("result/error_max_budget_usd", result("Reached maximum budget ($1)", subtype="error_max_budget_usd")),
        ("result/error_max_turns", result("Reached maximum number of turns (1)", subtype="error_max_turns")),
    ],
)
def test_a_message_has_the_keys_of_the_recorded_ones(kind: str, message: dict[str, Any]) -> None:
    recorded = RECORDED_KEYS[kind]
    assert set(recorded["always"]) <= set(message) <= {*recorded["always"], *recorded["sometimes"]}
    assert json.loads(json.dumps(message)) == message


def test_two_messages_are_of_one_session_and_have_ids_of_their_own() -> None:
    messages = [assistant("Hi"), tool_use("Bash"), tool_use("Bash"), result()]
    assert len({message["session_id"] for message in messages}) == 1
    assert len({message["uuid"] for message in messages}) == len(messages)
    calls = [message["message"]["content"][0]["id"] for message in messages[1:3]]
    assert calls[0] != calls[1]


def test_a_field_replaces_what_was_filled_in_or_is_added() -> None:
    message = result("Done.", num_turns=3, structured_output={"a": 1}, session_id="mine")
    assert (message["num_turns"], message["structured_output"], message["session_id"]) == (3, {"a": 1}, "mine")
    assert assistant("Hi", error="rate_limit")["error"] == "rate_limit"


def test_a_caller_may_change_a_message_without_changing_the_next() -> None:
    result()["subagent_stats"]["killed"]["user"] = 7
    assert result()["subagent_stats"]["killed"]["user"] == 0


async def test_a_mock_plays_them_as_a_turn() -> None:
    claude = ct.MockTransport([assistant("I look."), tool_use("Bash", {"command": "ls"}, id="toolu_1"), result("Done.", num_turns=2)])
    with anyio.fail_after(PATIENCE):
        async with ct.Query(claude) as query:
            messages = [message async for message in await query.send("Hello")]
    said, called, ended = messages
    assert isinstance(said, ct.AssistantMessage)
    assert isinstance(called, ct.AssistantMessage)
    assert isinstance(ended, ct.ResultMessage)
    (use,) = called.content
    assert isinstance(use, ct.ToolUseBlock)
    assert (said.text, use.name, use.input, use.id) == ("I look.", "Bash", {"command": "ls"}, "toolu_1")
    assert (ended.result, ended.num_turns, ended.outcome.ok, ended.terminal_reason) == ("Done.", 2, True, "completed")


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (result("API Error: 429", is_error=True, api_error_status=429), ct.RateLimited),
        (result("Reached maximum number of turns (1)", subtype="error_max_turns"), ct.ResultError),
    ],
)
async def test_a_failed_result_fails_as_a_real_one_does(failure: dict[str, Any], code: type[ct.ResultError]) -> None:
    with anyio.fail_after(PATIENCE):
        async with ct.Query(ct.MockTransport([failure])) as query:
            ended = await (await query.send("Hello")).result()
    with pytest.raises(code):
        ended.raise_for_error()


async def test_the_official_sdk_takes_them() -> None:
    claude: Any = ct.MockTransport([assistant("Hi"), tool_use("Bash", {"command": "ls"}), result("Done.")])

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield ASKED

    with anyio.fail_after(PATIENCE):
        said, called, ended = [message async for message in claude_agent_sdk.query(prompt=prompts(), transport=claude)]
    assert isinstance(said, claude_agent_sdk.AssistantMessage)
    assert said.content == [claude_agent_sdk.TextBlock("Hi")]
    assert isinstance(called, claude_agent_sdk.AssistantMessage)
    assert isinstance(called.content[0], claude_agent_sdk.ToolUseBlock)
    assert isinstance(ended, claude_agent_sdk.ResultMessage)
    assert (ended.result, ended.is_error) == ("Done.", False)


async def test_a_fake_process_plays_them_with_its_own_ids_and_costs() -> None:
    scenario = Scenario.turns(
        [
            [assistant("I look."), tool_use("Bash", {"command": "ls"}), result("Done.", structured_output={"a": 1})],
            [result("API Error: 529", is_error=True, api_error_status=529)],
            [result("too many", subtype="error_max_turns")],
            "A text.",
        ]
    )
    with anyio.fail_after(PATIENCE), FakeClaude(scenario) as claude:
        async with ct.Query(ct.SubprocessTransport(command=claude.command)) as query:
            first = [message async for message in await query.send("Hello")]
            second, third, fourth = [await (await query.send("Hello")).result() for _ in range(3)]
    said = [message.text for message in first if isinstance(message, ct.AssistantMessage) and message.text]
    ended = first[-1]
    assert isinstance(ended, ct.ResultMessage)
    assert (said, ended.result, ended.structured_output) == (["I look."], "Done.", {"a": 1})
    assert {getattr(message, "session_id", ended.session_id) for message in first} == {ended.session_id} == {second.session_id}
    assert (second.outcome.ok, second.api_error_status, second.terminal_reason) == (False, 529, "api_error")
    assert (third.subtype, third.errors, third.result) == ("error_max_turns", ("too many",), None)
    assert [message.result_index for message in (ended, second, third, fourth)] == [0, 1, 2, 3]
    assert fourth.total_cost_usd > ended.total_cost_usd
