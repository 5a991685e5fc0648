"""`BridgeHost`: admission, arguments and results of tools, and the bounds of each bridge. No process is started here."""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from bridge_peers import PATIENCE, Client, knock, text_of
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

import claude_transport as ct
from claude_transport.bridge.configuration import MAX_GREETING_BYTES, Greeting, encode_greeting
from claude_transport.bridge.host import Outbox
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.streams.address import parse_address
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.streams.sockets import SocketConnectable


class Workshop:
    """Tools that wait for the test, as plain functions and as an `mcp` server."""

    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self.cancelled = anyio.Event()

    async def add(self, a: float, b: float) -> str:
        return f"the sum is {a + b:g}"

    async def wait(self) -> str:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "never"

    async def fail(self) -> str:
        raise RuntimeError("out of order")

    async def large(self) -> str:
        return "x" * 2_000_000

    async def walk(self, context: Any) -> str:
        for step in (1, 2):
            told = context.report_progress(step, total=2, message=f"step {step}")
            if told is not None:
                await told
        return "there"

    def plain(self) -> list[ct.bridge.HostTool]:
        schema = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
        return [
            ct.bridge.HostTool(
                name="add", call=lambda given, _: self.add(**given), description="Adds a and b.", input_schema=schema, read_only=True
            ),
            ct.bridge.HostTool(name="wait", call=lambda _, __: self.wait()),
            ct.bridge.HostTool(name="fail", call=lambda _, __: self.fail()),
            ct.bridge.HostTool(name="large", call=lambda _, __: self.large()),
            ct.bridge.HostTool(name="walk", call=lambda _, context: self.walk(context)),
        ]

    def server(self) -> MCPServer[Any]:
        server: MCPServer[Any] = MCPServer("box")
        for function in (self.add, self.wait, self.fail, self.large):
            server.tool(structured_output=False)(function)

        @server.tool(structured_output=False)
        async def walk(context: Context) -> str:
            return await self.walk(context)

        return server


