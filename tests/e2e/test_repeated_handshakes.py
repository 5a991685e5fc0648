"""The CLI shakes hands again with every in-process server when one of them changes: the others go on as if nothing had happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from live_session import Live
from mcp.server import MCPServer

from claude_transport.testing import replies

WAIT = replies.tool_use("mcp__slow__wait", {})
SWITCHED = "MCP servers of this process can be switched off"
SDK = {name: {"type": "sdk", "name": name} for name in ("slow", "other", "third")}


class Slow:
    """A server with a tool that waits until it may go, and a lifespan that is counted."""

    def __init__(self) -> None:
        self.lives = 0
        self.inside, self.go, self.cancelled = anyio.Event(), anyio.Event(), anyio.Event()
        self.server = MCPServer("slow", lifespan=self._lifespan)
        self.server.tool()(self.wait)

    @asynccontextmanager
    async def _lifespan(self, _server: Any) -> AsyncIterator[None]:
        self.lives += 1
        yield

    async def wait(self) -> str:
        """Waits."""
        self.inside.set()
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return f"waited in life {self.lives}"


@pytest.mark.both_loops
@pytest.mark.needs(SWITCHED)
@pytest.mark.parametrize("change", ["switched", "added"])
async def test_a_slow_tool_finishes_with_its_result_while_a_sibling_changes(live: Live, change: str) -> None:
    slow = Slow()
    given = {"slow": slow.server, "other": MCPServer("other")}
    async with live([WAIT, "Done.", WAIT, "Done."], in_process=given, allowed_tools=["mcp__slow"]) as session:
        turn = await session.query.send("Wait")
        await slow.inside.wait()
        if change == "switched":
            await session.query.mcp_toggle("other", enabled=False)
            await session.query.mcp_toggle("other", enabled=True)
        else:
            await session.query.mcp_set_servers(SDK)
        slow.go.set()
        await turn.result()
        assert session.told() == ['{"result":"waited in life 1"}']
        await session.ask("Again")
        assert session.told() == ['{"result":"waited in life 1"}']
    assert not slow.cancelled.is_set()


@pytest.mark.needs(SWITCHED)
async def test_an_interrupt_still_cancels_a_tool_that_an_earlier_client_of_the_cli_called(live: Live) -> None:
    slow = Slow()
    given = {"slow": slow.server, "other": MCPServer("other")}
    async with live([WAIT], in_process=given, allowed_tools=["mcp__slow"]) as session:
        turn = await session.query.send("Wait")
        await slow.inside.wait()
        await session.query.mcp_toggle("other", enabled=False)
        await session.query.mcp_toggle("other", enabled=True)
        await session.query.interrupt()
        await turn.result()
        await slow.cancelled.wait()
    assert slow.lives == 1


@pytest.mark.needs(SWITCHED)
async def test_a_server_that_is_switched_off_and_on_begins_anew(live: Live) -> None:
    slow = Slow()
    async with live([WAIT, "Gone.", WAIT, "Done."], in_process={"slow": slow.server}, allowed_tools=["mcp__slow"]) as session:
        turn = await session.query.send("Wait")
        await slow.inside.wait()
        await session.query.mcp_toggle("slow", enabled=False)
        await session.query.mcp_toggle("slow", enabled=True)
        await slow.cancelled.wait()
        await turn.result()
        assert session.told() == ["Connection closed"]
        slow.go.set()
        await session.ask("Again")
        assert session.told() == ['{"result":"waited in life 2"}']


@pytest.mark.both_loops
async def test_beside_a_sibling_that_never_comes_up_ten_turns_are_one_lifespan(live: Live) -> None:
    tries: list[int] = []

    @asynccontextmanager
    async def broken(_server: Any) -> AsyncIterator[None]:
        tries.append(len(tries))
        raise RuntimeError("out of order")
        yield

    slow = Slow()
    slow.go.set()
    given = {"slow": slow.server, "broken": MCPServer("broken", lifespan=broken)}
    async with live([WAIT, "Done."] * 10, in_process=given, allowed_tools=["mcp__slow"]) as session:
        for _turn in range(10):
            await session.ask("Wait")
            assert session.told() == ['{"result":"waited in life 1"}']
    assert len(tries) >= 10  # the CLI has tried again each turn, and each time with both servers
