"""Options that a CLI reads from `initialize` or its environment when it starts: each has its effect on the real binary."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from live_session import Live, of_type
from mcp.server import MCPServer

import claude_transport as ct
from claude_transport.testing import replies

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")

SERVER = Path(__file__).parent / "sums_server.py"
SUMS = {"sums": {"type": "stdio", "command": sys.executable, "args": [str(SERVER)]}}
SILENT = {"sums": {"type": "stdio", "command": sys.executable, "args": [str(SERVER), "--never-answer"]}}
ADD = replies.tool_use("mcp__sums__add", {"a": 1, "b": 2})


def once(call: Any) -> Any:
    return lambda request: "Done." if request.tool_results else call


@pytest.mark.needs("--await-initialize", "--managed-settings-in-initialize")
async def test_managed_settings_count_above_all_others(live: Live) -> None:
    call = replies.tool_use("Bash", {"command": "touch proof.txt", "description": "t"})
    managed = {"permissions": {"deny": ["Bash(touch *)"]}, "env": {"SECRET": "not for the command line"}}
    async with live(once(call), managed_settings=managed, allowed_tools=["Bash"]) as session:
        assert session.query.initialization is not None
        assert session.query.initialization.managed_settings_applied is True
        await session.ask("go")
        rules = await session.query.request("list_permission_rules")
        assert not (session.project / "proof.txt").exists()
        argv = Path(f"/proc/{session.query.initialization.pid}/cmdline")
        assert not argv.exists() or b"SECRET" not in argv.read_bytes()
    assert [rule["rule"] for rule in rules["state"]["rules"] if rule["source"] == "policySettings"] == ["Bash(touch *)"]


@pytest.mark.needs("--await-initialize", "initialize.mcpServers")
async def test_servers_of_initialize_need_no_file_and_no_flag(live: Live) -> None:
    arguments: dict[str, Any] = {"mcp_servers": SUMS, "mcp_servers_delivery": "initialize", "allowed_tools": ["mcp__sums__add"]}
    async with live(once(ADD), **arguments) as session:
        assert session.query.initialization is not None
        assert session.query.initialization.mcp_servers_applied is True
        await session.ask("go")
        assert "3" in session.told()[0]


@pytest.mark.needs("--await-initialize", "initialize.plugins")
async def test_plugins_of_initialize_are_loaded(live: Live, tmp_path: Path) -> None:
    plugin = tmp_path / "greeter"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": "greeter", "version": "1.0.0", "description": "d"}), "utf-8")
    async with live(plugins=[{"type": "local", "path": plugin}], plugin_delivery="initialize") as session:
        assert session.query.initialization is not None
        assert session.query.initialization.plugins_applied is True
        (init,) = of_type(await session.hear("go"), ct.messages.InitMessage)
    assert "greeter" in [loaded.name for loaded in init.plugins]


@pytest.mark.parametrize("preview", ["html", "markdown", None])
async def test_the_model_is_told_how_a_question_may_be_previewed(live: Live, preview: str | None) -> None:
    config = None if preview is None else {"askUserQuestion": {"previewFormat": preview}}

    async def ask(*_: object) -> ct.Allow:
        return ct.Allow()

    async with live(tool_config=config, can_use_tool=ask, tools=["AskUserQuestion"]) as session:
        await session.ask("go")
        (tool,) = [tool for tool in session.api.conversation[0].body["tools"] if tool["name"] == "AskUserQuestion"]
    told = json.dumps(tool)
    assert ("HTML" in told, "markdown" in told.lower()) == (preview == "html", preview == "markdown")


@pytest.mark.needs("silent MCP tools are given up")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # half a minute, all of it in the CLI
async def test_a_tool_that_says_nothing_for_too_long_fails(live: Live) -> None:
    async with live(once(ADD), mcp_servers=SILENT, mcp_tool_idle_timeout=1.0, allowed_tools=["mcp__sums__add"]) as session:
        await session.ask("go")
        assert "sent no response or progress for 30s; aborting" in session.told()[0]  # the CLI looks every 30 seconds


@pytest.mark.needs("initialize.sdkMcpServerConfigs")
async def test_settings_of_a_server_of_this_process_reach_the_cli(live: Live) -> None:
    asked: list[str] = []

    async def can_use_tool(tool: str, *_: object) -> ct.Deny:
        asked.append(tool)
        return ct.Deny("no")

    server = MCPServer("sums")

    @server.tool()
    async def add(a: float, b: float) -> str:
        return f"the sum is {a + b:g}"

    policy = {"sums": {"tools": [{"name": "add", "permission_policy": "always_ask"}]}}
    arguments: dict[str, Any] = {"allowed_tools": ["mcp__sums"], "sdk_mcp_server_configs": policy, "can_use_tool": can_use_tool}
    async with live(once(ADD), in_process={"sums": server}, **arguments) as session:
        await session.ask("go")
    assert asked == ["mcp__sums__add"]


@pytest.mark.needs("initialize.sdkMcpServerManifests")
async def test_a_manifest_answers_in_place_of_the_server(live: Live) -> None:
    methods: list[str] = []

    async def claim(subtype: str, fields: dict[str, Any]) -> Any:
        if subtype == "mcp_message":
            methods.append(fields["message"]["method"])
        return None

    server = MCPServer("sums")

    @server.tool()
    async def add(a: float, b: float) -> str:
        return f"the sum is {a + b:g}"

    manifest = {
        "initializeResult": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "sums", "version": "1"},
        },
        "toolsListResult": {"tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]},
    }
    arguments: dict[str, Any] = {"allowed_tools": ["mcp__sums"], "sdk_mcp_server_manifests": {"sums": manifest}}
    async with live(once(ADD), in_process={"sums": server}, on_request=claim, **arguments) as session:
        assert session.query.initialization is not None
        assert session.query.initialization.sdk_mcp_manifests_parked == {"sums": "parked"}
        await session.ask("go")
        assert "the sum is 3" in session.told()[0]


async def test_compacting_replaces_the_conversation_by_a_summary(live: Live) -> None:
    async with live() as session:
        with pytest.raises(ct.ResultError, match="messages to compact"):
            await session.query.compact()
        for prompt in ("The magic word is xyzzy.", "Go on.", "And on."):  # for some versions one turn is not enough
            await session.ask(prompt)
        boundary = await session.query.compact("keep the magic word")
        await session.ask("What next?")
        assert any("keep the magic word" in json.dumps(request.body) for request in session.api.requests)
        assert "xyzzy" not in json.dumps(session.api.conversation[-1].body["messages"])
    assert boundary.compact_metadata.trigger == "manual"
    assert 0 < (boundary.compact_metadata.post_tokens or 1) < boundary.compact_metadata.pre_tokens  # older versions do not say what is left
