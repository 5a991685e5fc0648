"""The main job with the real CLI at the other end of a real ssh: its own sshd on loopback, and the fake Messages API behind the CLI."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import Doorkeeper

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

sys.path.insert(0, str(Path(__file__).parents[1]))
from sshd import Sshd, running_sshd, why_no_sshd

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do

Talk = Callable[..., ct.Query]


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A real sshd, whose login says something first."""
    if (reason := why_no_sshd()) is not None:
        pytest.skip(reason)
    with running_sshd(login_script="echo 'Welcome to this machine.'\n") as server:
        yield server


@pytest.fixture
def talk(sshd: Sshd, claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Talk:
    """`talk(api, **arguments)`: a Query over ssh to the real binary, in a clean world there."""

    def build(api: FakeMessagesAPI, *, in_process: Any = None, **arguments: Any) -> ct.Query:
        callbacks = {name: arguments.pop(name) for name in ("can_use_tool", "hooks") if name in arguments}
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact", **arguments)
        return ct.Query(ct.SubprocessTransport(options, launcher=sshd.launcher()), mcp_servers=in_process, **callbacks)

    return build


def processes_of(home: Path) -> list[int]:
    """Everything alive that was started with this HOME: the CLI, its tools, and theirs."""
    mark = f"HOME={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # it ended while we looked
    return found


async def all_gone(home: Path) -> None:
    """Returns when nothing of it is alive."""
    while pids := processes_of(home):
        try:
            file = os.pidfd_open(pids[0])
        except ProcessLookupError:
            continue
        try:
            await anyio.wait_readable(file)
        finally:
            os.close(file)


async def test_the_main_job_over_ssh(talk: Talk, cli_home: Any, claude_cli: str) -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("sums")

    @server.tool()
    def add(a: int, b: int) -> str:
        return f"the sum is {a + b}"

    hooked: list[str] = []

    async def note(given: dict[str, Any], _tool_use_id: str | None, _context: ct.client.CallbackContext) -> dict[str, Any]:
        hooked.append(given["tool_name"])
        return {}

    door = Doorkeeper()
    script = [
        replies.tool_use("Bash", {"command": "echo made > made", "description": "d"}),
        replies.tool_use("mcp__sums__add", {"a": 20, "b": 22}),
        "Done.",
        replies.gated("never finished", chunks=2),
        "Fine.",
    ]
    with anyio.fail_after(2 * PATIENCE):
        async with FakeMessagesAPI(script) as api:
            hooks = {"PreToolUse": [ct.HookMatcher(hooks=[note])]}
            prompt = "You are far away."
            arguments: dict[str, Any] = {"can_use_tool": door, "hooks": hooks, "in_process": {"sums": server}, "system_prompt": prompt}
            async with talk(api, **arguments) as query:
                result = (await (await query.send("Make it")).result()).raise_for_error()
                assert (result.result, hooked) == ("Done.", ["Bash", "mcp__sums__add"])
                assert (cli_home.project / "made").read_text() == "made\n"
                assert "the sum is 42" in str(api.conversation[2].tool_results)
                assert prompt in str(api.conversation[0].body["system"])
                assert query.info.cli_path == claude_cli
                assert query.info.noise_lines == 1
                turn = await query.send("Go on for ever")
                await api.wait_at_gate(timeout=PATIENCE)
                assert await query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
                with pytest.raises(ct.errors.RunInterrupted):
                    (await turn.result()).raise_for_error()
                assert (await (await query.send("And now?")).result()).result == "Fine."
        await all_gone(cli_home.home)
    assert {tool for tool, *_ in door.asked} >= {"Bash"}


async def test_nothing_stays_there_when_the_client_is_killed_in_the_middle_of_a_tool(talk: Talk, cli_home: Any) -> None:
    async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "sleep 300", "description": "d"}), "Never."]) as api:
        with anyio.fail_after(PATIENCE):
            async with talk(api, allowed_tools=["Bash"]) as query:
                turn = await query.send("Sleep")
                async for message in turn:
                    if isinstance(message, ct.AssistantMessage):
                        break
                assert len(processes_of(cli_home.home)) >= 1
                assert query.info.pid is not None
                os.kill(query.info.pid, signal.SIGKILL)
                with pytest.raises(ct.ConnectionLost) as caught:
                    await turn.result()
                assert "signal 9" in str(caught.value)
            await all_gone(cli_home.home)


async def test_closing_in_the_middle_of_a_tool_leaves_nothing_there(talk: Talk, cli_home: Any) -> None:
    async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "sleep 300", "description": "d"}), "Never."]) as api:
        with anyio.fail_after(PATIENCE):
            async with talk(api, allowed_tools=["Bash"]) as query:
                async for message in await query.send("Sleep"):
                    if isinstance(message, ct.AssistantMessage):
                        break
            await all_gone(cli_home.home)


async def test_a_credential_that_is_refused_is_told_as_on_this_machine(talk: Talk) -> None:
    async with FakeMessagesAPI([replies.error(401)]) as api, talk(api) as query:
        with anyio.fail_after(PATIENCE), pytest.raises(ct.AuthFailed):
            (await (await query.send("Hello")).result()).raise_for_error()
