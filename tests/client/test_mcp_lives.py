"""The lives of in-process MCP servers: one object in many conversations, a lifespan for each handshake, nothing left at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer, Server
from mcp.types import CallToolResult, ListToolsResult, TextContent
from mcp_peers import HELLO, Cli
from peers import in_time, soon

from claude_transport import Query
from claude_transport.testing.conformance.census import OWN, Census

SESSIONS = 10


def text_of(reply: dict[str, Any]) -> str:
    return "".join(block["text"] for block in reply["result"]["content"])


class Meeting:
    """A tool in which everybody waits until all are there: the calls are proven to be inside at the same time."""

    def __init__(self, expected: int) -> None:
        self.complete = anyio.Event()
        self.present: list[str] = []
        self.expected = expected

    async def meet(self, word: str) -> str:
        self.present.append(word)
        if len(self.present) == self.expected:
            self.complete.set()
        await self.complete.wait()
        return f"<{word}>"


def high_level(meeting: Meeting) -> MCPServer:
    server = MCPServer("shared")
    server.tool()(meeting.meet)
    return server


def low_level(meeting: Meeting) -> Server[Any]:
    async def call(_context: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=await meeting.meet(params.arguments["word"]))])

    async def listing(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=[])

    return Server("shared", on_call_tool=call, on_list_tools=listing)


@pytest.mark.parametrize("build", [high_level, low_level])
async def test_one_server_serves_ten_sessions_at_once_with_the_same_ids(build: Any) -> None:
    meeting = Meeting(expected=2 * SESSIONS)
    server = build(meeting)
    clis = [Cli() for _ in range(SESSIONS)]
    async with AsyncExitStack() as stack:
        queries = [await stack.enter_async_context(Query(cli.transport, mcp_servers={"box": server})) for cli in clis]
        for cli in clis:
            await cli.shake_hands()
        asked = [[cli.call("meet", id=rpc_id, word=f"{number}.{rpc_id}") for rpc_id in (2, 3)] for number, cli in enumerate(clis)]
        await in_time(meeting.complete.wait())
        for number, cli in enumerate(clis):
            for rpc_id, request_id in zip((2, 3), asked[number], strict=True):
                reply = await cli.reply(request_id)
                assert (reply["id"], text_of(reply)) == (rpc_id, f"<{number}.{rpc_id}>")
        assert [query.pending_questions for query in queries] == [()] * SESSIONS


async def test_a_cancellation_in_one_session_leaves_the_same_id_in_the_others_alone() -> None:
    meeting = Meeting(expected=99)
    server = high_level(meeting)
    first, second = Cli(), Cli()
    async with Query(first.transport, mcp_servers={"box": server}), Query(second.transport, mcp_servers={"box": server}):
        for cli in (first, second):
            await cli.shake_hands()
        asked = [cli.call("meet", id=2, word="w") for cli in (first, second)]
        await soon(lambda: len(meeting.present) == 2)
        first.cancel(2)
        assert "error" in await first.reply(asked[0])
        assert second.replies(asked[1]) == []
        meeting.complete.set()
        assert text_of(await second.reply(asked[1])) == "<w>"


async def test_a_session_that_ends_leaves_the_server_to_the_others() -> None:
    meeting = Meeting(expected=1)
    server = high_level(meeting)
    first, second = Cli(), Cli()
    async with Query(second.transport, mcp_servers={"box": server}):
        await second.shake_hands()
        async with Query(first.transport, mcp_servers={"box": server}):
            await first.shake_hands()
        assert text_of(await second.reply(second.call("meet", word="on"))) == "<on>"


# ------------------------------------------------------------------------------------------------------------------ lifespan


class Diary:
    """A server whose lifespan writes down what happens to it, and awaits while it ends."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.lives = 0
        self.server = Server("diary", lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        self.lives += 1
        life = self.lives
        self.entries.append(f"{life} begins")
        try:
            yield {}
        finally:
            await anyio.lowlevel.checkpoint()
            self.entries.append(f"{life} ends")


async def test_the_lifespan_is_entered_for_each_handshake_and_left_in_peace() -> None:
    diary = Diary()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": diary.server}):
        assert diary.entries == []
        await cli.shake_hands()
        assert diary.entries == ["1 begins"]
        # the CLI shakes hands again when the server is switched off and on (recording 06l)
        await cli.shake_hands()
        assert diary.entries == ["1 begins", "1 ends", "2 begins"]
    assert diary.entries == ["1 begins", "1 ends", "2 begins", "2 ends"]


async def test_two_handshakes_at_once_are_two_lives_one_after_the_other() -> None:
    diary = Diary()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": diary.server}):
        asked = [cli.say({"id": rpc_id, "method": "initialize", "params": HELLO}) for rpc_id in (0, 1)]
        replies = [await cli.reply(request_id) for request_id in asked]
        assert [reply["id"] for reply in replies] == [0, 1]
        assert diary.entries[-1] == "2 begins"
    assert diary.entries == ["1 begins", "1 ends", "2 begins", "2 ends"]


async def test_each_conversation_has_a_life_of_the_server_of_its_own() -> None:
    diary = Diary()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            cli = Cli()
            await stack.enter_async_context(Query(cli.transport, mcp_servers={"box": diary.server}))
            await cli.shake_hands()
        assert diary.entries == ["1 begins", "2 begins", "3 begins"]
    assert sorted(diary.entries[3:]) == ["1 ends", "2 ends", "3 ends"]


# --------------------------------------------------------------------------------------------------------------- at the end


async def test_nothing_of_a_server_is_left_when_its_conversation_is_closed() -> None:
    before = await Census.rested()
    cancelled: list[str] = []
    inside = anyio.Event()
    server = MCPServer("box")

    @server.tool()
    async def hold() -> str:
        inside.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("hold")
        return "never"

    for _ in range(3):
        cli = Cli()
        async with Query(cli.transport, mcp_servers={"box": server}):
            await cli.shake_hands()
            asked = cli.call("hold")
            await in_time(inside.wait())
        assert cli.replies(asked) == []
    assert cancelled == ["hold"] * 3
    assert await before.growth(patience=30, of=OWN) == {}


async def test_nothing_of_a_server_is_left_when_the_peer_dies() -> None:
    before = await Census.rested()
    diary = Diary()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": diary.server}):
        await cli.shake_hands()
        cli.transport.finish(ConnectionResetError("gone"))
    assert diary.entries == ["1 begins", "1 ends"]
    assert await before.growth(patience=30, of=OWN) == {}


async def test_a_tool_that_resists_its_cancellation_is_given_up() -> None:
    """Bounded: this test takes the two graces that a server has, and no more."""
    let_go, inside, ended = anyio.Event(), anyio.Event(), anyio.Event()
    server = MCPServer("box")

    @server.tool()
    async def stubborn() -> str:
        inside.set()
        with anyio.CancelScope(shield=True):
            await let_go.wait()
        ended.set()
        return "at last"

    cli = Cli()
    query = Query(cli.transport, mcp_servers={"box": server})
    await query.start()
    await cli.shake_hands()
    cli.call("stubborn")
    await in_time(inside.wait())
    await in_time(query.aclose())
    assert not ended.is_set()
    before = await Census.rested()
    let_go.set()
    await in_time(ended.wait())
    assert await before.growth(patience=30, of=OWN) == {}
