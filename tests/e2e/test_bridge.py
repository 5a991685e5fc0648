"""`claude-transport mcp-bridge` on the real CLI: its model calls tools of this test through a process that the CLI starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import Live, LiveSession, of_type
from mcp.server import MCPServer
from polling import a_moment

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies


class Desk:
    """Tools that add, wait, fail, or say much, and remember what they were asked."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.waiting = anyio.Event()
        self.cancelled = anyio.Event()

    async def add(self, given: dict[str, Any], context: ct.bridge.ToolContext) -> str:
        self.calls.append(given)
        context.report_progress(1, total=1, message="added")
        return f"the sum is {given['a'] + given['b']:g}"

    async def wait(self, _given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "never"

    async def fail(self, _given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
        raise RuntimeError("out of order")

    async def large(self, _given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
        return "x" * 2_000_000

    def tools(self) -> list[ct.bridge.HostTool]:
        numbers = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
        return [
            ct.bridge.HostTool(name="add", call=self.add, input_schema=numbers, description="Adds a and b."),
            ct.bridge.HostTool(name="wait", call=self.wait),
            ct.bridge.HostTool(name="fail", call=self.fail),
            ct.bridge.HostTool(name="large", call=self.large),
        ]


@pytest.fixture
def desk(anyio_backend: object) -> Desk:
    return Desk()


def bridged(host: ct.bridge.BridgeHost) -> dict[str, Any]:
    """Options that give a CLI the host's servers."""
    return {"mcp_servers": host.mcp_servers, "allowed_tools": [f"mcp__{name}__*" for name in host.mcp_servers]}


def told(messages: list[ct.Message]) -> list[tuple[bool, str]]:
    """What tools have said: whether they failed, and how."""
    return [(bool(block.is_error), str(block.content)) for message in of_type(messages, ct.UserMessage) for block in message.tool_results]


def use(tool: str, **given: Any) -> replies.MessageReply:
    return replies.tool_use(f"mcp__desk__{tool}", given)


async def connected(session: LiveSession) -> None:
    """Return when the CLI has connected its servers, which it does in the background."""
    while any(status.status == "pending" for status in await session.query.mcp_status()):
        await a_moment()


@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"], ids=["unix", "tcp"])
async def test_the_model_calls_a_tool_through_the_bridge(live: Live, desk: Desk, listen: str | None) -> None:
    script = [use("add", a=1, b=2), replies.text("three")]
    async with ct.bridge.BridgeHost({"desk": desk.tools()}, listen=listen) as host, live(script, **bridged(host)) as session:
        await connected(session)
        assert [(status.name, status.status) for status in await session.query.mcp_status()] == [("desk", "connected")]
        messages = await session.hear("add")
        assert host.bridges == 1
    assert desk.calls == [{"a": 1, "b": 2}]
    ((failed, text),) = told(messages)
    assert not failed
    assert "the sum is 3" in text


async def test_the_token_is_on_no_command_line(live: Live, desk: Desk) -> None:
    """Looked at where everybody can look: the command lines of all processes."""
    async with ct.bridge.BridgeHost({"desk": desk.tools()}) as host, live([replies.text("hi")], **bridged(host)) as session:
        await connected(session)
        await session.ask("hi")
        lines = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(process.read_bytes())
            except OSError:
                continue  # it has ended meanwhile
        assert any(b"mcp-bridge" in line for line in lines)
        assert not any(host.token.encode() in line for line in lines)


@pytest.mark.needs("sizes of tool results")
async def test_a_tool_that_fails_and_one_that_says_much_leave_the_next_one_working(live: Live, desk: Desk) -> None:
    script = [use("fail"), use("large"), use("add", a=2, b=2), replies.text("four")]
    async with ct.bridge.BridgeHost({"desk": desk.tools()}) as host, live(script, **bridged(host)) as session:
        await connected(session)
        failed, large, added = told(await session.hear("fail, say much, add"))
    assert failed[0]
    assert "out of order" in failed[1]
    assert not large[0]
    assert "2,000,000 characters" in large[1]
    assert "the sum is 4" in added[1]


async def test_an_interrupt_cancels_the_tool_and_the_bridge_lives_on(live: Live, desk: Desk) -> None:
    script = [use("wait"), use("add", a=3, b=4), replies.text("seven")]
    async with ct.bridge.BridgeHost({"desk": desk.tools()}) as host, live(script, **bridged(host)) as session:
        await connected(session)
        turn = await session.query.send("wait")
        await desk.waiting.wait()
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        await turn.result()
        await desk.cancelled.wait()
        await session.ask("add")
    assert desk.calls == [{"a": 3, "b": 4}]


async def test_a_host_that_goes_is_an_error_for_the_model_and_not_a_hang(live: Live, desk: Desk) -> None:
    script = [use("wait"), use("add", a=3, b=4), replies.text("too bad")]
    host = ct.bridge.BridgeHost({"desk": desk.tools()})
    await host.start()
    async with live(script, **bridged(host)) as session:
        await connected(session)
        turn = await session.query.send("wait, then add")
        await desk.waiting.wait()
        await host.aclose()
        messages = [message async for message in turn]
        assert (await turn.result()).outcome.ok
    results = told(messages)
    assert [failed for failed, _ in results] == [True, True]
    assert all("host of this server has gone" in text for _, text in results)


async def test_a_host_that_is_not_there_is_a_server_that_failed(live: Live, tmp_path: Path) -> None:
    servers = {"desk": ct.bridge.bridge_config(f"unix://{tmp_path}/none", token="a-token-that-is-long-enough", server="desk")}
    async with live([replies.text("hi")], mcp_servers=servers) as session:
        await connected(session)
        (status,) = await session.query.mcp_status()
        assert status.status == "failed"
        assert (await session.ask("hi")).outcome.ok


async def test_several_servers_and_sessions_at_once(live: Live, desk: Desk, anyio_backend: object) -> None:
    """Two CLIs, each with two bridges to one host: an `mcp` server and plain functions."""
    server: MCPServer[Any] = MCPServer("box")

    @server.tool(structured_output=False)
    async def double(n: int) -> str:
        return f"twice {n} is {2 * n}"

    async def converse(host: ct.bridge.BridgeHost, number: int) -> None:
        script = [use("add", a=number, b=1), replies.tool_use("mcp__box__double", {"n": number}), replies.text("done")]
        async with live(script, **bridged(host)) as session:
            await connected(session)
            added, doubled = told(await session.hear("add, then double"))
        assert f"the sum is {number + 1}" in added[1]
        assert f"twice {number} is {2 * number}" in doubled[1]

    async with ct.bridge.BridgeHost({"desk": desk.tools(), "box": server}) as host, anyio.create_task_group() as tasks:
        tasks.start_soon(converse, host, 10)
        tasks.start_soon(converse, host, 20)


async def test_one_call_has_the_tools_too(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], desk: Desk) -> None:
    """`complete()` has no control channel to offer: what the bridge is for."""
    script = [use("add", a=5, b=6), replies.text("eleven")]
    async with FakeMessagesAPI(script) as api, ct.bridge.BridgeHost({"desk": desk.tools()}) as host:
        options = ct.ClaudeOptions(
            cli_path=claude_cli,
            cwd=cli_home.project,
            env=cli_env(api),
            env_mode="exact",
            max_turns=5,
            verbatim_prompts=True,
            **bridged(host),
        )
        with anyio.fail_after(60):
            completion = await ct.complete("add", transport="cli", model="haiku", options=options)
    assert completion.text == "eleven"
    assert desk.calls == [{"a": 5, "b": 6}]
