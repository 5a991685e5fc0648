"""A stdio MCP server, driven by this program: it lists its tools, runs one, and asks back which folders it may use."""

from __future__ import annotations

import sys
from typing import Any

import anyio

import claude_transport as ct
from claude_transport.jsonrpc import MCP_CANCEL, Notification, Request


async def on_request(request: Request) -> Any:
    if request.method == "roots/list":
        return {"roots": [{"uri": "file:///srv/project"}]}
    if request.method == "ping":
        return {}
    raise ct.JSONRPCError("method not found", rpc_code=-32601)


def on_notification(notification: Notification) -> None:
    if notification.method == "notifications/message":
        print("log:", notification.params["data"])


async def use(transport: ct.Transport) -> None:
    async with ct.JSONRPCPeer(transport, on_request=on_request, on_notification=on_notification, cancel=MCP_CANCEL) as server:
        client = {"clientInfo": {"name": "example", "version": "1"}, "capabilities": {"roots": {}}}
        hello = await server.request("initialize", {"protocolVersion": "2025-06-18", **client})
        await server.notify("notifications/initialized")
        print("server:", hello["serverInfo"]["name"])
        tools = await server.request("tools/list")
        print("tools:", ", ".join(tool["name"] for tool in tools["tools"]))
        result = await server.request("tools/call", {"name": "where", "arguments": {"file": "a.txt"}}, timeout=30)
        print("result:", result["content"][0]["text"])
        try:
            await server.request("tools/unknown")
        except ct.JSONRPCError as error:
            print("refused:", error.rpc_code)


SERVER = """
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("folders")

@server.tool()
async def where(file: str, context: Context) -> str:
    await context.info("asking for the folders")
    roots = await context.session.list_roots()
    return f"{roots.roots[0].uri}/{file}"

server.run("stdio")
"""


async def main() -> None:
    await use(ct.SubprocessTransport(command=[sys.executable, "-c", SERVER]))


if __name__ == "__main__":
    anyio.run(main)
