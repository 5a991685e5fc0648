"""What type checkers know of typed tools: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from typing import Any, TypedDict, assert_type

import msgspec

import claude_transport as ct
from claude_transport.client import SdkMcpServer, SdkMcpTool, create_sdk_mcp_server, tool


class Order(TypedDict):
    fruit: str


class Parcel(msgspec.Struct):
    fruit: str


@tool("order", "d", Order)
async def order(args: Order) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": args["fruit"]}]}


@tool("parcel", "d", Parcel, annotations={"readOnlyHint": True})
async def parcel(given: Parcel) -> str:
    return given.fruit


@tool("add", "d", {"a": float})
async def add(args: dict[str, Any]) -> str:
    return str(args["a"])


@tool
async def stock(fruit: str, *, pieces: int = 1) -> str:
    return fruit * pieces


@tool(name="renamed")
async def named(fruit: str) -> str:
    return fruit


@tool("wrong", "d", Parcel)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def wrong(given: int) -> str:
    return str(given)


assert_type(order, SdkMcpTool[Order])
assert_type(parcel, SdkMcpTool[Parcel])
assert_type(add, SdkMcpTool[dict[str, Any]])
assert_type(stock, SdkMcpTool[Any])
assert_type(named, SdkMcpTool[Any])
shop = create_sdk_mcp_server("shop", tools=[order, parcel, add, stock, named])
assert_type(shop, SdkMcpServer)


async def converse(transport: ct.Transport) -> None:
    async with ct.Query(transport, mcp_servers={"shop": shop}):
        pass
