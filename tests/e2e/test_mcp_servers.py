"""In-process MCP servers on the real CLI: its model calls tools that run in this test, over the control channel (C13, R8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

import claude_transport as ct
from claude_transport.errors import ConfigurationError
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0

Talk = Callable[..., ct.Query]


@pytest.fixture
def talk(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Talk:
    """`talk(api, servers)`: a Query over the real binary whose model may call the servers' tools."""

    def build(api: FakeMessagesAPI, servers: dict[str, Any]) -> ct.Query:
        allowed = [f"mcp__{name}" for name in servers]
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", allowed_tools=allowed)
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
            assert await query.interrupt() is ct.InterruptOutcome.acknowledged
            assert not (await turn.result()).outcome.ok
            await sums.cancelled.wait()
            await (await query.send("add")).result()
    assert sums.calls == [(3, 4)]


async def test_one_server_serves_several_sessions_at_once(talk: Talk) -> None:
    sums = Sums()

    async def session(number: int) -> None:
        script = [replies.tool_use("mcp__sums__add", {"a": number, "b": 0}), replies.text("done")]
        async with FakeMessagesAPI(script) as api, talk(api, {"sums": sums.server}) as query:
            turn = await query.send("add")
            messages = [message async for message in turn]
            assert f"the sum is {number}" in str(tool_results(messages)[0].content)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as sessions:
            for number in range(3):
                sessions.start_soon(session, number)
    assert sorted(sums.calls) == [(0, 0), (1, 0), (2, 0)]


def test_what_is_no_mcp_server_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match=r"mcp_servers\['x'\]"):
        ct.Query(ct.MockTransport(), mcp_servers={"x": object()})
