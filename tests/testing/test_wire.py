"""`assistant()`, `hook_callback()`, `result()` and their like: messages as the CLI writes them, for mocks, fakes and the official SDK."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import claude_agent_sdk
import pytest

import claude_transport as ct
from claude_transport.protocol import messages as messages_module
from claude_transport.testing import (
    ExpectationFailed,
    FakeClaude,
    Scenario,
    assistant,
    can_use_tool,
    compaction,
    hook_callback,
    rate_limit,
    result,
    streamed,
    subagent,
    thinking,
    tool_result,
    tool_use,
)

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


# ----------------------------------------------------------------------------------------------- questions, streams, and the rest

HOW_TO = Path(__file__).parents[2].joinpath("docs", "how-to", "test-without-a-model.md").read_text("utf-8")
RECORDINGS = Path(__file__).parent.parent / "recordings"
CALL = tool_use("Agent", {"description": "look", "prompt": "Look.", "subagent_type": "Explore"})
PRE_TOOL_USE = {"tool_name": "Bash", "tool_input": {"command": "ls"}}


def recorded_messages(name: str = "*.ndjson") -> Iterator[dict[str, Any]]:
    """Every whole message that a recording has of the CLI."""
    for path in sorted(RECORDINGS.glob(name)):
        for line in path.read_text("utf-8").splitlines():
            record = json.loads(line)
            if record["dir"] == "out" and "trimmed_from_chars" not in record:
                with contextlib.suppress(ValueError):
                    yield json.loads(record["line"])


def content_of(message: dict[str, Any]) -> Any:
    inner = message.get("message")
    return inner.get("content") if isinstance(inner, dict) else None


def kind_of(message: dict[str, Any]) -> str:
    """The kind of a message: more than its type, where its keys depend on more."""
    inner = message.get("request") or message.get("event") or {}
    content = content_of(message)
    block = content[0].get("type") if isinstance(content, list) and content else None
    parts = (message.get("type"), message.get("subtype") or inner.get("subtype") or inner.get("type"), block)
    event = inner.get("input", {}).get("hook_event_name") if inner.get("subtype") == "hook_callback" else None
    return "/".join(str(part) for part in (*parts, event) if part)


def parts_of(message: dict[str, Any]) -> dict[str, set[str]]:
    """The keys of a message, and of the objects in it whose keys the CLI chooses."""
    request = message.get("request") or {}
    content = content_of(message)
    inside: dict[str, Any] = {
        "": message,
        "event": message.get("event"),
        "request": request,
        "input": request.get("input") if request.get("subtype") == "hook_callback" else None,
        "rate_limit_info": message.get("rate_limit_info"),
        "compact_metadata": message.get("compact_metadata"),
        "usage": message.get("usage") if message.get("subtype", "").startswith("task_") else None,
        "block": content[0] if isinstance(content, list) and content else None,
    }
    return {name: set(value) for name, value in inside.items() if isinstance(value, dict)}


RECORDED: dict[str, list[dict[str, set[str]]]] = {}
for _message in recorded_messages():
    if isinstance(_message, dict):
        RECORDED.setdefault(kind_of(_message), []).append(parts_of(_message))

MADE = [
    thinking("Let me see."),
    tool_result("toolu_1", "Two files."),
    tool_result(tool_use("Bash"), "no such file", is_error=True, tool_use_result="Error: no such file"),
    *streamed("Two ", "files."),
    rate_limit(),
    rate_limit("rejected", resets_at=1795208611, rate_limit_type="five_hour", info={"unifiedWindows": {}}),
    can_use_tool("Bash", {"command": "ls"}),
    can_use_tool("Bash", tool_use_id=tool_use("Bash"), description="List files", blocked_path="/etc"),
    hook_callback("PreToolUse", **PRE_TOOL_USE),
    *(
        hook_callback(event)
        for event in ("UserPromptSubmit", "PostToolUse", "PostToolBatch", "PermissionRequest", "MessageDisplay", "Stop")
    ),
    *subagent(CALL, [assistant("I look."), tool_use("Bash"), tool_result("toolu_2")], summary="Two files."),
    *compaction(),
]


@pytest.mark.parametrize("message", MADE, ids=kind_of)
def test_a_message_has_the_keys_of_recorded_ones_of_its_kind_also_inside(message: dict[str, Any]) -> None:
    recorded = RECORDED[kind_of(message)]
    for name, keys in parts_of(message).items():
        found = [parts[name] for parts in recorded if name in parts]
        assert set.intersection(*found) <= keys <= set.union(*found), name
    assert json.loads(json.dumps(message)) == message


def test_the_whole_message_comes_before_the_end_of_its_block_as_recorded() -> None:
    kinds = [kind_of(message) for message in streamed("Two ", "files.")]
    recorded = [kind_of(message) for message in recorded_messages("03_partial_messages.ndjson")]
    whole, end = recorded.index("assistant/text"), len(recorded) - 1 - recorded[::-1].index("result/success")
    assert kinds[-4:] == recorded[whole:end]
    assert len(kinds) == 8


async def play(claude: ct.MockTransport, **options: Any) -> list[ct.Message]:
    """Ask the mock, and return the messages of its turn."""
    with anyio.fail_after(PATIENCE):
        async with ct.Query(claude, **options) as query:
            return [message async for message in await query.send("Hello")]


async def test_a_query_reads_thoughts_results_streams_limits_subagents_and_compactions() -> None:
    call = tool_use("Bash", {"command": "ls"})
    messages = await play(
        ct.MockTransport(
            [
                thinking("Let me see."),
                call,
                tool_result(call, "a.txt"),
                *streamed("One ", "file."),
                rate_limit("allowed_warning", resets_at=17, rate_limit_type="five_hour"),
                CALL,
                *subagent(CALL, [assistant("I look.")], summary="Two files."),
                *compaction(trigger="auto", pre_tokens=900, post_tokens=30),
                result("One file."),
            ]
        )
    )
    of = {type(message): message for message in messages}
    thought, used, answered = messages[:3]
    assert isinstance(thought, ct.AssistantMessage)
    assert isinstance(thought.content[0], ct.ThinkingBlock)
    assert thought.content[0].thinking == "Let me see."
    assert isinstance(used, ct.AssistantMessage)
    assert isinstance(answered, ct.UserMessage)
    use, block = used.content[0], answered.content[0]
    assert isinstance(use, ct.ToolUseBlock)
    assert isinstance(block, ct.ToolResultBlock)
    assert (block.tool_use_id, block.content, block.is_error) == (use.id, "a.txt", False)
    assert "".join(message.text for message in messages if isinstance(message, ct.StreamEvent)) == "One file."
    limit = next(message for message in messages if isinstance(message, messages_module.RateLimitEvent))
    assert (limit.rate_limit_info.status, limit.rate_limit_info.resets_at) == ("allowed_warning", 17)
    started = next(message for message in messages if isinstance(message, messages_module.TaskStarted))
    ended = next(message for message in messages if isinstance(message, messages_module.TaskNotification))
    said = next(message for message in messages if isinstance(message, ct.AssistantMessage) and message.text == "I look.")
    assert (started.description, started.prompt, started.subagent_type) == ("look", "Look.", "Explore")
    assert said.parent_tool_use_id == started.tool_use_id == ended.tool_use_id == CALL["message"]["content"][0]["id"]
    assert (ended.task_id, ended.status, ended.summary) == (started.task_id, "completed", "Two files.")
    boundary = next(message for message in messages if isinstance(message, messages_module.CompactBoundary))
    assert (boundary.compact_metadata.trigger, boundary.compact_metadata.pre_tokens) == ("auto", 900)
    assert isinstance(of[ct.ResultMessage], ct.ResultMessage)


async def test_a_query_answers_a_permission_question() -> None:
    asked: list[tuple[str, Any]] = []

    async def decide(tool_name: str, tool_input: dict[str, Any], _context: object) -> ct.Deny:
        asked.append((tool_name, tool_input))
        return ct.Deny("no")

    call = tool_use("Bash", {"command": "ls"})
    claude = ct.MockTransport([call, can_use_tool("Bash", {"command": "ls"}, tool_use_id=call), result("Denied.")])
    await play(claude, can_use_tool=decide)
    assert asked == [("Bash", {"command": "ls"})]
    answer = claude.written[-1]["response"]["response"]
    assert (answer["behavior"], answer["message"]) == ("deny", "no")


def note(name: str, called: list[str]) -> Any:
    async def hook(*_arguments: object) -> None:
        called.append(name)

    return hook


@pytest.mark.parametrize("scripted", [False, True])
async def test_a_hook_is_called_by_its_event_and_tool_and_no_test_knows_its_id(scripted: bool) -> None:
    called: list[str] = []
    hooks = {
        "Stop": [ct.HookMatcher(hooks=[note("stop", called)])],
        "PreToolUse": [
            ct.HookMatcher(matcher="Write|Edit", hooks=[note("write", called)]),
            ct.HookMatcher(matcher="^mcp__", hooks=[note("mcp", called)]),
            ct.HookMatcher(matcher="Task", hooks=[note("agent", called)]),
            ct.HookMatcher(matcher="Bash", hooks=[note("bash", called)]),
            ct.HookMatcher(hooks=[note("any", called)]),
        ],
    }
    tools = ["Bash", "Edit", "Read", "Agent", "mcp__s__greet"]
    questions = [*(hook_callback("PreToolUse", tool_name=name) for name in tools), hook_callback("Stop")]
    if scripted:
        claude = ct.MockTransport.script().expect(type="user")
        for question in questions:
            claude.reply(question).expect(type="control_response")
        claude.reply(result("Done."))
    else:
        claude = ct.MockTransport([*questions, result("Done.")])
    await play(claude, hooks=hooks)
    assert called == ["bash", "write", "any", "agent", "mcp", "stop"]


async def test_a_hook_that_nothing_was_registered_for_fails_the_program() -> None:
    claude = ct.MockTransport([hook_callback("PreToolUse", tool_name="Bash"), result("Done.")])
    hooks = {"PreToolUse": [ct.HookMatcher(matcher="Write", hooks=[note("write", [])])], "Stop": [ct.HookMatcher(hooks=[note("stop", [])])]}
    with pytest.raises(ExpectationFailed, match=r"register a hook for PreToolUse of Bash.*PreToolUse with the matcher 'Write', Stop"):
        await play(claude, hooks=hooks)


async def test_what_the_how_to_says_of_the_words_is_a_turn_with_a_hook_and_a_question() -> None:
    (code,) = re.findall(r"^```python\n(from claude_transport.testing import can_use_tool.*?)^```$", HOW_TO, re.DOTALL | re.MULTILINE)
    page: dict[str, Any] = {"ct": ct}
    exec(code, page)
    asked: list[str] = []

    async def decide(tool_name: str, *_arguments: object) -> ct.Allow:
        asked.append(tool_name)
        return ct.Allow()

    hooks = {"PreToolUse": [ct.HookMatcher(matcher="Bash", hooks=[note("hook", asked)])]}
    messages = await play(page["claude"], hooks=hooks, can_use_tool=decide)
    assert asked == ["hook", "Bash"]
    assert [type(message) for message in messages] == [ct.AssistantMessage, ct.UserMessage, ct.ResultMessage]


def test_what_makes_no_tool_call_is_no_call() -> None:
    with pytest.raises(ct.ConfigurationError, match=r"pass a message of tool_use\(\)"):
        tool_result(assistant("Hi"), "…")


async def test_a_fake_process_asks_them_and_waits_for_the_answers() -> None:
    called: list[str] = []

    async def decide(*_arguments: object) -> ct.Allow:
        called.append("permission")
        return ct.Allow()

    hooks = {"Stop": [ct.HookMatcher(hooks=[note("stop", called)])], "PreToolUse": [ct.HookMatcher(hooks=[note("tool", called)])]}
    call = tool_use("Bash", {"command": "ls"})
    questions = [hook_callback("PreToolUse", tool_use_id=call), can_use_tool("Bash")]
    turn = [call, *questions, assistant("{{answer.response.behavior}}"), result("One file.")]
    with anyio.fail_after(PATIENCE), FakeClaude(Scenario.turns([turn])) as claude:
        async with ct.Query(ct.SubprocessTransport(command=claude.command), hooks=hooks, can_use_tool=decide) as query:
            messages = [message async for message in await query.send("Hello")]
    assert called[:2] == ["tool", "permission"]
    assert "allow" in [message.text for message in messages if isinstance(message, ct.AssistantMessage)]
