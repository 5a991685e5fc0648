"""In-process MCP servers on the real CLI: its model calls tools that run in this test, over the control channel."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.shared.exceptions import MCPError
from mcp.types import ToolAnnotations
from polling import a_moment
from pydantic import BaseModel

import claude_transport as ct
from claude_transport.errors import ConfigurationError
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

Talk = Callable[..., ct.Query]


@pytest.fixture
def talk(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Talk:
    """`talk(api, servers)`: a Query over the real binary whose model may call the servers' tools."""

    def build(api: FakeMessagesAPI, servers: dict[str, Any], **env: str) -> ct.Query:
        allowed = ["mcp__" + re.sub(r"[^a-zA-Z0-9_-]", "_", name) + "__*" for name in servers]
        options = ct.ClaudeOptions(
            cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api, **env), env_mode="exact", allowed_tools=allowed
        )
        return ct.Query(ct.SubprocessTransport(options), mcp_servers=servers)

    return build


class Sums:
    """A server that adds, fails, or waits, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float]] = []
        self.waiting = anyio.Event()
        self.cancelled = anyio.Event()
        self.server = MCPServer("sums")
        self.server.tool()(self.add)
        self.server.tool()(self.fail)
        self.server.tool()(self.wait)

    async def add(self, a: float, b: float) -> str:
        self.calls.append((a, b))
        return f"the sum is {a + b:g}"

    async def fail(self) -> str:
        raise RuntimeError("out of order")

    async def wait(self) -> str:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "never"


def tool_results(messages: list[ct.Message]) -> list[ct.ToolResultBlock]:
    return [block for message in messages if isinstance(message, ct.UserMessage) for block in message.tool_results]


@pytest.mark.version_sensitive
async def test_the_model_calls_a_tool_that_runs_in_this_process(talk: Talk) -> None:
    sums = Sums()
    script = [replies.tool_use("mcp__sums__add", {"a": 1, "b": 2}), replies.text("three")]
    async with FakeMessagesAPI(script) as api, talk(api, {"sums": sums.server}) as query:
        with anyio.fail_after(PATIENCE):
            turn = await query.send("add")
            messages = [message async for message in turn]
            (server,) = await query.mcp_status()
    assert (server.name, server.status) == ("sums", "connected")
    assert sums.calls == [(1, 2)]
    (result,) = tool_results(messages)
    assert "the sum is 3" in str(result.content)


async def test_a_tool_that_fails_is_an_error_for_the_model_and_for_nobody_else(talk: Talk) -> None:
    sums = Sums()
    script = [replies.tool_use("mcp__sums__fail", {}), replies.tool_use("mcp__sums__add", {"a": 2, "b": 2}), replies.text("four")]
    async with FakeMessagesAPI(script) as api, talk(api, {"sums": sums.server}) as query:
        with anyio.fail_after(PATIENCE):
            turn = await query.send("fail, then add")
            messages = [message async for message in turn]
            assert (await turn.result()).outcome.ok
    failed, added = tool_results(messages)
    assert failed.is_error
    assert not added.is_error


async def test_an_interrupt_cancels_the_tool_and_the_server_lives_on(talk: Talk) -> None:
    sums = Sums()
    script = [replies.tool_use("mcp__sums__wait", {}), replies.tool_use("mcp__sums__add", {"a": 3, "b": 4}), replies.text("seven")]
    async with FakeMessagesAPI(script) as api, talk(api, {"sums": sums.server}) as query:
        with anyio.fail_after(PATIENCE):
            turn = await query.send("wait")
            await sums.waiting.wait()
            assert await query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
            assert not (await turn.result()).outcome.ok
            await sums.cancelled.wait()
            await (await query.send("add")).result()
    assert sums.calls == [(3, 4)]


async def test_one_server_serves_several_sessions_at_once(talk: Talk) -> None:
    """All of them are inside the tool at the same time, under the same JSON-RPC ids."""
    meeting = anyio.Event()
    present: list[int] = []
    server = MCPServer("meeting")

    @server.tool()
    async def meet(number: int) -> str:
        present.append(number)
        if len(present) == 3:
            meeting.set()
        await meeting.wait()
        return f"number {number}"

    async def session(number: int) -> None:
        script = [replies.tool_use("mcp__meeting__meet", {"number": number}), replies.text("done")]
        async with FakeMessagesAPI(script) as api, talk(api, {"meeting": server}) as query:
            turn = await query.send("meet")
            messages = [message async for message in turn]
            assert f"number {number}" in str(tool_results(messages)[0].content)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as sessions:
            for number in range(3):
                sessions.start_soon(session, number)
    assert sorted(present) == [0, 1, 2]


@pytest.mark.needs("parallel calls of MCP tools")
async def test_calls_of_a_tool_that_only_reads_run_at_the_same_time(talk: Talk) -> None:
    """The CLI makes two calls at once when the tool has `readOnlyHint` (recording 06o)."""
    both = anyio.Event()
    inside: list[str] = []
    server = MCPServer("box")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def look(at: str) -> str:
        inside.append(at)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return f"saw {at}"

    calls = replies.message(*(replies.tool_use_block("mcp__box__look", input={"at": at}) for at in "ab"))
    async with FakeMessagesAPI([calls, replies.text("done")]) as api, talk(api, {"box": server}) as query:
        with anyio.fail_after(PATIENCE):
            messages = [message async for message in await query.send("look twice")]
    contents = [str(result.content) for result in tool_results(messages)]
    assert ["saw a" in contents[0], "saw b" in contents[1], len(contents)] == [True, True, 2]


@pytest.mark.needs("sizes of tool results")
async def test_a_large_result_and_an_image_reach_the_cli(talk: Talk) -> None:
    """Of two million characters the model gets a reference to a file, and the file is whole: that is the CLI's doing."""
    server = MCPServer("box")

    @server.tool(structured_output=False)
    async def large() -> str:
        return "x" * 2_000_000

    @server.tool(structured_output=False)
    async def picture() -> Image:
        return Image(data=PIXEL, format="png")

    script = [replies.tool_use("mcp__box__large", {}), replies.tool_use("mcp__box__picture", {}), replies.text("done")]
    async with FakeMessagesAPI(script) as api, talk(api, {"box": server}) as query:
        with anyio.fail_after(PATIENCE):
            messages = [message async for message in await query.send("much, then a picture")]
    large_result, picture_result = tool_results(messages)
    assert "2,000,000 characters" in str(large_result.content)
    assert not large_result.is_error
    assert isinstance(picture_result.content, tuple)
    assert isinstance(picture_result.content[0], ct.messages.ImageBlock)


