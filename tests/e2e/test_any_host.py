"""Any host, recorded and replayed: the official SDKs start `claude_tape.cli_path()` as their claude, and see the same three times.

The real binary, the tee around it, and the tape: the messages, the hooks, the permissions and the calls of the host's tools are the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import claude_agent_sdk as sdk
import pytest
from live_session import PATIENCE, bash
from node_program import node

from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeMessagesAPI, TapeShelf, replies

pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning"),
    pytest.mark.skipif(os.name != "posix", reason="the stand-in for claude is a POSIX program"),
]

HOST = Path(__file__).parent / "any_host.mjs"
NOX_CACHE = Path(__file__).parents[2] / ".nox" / ".cache" / "typescript-sdk"
HINT = "run `nox -s e2e`, which installs it from npm, or pass --typescript-sdk FOLDER"


class Host:
    """A program with the official Python SDK, and all that it has noted."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.noted: list[str] = []
        self.called: list[str] = []

    def options(self, **world: Any) -> sdk.ClaudeAgentOptions:
        """The options of this host: with a hook, a permission, or a tool of its own."""
        given: dict[str, Any] = {}
        match self.what:
            case "hook":
                given = {"can_use_tool": self.decide, "hooks": {"PreToolUse": [sdk.HookMatcher("Bash", [self.hook])]}}
            case "mcp":
                given = {"mcp_servers": {"sums": self.sums()}, "allowed_tools": ["mcp__sums__add"]}
        return sdk.ClaudeAgentOptions(**given, **world)

    def script(self) -> list[Any]:
        """What the model says."""
        match self.what:
            case "hook":
                return [bash("echo made > made"), "Done.", "Two."]
            case "mcp":
                return [replies.tool_use("mcp__sums__add", {"a": 20, "b": 22}), "It is 42.", "Two."]
            case _:
                return ["One.", "Two."]

    def must_note(self) -> set[str]:
        """What shows that there was anything to see."""
        return {
            "hook": {"hook PreToolUse", "asked about Bash", "success: Done."},
            "mcp": {"add called", "success: It is 42."},
        }.get(self.what, {"success: One."})

    async def converse(self, options: sdk.ClaudeAgentOptions) -> tuple[list[str], list[str]]:
        """Ask, with `query()` or with two prompts to a client, and return what was said and which callbacks were called."""
        with anyio.fail_after(PATIENCE):
            if self.what == "query":
                async for message in sdk.query(prompt="1", options=options):
                    self.note(message)
            else:
                async with sdk.ClaudeSDKClient(options) as client:
                    for prompt in ("1", "2"):
                        await client.query(prompt)
                        async for message in client.receive_response():
                            self.note(message)
        noted, called, self.noted, self.called = self.noted, self.called, [], []
        return noted, called

    def note(self, message: object) -> None:
        """What of a message is no mere number."""
        if isinstance(message, sdk.ResultMessage):
            self.noted.append(f"{message.subtype}: {message.result}")
        elif isinstance(message, sdk.AssistantMessage | sdk.UserMessage):
            blocks = [message.content] if isinstance(message.content, str) else message.content
            self.noted += [f"{type(block).__name__}: {block}" for block in blocks]
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


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, cli_env: Callable[..., dict[str, str]]) -> Callable[[FakeMessagesAPI], None]:
    """`world(api)`: this process's environment is that of a CLI in a clean world."""

    def enter(api: FakeMessagesAPI) -> None:
        for name in list(os.environ):
            if not name.startswith(("PYTEST_", "PYTHON")):
                monkeypatch.delenv(name)
        for name, value in cli_env(api, CLAUDE_CODE_MAX_RETRIES="0").items():
            monkeypatch.setenv(name, value)

    return enter


@pytest.mark.parametrize("what", ["query", "client", "hook", "mcp"])
async def test_the_python_sdk_sees_the_same_from_the_binary_the_tee_and_the_tape(
    what: str, claude_cli: str, cli_home: Any, world: Callable[..., None], tmp_path: Path
) -> None:
    host = Host(what)

    async def converse(cli_path: Path) -> tuple[list[str], list[str]]:
        async with FakeMessagesAPI(host.script()) as api:
            world(api)
            return await host.converse(host.options(cli_path=cli_path, cwd=cli_home.project))

    real = await converse(Path(claude_cli))
    assert host.must_note() <= {*real[0], *real[1]}

    recording = TapeShelf(tmp_path / "tapes", name="tape", mode="all")
    assert await converse(recording.cli_path(claude_cli)) == real
    (path,) = recording.finish(passed=True)
    tape = Tape.read(path)
    assert not tape.is_torn
    assert b"--output-format" in tape.lines("note")[0]

    playing = TapeShelf(tmp_path / "tapes", name="tape", mode="none")
    replayed = playing.cli_path(match=["prompt"])
    world_without_api = host.options(cli_path=replayed, cwd=cli_home.project)
    assert await host.converse(world_without_api) == real
    playing.finish(passed=True)


@pytest.fixture(scope="module")
def typescript_sdk(request: pytest.FixtureRequest) -> list[str]:
    """What starts Node, the host, and the folder with the official TypeScript SDK, in which there is no claude."""
    given: str | None = request.config.getoption("--typescript-sdk")
    cached = sorted(NOX_CACHE.glob("[0-9]*"))
    folder, program = Path(given) if given else cached[-1] if cached else None, node()
    if folder is not None and (folder / "node_modules" / "@anthropic-ai" / "claude-agent-sdk").is_dir() and program is not None:
        return [program, str(HOST), str(folder.absolute())]
    what = f"no official TypeScript SDK at {folder}, or no Node: {HINT}"
    if given or (os.environ.get("CI") and shutil.which("npm")):
        pytest.fail(what)
    pytest.skip(what)


async def test_the_typescript_sdk_sees_the_same_from_the_binary_the_tee_and_the_tape(
    typescript_sdk: list[str], claude_cli: str, cli_home: Any, world: Callable[..., None], tmp_path: Path
) -> None:
    async def converse(claude: Path) -> list[str]:
        script = [bash("echo made > made"), "Done.", replies.tool_use("mcp__sums__add", {"a": 20, "b": 22}), "It is 42."]
        async with FakeMessagesAPI(script) as api:
            world(api)
            command = [*typescript_sdk, str(claude), str(cli_home.project)]
            with anyio.fail_after(PATIENCE):
                ran = await anyio.run_process(command, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        return ran.stdout.decode().splitlines()

    real = await converse(Path(claude_cli))
    for expected in ('["hook","PreToolUse","Bash"]', '["asked about","Bash"]', '["add called",20,22]', '["result","success","It is 42."]'):
        assert expected in real

    recording = TapeShelf(tmp_path / "tapes", name="tape", mode="all")
    assert await converse(recording.cli_path(claude_cli)) == real
    (path,) = recording.finish(passed=True)
    assert Tape.read(path).lines("in")

    playing = TapeShelf(tmp_path / "tapes", name="tape", mode="none")
    assert await converse(playing.cli_path(match=["prompt"])) == real
    playing.finish(passed=True)
