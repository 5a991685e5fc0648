"""The in-process MCP servers of the host, as the CLI uses them: handshake, list of tools, calls."""

from __future__ import annotations

import json
import os
import re

from .permissions import read_json
from .stage import TurnAborted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .stage import Stage

PROTOCOL_VERSION = "2025-11-25"
CONNECT_SECONDS = 30.0
CALL_SECONDS = 100_000.0
CUT_OFF = "The tool call was interrupted before a result was received"


class HostedServer:
    """One MCP server that runs in the host."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        self.status: str = "pending"
        self.tools: list[dict[str, Any]] | None = None
        """None while they are not known: then each name may be one."""
        self._stage = stage
        self._next_id = 0

    def send(self, method: str, params: dict[str, Any] | None, then: Callable[[Any], None] | None) -> int | None:
        """Send one message. `then` takes the JSON-RPC answer; without it, the message is a notification. Returns the id of a request."""
        number = None
        message: dict[str, Any] = {"method": method, **({"params": params} if params is not None else {}), "jsonrpc": "2.0"}
        if then is not None:
            number = message["id"] = self._next_id
            self._next_id += 1
        request_id = self._stage.uuid()
        body = {"subtype": "mcp_message", "server_name": self.name, "message": message}
        self._stage.listeners[request_id] = lambda response: self._hear(response, number, then)
        self._stage.emit({"type": "control_request", "request_id": request_id, "request": body})
        return number

    def _hear(self, response: dict[str, Any], number: int | None, then: Callable[[Any], None] | None) -> None:
        if then is None:
            return
        if response.get("subtype") == "error":
            then({"error": {"message": response.get("error", "")}})
            return
        answer = response.get("response")
        reply = answer.get("mcp_response") if isinstance(answer, dict) else None
        if isinstance(reply, dict) and reply.get("id") == number:
            then(reply)  # anything else is dropped, and the call goes on waiting (recordings 06q, 06r)

    def connect(self) -> None:
        """Begin the handshake, once. Its next steps are taken when the answers come."""
        if self._next_id or self.status != "pending":
            return
        client = {"name": "claude-code", "title": "Claude Code", "version": self._stage.scenario["version"]}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        self.send("initialize", params, self._greeted)

    def _greeted(self, reply: dict[str, Any]) -> None:
        if "error" in reply:
            self.status = "failed"
            return
        self.send("notifications/initialized", None, None)
        self.send("tools/list", None, self._listed)

    def _listed(self, reply: dict[str, Any]) -> None:
        result = reply.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        self.tools = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        self.status = "connected"

    def has(self, tool: str) -> bool:
        return self.tools is None or any(known.get("name") == tool for known in self.tools)

    def call(self, tool: str, arguments: dict[str, Any], tool_use_id: str, *, fails: bool) -> tuple[Any, Any, bool]:
        """Call a tool. Return the content for the model, the result for the host, and whether the call failed.

        A strict run ends unless it `fails` as the scenario says.
        """
        replies: list[dict[str, Any]] = []
        meta = {"claudecode/toolUseId": tool_use_id, "progressToken": self._next_id}
        seconds = _milliseconds("MCP_TOOL_TIMEOUT", CALL_SECONDS)
        number = self.send("tools/call", {"name": tool, "arguments": arguments, "_meta": meta}, replies.append)
        self._stage.at(f"the answer of the MCP server {self.name!r} to the call of {tool!r}")
        try:
            in_time = self._stage.wait(seconds, lambda: bool(replies) or self._stage.input.ended)
        except TurnAborted:
            self._give_up(number, "AbortError: The operation was aborted.")
            raise
        if replies:
            content, result, failed = _read(replies[0])
            if failed is not fails:
                wanted = "a failure" if fails else "a result"
                what = f"{wanted} of the tool {tool!r} of the MCP server {self.name!r}"
                self._stage.require(f"{what}, as is_error={fails} says", f"the error {content!r}" if failed else f"the result {content!r}")
            return content, result, failed
        if in_time:
            self._stage.cut("the end of the input")
            return CUT_OFF, f"Error: {CUT_OFF}", True  # recording 06i
        text = f'MCP server "{self.name}" tool "{tool}" timed out after {max(int(seconds), 1)}s'
        self._give_up(number, "SdkError: Request timed out")
        return text, f"Error: {text}", True

    def _give_up(self, number: int | None, reason: str) -> None:
        self.send("notifications/cancelled", {"requestId": number, "reason": reason}, None)


def _read(reply: dict[str, Any]) -> tuple[Any, Any, bool]:
    result = reply.get("result")
    if not isinstance(result, dict):
        error = reply.get("error")
        text = str(error.get("message", "")) if isinstance(error, dict) else "invalid result"
        return text, f"Error: {text}", True
    if result.get("isError"):
        text = text_of_result(result)
        return text, f"Error: {text}", True
    if (structured := result.get("structuredContent")) is not None:
        text = json.dumps(structured, separators=(",", ":"), ensure_ascii=False)
        return text, {"content": text, "structuredContent": structured}, False
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return blocks, blocks, False


def text_of_result(result: dict[str, Any]) -> str:
    """Return what the result of a tool says in words."""
    content = result.get("content")
    return "\n".join(str(block.get("text", "")) for block in (content if isinstance(content, list) else ()) if isinstance(block, dict))


def connect_servers(stage: Stage, declared: list[str], manifests: Any) -> None:
    """Begin the handshakes with the servers that `initialize` and `--mcp-config` declare. A manifest replaces one."""
    configured: list[str] = []
    for value in stage.options("--mcp-config"):
        servers = read_json(value).get("mcpServers")
        for name, config in servers.items() if isinstance(servers, dict) else ():
            stage.configured.add(name)
            if isinstance(config, dict) and config.get("type") == "sdk":
                configured.append(name)
    stage.servers = {name: stage.servers.get(name) or HostedServer(stage, name) for name in dict.fromkeys([*configured, *declared])}
    for name, server in stage.servers.items():
        if isinstance(manifests, dict) and name in manifests:
            server.status = "connected"
        else:
            server.connect()


def await_servers(stage: Stage) -> None:
    """Hold up a turn until each server is connected or has failed."""
    waiting = [server for server in stage.servers.values() if server.status == "pending"]
    if not waiting:
        return
    seconds = _milliseconds("MCP_TIMEOUT", CONNECT_SECONDS)
    stage.at(f"the MCP servers {', '.join(server.name for server in waiting)} of the host")
    stage.wait(seconds, lambda: stage.input.ended or all(server.status != "pending" for server in waiting))
    for server in waiting:
        if server.status == "pending":
            server.status = "failed"


def server_of(stage: Stage, tool: str) -> tuple[HostedServer, str] | None:
    """Return the server of the host that has this tool, and the tool's own name; None for any other tool."""
    for name, server in stage.servers.items():
        if tool.startswith(prefix_of(name)):
            return server, tool.removeprefix(prefix_of(name))
    return None


