"""A tool that runs in this program, called by the model of a CLI that may run anywhere. Needs `pip install 'claude-transport[mcp]'`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn
from claude_transport.testing.steps import Request, Result, Text


@asynccontextmanager
async def stock_database(_server: MCPServer[dict[str, int]]) -> AsyncIterator[dict[str, int]]:
    print("the database is opened")
    yield {"apples": 7, "pears": 0}
    print("the database is closed")


shop = MCPServer("shop", lifespan=stock_database)


@shop.tool()
async def in_stock(fruit: str, context: Context) -> str:
    """How many pieces of a fruit there are."""
    pieces = context.request_context.lifespan_context[fruit]
    print(f"asked for {fruit}: {pieces}")
    return f"{pieces} {fruit}"


async def converse(transport: ct.Transport) -> None:
    async with ct.Query(transport, mcp_servers={"shop": shop}) as query:
        result = await (await query.send("How many apples are there?")).result()
        print(result.result)


def rehearsed_claude() -> FakeClaude:
    """A stand-in that does what the CLI does: shakes hands with the server, and calls the tool for its model."""
    call = {"name": "in_stock", "arguments": {"fruit": "apples"}}
    steps = (
        Request.mcp_message(
            "shop",
            message={"id": 2, "method": "tools/call", "params": call},
            on_success=(Text("There are {{answer.response.mcp_response.result.structuredContent.result}}."),),
        ),
        Result(),
    )
    return FakeClaude(Scenario(otherwise=ScriptedTurn(steps)))


async def main() -> None:
    with rehearsed_claude() as claude:
        # for the real one: ct.SubprocessTransport(ct.ClaudeOptions(allowed_tools=["mcp__shop"]))
        await converse(ct.SubprocessTransport(command=claude.command))


if __name__ == "__main__":
    anyio.run(main)
