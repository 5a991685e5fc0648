"""The official client over `adapt()` and `transport_from()`, and official options in a Query: everything it does, on the real binary.

Each outcome is seen over a process of this library and over a gateway, which are what a program would hand to that client.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import claude_agent_sdk as sdk
import pytest
from live_session import bash

import claude_transport as ct
from claude_transport.interop.agent_sdk import AdaptedTransport, adapt, options_from, transport_from
from claude_transport.testing import FakeMessagesAPI, replies

# The official client drops its own generators half read, which trio remarks on; that is not ours to judge.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning"),
]

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do

Opener = Callable[[sdk.ClaudeAgentOptions], AbstractAsyncContextManager[AdaptedTransport]]


@sdk.tool("add", "Adds two numbers", {"a": int, "b": int})
async def add(given: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"sum={given['a'] + given['b']}"}]}


SUMS = sdk.create_sdk_mcp_server("sums", tools=[add])


@pytest.fixture
def official(
    monkeypatch: pytest.MonkeyPatch, claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> Callable[..., sdk.ClaudeAgentOptions]:
    """`official(api, **options)`: official options for a CLI in a clean world, which this process's environment then is, too."""

    def build(api: FakeMessagesAPI, **options: Any) -> sdk.ClaudeAgentOptions:
        for name in list(os.environ):
            if not name.startswith(("PYTEST_", "PYTHON")):
                monkeypatch.delenv(name)
        for name, value in cli_env(api, CLAUDE_CODE_MAX_RETRIES="0").items():
            monkeypatch.setenv(name, value)
        return sdk.ClaudeAgentOptions(cli_path=claude_cli, cwd=cli_home.project, **options)

    return build


@pytest.fixture(params=["subprocess", "gateway"])
def adapted(request: pytest.FixtureRequest, cli_home: Any) -> Opener:
    """`async with adapted(options) as transport`: one that does what the options say, over a process or over a gateway to one."""

    @asynccontextmanager
    async def subprocess(options: sdk.ClaudeAgentOptions) -> AsyncIterator[AdaptedTransport]:
        yield transport_from(options)

    @asynccontextmanager
    async def gateway(options: sdk.ClaudeAgentOptions) -> AsyncIterator[AdaptedTransport]:
        inside = transport_from(options).transport
        assert isinstance(inside, ct.SubprocessTransport)
        url = f"unix://{cli_home.tmp}/door"
        async with ct.Gateway(inside.options, listen=[url], tokens={"alice": "a-token-that-is-long-enough"}) as served:
            transport = ct.NetworkTransport(served.urls[0], token="a-token-that-is-long-enough")
            yield adapt(transport, options=options)

    return {"subprocess": subprocess, "gateway": gateway}[request.param]


async def turn(options: sdk.ClaudeAgentOptions, transport: AdaptedTransport, *prompts: str) -> list[Any]:
    messages: list[Any] = []
    async with sdk.ClaudeSDKClient(options, transport=transport) as client:
        for prompt in prompts or ("Hi",):
            await client.query(prompt)
            messages += [message async for message in client.receive_response()]
    return messages


async def test_text_of_two_turns(official: Callable[..., Any], adapted: Opener) -> None:
    async with FakeMessagesAPI(["One.", "Two."]) as api:
        options = official(api)
        with anyio.fail_after(PATIENCE):
            async with adapted(options) as transport:
                messages = await turn(options, transport, "1", "2")
    assert [message.result for message in messages if isinstance(message, sdk.ResultMessage)] == ["One.", "Two."]


async def test_one_shot_query_ends_by_itself(official: Callable[..., Any], adapted: Opener) -> None:
    async with FakeMessagesAPI(["Hello."]) as api:
        options = official(api)
        with anyio.fail_after(PATIENCE):
            async with adapted(options) as transport:
                messages: list[Any] = [message async for message in sdk.query(prompt="Hi", options=options, transport=transport)]
    assert messages[-1].result == "Hello."
    assert not transport.is_ready()


async def test_a_tool_runs_after_a_hook_and_a_permission(official: Callable[..., Any], adapted: Opener, cli_home: Any) -> None:
    called: list[str] = []

    async def decide(tool: str, _input: dict[str, Any], _context: sdk.ToolPermissionContext) -> sdk.PermissionResult:
        called.append(tool)
        return sdk.PermissionResultAllow()

    async def note(given: Any, _tool_use_id: str | None, _context: Any) -> Any:
        called.append(given["hook_event_name"])
        return {}

    async with FakeMessagesAPI([bash("echo made > made"), "Done."]) as api:
        options = official(api, can_use_tool=decide, hooks={"PreToolUse": [sdk.HookMatcher("Bash", [note])]})
        with anyio.fail_after(PATIENCE):
            async with adapted(options) as transport:
                messages = await turn(options, transport)
    assert (called, messages[-1].result) == (["PreToolUse", "Bash"], "Done.")
    assert (cli_home.project / "made").exists()


