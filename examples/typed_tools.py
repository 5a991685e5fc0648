"""Typed tools of this program: the schema comes from types, and bad arguments are answered to the model."""

from __future__ import annotations

from typing import Annotated, Any

import anyio

import claude_transport as ct
from claude_transport.client import create_sdk_mcp_server, tool
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn
from claude_transport.testing.steps import Request, Result, Text

STOCK = {"apples": 7, "pears": 0}


@tool
async def in_stock(fruit: Annotated[str, "the plural, such as apples"]) -> str:
    """How many pieces of a fruit there are."""
    return f"{STOCK[fruit]} {fruit}"


@tool("order", "Order fruit", {"fruit": str, "pieces": Annotated[int, "at most 100"]})
async def order(args: dict[str, Any]) -> dict[str, Any]:
    if args["pieces"] > 100:
        return {"content": [{"type": "text", "text": "too many"}], "is_error": True}
    return {"content": [{"type": "text", "text": f"{args['pieces']} {args['fruit']} ordered"}]}


shop = create_sdk_mcp_server("shop", tools=[in_stock, order])


async def converse(transport: ct.Transport) -> None:
    async with ct.Query(transport, mcp_servers={"shop": shop}) as query:
        async for message in await query.send("Order apples"):
            if isinstance(message, ct.AssistantMessage):
                print(message.text)


def rehearsed_claude() -> FakeClaude:
    """A stand-in whose model makes a mistake first."""
    told = "The shop says {{answer.response.mcp_response.result.content}}."
    steps = []
    for number, pieces in enumerate(("seven", 7), start=2):  # 0 and 1 were the handshake
        call = {"name": "order", "arguments": {"fruit": "apples", "pieces": pieces}}
        message = {"id": number, "method": "tools/call", "params": call}
        steps.append(Request.mcp_message("shop", message=message, on_success=(Text(told),)))
    return FakeClaude(Scenario(otherwise=ScriptedTurn((*steps, Result()))))


async def main() -> None:
    with rehearsed_claude() as claude:
        # for the real one: ct.SubprocessTransport(ct.ClaudeOptions(allowed_tools=["mcp__shop"]))
        await converse(ct.SubprocessTransport(command=claude.command))


if __name__ == "__main__":
    anyio.run(main)
