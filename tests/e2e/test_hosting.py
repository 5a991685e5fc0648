"""Hosting the real CLI: what stands on its command line, what does not, and what it says it can do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from live_session import Live, LiveSession

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops

PATIENCE = 60.0
SERVER = {"type": "stdio", "command": "/no/such/server", "env": {f"KEY_{n}": "v" * 1000 for n in range(20)}}


def arguments_of(session: LiveSession) -> list[str]:
    """The command line of the process, as everybody on this machine can read it."""
    info = session.query.info
    assert info.pid is not None
    return Path(f"/proc/{info.pid}/cmdline").read_text("utf-8").split("\0")[:-1]


async def test_s3_5_what_is_long_reaches_the_real_cli_off_the_command_line(live: Live) -> None:
    long = {
        "system_prompt": "You are brief. " * 10_000,
        "settings": {"permissions": {"allow": [f"Bash(command-{n}:*)" for n in range(2_000)]}},
        "mcp_servers": {"far": SERVER},
        "allowed_tools": [f"Read(//data/{n}/**)" for n in range(2_000)],
    }
    async with live([replies.text("Hello")], **long) as session:
        arguments = arguments_of(session)
        assert (await session.ask("Hi")).outcome.ok
        system = str(session.api.conversation[0].body["system"])
    assert sum(len(argument) + 1 for argument in arguments) < 8_000
    assert system.count("You are brief.") == 10_000


@pytest.mark.needs("capabilities")
async def test_s3_6_the_version_is_known_and_capabilities_come_first(live: Live) -> None:
    async with live([replies.text("Hello")]) as session:
        messages = await session.hear("Hi")
        (init,) = [message for message in messages if isinstance(message, ct.messages.InitMessage)]
        assert init.capabilities
        assert session.query.info.cli_version == init.claude_code_version


async def test_s4_1_the_arguments_of_a_process_are_those_of_the_table(live: Live) -> None:
    async with live([replies.text("Hello")], mcp_servers={"far": SERVER}, include_partial_messages=True, bare=True) as session:
        arguments = arguments_of(session)
        assert (await session.ask("Hi")).outcome.ok
    flags = {argument.partition("=")[0] for argument in arguments}
    assert {"--verbose", "--strict-mcp-config", "--include-partial-messages", "--bare"} <= flags
    assert "--tools" not in flags


async def test_s4_2_the_extras_reach_the_real_cli(live: Live) -> None:
    """Workspace, permission mode, budget, inline settings, permission rules, and an option that this library does not model."""
    script = [replies.tool_use("Bash", {"command": "pwd", "description": "d"}), replies.text("There")]
    extras = {
        "permission_mode": "dontAsk",
        "max_budget_usd": 5.0,
        "settings": '{"permissions": {"allow": ["Bash(pwd)"]}}',
        "allowed_tools": ["Read"],
        "disallowed_tools": ["WebFetch"],
        "extra_args": {"append-system-prompt": "Say where you are."},
    }
    async with live(script, **extras) as session:
        messages = await session.hear("Where are you?")
        (init,) = [message for message in messages if isinstance(message, ct.messages.InitMessage)]
        assert init.permission_mode == "dontAsk"
        assert "WebFetch" not in init.tools
        assert str(session.project) in session.told()[0]
        assert "Say where you are." in str(session.api.conversation[0].body["system"])


SUMS = {"type": "stdio", "command": sys.executable, "args": [str(Path(__file__).parent / "sums_server.py")]}
ADD = replies.tool_use("mcp__sums__add", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("form", "strict", "there"),
    [("mapping", None, ["sums"]), ("text", None, ["sums"]), ("path", None, ["sums"]), ("mapping", False, ["other", "sums"])],
)
async def test_s4_2_servers_that_are_given_win_over_those_that_the_user_configured(
    live: Live, cli_home: Any, form: str, strict: bool | None, there: list[str]
) -> None:
    """The user's own configuration has a server of the same name, which would never answer, and another one."""
    silent = {**SUMS, "args": [*SUMS["args"], "--never-answer"]}
    configured = {"mcpServers": {"sums": silent, "other": SUMS}}
    (cli_home.config / ".claude.json").write_text(json.dumps(configured), "utf-8")
    file = cli_home.tmp / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"sums": SUMS}}), "utf-8")
    given: dict[str, Any] = {"mapping": {"sums": SUMS}, "text": file.read_text("utf-8"), "path": file}
    script = lambda request: "Done." if request.tool_results else ADD  # noqa: E731
    async with live(script, mcp_servers=given[form], strict_mcp_config=strict, allowed_tools=["mcp__sums__add"]) as session:
        await session.ask("Add.")
        status = await session.query.mcp_status()
        assert "3" in session.told()[0]
    assert sorted(server.name for server in status) == there


async def test_s5_6_without_a_query_a_prompt_is_written_and_its_result_read(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    async with FakeMessagesAPI(replies.text("Hello")) as api:
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact")
        with anyio.fail_after(PATIENCE):
            transport = ct.SubprocessTransport(options)
            await transport.connect()
            prompt = {"type": "user", "message": {"role": "user", "content": "Hi"}}
            await transport.write(msgspec.json.encode(prompt) + b"\n")
            result = None
            async for message in transport.read_messages():
                if message["type"] == "result":
                    result = message["result"]
                    break
            await transport.end_input()
            rest = [message["type"] async for message in transport.read_messages()]
            await transport.close()
    assert result == "Hello"
    assert "result" not in rest
    assert not transport.is_ready()
