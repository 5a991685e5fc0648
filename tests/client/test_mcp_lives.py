"""The lives of in-process MCP servers: one object in many conversations, a lifespan from the first handshake to the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer, Server
from mcp.types import CallToolResult, ListToolsResult, TextContent
from mcp_peers import HELLO, Cli, OddServer
from peers import Frame, in_time, soon

from claude_transport import Query
from claude_transport.errors import ControlRequestFailed
from claude_transport.testing.conformance.census import OWN, Census

SESSIONS = 10
CANCELLED = -32800


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

    def __init__(self, *, opens: anyio.Event | None = None) -> None:
        self.entries: list[str] = []
        self.lives = 0
        self.opens = opens or anyio.Event()
        if opens is None:
            self.opens.set()
        self.server = Server("diary", lifespan=self.lifespan)

    @asynccontextmanager
    async def lifespan(self, _server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        self.lives += 1
        life = self.lives
        self.entries.append(f"{life} begins")
        await self.opens.wait()
        try:
            yield {}
        finally:
            await anyio.lowlevel.checkpoint()
            self.entries.append(f"{life} ends")


async def test_a_repeated_handshake_goes_into_the_living_session() -> None:
    """The CLI shakes hands again with every server when a sibling is switched on, added, or does not come up (CLI 2.1.330, real)."""
    diary = Diary()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": diary.server}):
        assert diary.entries == []
        first = await cli.shake_hands()
        again = [await cli.shake_hands() for _ in range(10)]
        assert again == [first] * 10
        assert diary.entries == ["1 begins"]
    assert diary.entries == ["1 begins", "1 ends"]


class Bench:
    """A tool that reports progress when it begins, waits until its piece may go, and notes a cancellation."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.gates: dict[str, anyio.Event] = {}
        self.cancelled: list[str] = []
        self.server = Server("bench", lifespan=self.diary.lifespan, on_call_tool=self._work)

    async def _work(self, context: Any, params: Any) -> CallToolResult:
        piece = params.arguments["piece"]
        await context.session.report_progress(1)
        gate = self.gates[piece] = anyio.Event()
        try:
            await gate.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(piece)
            raise
        await context.session.report_progress(2)
        return CallToolResult(content=[TextContent(type="text", text=f"<{piece}>")])


async def working(cli: Cli, bench: Bench, piece: str) -> str:
    """Call the tool, and return the id of the control request when it has begun. Each client of the CLI gives its first call the id 2."""
    asked = cli.call("work", piece=piece)
    await soon(lambda: piece in bench.gates)
    return asked


async def test_a_call_goes_on_through_handshakes_beside_calls_of_later_clients_with_its_id() -> None:
    bench = Bench()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": bench.server}):
        asked = {}
        for piece in ("first", "second", "third"):
            await cli.shake_hands()
            asked[piece] = await working(cli, bench, piece)
        for piece in ("second", "first", "third"):
            bench.gates[piece].set()
            reply = await cli.reply(asked[piece])
            assert (reply["id"], text_of(reply)) == (2, f"<{piece}>")
        told = [message["params"] for message in cli.told("notifications/progress")]
    # of the two progress reports of each call, those of the present client: each one's first, and the last client's second
    assert [(each["progressToken"], each["progress"]) for each in told] == [(2, 1), (2, 1), (2, 1), (2, 2)]
    assert (bench.cancelled, bench.diary.entries) == ([], ["1 begins", "1 ends"])


async def test_of_two_calls_with_one_id_a_cancellation_means_that_of_the_earlier_client() -> None:
    """A call that the CLI gives up after a time was the first; an interrupt cancels both."""
    bench = Bench()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": bench.server}):
        await cli.shake_hands()
        first = await working(cli, bench, "first")
        await cli.shake_hands()
        second = await working(cli, bench, "second")
        cli.cancel(2)
        assert (await cli.reply(first))["error"] == {"code": CANCELLED, "message": "cancelled"}
        await soon(lambda: bench.cancelled == ["first"])
        assert cli.replies(second) == []
        cli.cancel(2)
        assert (await cli.reply(second))["error"] == {"code": CANCELLED, "message": "cancelled"}
        await soon(lambda: bench.cancelled == ["first", "second"])


async def test_a_late_answer_to_a_cancelled_call_is_not_taken_for_that_to_a_later_client() -> None:
    held: list[Any] = []

    async def answer_both_at_the_second(server: OddServer, message: Frame) -> None:
        if message["method"] == "tools/call":
            held.append(message["id"])
        if len(held) == 2:
            for number, rpc_id in enumerate(held):
                await server.answer(rpc_id, of=number)

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(answer_both_at_the_second)}):
        await cli.shake_hands()
        cli.call("any")
        cli.cancel(2)
        await cli.shake_hands()
        assert await cli.reply(cli.call("any")) == {"jsonrpc": "2.0", "id": 2, "result": {"of": 1}}


async def test_a_server_that_comes_up_slowly_answers_the_handshake_that_the_cli_did_not_give_up() -> None:
    diary = Diary(opens=anyio.Event())
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": diary.server}):
        given_up, withdrawn, waiting = [cli.say({"id": rpc_id, "method": "initialize", "params": HELLO}) for rpc_id in (0, 0, 1)]
        cli.cancel(0)
        cli.withdraw(withdrawn)
        assert (await cli.reply(given_up))["error"] == {"code": CANCELLED, "message": "cancelled"}
        diary.opens.set()
        reply = await cli.reply(waiting)
        assert (reply["id"], reply["result"]["serverInfo"]["name"]) == (1, "diary")
        assert (cli.replies(withdrawn), diary.entries) == ([], ["1 begins"])


