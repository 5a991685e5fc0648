"""The main job of the real CLI, elsewhere: a Query on one side of a gateway, the binary on the other, cuts in between."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from live_session import Doorkeeper, bash
from polling import a_moment

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops

PATIENCE = 90.0  # seconds for one session, on a machine with much else to do
TOKEN = "a-token-for-the-real-claude"

Serve = Callable[..., Any]


@pytest.fixture
def serve(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], tmp_path: Path) -> Serve:
    """`serve(api, …)`: a gateway to the real binary in a clean world, and the URL it listens at."""

    @asynccontextmanager
    async def serving(api: FakeMessagesAPI, *, session_state_events: bool = True, **settings: Any) -> AsyncIterator[ct.Gateway]:
        options = ct.ClaudeOptions(
            cli_path=claude_cli,
            cwd=cli_home.project,
            env=cli_env(api, CLAUDE_CODE_MAX_RETRIES="0"),
            env_mode="exact",
            session_state_events=session_state_events,
        )
        with anyio.fail_after(PATIENCE):
            async with ct.Gateway(options, listen=["tcp://127.0.0.1:0"], tokens={"alice": TOKEN}, **settings) as gateway:
                yield gateway

    return serving


async def gone(pid: int) -> None:
    """Return when there is no such process any more."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
async def test_permissions_hooks_and_host_tools_are_answered_by_the_client(serve: Serve, cli_home: Any, resume: bool) -> None:
    from mcp.server import MCPServer

    server = MCPServer("sums")
    sums: list[tuple[int, int]] = []

    @server.tool()
    def add(a: int, b: int) -> str:
        sums.append((a, b))
        return str(a + b)

    hooked: list[str] = []

    async def before(payload: Any, _tool_use_id: Any, _context: Any) -> None:
        hooked.append(payload["tool_name"])

    doorkeeper = Doorkeeper()
    model = [bash("echo from-afar > proof.txt"), replies.tool_use("mcp__sums__add", {"a": 2, "b": 3}), "All done."]
    async with FakeMessagesAPI(model) as api, serve(api) as gateway:
        transport = ct.NetworkTransport(gateway.urls[0], token=TOKEN, resume=resume)
        hooks = {"PreToolUse": [ct.HookMatcher(None, [before])]}
        async with ct.Query(transport, can_use_tool=doorkeeper, hooks=hooks, mcp_servers={"sums": server}) as query:
            pid = gateway.sessions[0].pid
            result = await (await query.send("Work")).result()
            assert result.raise_for_error().result == "All done."
        await gone(pid)
    assert (cli_home.project / "proof.txt").read_text() == "from-afar\n"
    assert sums == [(2, 3)]
    assert hooked == ["Bash", "mcp__sums__add"]
    assert doorkeeper.commands[0] == "echo from-afar > proof.txt"


async def test_a_turn_goes_on_while_its_client_is_cut_off_and_nothing_of_it_is_missed(serve: Serve) -> None:
    words = [f"word{number} " for number in range(1500)]
    async with FakeMessagesAPI([replies.text("".join(words), chunks=words)]) as api, serve(api) as gateway:
        port = int(gateway.urls[0].rpartition(":")[2])
        async with cutting_relay(port, after=100_000) as (url, cuts):
            transport = ct.NetworkTransport(url, token=TOKEN, options={"include_partial_messages": True})
            async with ct.Query(transport) as query:
                said = [m.text for m in [m async for m in await query.send("Count")] if isinstance(m, ct.StreamEvent) and m.text]
        assert said == words
        assert len(cuts) > 3
        assert gateway.metrics.sessions == {"link": 1}


async def test_a_client_that_vanishes_leaves_no_claude_behind(serve: Serve) -> None:
    async with FakeMessagesAPI(["Hello."]) as api, serve(api, limits=ct.gateway.GatewayLimits(lease=0.5)) as gateway:
        port = int(gateway.urls[0].rpartition(":")[2])
        async with cutting_relay(port, after=10**9) as (url, _):
            query = ct.Query(ct.NetworkTransport(url, token=TOKEN))
            await query.start()
            pid = gateway.sessions[0].pid
        await gone(pid)
        while gateway.sessions:
            await a_moment()
        assert gateway.metrics.ended == {"lease": 1}
        await query.aclose()


@asynccontextmanager
async def cutting_relay(port: int, *, after: int) -> AsyncIterator[tuple[str, list[int]]]:
    """A port from which connections lead to `port`, each cut after so many bytes in one direction; and the cuts there were."""
    cuts: list[int] = []

    async def carry(source: anyio.abc.ByteStream, target: anyio.abc.ByteStream, scope: anyio.CancelScope) -> None:
        carried = 0
        try:
            while carried < after:
                data = await source.receive(min(4096, after - carried))
                await target.send(data)
                carried += len(data)
            cuts.append(carried)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()

    async def attend(client: anyio.abc.SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as both:
            both.start_soon(carry, client, server, both.cancel_scope)
            both.start_soon(carry, server, client, both.cancel_scope)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, attend)
        yield f"tcp://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}", cuts
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("reports", [True, False], ids=["reports its state", "reports no state"])
async def test_a_drain_waits_for_the_turns_of_all_prompts_that_the_cli_has_got(serve: Serve, reports: bool) -> None:
    prompts = b"".join(b'{"type":"user","message":{"role":"user","content":"%d"}}\n' % number for number in range(2))
    async with FakeMessagesAPI(["One.", "Two."]) as api, serve(api, session_state_events=reports) as gateway:
        transport = ct.NetworkTransport(gateway.urls[0], token=TOKEN, resume=False)
        await transport.connect()
        await transport.write(prompts)  # without a uuid: the CLI does not say which it has read
        said: list[str] = []
        async with anyio.create_task_group() as tasks:
            async for batch in transport.read_lines():
                for line in batch:
                    message = ct.decode_message(line)
                    if isinstance(message, ct.ResultMessage):
                        said.append(message.result or "")
                        if len(said) == 1:
                            tasks.start_soon(gateway.drain)
        await transport.close()
    assert said == ["One.", "Two."]
    assert gateway.metrics.ended == {"drained": 1}
