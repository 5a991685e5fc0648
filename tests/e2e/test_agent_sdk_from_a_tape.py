"""What the real binary said to the official client over our process, said to it again without a binary: by a tape, and by a mock.

Text, a tool, a hook and a permission, a tool of the client's own process, an interrupt: the client sees the same messages in the same
order, and so do its callbacks. (Which of the two comes first is for the client to say: it runs callbacks beside the loop that reads.)
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import claude_agent_sdk as sdk
import pytest
from live_session import PATIENCE, bash
from polling import a_moment

import claude_transport as ct
from claude_transport.interop.agent_sdk import adapt, transport_from
from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeMessagesAPI, replies

# The official client drops its own generators half read, which trio remarks on; that is not ours to judge.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")


@dataclass
class Host:
    """A program with the official client: what it asks, the callbacks it brings, and what it has noted of all that was said."""

    prompts: tuple[str, ...] = ("Hi",)
    interrupts: bool = False
    given: dict[str, Any] = field(default_factory=dict)
    noted: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    async def converse(
        self, transport: ct.Transport, *, official: Callable[..., sdk.ClaudeAgentOptions], at_work: Callable[[], Awaitable[None]]
    ) -> tuple[list[str], list[str]]:
        """Ask everything: what was said, and which callbacks were called. `at_work()` returns once the tool to be interrupted runs."""
        self.noted, self.called = [], []
        options = official(**self.given)
        with anyio.fail_after(PATIENCE):
            async with sdk.ClaudeSDKClient(options, transport=adapt(transport, options=options)) as client:
                for prompt in self.prompts:
                    await client.query(prompt)
                    async for message in client.receive_response():
                        self.note(message)
                        if self.interrupts and self.noted[-1].startswith("ToolUseBlock"):
                            await at_work()
                            await client.interrupt()
        return self.noted, self.called

    def note(self, message: object) -> None:
        """What of a message is no mere number."""
        if isinstance(message, sdk.ResultMessage):
            self.noted.append(f"{message.subtype}: {message.result}")
        elif isinstance(message, sdk.AssistantMessage | sdk.UserMessage):
            self.noted += [f"{type(block).__name__}: {block}" for block in message.content]
        elif isinstance(message, sdk.SystemMessage):
            self.noted.append(f"system {message.subtype}")

    async def decide(self, tool: str, _input: dict[str, Any], _context: sdk.ToolPermissionContext) -> sdk.PermissionResult:
        """Allow, and tell that it was asked."""
        self.called.append(f"asked about {tool}")
        return sdk.PermissionResultAllow()

    async def hook(self, given: Any, _tool_use_id: str | None, _context: Any) -> Any:
        """Have no say, and tell what happened."""
        self.called.append(f"hook {given['hook_event_name']}")
        return {}

    def sums(self) -> Any:
        """A server of this process, whose tool tells that it is called."""

        @sdk.tool("add", "Adds two numbers", {"a": int, "b": int})
        async def add(given: dict[str, Any]) -> dict[str, Any]:
            self.called.append("add called")
            return {"content": [{"type": "text", "text": f"sum={given['a'] + given['b']}"}]}

        return sdk.create_sdk_mcp_server("sums", tools=[add])


def host_of(what: str) -> tuple[Host, list[Any], set[str]]:
    """A host, the script of the model it talks to, and what must have been said or called."""
    host = Host()
    match what:
        case "text":
            host.prompts = ("1", "2")
            return host, ["One.", "Two."], {"success: One.", "success: Two."}
        case "tool":
            host.given = {"allowed_tools": ["Bash"]}
            return host, [bash("echo made > made && cat made"), "Done."], {"success: Done."}
        case "hook":
            host.given = {"can_use_tool": host.decide, "hooks": {"PreToolUse": [sdk.HookMatcher("Bash", [host.hook])]}}
            return host, [bash("echo made > made"), "Done."], {"hook PreToolUse", "asked about Bash", "success: Done."}
        case "mcp":
            host.given = {"mcp_servers": {"sums": host.sums()}, "allowed_tools": ["mcp__sums__add"]}
            return host, [replies.tool_use("mcp__sums__add", {"a": 20, "b": 22}), "It is 42."], {"add called", "success: It is 42."}
        case _:
            host.given, host.interrupts = {"allowed_tools": ["Bash"]}, True
            return host, [bash("touch running; sleep 300")], {"error_during_execution: None"}


def mock_of(tape: Tape) -> ct.MockTransport:
    """A mock that has the lines of the CLI, but for the answers to the host's requests, which it gives by itself."""
    lines = (record.line for record in tape.records if record.dir == "out")
    return ct.MockTransport([line for line in lines if b'"type":"control_response"' not in line])


@pytest.fixture
def official(
    monkeypatch: pytest.MonkeyPatch, claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> Callable[[FakeMessagesAPI], Callable[..., sdk.ClaudeAgentOptions]]:
    """`official(api)(**options)`: official options for a CLI in a clean world, which this process's environment then is, too."""

    def world(api: FakeMessagesAPI) -> Callable[..., sdk.ClaudeAgentOptions]:
        for name in list(os.environ):
            if not name.startswith(("PYTEST_", "PYTHON")):
                monkeypatch.delenv(name)
        for name, value in cli_env(api, CLAUDE_CODE_MAX_RETRIES="0").items():
            monkeypatch.setenv(name, value)
        return lambda **options: sdk.ClaudeAgentOptions(cli_path=claude_cli, cwd=cli_home.project, **options)

    return world


@pytest.mark.parametrize("what", ["text", "tool", "hook", "mcp", "interrupt"])
async def test_the_official_client_sees_the_same_from_the_binary_its_tape_and_a_mock(
    what: str, official: Callable[..., Any], cli_home: Any, tmp_path: Path
) -> None:
    host, script, must_be_noted = host_of(what)
    path = tmp_path / "tape.ndjson"

    async def at_work() -> None:
        while not (cli_home.project / "running").exists():
            await a_moment()

    async with FakeMessagesAPI(script) as api:
        build = official(api)
        process = transport_from(build(**host.given)).transport
        assert isinstance(process, ct.SubprocessTransport)
        live = await host.converse(ct.RecordingTransport(process, path), official=build, at_work=at_work)
    assert must_be_noted <= {*live[0], *live[1]}
    tape = Tape.read(path)
    for again in (ct.ReplayTransport(tape), mock_of(tape)):
        assert await host.converse(again, official=build, at_work=anyio.lowlevel.checkpoint) == live