class Wish(BaseModel):
    number: int


async def test_what_the_server_asks_of_its_client_the_cli_refuses_and_the_tool_hears_so(talk: Talk) -> None:
    """CLI 2.1.329 declares no capabilities to in-process servers: elicitation, sampling and roots are "Method not found" (06o)."""
    refused: list[str] = []
    server = MCPServer("box")

    @server.tool()
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("How many?", Wish)
        except MCPError as error:
            refused.append(str(error))
        return "asked"

    script = [replies.tool_use("mcp__box__ask", {}), replies.text("done")]
    async with FakeMessagesAPI(script) as api, talk(api, {"box": server}) as query:
        with anyio.fail_after(PATIENCE):
            assert (await (await query.send("ask")).result()).outcome.ok
            assert query.pending_requests == {}
    assert refused == ["Method not found"]


@pytest.mark.needs("changed lists of MCP tools")
async def test_progress_is_taken_and_a_changed_list_of_tools_is_read_again(talk: Talk) -> None:
    """CLI 2.1.329 acknowledges progress, and lists the tools again at `list_changed` (06l): the new one can be called in the next turn."""
    server = MCPServer("box")

    async def fresh() -> str:
        return "fresh indeed"

    @server.tool()
    async def grow(ctx: Context) -> str:
        for step in range(3):
            await ctx.report_progress(step, 3, f"step {step}")
        server.tool()(fresh)
        await ctx.session.send_tool_list_changed()
        return "grown"

    script = [replies.tool_use("mcp__box__grow", {}), replies.text("done"), replies.tool_use("mcp__box__fresh", {}), replies.text("done")]
    async with FakeMessagesAPI(script) as api, talk(api, {"box": server}) as query:
        with anyio.fail_after(PATIENCE):
            assert (await (await query.send("grow")).result()).outcome.ok
            while "fresh" not in {tool.name for status in await query.mcp_status() for tool in status.tools or ()}:
                await a_moment()
            messages = [message async for message in await query.send("use it")]
            assert query.pending_requests == {}
    assert "fresh indeed" in str(tool_results(messages)[0].content)


@pytest.mark.needs("rules for MCP servers with odd names")
async def test_a_name_with_odd_characters_is_written_with_underscores_in_the_names_of_its_tools(talk: Talk) -> None:
    """CLI 2.1.329, and permission rules name it so, too: here `mcp__my_sums__2__*`, as `mcp__my_sums__2` would be a tool of `my_sums`."""
    sums = Sums()
    script = [replies.tool_use("mcp__my_sums__2__add", {"a": 1, "b": 1}), replies.text("two")]
    async with FakeMessagesAPI(script) as api, talk(api, {"my sums: 2": sums.server}) as query:
        with anyio.fail_after(PATIENCE):
            messages = [message async for message in await query.send("add")]
            assert [status.name for status in await query.mcp_status()] == ["my sums: 2"]
    assert "the sum is 2" in str(tool_results(messages)[0].content)


@pytest.mark.both_loops
@pytest.mark.parametrize("query", ["select:mcp__sums__add", "adds two numbers"], ids=["by name", "by its words"])
async def test_a_tool_that_is_deferred_is_found_by_a_search_and_called(talk: Talk, query: str) -> None:
    """The model's request does not describe a deferred tool until the model has searched for it."""
    calls: list[dict[str, Any]] = []

    @ct.client.tool("add", "Adds two numbers.", {"a": float, "b": float})
    async def add(given: dict[str, Any]) -> str:
        calls.append(given)
        return f"the sum is {given['a'] + given['b']:g}"

    server = ct.client.create_sdk_mcp_server("sums", tools=[add])
    script = [replies.tool_use("ToolSearch", {"query": query}), replies.tool_use("mcp__sums__add", {"a": 1, "b": 2}), "Three."]
    async with FakeMessagesAPI(script) as api:
        with anyio.fail_after(PATIENCE):
            async with talk(api, {"sums": server}, ENABLE_TOOL_SEARCH="true") as session:
                await (await session.send("Add")).result()
        offered = [[tool for tool in request.body["tools"] if tool["name"] == "mcp__sums__add"] for request in api.conversation]
        found, said = api.conversation[1].tool_results[0], api.conversation[2].tool_results[0]
    assert offered[0] == []
    assert [(tool["description"], tool["input_schema"]["required"]) for tool in offered[1]] == [("Adds two numbers.", ["a", "b"])]
    assert {"type": "tool_reference", "tool_name": "mcp__sums__add"} in found["content"]  # a search by words may find others, too
    assert "the sum is 3" in str(said["content"])
    assert calls == [{"a": 1, "b": 2}]


def test_what_is_no_mcp_server_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match=r"mcp_servers\['x'\]"):
        ct.Query(ct.MockTransport(), mcp_servers={"x": object()})