@pytest.fixture(params=["plain", "mcp"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def workshop(anyio_backend: object) -> Workshop:
    return Workshop()


@pytest.fixture
def tools(workshop: Workshop, kind: str) -> Any:
    """The same tools, as plain functions and as an `mcp` server."""
    return workshop.plain() if kind == "plain" else workshop.server()


@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"], ids=["unix", "tcp"])
async def test_tools_are_listed_and_called(tools: Any, listen: str | None) -> None:
    async with ct.bridge.BridgeHost({"box": tools}, listen=listen) as host, knock(host.mcp_servers["box"]) as (client, welcome):
        assert welcome.refused is None
        introduction = await client.shake_hands()
        assert introduction["result"]["protocolVersion"] == "2025-11-25"
        listed = (await client.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["add", "wait", "fail", "large", "walk"]
        assert set(listed[0]["inputSchema"]["properties"]) == {"a", "b"}
        assert text_of(await client.call("add", a=1, b=2)) == "the sum is 3"
        assert host.bridges == 1


async def test_a_tool_that_raises_is_a_failed_tool_and_the_next_call_works(tools: Any, kind: str) -> None:
    async with ct.bridge.BridgeHost({"box": tools}) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        failed = await client.call("fail")
        assert failed["result"]["isError"] is True
        assert ("out of order" if kind == "plain" else "fail") in text_of(failed)  # mcp 2.3 reports the name of the tool only
        assert text_of(await client.call("add", id=3, a=2, b=2)) == "the sum is 4"


async def test_a_cancelled_call_is_cancelled_and_gets_no_answer(tools: Any, workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": tools}) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        await client.say("tools/call", id=7, name="wait", arguments={})
        with anyio.fail_after(PATIENCE):
            await workshop.waiting.wait()
            await client.say("notifications/cancelled", requestId=7, reason="interrupted")
            await workshop.cancelled.wait()
        await client.call("add", id=8, a=1, b=1)
        assert 7 not in {message.get("id") for message in client.heard}


async def test_a_cancelled_call_takes_no_answer_from_a_later_one_of_its_id(tools: Any, workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": tools}, max_calls=1) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        await client.say("notifications/cancelled", requestId=7)  # of a call that is over, or never was
        with anyio.fail_after(PATIENCE):
            assert text_of(await client.call("add", id=7, a=1, b=1)) == "the sum is 2"
            await client.say("tools/call", id=7, name="wait", arguments={})
            await workshop.waiting.wait()
            await client.say("notifications/cancelled", requestId=7)
            await workshop.cancelled.wait()
            while "error" in await client.ask("tools/list", id=8):  # until the host has noted the end of the call
                continue
            assert text_of(await client.call("add", id=7, a=2, b=2)) == "the sum is 4"


async def test_a_host_that_was_closed_is_not_started(workshop: Workshop) -> None:
    host = ct.bridge.BridgeHost({"box": workshop.plain()})
    await host.aclose()
    with pytest.raises(UsageError):
        await host.start()


async def test_a_greeting_behind_more_bytes_than_one_has_is_not_read(workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host:
        stream = await SocketConnectable(parse_address(host.url)).connect()
        greeting = encode_greeting(Greeting(server="box", token=host.token))
        with anyio.fail_after(PATIENCE), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.send(b" " * (3 * MAX_GREETING_BYTES) + greeting)
            await stream.receive()
        await stream.aclose()


async def test_the_tools_of_a_bridge_that_hangs_up_are_cancelled(tools: Any, workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": tools}) as host:
        async with knock(host.mcp_servers["box"]) as (client, _):
            await client.shake_hands()
            await client.say("tools/call", id=7, name="wait", arguments={})
            with anyio.fail_after(PATIENCE):
                await workshop.waiting.wait()
        with anyio.fail_after(PATIENCE):
            await workshop.cancelled.wait()


async def test_progress_comes_before_the_answer(tools: Any) -> None:
    async with ct.bridge.BridgeHost({"box": tools}) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        assert text_of(await client.call("walk", id=5)) == "there"
        told = [message["params"] for message in client.heard if message.get("method") == "notifications/progress"]
        assert [(step["progressToken"], step["progress"], step["message"]) for step in told] == [(5, 1, "step 1"), (5, 2, "step 2")]


async def test_a_large_answer_arrives_whole(tools: Any) -> None:
    async with ct.bridge.BridgeHost({"box": tools}) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        assert len(text_of(await client.call("large"))) == 2_000_000


async def test_an_answer_over_the_limit_is_an_error_and_not_silence(tools: Any) -> None:
    async with ct.bridge.BridgeHost({"box": tools}, max_line_bytes=100_000) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        error = (await client.call("large"))["error"]
        assert error["data"]["code"] == "bridge.too_large"
        assert text_of(await client.call("add", id=3, a=1, b=1)) == "the sum is 2"


async def test_more_calls_than_allowed_are_refused_and_a_cancellation_still_gets_through(tools: Any, workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": tools}, max_calls=1) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        await client.say("tools/call", id=7, name="wait", arguments={})
        with anyio.fail_after(PATIENCE):
            await workshop.waiting.wait()
        error = (await client.call("add", id=8, a=1, b=1))["error"]
        assert error["data"]["code"] == "bridge.busy"
        await client.say("notifications/cancelled", requestId=7)
        with anyio.fail_after(PATIENCE):
            await workshop.cancelled.wait()


async def test_a_second_request_under_the_same_id_is_refused_and_the_first_is_answered(workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        await client.say("tools/call", id=7, name="wait", arguments={})
        await client.say("tools/call", id=7, name="add", arguments={"a": 1, "b": 1})
        refused = await client.next()
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)


# Who is let in


@pytest.mark.parametrize(
    ("given", "refused"), [({"token": "not-the-token-of-this-host"}, "auth"), ({"server": "attic"}, "server")], ids=["token", "server"]
)
async def test_who_has_no_token_or_wants_another_server_is_turned_away(workshop: Workshop, given: dict[str, str], refused: str) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host, knock(host.mcp_servers["box"], **given) as (client, welcome):
        assert welcome.refused == refused
        with pytest.raises(anyio.EndOfStream):
            await client.line()
        assert host.bridges == 0


@pytest.mark.parametrize("token", [None, "not-the-token-of-this-host"], ids=["right", "wrong"])
async def test_a_token_is_compared_as_a_digest_by_one_comparison_that_takes_as_long_for_any(workshop: Workshop, token: str | None) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def say_no(shown: bytes, right: bytes) -> bool:
        compared.append((shown, right))
        return False

    async with (
        ct.bridge.BridgeHost({"box": workshop.plain()}, compare=say_no) as host,
        knock(host.mcp_servers["box"], token=token) as (_, welcome),
    ):
        assert welcome.refused == "auth"
        assert compared == [(hashlib.sha256((token or host.token).encode()).digest(), hashlib.sha256(host.token.encode()).digest())]


async def test_beside_silent_connections_a_bridge_is_let_in(workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}, listen="tcp://127.0.0.1:0", max_bridges=2) as host:
        silent = [await SocketConnectable(parse_address(host.url)).connect() for _ in range(50)]
        async with knock(host.mcp_servers["box"]) as (_, welcome):
            assert welcome.refused is None
            assert host.bridges == 1
        for stream in silent:
            await stream.aclose()


async def test_without_the_token_nobody_learns_which_servers_there_are(workshop: Workshop) -> None:
    given = {"token": "not-the-token-of-this-host", "server": "attic"}
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host, knock(host.mcp_servers["box"], **given) as (_, welcome):
        assert welcome.refused == "auth"


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"x" * 10_000, b'{"mcp_bridge":1}\n'], ids=["http", "too long", "no token"])
async def test_what_is_no_bridge_is_hung_up_on_without_a_word(workshop: Workshop, said: bytes) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host:
        stream = await SocketConnectable(parse_address(host.url)).connect()
        await stream.send(said)
        with anyio.fail_after(PATIENCE), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()


async def test_more_bridges_than_allowed_are_told_that_the_host_is_busy(workshop: Workshop) -> None:
    async with (
        ct.bridge.BridgeHost({"box": workshop.plain()}, max_bridges=1) as host,
        knock(host.mcp_servers["box"]),
        knock(host.mcp_servers["box"]) as (_, welcome),
    ):
        assert welcome.refused == "busy"


@pytest.mark.parametrize("is_welcomed", [True, False])
async def test_a_bridge_that_has_gone_leaves_its_place_to_another(workshop: Workshop, is_welcomed: bool) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}, max_bridges=1) as host:
        config = host.mcp_servers["box"]
        if is_welcomed:
            async with knock(config) as (_, welcome):
                assert (welcome.refused, host.bridges) == (None, 1)
        else:
            with socket.socket(socket.AF_UNIX) as gone:
                gone.connect(parse_address(host.url).path)
                gone.sendall(encode_greeting(Greeting(server="box", token=host.token)))
        admitted = False
        with anyio.fail_after(PATIENCE):
            while not admitted:
                async with knock(config) as (_, welcome):
                    admitted = welcome.refused is None


async def test_the_socket_is_for_its_owner_alone_and_gone_afterwards(workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host:
        path = Path(parse_address(host.url).path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


# Many, and the end


async def test_bridges_have_sessions_of_their_own(tools: Any, workshop: Workshop) -> None:
    """Two bridges use the same id at the same time. One closes, and the call of the other goes on."""
    async with (
        ct.bridge.BridgeHost({"box": tools, "shed": [ct.bridge.HostTool(name="hello", call=hello)]}) as host,
        anyio.create_task_group() as tasks,
    ):

        async def visit(number: int) -> None:
            async with knock(host.mcp_servers["box"]) as (client, _):
                await client.shake_hands()
                for each in range(20):
                    assert text_of(await client.call("add", id=each, a=number, b=each)) == f"the sum is {number + each}"

        for number in range(5):
            tasks.start_soon(visit, number)
        async with knock(host.mcp_servers["shed"]) as (client, _):
            await client.shake_hands()
            assert text_of(await client.call("hello", name="Ada")) == "Hello, Ada"


async def hello(given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
    return f"Hello, {given['name']}"


async def test_closing_the_host_cancels_tools_and_hangs_up(tools: Any, workshop: Workshop) -> None:
    host = ct.bridge.BridgeHost({"box": tools})
    await host.start()
    async with knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()
        await client.say("tools/call", id=7, name="wait", arguments={})
        with anyio.fail_after(PATIENCE):
            await workshop.waiting.wait()
            await host.aclose()
            assert workshop.cancelled.is_set()
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                while True:
                    await client.stream.receive()
    await host.aclose()
    with pytest.raises(UsageError):
        await host.start()


async def test_the_lifespan_of_a_server_is_left_when_its_bridge_hangs_up(anyio_backend: object) -> None:
    left = anyio.Event()

    @asynccontextmanager
    async def lifespan(_server: MCPServer[None]) -> AsyncIterator[None]:
        yield
        left.set()

    async with ct.bridge.BridgeHost({"box": MCPServer("box", lifespan=lifespan)}) as host:
        async with knock(host.mcp_servers["box"]) as (client, _):
            await client.shake_hands()
            assert not left.is_set()
        with anyio.fail_after(PATIENCE):
            await left.wait()


async def test_many_large_answers_for_a_bridge_that_reads_late_all_arrive(anyio_backend: object) -> None:
    async def much(_given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
        return "x" * 1_000_000

    async with (
        ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="much", call=much)]}) as host,
        knock(host.mcp_servers["box"]) as (client, _),
    ):
        for each in range(20):
            await client.say("tools/call", id=each, name="much", arguments={})
        answers = [await client.next() for _ in range(20)]
        assert sorted(answer["id"] for answer in answers) == list(range(20))


async def test_for_a_bridge_that_does_not_read_answers_wait_and_what_needs_none_is_dropped(anyio_backend: object) -> None:
    outbox, put = Outbox(max_waiting_bytes=10), []
    ours, theirs = memory_stream_pair()

    async def answer() -> None:
        await outbox.put(b"an answer\n")
        put.append("answer")

    async with ours, theirs, anyio.create_task_group() as tasks:
        await outbox.put(b"a long first line\n")
        tasks.start_soon(answer)
        await anyio.wait_all_tasks_blocked()
        assert not outbox.offer(b"progress\n")
        assert put == []
        tasks.start_soon(outbox.write_to, ours)
        await anyio.wait_all_tasks_blocked()
        assert put == ["answer"]
        with anyio.fail_after(PATIENCE):
            received = b""
            while not received.endswith(b"answer\n"):
                received += await theirs.receive()
        assert received == b"a long first line\nan answer\n"
        tasks.cancel_scope.cancel()


async def test_half_a_character_that_the_cli_has_written_reaches_the_tool(anyio_backend: object) -> None:
    async def echo(given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
        return str(given["text"])

    async with (
        ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="echo", call=echo)]}) as host,
        knock(host.mcp_servers["box"]) as (client, _),
    ):
        assert text_of(await client.call("echo", text="a \ud800 alone")) == "a \ud800 alone"


