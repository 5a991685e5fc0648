"""In-process MCP servers, seen from the CLI: every call gets one answer under its own id, whatever the server does."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.shared.exceptions import MCPError
from mcp_peers import Cli, OddServer
from peers import Frame, answer_to, in_time, soon
from pydantic import BaseModel

from claude_transport import MockTransport, Query
from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance.census import OWN, Census

CANCELLED = -32800
INTERNAL_ERROR = -32603
INVALID_REQUEST = -32600


def text_of(reply: Frame) -> str:
    return "".join(block.get("text", "") for block in reply["result"]["content"])


# ------------------------------------------------------------------------------------------------------------- what it can do


async def test_a_tool_is_listed_called_and_answered_under_the_ids_of_the_cli() -> None:
    server = MCPServer("adder")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        assert cli.transport.written[0]["request"]["sdkMcpServers"] == ["box"]
        hello = await cli.shake_hands()
        assert (hello["id"], hello["result"]["serverInfo"]["name"]) == (0, "adder")
        listed = await cli.reply(cli.say({"id": 1, "method": "tools/list"}))
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
        for rpc_id in (2, "three", "4"):
            reply = await cli.reply(cli.call("add", id=rpc_id, a=1, b=2))
            assert (reply["id"], text_of(reply)) == (rpc_id, "3")


async def test_calls_run_at_the_same_time_and_are_answered_as_they_end() -> None:
    server = MCPServer("box")
    gates = {name: anyio.Event() for name in ("first", "second")}
    inside: list[str] = []

    @server.tool()
    async def wait(name: str) -> str:
        inside.append(name)
        await gates[name].wait()
        return name

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        await cli.shake_hands()
        first, second = cli.call("wait", id=2, name="first"), cli.call("wait", id=3, name="second")
        await soon(lambda: len(inside) == 2)
        gates["second"].set()
        assert text_of(await cli.reply(second)) == "second"
        assert cli.replies(first) == []
        gates["first"].set()
        assert text_of(await cli.reply(first)) == "first"


async def test_progress_comes_before_the_answer_and_in_order() -> None:
    server = MCPServer("box")

    @server.tool()
    async def work(ctx: Context) -> str:
        for step in range(50):
            await ctx.report_progress(step, 50, f"step {step}")
        return "done"

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}) as query:
        await cli.shake_hands()
        asked = cli.call("work", id=7)
        await cli.reply(asked)
        written = cli.transport.written
        last = max(n for n, frame in enumerate(written) if frame["type"] == "control_request")
        assert written.index(next(frame for frame in written if frame.get("response", {}).get("request_id") == asked)) > last
        told = [message["params"] for message in cli.told("notifications/progress")]
        assert [params["progress"] for params in told] == list(range(50))
        assert {params["progressToken"] for params in told} == {7}
        await soon(lambda: not query.pending_requests)


async def test_a_large_result_and_an_image_arrive_whole() -> None:
    server = MCPServer("box")
    picture = bytes(range(256)) * 4

    @server.tool()
    async def large() -> str:
        return "ü" * 2_000_000

    @server.tool(structured_output=False)
    async def image() -> Image:
        return Image(data=picture, format="png")

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        await cli.shake_hands()
        assert text_of(await cli.reply(cli.call("large"))) == "ü" * 2_000_000
        (block,) = (await cli.reply(cli.call("image", id=3)))["result"]["content"]
        assert (block["type"], block["mimeType"], base64.b64decode(block["data"])) == ("image", "image/png", picture)


async def test_what_the_server_says_by_itself_reaches_the_cli() -> None:
    server = MCPServer("box")

    @server.tool()
    async def grow(ctx: Context) -> str:
        await ctx.session.send_tool_list_changed()
        return "grown"

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}) as query:
        await cli.shake_hands()
        assert text_of(await cli.reply(cli.call("grow"))) == "grown"
        assert len(cli.told("notifications/tools/list_changed")) == 1
        await soon(lambda: not query.pending_requests)


class Wish(BaseModel):
    number: int


async def test_a_question_of_the_server_gets_the_answer_that_the_cli_gives() -> None:
    """The CLI declares no capabilities to in-process servers and refuses their requests (recording 06o); another client may not."""
    server = MCPServer("box")

    @server.tool()
    async def ask(ctx: Context) -> str:
        try:
            return repr(await ctx.elicit("How many?", Wish))
        except MCPError as error:
            return f"refused: {error}"

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        await cli.shake_hands()
        for rpc_id, answer in (
            (2, {"error": {"code": -32601, "message": "Method not found"}}),
            (3, {"result": {"action": "accept", "content": {"number": 5}}}),
        ):
            asked = cli.call("ask", id=rpc_id)
            await soon(lambda rpc_id=rpc_id: len(cli.told("elicitation/create")) == rpc_id - 1)
            question = cli.told("elicitation/create")[-1]
            assert (await cli.reply(cli.say({"id": question["id"], **answer})))["result"] == {}
            assert ("refused: Method not found" if rpc_id == 2 else "number=5") in text_of(await cli.reply(asked))


async def test_a_tool_may_close_the_query_it_is_called_through() -> None:
    server = MCPServer("box")
    closing = anyio.Event()

    @server.tool()
    async def stop() -> str:
        await query.aclose()
        assert "close" not in cli.transport.calls, "closing waits for the tool, so the tool must not wait for it"
        closing.set()
        return "closing"

    cli = Cli()
    query = Query(cli.transport, mcp_servers={"box": server})
    await query.start()
    await cli.shake_hands()
    cli.call("stop")
    await in_time(closing.wait())
    await in_time(query.aclose())


# ----------------------------------------------------------------------------------------------------------- what goes wrong


async def test_a_tool_that_raises_is_a_failed_tool_and_no_more() -> None:
    server = MCPServer("box")

    @server.tool()
    async def fail() -> str:
        raise RuntimeError("out of order")

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        await cli.shake_hands()
        for rpc_id in (2, 3):
            reply = await cli.reply(cli.call("fail", id=rpc_id))
            assert (reply["id"], reply["result"]["isError"]) == (rpc_id, True)
        assert (await cli.reply(cli.call("unheard_of", id=4)))["id"] == 4


async def crashes(_server: OddServer, _message: Frame) -> None:
    raise RuntimeError("broken")


async def crashes_with_a_cancellation(_server: OddServer, _message: Frame) -> None:
    raise asyncio.CancelledError


async def answers_somebody_else_and_goes(server: OddServer, message: Frame) -> None:
    await server.answer(99, of="another")
    raise RuntimeError("enough")


async def answers_with_what_is_no_json(server: OddServer, message: Frame) -> None:
    await server.answer(message["id"], what=object())


async def says_what_is_no_message(server: OddServer, _message: Frame) -> None:
    await server._write.send("nonsense")


async def tells_what_is_no_json(server: OddServer, _message: Frame) -> None:
    await server.say({"method": "notifications/odd", "params": {"what": object()}})


@pytest.mark.parametrize(
    "act", [crashes, answers_somebody_else_and_goes, answers_with_what_is_no_json, says_what_is_no_message, tells_what_is_no_json]
)
async def test_a_server_that_ends_answers_all_calls_with_an_error_and_lives_again_after_a_handshake(
    act: Callable[[OddServer, Frame], Awaitable[object]],
) -> None:
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(act)}) as query:
        for _life in range(2):
            await cli.shake_hands()
            calls = {rpc_id: cli.call("any", id=rpc_id) for rpc_id in (2, 3)}
            for rpc_id, asked in calls.items():
                reply = await cli.reply(asked)
                assert (reply["id"], reply["error"]["code"]) == (rpc_id, INTERNAL_ERROR)
            assert (await cli.reply(cli.call("any", id=4)))["error"]["message"] == "the server 'box' has ended"
        await soon(lambda: query.pending_questions == ())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_that_ends_in_a_cancellation_of_its_own_is_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(crashes_with_a_cancellation)}) as query:
        await cli.shake_hands()
        assert "error" in await cli.reply(cli.call("any"))
        assert await query.request("still_there") == {}
        assert query.failed_callbacks == 1
    assert "the MCP server 'box' failed" in caplog.text


async def test_a_server_that_leaves_at_once_answers_even_the_handshake_with_an_error() -> None:
    class Gone(OddServer):
        async def run(self, read: Any, write: Any, _options: object) -> None:
            return

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": Gone(crashes)}):
        reply = await cli.reply(cli.say({"id": 0, "method": "initialize", "params": {}}))
        assert (reply["id"], reply["error"]["code"]) == (0, INTERNAL_ERROR)
        assert (await cli.reply(cli.say({"method": "notifications/initialized"})))["result"] == {}


async def test_the_first_of_two_answers_counts() -> None:
    async def twice(server: OddServer, message: Frame) -> None:
        await server.answer(message["id"], of="the first")
        await server.answer(message["id"], of="the second")

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(twice)}):
        await cli.shake_hands()
        first, second = cli.call("any", id=2), cli.call("any", id=3)
        assert (await cli.reply(first))["result"] == {"of": "the first"}
        assert (await cli.reply(second))["result"] == {"of": "the first"}
        assert (len(cli.replies(first)), len(cli.replies(second))) == (1, 1)


async def test_what_json_cannot_say_becomes_null() -> None:
    async def nan(server: OddServer, message: Frame) -> None:
        await server.answer(message["id"], number=float("nan"), text="\ud800", nothing=None)

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(nan)}):
        await cli.shake_hands()
        assert (await cli.reply(cli.call("any")))["result"] == {"number": None, "text": "\ud800", "nothing": None}


async def test_an_id_that_is_in_use_is_refused_and_the_first_call_goes_on() -> None:
    async def hold(server: OddServer, message: Frame) -> None:
        held.append(message["id"])
        if len(held) == 2:
            for rpc_id in held:
                await server.answer(rpc_id)

    held: list[int] = []
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(hold)}):
        await cli.shake_hands()
        first, again = cli.call("any", id=2), cli.call("any", id=2)
        assert (await cli.reply(again))["error"]["code"] == INVALID_REQUEST
        other = cli.call("any", id=3)
        assert [await cli.reply(asked) for asked in (first, other)] == [{"jsonrpc": "2.0", "id": n, "result": {}} for n in (2, 3)]


@pytest.mark.parametrize("strange", [1.5, True, [1], {"a": 1}, ""])
async def test_a_request_with_a_strange_id_is_answered_under_it(strange: object) -> None:
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": MCPServer("box")}):
        await cli.shake_hands()
        assert (await cli.reply(cli.say({"id": strange, "method": "ping"})))["id"] == strange
        assert (await cli.reply(cli.cancel(strange)))["result"] == {}


@pytest.mark.parametrize("message", [{"jsonrpc": "1.0"}, {"params": [1]}, {"method": 5}])
async def test_what_is_no_json_rpc_is_answered_all_the_same(message: Frame) -> None:
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": MCPServer("box")}):
        await cli.shake_hands()
        reply = await cli.reply(cli.say({"id": 5, "method": "ping", **message}))
        assert (reply["id"], reply["error"]["code"]) == (5, INVALID_REQUEST)
        assert (await cli.reply(cli.say({"method": "notifications/odd", **message})))["result"] == {}


async def test_a_call_before_the_handshake_is_refused() -> None:
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": MCPServer("box")}):
        reply = await cli.reply(cli.call("any", id=9))
        assert (reply["id"], reply["error"]["code"]) == (9, INTERNAL_ERROR)


async def test_a_server_whose_manifest_the_cli_uses_is_called_without_a_handshake() -> None:
    """CLI 2.1.330, real: with `sdkMcpServerManifests` it asks neither `initialize` nor `tools/list`."""
    lives: list[str] = []

    @asynccontextmanager
    async def lifespan(_server: object) -> AsyncIterator[None]:
        lives.append("begun")
        yield

    server = MCPServer("box", lifespan=lifespan)
    cli = Cli()
    cli.transport.answers = False
    parked = {"box": "parked", "other": "malformed"}

    def initialize(frame: Frame) -> None:
        if frame["type"] == "control_request":
            cli.transport.say(answer_to(frame, sdk_mcp_manifests_parked=parked))

    cli.transport.on_write = initialize

    @server.tool()
    async def double(number: int) -> str:
        return str(2 * number)

    async with Query(cli.transport, mcp_servers={"box": server, "other": MCPServer("other")}):
        replies = [await cli.reply(cli.call("double", id=id_, number=id_)) for id_ in (4, 5)]
        assert [(reply["id"], reply["result"]["content"][0]["text"]) for reply in replies] == [(4, "8"), (5, "10")]
        # the CLI does it itself when another server changes
        assert (await cli.shake_hands())["result"]["serverInfo"]["name"] == "box"
        assert (await cli.reply(cli.call("double", id=4, number=1)))["result"]["content"][0]["text"] == "2"
        assert lives == ["begun"]
        cli.server = "other"
        assert (await cli.reply(cli.call("double")))["error"]["code"] == INTERNAL_ERROR


async def test_a_server_of_another_name_is_not_ours_to_answer() -> None:
    cli = Cli("another")
    async with Query(cli.transport, mcp_servers={"box": MCPServer("box")}):
        asked = cli.call("any")
        await soon(lambda: cli.replies(asked))
        assert cli.replies(asked)[0]["error_code"] == "unsupported_request"


# -------------------------------------------------------------------------------------------------------------- cancellation


async def never_answers(_server: OddServer, message: Frame) -> None:
    if message["method"] == "notifications/cancelled":
        _heard.append(message["params"]["requestId"])


_heard: list[object] = []


async def test_a_call_that_is_cancelled_by_notification_is_answered_although_the_server_never_does() -> None:
    _heard.clear()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(never_answers)}) as query:
        await cli.shake_hands()
        asked = cli.call("any")
        assert (await cli.reply(cli.cancel(2)))["result"] == {}
        reply = await cli.reply(asked)
        assert (reply["id"], reply["error"]["code"]) == (2, CANCELLED)
        await soon(lambda: _heard == [2] and query.pending_questions == ())


async def test_a_call_that_is_withdrawn_is_not_answered_and_the_server_is_told() -> None:
    _heard.clear()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(never_answers)}) as query:
        await cli.shake_hands()
        asked = cli.call("any")
        await soon(lambda: asked in query.pending_questions)
        cli.withdraw(asked)
        await soon(lambda: _heard == [2] and query.pending_questions == ())
        assert cli.replies(asked) == []
        # the id is free again
        again = cli.call("any", id=2)
        cli.cancel(2)
        assert (await cli.reply(again))["error"]["code"] == CANCELLED


async def test_the_server_gets_everything_in_the_order_in_which_it_was_said() -> None:
    """Also what came in one breath, of which the tasks that wait for the answers may run in any order."""
    heard: list[object] = []

    async def listen(_server: OddServer, message: Frame) -> None:
        heard.append(message.get("id", message.get("params", {}).get("requestId")))

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(listen)}) as query:
        await cli.shake_hands()
        expected: list[object] = []
        for rpc_id in range(2, 40, 2):
            cli.withdraw(cli.call("any", id=rpc_id))
            cli.call("any", id=rpc_id + 1)
            cli.cancel(rpc_id + 1)
            expected += [rpc_id, rpc_id, rpc_id + 1, rpc_id + 1]
        await soon(lambda: len(heard) == len(expected))
        assert heard == expected
        await soon(lambda: not query.pending_questions)


@pytest.mark.parametrize("how", ["notification", "withdrawal"])
async def test_a_cancelled_tool_is_cancelled_and_the_others_go_on(how: str) -> None:
    server = MCPServer("box")
    cancelled: list[str] = []
    inside: list[str] = []
    go_on = anyio.Event()

    @server.tool()
    async def wait(name: str) -> str:
        inside.append(name)
        try:
            await go_on.wait()
        except anyio.get_cancelled_exc_class():
            cancelled.append(name)
            raise
        return name

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": server}):
        await cli.shake_hands()
        stopped, going = cli.call("wait", id=2, name="stopped"), cli.call("wait", id=3, name="going")
        await soon(lambda: len(inside) == 2)
        if how == "notification":
            cli.cancel(2)
            assert (await cli.reply(stopped))["error"]["code"] == CANCELLED
        else:
            cli.withdraw(stopped)
        await soon(lambda: cancelled)
        go_on.set()
        assert text_of(await cli.reply(going)) == "going"
        assert (cancelled, len(cli.replies(stopped))) == (["stopped"], 1 if how == "notification" else 0)


async def test_an_answer_that_comes_after_the_cancellation_changes_nothing() -> None:
    async def late(server: OddServer, message: Frame) -> None:
        if message["method"] == "notifications/cancelled":
            await server.answer(2, too="late")
            answered.set()

    answered = anyio.Event()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(late)}) as query:
        await cli.shake_hands()
        asked = cli.call("any", id=2)
        cli.cancel(2)
        await in_time(answered.wait())
        await query.request("after")
        assert [reply["response"]["mcp_response"]["error"]["code"] for reply in cli.replies(asked)] == [CANCELLED]


@pytest.mark.parametrize("target", [99, "2", None, [2], {"a": 1}])
async def test_a_cancellation_of_what_is_not_there_cancels_nothing(target: object) -> None:
    async def hold(server: OddServer, message: Frame) -> None:
        if message["method"] == "ping":
            await server.answer(2)

    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(hold)}):
        await cli.shake_hands()
        asked = cli.call("any", id=2)
        assert (await cli.reply(cli.cancel(target)))["result"] == {}
        assert cli.replies(asked) == []
        cli.say({"id": 3, "method": "ping"})
        assert (await cli.reply(asked))["result"] == {}


async def test_a_server_that_does_not_listen_blocks_nobody() -> None:
    async def stuck(_server: OddServer, message: Frame) -> None:
        await anyio.sleep_forever()

    before = await Census.rested()
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": OddServer(stuck)}) as query:
        await cli.shake_hands()
        calls = [cli.call("any", id=rpc_id) for rpc_id in range(2, 40)]
        for rpc_id, asked in enumerate(calls, 2):
            assert (await cli.reply(cli.cancel(rpc_id)))["result"] == {}
            assert (await cli.reply(asked))["id"] == rpc_id
        assert await query.request("still_there") == {}
    assert await before.growth(patience=30, of=OWN) == {}


# ------------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ([MCPServer("box")], "maps names to servers"),
        ({"": MCPServer("box")}, "not empty"),
        ({5: MCPServer("box")}, "not by 5"),
        ({"box": object()}, "neither an mcp.server.Server nor an MCPServer"),
        ({"a/b": MCPServer("one"), "a.b": MCPServer("two")}, "mcp__a_b__"),
    ],
)
def test_what_is_no_server_or_has_no_name_of_its_own_is_refused_at_once(servers: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        Query(MockTransport(), mcp_servers=servers)
    assert caught.value.option == "mcp_servers"


@pytest.mark.parametrize("module", ["mcp", "mcp.types"])
def test_without_the_package_the_error_says_how_to_install_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(module + ".")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[mcp\]'"):
        Query(MockTransport(), mcp_servers={"box": OddServer(crashes)})


@pytest.mark.parametrize("name", ["my server", "a/b", "ö", "x__y", "-x", "n" * 200, "{name!r}%s", "a\nb"])
async def test_a_name_may_be_any_text(name: str) -> None:
    cli = Cli(name)
    async with Query(cli.transport, mcp_servers={name: MCPServer("box"), "another": OddServer(crashes)}):
        assert cli.transport.written[0]["request"]["sdkMcpServers"] == [name, "another"]
        assert (await cli.shake_hands())["result"]["serverInfo"]["name"] == "box"
