"""The official client over a mock: what it asks and answers, frame by frame, through text, a tool, a hook, MCP and an interrupt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import claude_agent_sdk as sdk
import pytest

import claude_transport as ct
from claude_transport.interop.agent_sdk import adapt

# The official client drops its own generators half read, which trio remarks on; that is not ours to judge.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")

RUN = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
RAN = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a file", "is_error": False}
NAME = {"name": "claude-code", "version": "1"}
MCP = (
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": NAME},
    },
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 20, "b": 22}}},
)
"""What claude says to a server of the client, as recorded in 06a."""


def says(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"role": "assistant", "model": "mock", "content": [*blocks]}, "session_id": "s"}


def hears(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": [*blocks]}, "session_id": "s"}


def ends(text: str | None, *, subtype: str = "success") -> dict[str, Any]:
    numbers = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0.0}
    return {"type": "result", "subtype": subtype, "is_error": text is None, "session_id": "s", "result": text, **numbers}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def asks(request_id: str, subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}


def answer(request_id: str, **payload: Any) -> dict[str, Any]:
    """What the client must answer to that request, or more."""
    return {"subtype": "success", "request_id": request_id, "response": payload}


@asynccontextmanager
async def client_of(mock: ct.MockTransport, **options: Any) -> AsyncIterator[sdk.ClaudeSDKClient]:
    """The official client over the mock, which must have been told everything it waits for."""
    given = sdk.ClaudeAgentOptions(**options)
    with anyio.fail_after(10):
        async with sdk.ClaudeSDKClient(given, transport=adapt(mock, options=given)) as client:
            yield client
    mock.assert_exhausted()


async def heard(client: sdk.ClaudeSDKClient, prompt: str = "Hi") -> list[Any]:
    await client.query(prompt)
    return [message async for message in client.receive_response()]


async def test_text_of_two_turns_is_asked_for_and_heard() -> None:
    mock = ct.MockTransport.script()
    mock.expect(type="user", message={"content": "1"}).reply(says(text("One.")), ends("One."))
    mock.expect(type="user", message={"content": "2"}).reply(says(text("Two.")), ends("Two."))
    async with client_of(mock) as client:
        turns = [await heard(client, prompt) for prompt in ("1", "2")]
    assert [[type(message) for message in turn] for turn in turns] == [[sdk.AssistantMessage, sdk.ResultMessage]] * 2
    assert [turn[-1].result for turn in turns] == ["One.", "Two."]


async def test_a_tool_that_claude_runs_is_seen_with_its_result() -> None:
    mock = ct.MockTransport.script().expect(type="user").reply(says(RUN), hears(RAN), says(text("A file.")), ends("A file."))
    async with client_of(mock) as client:
        messages = await heard(client)
    blocks = [block for message in messages[:-1] for block in message.content]
    assert [type(block) for block in blocks] == [sdk.ToolUseBlock, sdk.ToolResultBlock, sdk.TextBlock]


async def test_a_hook_and_a_permission_callback_answer_what_they_are_asked() -> None:
    async def refuse(_tool: str, _input: dict[str, Any], _context: sdk.ToolPermissionContext) -> sdk.PermissionResult:
        return sdk.PermissionResultDeny(message="not here")

    async def stop(given: Any, tool_use_id: str | None, _context: Any) -> Any:
        return {"systemMessage": f"{given['tool_name']} {tool_use_id}"}

    question = asks("q2", "can_use_tool", tool_name="Bash", input={}, tool_use_id="toolu_1")
    hook = asks("q1", "hook_callback", callback_id="hook_0", input={"tool_name": "Bash"}, tool_use_id="toolu_1")
    mock = ct.MockTransport.script()
    mock.expect_control("initialize", hooks={"PreToolUse": lambda matchers: matchers[0]["matcher"] == "Bash"}).reply({"commands": []})
    mock.expect(type="user").reply(says(RUN), hook)
    mock.expect(type="control_response", response=answer("q1", systemMessage="Bash toolu_1")).reply(question)
    mock.expect(type="control_response", response=answer("q2", behavior="deny", message="not here")).reply(ends("I may not."))
    async with client_of(mock, can_use_tool=refuse, hooks={"PreToolUse": [sdk.HookMatcher("Bash", [stop])]}) as client:
        assert (await heard(client))[-1].result == "I may not."
    assert mock.client is not None
    assert mock.client.answers == {"can_use_tool", "hooks"}


async def test_a_tool_of_the_clients_own_process_is_listed_and_called() -> None:
    @sdk.tool("add", "Adds two numbers", {"a": int, "b": int})
    async def add(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [text(f"sum={given['a'] + given['b']}")]}

    def has(words: str) -> Any:
        return lambda payload: words in str(payload["mcp_response"])

    greet, listed, called = (asks(f"q{number}", "mcp_message", server_name="sums", message=said) for number, said in enumerate(MCP))
    mock = ct.MockTransport.script()
    mock.expect(type="user").reply(greet)
    mock.expect(type="control_response", response={"request_id": "q0", "response": has("'name': 'sums'")}).reply(listed)
    mock.expect(type="control_response", response={"request_id": "q1", "response": has("'name': 'add'")}).reply(called)
    mock.expect(type="control_response", response={"request_id": "q2", "response": has("sum=42")}).reply(ends("It is 42."))
    async with client_of(mock, mcp_servers={"sums": sdk.create_sdk_mcp_server("sums", tools=[add])}) as client:
        assert (await heard(client))[-1].result == "It is 42."
    assert mock.client is not None
    assert mock.client.answers == {"mcp"}


async def test_an_interrupt_is_answered_and_the_next_turn_goes_on() -> None:
    mock = ct.MockTransport.script()
    mock.expect(type="user").reply(says(RUN))
    mock.expect_control("interrupt").reply().emit(ends(None, subtype="error_during_execution"))
    mock.expect(type="user").reply(ends("Still here."))
    async with client_of(mock) as client:
        await client.query("Sleep")
        outcomes: list[str] = []
        async for message in client.receive_response():
            if isinstance(message, sdk.AssistantMessage):
                await client.interrupt()
            if isinstance(message, sdk.ResultMessage):
                outcomes.append(message.subtype)
        outcomes.append(str((await heard(client, "Are you there?"))[-1].result))
    assert outcomes == ["error_during_execution", "Still here."]