# What tools give


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        ("words", {"content": [{"type": "text", "text": "words"}]}),
        ({"n": 3}, {"content": [{"type": "text", "text": '{"n": 3}'}], "structuredContent": {"n": 3}}),
        ([{"type": "image", "data": "", "mimeType": "image/png"}], {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}),
        (None, {"content": []}),
        ("a \ud800 alone", {"content": [{"type": "text", "text": "a \ud800 alone"}]}),
    ],
    ids=["text", "mapping", "blocks", "none", "lone surrogate"],
)
async def test_what_a_tool_returns_is_what_the_model_gets(returned: Any, result: dict[str, Any]) -> None:
    async def give(_given: dict[str, Any], _context: ct.bridge.ToolContext) -> Any:
        return returned

    async with (
        ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="give", call=give)]}) as host,
        knock(host.mcp_servers["box"]) as (client, _),
    ):
        assert (await client.call("give"))["result"] == result


@pytest.mark.parametrize("returned", [object(), {"x": object()}, [{"no": "type"}], 7], ids=["object", "in a mapping", "no block", "number"])
async def test_what_cannot_be_told_to_a_model_is_a_failed_tool(returned: Any) -> None:
    async def give(_given: dict[str, Any], _context: ct.bridge.ToolContext) -> Any:
        return returned

    async with (
        ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="give", call=give)]}) as host,
        knock(host.mcp_servers["box"]) as (client, _),
    ):
        assert (await client.call("give"))["result"]["isError"] is True
        assert host.failed_calls == 1