SDK = {"type": "sdk", "name": "box"}


@pytest.mark.parametrize(
    ("subtype", "fields"),
    [
        pytest.param("mcp_toggle", {"serverName": "box", "enabled": False}, id="switched off"),
        pytest.param("mcp_set_servers", {"servers": {"other": SDK}}, id="removed"),
        pytest.param("mcp_set_servers", {"servers": {"box": {"type": "stdio", "command": "box"}}}, id="replaced"),
    ],
)
async def test_a_server_that_the_cli_has_given_up_answers_on_and_begins_anew_with_the_next_handshake(
    subtype: str, fields: dict[str, Any]
) -> None:
    bench = Bench()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": bench.server}) as query:
        await cli.shake_hands()
        asked = await working(cli, bench, "lost")
        await query.request(subtype, **fields)
        # the CLI may still list its tools: it would not ask again when the server is switched on (CLI 2.1.330, real)
        assert "result" in await cli.reply(cli.say({"id": 3, "method": "ping"}))
        assert (cli.replies(asked), bench.diary.entries) == ([], ["1 begins"])
        await cli.shake_hands()
        assert "error" in await cli.reply(asked)
        assert bench.diary.entries == ["1 begins", "1 ends", "2 begins"]
        assert bench.cancelled == ["lost"]


@pytest.mark.parametrize(
    ("subtype", "fields"),
    [
        pytest.param("mcp_toggle", {"serverName": "other", "enabled": False}, id="another is switched off"),
        pytest.param("mcp_toggle", {"serverName": "box", "enabled": True}, id="it is switched on"),
        pytest.param("mcp_toggle", {"serverName": ["box"], "enabled": False}, id="nothing that has a name"),
        pytest.param("mcp_set_servers", {"servers": {"box": SDK, "other": {"command": "other"}}}, id="it stays"),
        pytest.param("mcp_set_servers", {"servers": None}, id="nothing that has servers"),
        pytest.param("refused", {"serverName": "box", "enabled": False}, id="the CLI refuses"),
    ],
)
async def test_a_server_that_the_cli_keeps_lives_on(subtype: str, fields: dict[str, Any]) -> None:
    bench = Bench()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": bench.server}) as query:
        await cli.shake_hands()
        asked = await working(cli, bench, "kept")
        if subtype == "refused":
            cli.transport.answers = False
            cli.transport.on_write = lambda frame: cli.transport.say(refusal(frame)) if frame["type"] == "control_request" else None
            with pytest.raises(ControlRequestFailed):
                await query.request("mcp_toggle", **fields)
        else:
            await query.request(subtype, **fields)
        await cli.shake_hands()
        bench.gates["kept"].set()
        assert text_of(await cli.reply(asked)) == "<kept>"
        assert bench.diary.entries == ["1 begins"]


def refusal(request: Frame) -> Frame:
    response = {"subtype": "error", "request_id": request["request_id"], "error": "no"}
    return {"type": "control_response", "response": response}


@pytest.mark.parametrize("change", [{"protocolVersion": "2024-11-05"}, {"capabilities": {"sampling": {}}}])
async def test_a_client_that_the_server_would_answer_otherwise_begins_a_new_life(change: dict[str, Any]) -> None:
    diary = Diary()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": diary.server}):
        await cli.shake_hands()
        reply = await cli.reply(cli.say({"id": 0, "method": "initialize", "params": {**HELLO, **change}}))
        assert reply["result"]["protocolVersion"] == change.get("protocolVersion", HELLO["protocolVersion"])
        assert diary.entries == ["1 begins", "1 ends", "2 begins"]


async def test_a_server_that_refused_its_handshake_is_asked_anew_by_the_next() -> None:
    class Shy(OddServer):
        runs = 0

        async def run(self, read: Any, write: Any, options: object) -> None:
            self.runs += 1
            if self.runs > 1:
                await super().run(read, write, options)
            self._write = write
            async for item in read:
                await self.say({"id": item.message.id, "error": {"code": 1, "message": "not yet"}})

    async def nothing(_server: OddServer, _message: Frame) -> None: ...

    server = Shy(nothing)
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        refused = await cli.reply(cli.say({"id": 0, "method": "initialize", "params": HELLO}))
        assert refused["error"] == {"code": 1, "message": "not yet"}
        assert (await cli.shake_hands())["result"]["serverInfo"]["name"] == "odd"
        assert server.runs == 2


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


async def test_a_server_that_the_host_cannot_begin_is_an_answer_and_a_note(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The CLI would wait for the answer for ever."""

    def out_of_tasks(*_: object, **__: object) -> None:
        raise OSError("no more tasks")

    monkeypatch.setattr("claude_transport.client.mcp.McpSession", out_of_tasks)
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": Server("shared")}):
        reply = await cli.reply(cli.say({"id": 7, "method": "initialize", "params": HELLO}))
        assert reply == {"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "the host failed (OSError)"}}
    (noted,) = [each for each in caplog.records if "handing a message to the MCP server 'box'" in each.getMessage()]
    assert noted.exc_info is not None or "no more tasks" in noted.getMessage()