async def test_a_tool_of_this_process_is_called(official: Callable[..., Any], adapted: Opener) -> None:
    script: list[Any] = [replies.tool_use("mcp__sums__add", {"a": 20, "b": 22}), "It is 42."]
    async with FakeMessagesAPI(script) as api:
        options = official(api, mcp_servers={"sums": SUMS}, allowed_tools=["mcp__sums__add"])
        with anyio.fail_after(PATIENCE):
            async with adapted(options) as transport:
                messages = await turn(options, transport)
    results = [block for message in messages if isinstance(message, sdk.UserMessage) for block in message.content]
    assert ["sum=42" in str(block) for block in results] == [True]
    assert messages[-1].result == "It is 42."


async def test_an_interrupt_ends_the_turn_and_the_next_one_goes_on(official: Callable[..., Any], adapted: Opener, cli_home: Any) -> None:
    results: list[Any] = []
    running = cli_home.project / "running"
    async with FakeMessagesAPI([bash("touch running; sleep 300"), "Still here.", "Still here."]) as api:
        options = official(api, allowed_tools=["Bash"])
        with anyio.fail_after(PATIENCE):
            async with adapted(options) as transport, sdk.ClaudeSDKClient(options, transport=transport) as client:
                await client.query("Sleep")
                ended = None
                async for message in client.receive_response():
                    if isinstance(message, sdk.AssistantMessage) and any(isinstance(b, sdk.ToolUseBlock) for b in message.content):
                        while not running.exists():  # one that comes before the tool runs ends the tool, and not the turn
                            await anyio.lowlevel.checkpoint()
                        await client.interrupt()
                    ended = message
                assert isinstance(ended, sdk.ResultMessage)
                assert ended.subtype == "error_during_execution", ended
                await client.query("Are you there?")
                results = [message async for message in client.receive_response()]
    assert results[-1].result in ("Still here.", "Hello from the fake Messages API.")  # whichever of its answers was not taken


@pytest.mark.needs("api_error_status")
async def test_a_failed_run_is_an_official_result_error_that_says_why(official: Callable[..., Any], adapted: Opener) -> None:
    async with FakeMessagesAPI(replies.error(401)) as api:
        options = official(api)
        with anyio.fail_after(PATIENCE):
            async with adapted(options) as transport:
                with pytest.raises(sdk.ResultError) as caught:
                    async for _message in sdk.query(prompt="Hi", options=options, transport=transport):
                        pass
    assert (caught.value.exit_code, caught.value.api_error_status) == (1, 401)


# ------------------------------------------------------------------------------------------- official options in our Query


async def test_moved_options_bring_their_callbacks_servers_and_prompt(official: Callable[..., Any], cli_home: Any) -> None:
    called: list[str] = []

    async def decide(tool: str, _input: dict[str, Any], context: sdk.ToolPermissionContext) -> sdk.PermissionResult:
        called.append(tool)
        assert context.tool_use_id
        return sdk.PermissionResultAllow(updated_input={"command": "echo moved > moved"}, updated_permissions=context.suggestions)

    async def note(given: Any, _tool_use_id: str | None, _context: Any) -> Any:
        called.append(given["hook_event_name"])
        return {"continue_": True}

    async def fails(_given: Any, _tool_use_id: str | None, _context: Any) -> Any:
        raise ValueError("a hook without a say")

    script: list[Any] = [bash("echo made > made"), replies.tool_use("mcp__sums__add", {"a": 1, "b": 2}), "Done."]
    async with FakeMessagesAPI(script) as api:
        options = official(
            api,
            can_use_tool=decide,
            hooks={"PreToolUse": [sdk.HookMatcher("Bash", [note, fails])]},
            mcp_servers={"sums": SUMS},
            allowed_tools=["mcp__sums__add"],
            system_prompt="Be brief.",
        )
        async with options_from(options).open_query() as query:
            with anyio.fail_after(PATIENCE):
                result = await (await query.send("Make it")).result()
        said = str(api.conversation[0].body)
    assert (called, result.result) == (["PreToolUse", "Bash"], "Done.")
    assert "Be brief." in said
    assert sorted(path.name for path in cli_home.project.iterdir() if path.is_file()) == ["moved"]


async def test_a_moved_hook_that_is_to_block_blocks_when_it_fails(official: Callable[..., Any], cli_home: Any) -> None:
    async def fails(_given: Any, _tool_use_id: str | None, _context: Any) -> Any:
        raise ValueError("a guard that fails")

    async with FakeMessagesAPI([bash("echo made > made"), "Done."]) as api:
        options = official(api, hooks={"PreToolUse": [sdk.HookMatcher("Bash", [fails], on_failure="block")]}, allowed_tools=["Bash"])
        async with options_from(options).open_query() as query:
            with anyio.fail_after(PATIENCE):
                await (await query.send("Make it")).result()
    assert not (cli_home.project / "made").exists()