async def ask_wrongly(client: Client, *lines: bytes) -> list[tuple[Any, Any]]:
    await client.send(*lines)
    answers = [await client.next() for _ in lines]
    return [(answer.get("id"), answer["error"]["code"]) for answer in answers]


async def test_every_bad_request_gets_its_error_and_the_next_one_its_answer(workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host, knock(host.mcp_servers["box"]) as (client, _):
        await client.shake_hands()

        def request(method: str, **params: Any) -> bytes:
            return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()

        assert await ask_wrongly(client, b"not json") == [(None, -32700)]
        assert await ask_wrongly(client, b"[1]") == [(None, -32700)]
        assert await ask_wrongly(client, b'{"id":1.5,"method":"ping"}') == [(None, -32600)]
        assert await ask_wrongly(client, request("resources/list")) == [(1, -32601)]
        assert await ask_wrongly(client, request("tools/call", name="nothing")) == [(1, -32602)]
        assert await ask_wrongly(client, request("tools/call", name=["add"])) == [(1, -32602)]
        assert await ask_wrongly(client, b'{"id":1,"method":"ping","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}") == [(None, -32700)]
        assert await ask_wrongly(client, request("tools/call", name="add", arguments=[1])) == [(1, -32602)]
        assert await ask_wrongly(client, request("tools/call", name="add", arguments={"a": 1})) == [(1, -32602)]
        assert (await client.ask("ping", id="p"))["result"] == {}


# What is refused


async def nothing(_given: dict[str, Any], _context: ct.bridge.ToolContext) -> None: ...


@pytest.mark.parametrize(
    ("servers", "options"),
    [
        ({}, {}),
        ({"a b": [], "a_b": []}, {}),
        ({"x": object()}, {}),
        ({"x": {"command": "y"}}, {}),
        ({"x": [nothing]}, {}),
        ({"x": [ct.bridge.HostTool(name="t", call=nothing)] * 2}, {}),
        ({"x": []}, {"token": "short"}),
        ({"x": []}, {"listen": "tcp://0.0.0.0:0"}),
        ({"x": []}, {"listen": "wss://127.0.0.1:1/"}),
        ({"x": []}, {"max_calls": 0}),
    ],
)
async def test_a_host_that_makes_no_sense_is_refused_before_it_listens(servers: Any, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        ct.bridge.BridgeHost(servers, **options)


@pytest.mark.parametrize("wrong", [{"name": "a b"}, {"name": "a", "input_schema": {"type": "array"}}, {"name": "a", "call": 3}])
def test_a_tool_that_could_not_be_called_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ct.bridge.HostTool(**{"call": nothing, **wrong})


async def test_no_token_in_what_is_printed(workshop: Workshop) -> None:
    host = ct.bridge.BridgeHost({"box": workshop.plain()})
    async with host:
        token = host.token
        assert token not in repr(host)
        assert token not in repr(Greeting(server="box", token=token))


@pytest.mark.parametrize("option", ["max_bridges", "max_calls", "max_line_bytes"])
def test_a_limit_below_one_is_refused_by_its_name(option: str) -> None:
    limits: dict[str, Any] = {option: 0}
    with pytest.raises(ct.ConfigurationError, match=f"{option} must be at least 1, not 0") as caught:
        ct.bridge.BridgeHost({"box": []}, **limits)
    assert caught.value.option == option


def test_before_it_listens_a_host_has_no_address() -> None:
    host = ct.bridge.BridgeHost({"box": []})
    for read in (lambda: host.url, lambda: host.mcp_servers):
        with pytest.raises(UsageError, match="has not been started"):
            read()


async def test_a_long_name_of_a_tool_is_not_repeated_whole(workshop: Workshop) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host, knock(host.mcp_servers["box"]) as (client, _):
        error = (await client.call("x" * 10_000))["error"]
        assert error["message"] == f"there is no tool {'x' * 128!r}"


def test_a_long_name_of_a_server_is_refused_and_not_repeated_whole() -> None:
    ct.bridge.BridgeHost({"x" * 256: []})
    with pytest.raises(ConfigurationError) as caught:
        ct.bridge.BridgeHost({"x" * 257: []})
    assert str(caught.value) == f"{'x' * 256!r} is not a valid name of a server: use 1 to 256 characters"


async def test_who_hangs_up_before_a_word_is_no_failure_of_the_host(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    async with ct.bridge.BridgeHost({"box": workshop.plain()}) as host:
        for said in (b"", b"{"):
            stream = await SocketConnectable(parse_address(host.url)).connect()
            if said:
                await stream.send(said)
            await stream.send_eof()
            with anyio.fail_after(PATIENCE), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
            await stream.aclose()
        assert (host.failed_calls, host.bridges) == (0, 0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_what_a_tool_may_not_return_is_an_error_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def count(_given: dict[str, Any], _context: ct.bridge.ToolContext) -> Any:
        return 7

    async with (
        ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="count", call=count)]}) as host,
        knock(host.mcp_servers["box"]) as (client, _),
    ):
        await client.shake_hands()
        answer = await client.call("count")
        assert answer["result"]["isError"] is True
        told = "a tool returned int: return a text, a mapping, content blocks or None"
        assert text_of(answer) == told
        assert host.failed_calls == 1
    assert f"TypeError: {told}" in caplog.text


async def test_no_folder_is_left(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a host that could not start. A path that is too long would be none of a socket."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bound: list[str] = []

    def refuse(_socket: socket.socket, where: str) -> None:
        bound.append(where)
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "bind", refuse)
        with pytest.raises(ConfigurationError, match=": Operation not permitted"):
            await ct.bridge.BridgeHost({"box": workshop.plain()}).start()
    assert [Path(each).parent.parent for each in bound] == [tmp_path]
    assert [*tmp_path.iterdir()] == []


async def test_an_answer_that_is_no_json_is_an_error_of_the_tool(caplog: pytest.LogCaptureFixture) -> None:
    async def show(_given: dict[str, Any], _context: ct.bridge.ToolContext) -> Any:
        return [{"type": "text", "text": object()}]

    async with (
        ct.bridge.BridgeHost({"box": [ct.bridge.HostTool(name="show", call=show)]}) as host,
        knock(host.mcp_servers["box"]) as (client, _),
    ):
        await client.shake_hands()
        answer = await client.call("show")
        assert answer["error"] == {"code": -32603, "message": "the tool's answer cannot be written as JSON"}
    assert "an answer of a host's tool cannot be written as JSON: TypeError" in caplog.text


async def test_a_fault_of_one_connection_is_counted_and_ends_no_other(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    faults = [LookupError("out of order")]

    def compare(shown: bytes, right: bytes) -> bool:
        if faults:
            raise faults.pop()
        return shown == right

    async with ct.bridge.BridgeHost({"box": workshop.plain()}, compare=compare) as host:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            async with knock(host.mcp_servers["box"]):
                pass
        assert host.failed_calls == 1
        async with knock(host.mcp_servers["box"]) as (_, welcome):
            assert welcome.refused is None
    assert "the connection of a bridge failed" in caplog.text
    assert "LookupError: out of order" in caplog.text
