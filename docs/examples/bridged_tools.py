"""A tool of this program, called through a bridge that somebody else starts: here this program plays the CLI, too."""

from __future__ import annotations

import json
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

import claude_transport as ct


async def in_stock(arguments: dict[str, Any], context: ct.bridge.ToolContext) -> str:
    """How many pieces of a fruit there are."""
    print(f"asked for {arguments['fruit']}")
    context.report_progress(1, total=1, message="looked it up")  # without effect here: the call below does not ask for it
    return f"7 {arguments['fruit']}"


FRUIT = {"type": "object", "properties": {"fruit": {"type": "string"}}, "required": ["fruit"]}
shop = [ct.bridge.HostTool(name="in_stock", call=in_stock, input_schema=FRUIT, read_only=True)]


async def main() -> None:
    async with ct.bridge.BridgeHost({"shop": shop}) as host:
        # for the real one: ct.ClaudeOptions(mcp_servers=host.mcp_servers, allowed_tools=["mcp__shop__*"])
        await play_the_cli(host.mcp_servers["shop"])


async def play_the_cli(config: dict[str, Any]) -> None:
    """Start the bridge as the CLI does, shake hands with it, and call the tool."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2.1.329"}}
    call = {"name": "in_stock", "arguments": {"fruit": "apples"}}
    async with await anyio.open_process([config["command"], *config["args"]], env=config["env"]) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        answers = BufferedByteReceiveStream(bridge.stdout)
        for number, (method, params) in enumerate([("initialize", hello), ("tools/call", call)]):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await bridge.stdin.send(json.dumps(request).encode() + b"\n")
            answer = json.loads(await answers.receive_until(b"\n", 65536))
            print(answer["result"].get("content") or answer["result"]["serverInfo"]["name"])


if __name__ == "__main__":
    anyio.run(main)
