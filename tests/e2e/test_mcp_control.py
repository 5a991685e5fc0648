"""MCP servers of the real CLI, looked at and switched while it runs: real stdio servers, and servers in this process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from live_session import Live, LiveSession, of_type
from mcp.server import MCPServer

import claude_transport as ct
from claude_transport import errors
from claude_transport.testing import replies

SERVER = str(Path(__file__).parent / "sums_server.py")
SUMS = {"sums": {"type": "stdio", "command": sys.executable, "args": [SERVER]}}
ADD = replies.tool_use("mcp__sums__add", {"a": 1, "b": 2})


async def statuses(session: LiveSession) -> dict[str, str]:
    return {server.name: server.status for server in await session.query.mcp_status()}


async def is_offered(session: LiveSession) -> bool:
    """Whether the next turn has the tool. The API's request would not tell: the model gets tools of servers when it looks for them."""
    (init,) = of_type(await session.hear("Anything?"), ct.messages.InitMessage)
    return "mcp__sums__add" in init.tools


async def test_the_model_calls_a_tool_of_a_stdio_server(live: Live) -> None:
    async with live([ADD, "Three."], mcp_servers=SUMS, allowed_tools=["mcp__sums"]) as session:
        messages = await session.hear("Add")
        assert "3" in session.told()[0]
        (server,) = await session.query.mcp_status()
    (init,) = of_type(messages, ct.messages.InitMessage)
    assert [(server.name, server.status) for server in init.mcp_servers] == [("sums", "connected")]
    assert server.server_info is not None
    assert (server.server_info.name, server.server_info.version) == ("sums", "1.2")
    assert [tool.name for tool in server.tools] == ["add"]


async def test_a_server_that_cannot_start_is_reported_and_can_be_reconnected_once_it_can(live: Live) -> None:
    start = ["-c", f"[ -e repaired ] && exec '{sys.executable}' '{SERVER}'"]
    broken = {"sums": {"type": "stdio", "command": "/bin/sh", "args": start}}
    async with live(mcp_servers=broken, allowed_tools=["mcp__sums"]) as session:
        await session.ask("Hello")
        assert await statuses(session) == {"sums": "failed"}
        with pytest.raises(errors.ControlRequestFailed):
            await session.query.mcp_reconnect("sums")
        (session.project / "repaired").touch()
        await session.query.mcp_reconnect("sums")
        assert await statuses(session) == {"sums": "connected"}
        session.api.replace([ADD, "Three."])
        await session.ask("Add")
        assert "3" in session.told()[0]


@pytest.mark.needs("MCP servers are switched off for the next turn")
async def test_a_server_that_is_switched_off_gives_the_next_turn_no_tools(live: Live) -> None:
    async with live(mcp_servers=SUMS) as session:
        assert await is_offered(session)
        await session.query.mcp_toggle("sums", enabled=False)
        assert await statuses(session) == {"sums": "disabled"}
        assert not await is_offered(session)
        await session.query.mcp_toggle("sums", enabled=True)
        assert await statuses(session) == {"sums": "connected"}
        assert await is_offered(session)


async def test_servers_can_be_added_and_removed_between_two_turns(live: Live) -> None:
    async with live() as session:
        assert not await is_offered(session)
        assert (await session.query.mcp_set_servers(SUMS)).added == ("sums",)
        assert await is_offered(session)
        assert (await session.query.mcp_set_servers({})).removed == ("sums",)
        assert not await is_offered(session)


@pytest.mark.needs("MCP servers of this process can be switched off")
async def test_a_server_in_this_process_is_switched_off_and_on_and_cannot_be_reconnected(live: Live) -> None:
    calls: list[tuple[float, float]] = []
    server = MCPServer("sums")

    @server.tool()
    async def add(a: float, b: float) -> str:
        """Adds a and b."""
        calls.append((a, b))
        return f"the sum is {a + b:g}"

    async with live(in_process={"sums": server}, allowed_tools=["mcp__sums"]) as session:
        await session.query.mcp_toggle("sums", enabled=False)
        assert await statuses(session) == {"sums": "disabled"}
        await session.query.mcp_toggle("sums", enabled=True)
        assert await statuses(session) == {"sums": "connected"}
        with pytest.raises(errors.ControlRequestFailed):
            await session.query.mcp_reconnect("sums")
        session.api.replace([ADD, "Three."])
        await session.ask("Add")
        assert "the sum is 3" in session.told()[0]
    assert calls == [(1, 2)]


async def test_servers_given_to_the_query_have_their_tools_there_for_the_first_prompt(live: Live) -> None:
    calls, lives = [], []

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        lives.append("begun")
        yield

    box = MCPServer("box", lifespan=lifespan)

    @box.tool()
    async def hello() -> str:
        """Says hello."""
        calls.append("hello")
        return "hello from here"

    script = [ADD, replies.tool_use("mcp__box__hello", {}), replies.tool_use("mcp__mine__add", {"a": 2, "b": 3}), "Done."]
    given = {"box": box, "sums": {key: value for key, value in SUMS["sums"].items() if key != "type"}}
    allowed = ["mcp__sums", "mcp__box", "mcp__mine"]
    async with live(script, in_process=given, mcp_servers={"mine": SUMS["sums"]}, allowed_tools=allowed) as session:
        messages = await session.hear("Add, and say hello, and add")
        told = [session.told(number)[0] for number in (1, 2, 3)]
        assert await statuses(session) == {"sums": "connected", "box": "connected", "mine": "connected"}
    (init,) = of_type(messages, ct.messages.InitMessage)
    assert {tool for tool in init.tools if tool.startswith("mcp__")} == {"mcp__sums__add", "mcp__box__hello", "mcp__mine__add"}
    assert ["3" in told[0], "hello from here" in told[1], "5" in told[2]] == [True, True, True]
    assert (calls, lives) == (["hello"], ["begun"])


async def test_a_server_without_arguments_is_started_all_the_same(live: Live) -> None:
    server = f"#!/bin/sh\nexec '{sys.executable}' '{SERVER}'\n"
    async with live([ADD, "Three."], allowed_tools=["mcp__sums"]) as session:
        program = session.project / "server"
        program.write_text(server)
        program.chmod(0o700)
        assert (await session.query.mcp_set_servers({"sums": {"type": "stdio", "command": str(program)}})).errors == {}
        await session.ask("Add")
        assert "3" in session.told()[0]


@pytest.mark.parametrize(
    "config",
    [{"type": "stdio", "command": "/nonexistent/server"}, {"type": "http", "url": "http://127.0.0.1:9/mcp"}],
    ids=["stdio", "http"],
)
async def test_a_server_given_to_the_query_that_cannot_be_connected_is_named_by_its_start(live: Live, config: dict[str, Any]) -> None:
    with pytest.raises(errors.ControlRequestFailed, match=r"could not be connected: 'broken'") as caught:
        async with live(in_process={**SUMS, "broken": config}):
            pass
    assert (caught.value.error_code, caught.value.subtype) == ("mcp_server_failed", "mcp_set_servers")
    assert "'sums'" not in str(caught.value)


async def test_a_slow_tool_is_given_up_after_the_time_that_the_options_allow(live: Live) -> None:
    stuck: dict[str, Any] = {"sums": {"type": "stdio", "command": sys.executable, "args": [SERVER, "--never-answer"]}}
    async with live([ADD, "Too bad."], mcp_servers=stuck, allowed_tools=["mcp__sums"], mcp_tool_timeout=0.2) as session:
        result = await session.ask("Add")
        assert "timed out" in session.told()[0]
    assert result.result == "Too bad."