def prefix_of(server: str) -> str:
    """Return how the names of the tools of a server begin: for most characters the CLI writes `_` (CLI 2.1.329, real)."""
    return f"mcp__{re.sub('[^A-Za-z0-9_-]', '_', server)}__"


def require_tool(stage: Stage, step: dict[str, Any]) -> None:
    """End a strict run whose program lacks the MCP tool of this step, or its server.

    The result of a tool that runs elsewhere may be in the step, because the fake does not know each server that a CLI would find. With
    `is_error` the tool may be missing.
    """
    name = step["name"]
    found = server_of(stage, name)
    if step["is_error"] or not name.startswith("mcp__"):
        return
    if found is not None:
        server, tool = found
        what = f"a tool {tool!r} of the MCP server {server.name!r}"
        if not server.has(tool):
            known = ", ".join(str(each.get("name")) for each in server.tools or ())
            stage.require(f"{what}, which the scenario calls", known or "no tools")
        elif stage.rules.is_disabled(name):
            stage.require(f"{what}, which the scenario calls", "one that is disabled: no model would call it")
        return
    known_servers = {*stage.servers, *stage.configured, *stage.dynamic}
    is_found_elsewhere = bool(step["output"]) and "--strict-mcp-config" not in stage.argv
    if not is_found_elsewhere and not any(name.startswith(prefix_of(server)) for server in known_servers):
        wanted = f"an MCP server {name.split('__')[1]!r} in the program or its configuration, which the scenario calls"
        stage.require(wanted, f"the MCP servers {', '.join(sorted(known_servers))}" if known_servers else "no MCP servers")


def _milliseconds(name: str, otherwise: float) -> float:
    value = os.environ.get(name, "")
    return int(value) / 1000 if value.isdigit() else otherwise
