"""The whole main job with the real CLI in another process, served by `claude-transport serve` on the event loop that the client has not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from live_session import PATIENCE, Doorkeeper, bash, next_of

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

TOKEN = "a-token-for-the-other-loop"
OTHER = {"asyncio": "trio", "trio": "asyncio"}
LONG = 2 * 2**20  # characters of one answer


@contextmanager
def serving(*arguments: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The program, serving; not running any more after the block."""
    argv = [sys.executable, "-m", "claude_transport", "serve", *arguments]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.mark.needs("long answers are not compacted at once")
@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:0", "ws://127.0.0.1:0", "unix"])
async def test_a_claude_behind_a_gateway_on_the_other_loop_does_the_main_job(
    claude_cli: str,
    cli_home: Any,
    cli_env: Callable[..., dict[str, str]],
    anyio_backend_name: str,
    listen: str,
    resume: bool,
) -> None:
    from mcp.server import MCPServer

    server = MCPServer("sums")

    @server.tool()
    def add(a: int, b: int) -> str:
        return f"sum {a + b}"

    hooked: list[str] = []

    async def before(payload: Any, _tool_use_id: Any, _context: Any) -> None:
        hooked.append(payload["tool_name"])

    doorkeeper = Doorkeeper()
    model = [bash("echo across > proof.txt"), replies.tool_use("mcp__sums__add", {"a": 2, "b": 3}), replies.huge(LONG)]
    async with FakeMessagesAPI([*model, replies.gated("one two three"), "Still here."]) as api:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0", THE_TOKEN=TOKEN)
        address = f"unix://{cli_home.tmp}/g.sock" if listen == "unix" else listen
        arguments = ["--listen", address, "--token-env", "THE_TOKEN", "--cli-path", claude_cli, "--cwd", str(cli_home.project)]
        with serving(*arguments, "--backend", OTHER[anyio_backend_name], environment=environment) as process, anyio.fail_after(PATIENCE):
            url = await anyio.to_thread.run_sync(first_line, process)
            transport = ct.NetworkTransport(url, token=TOKEN, resume=resume, options={"include_partial_messages": True})
            hooks = {"PreToolUse": [ct.HookMatcher(None, [before])]}
            async with ct.Query(transport, can_use_tool=doorkeeper, hooks=hooks, mcp_servers={"sums": server}) as query:
                result = await (await query.send("Work")).result()
                assert len(result.raise_for_error().result or "") == LONG
                turn = await query.send("Go on until you are told")
                await next_of(turn, ct.StreamEvent)
                assert await query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
                assert (await turn.result()).outcome.code == "result.interrupted"
                api.open_gate("main")
                assert (await (await query.send("And now?")).result()).outcome.ok
    assert (cli_home.project / "proof.txt").read_text() == "across\n"
    assert "sum 5" in str([step.tool_results for step in api.conversation])
    assert hooked == ["Bash", "mcp__sums__add"]
    assert doorkeeper.commands[0] == "echo across > proof.txt"
