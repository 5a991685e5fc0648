"""Typed tools on the real CLI: its model reads what went wrong in a call, corrects itself, and the session goes on."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from live_session import Live

from claude_transport.client import create_sdk_mcp_server, tool
from claude_transport.testing import replies


class Order(TypedDict):
    fruit: Annotated[str, "which fruit"]
    pieces: int


@tool("order", "Orders fruit", Order)
async def order(args: Order) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"ordered {args['pieces']} {args['fruit']}"}]}


@tool
async def stock(fruit: str) -> int:
    """How much there is."""
    return {"figs": 3}[fruit]


async def test_a_call_with_bad_arguments_is_an_error_that_the_model_reads_and_the_session_goes_on(live: Live) -> None:
    shop = create_sdk_mcp_server("shop", tools=[order, stock])
    script = [
        replies.tool_use("mcp__shop__order", {"fruit": "figs", "pieces": "many"}),
        replies.tool_use("mcp__shop__order", {"fruit": "figs", "pieces": 3}),
        replies.tool_use("mcp__shop__stock", {"fruit": "plums"}),
        replies.tool_use("mcp__shop__stock", {"fruit": "figs"}),
        "Done.",
        "Still here.",
    ]
    async with live(script, in_process={"shop": shop}, allowed_tools=["mcp__shop__*"]) as session:
        assert (await session.ask("Order figs")).result == "Done."
        told = [block for request in session.api.conversation[1:5] for block in request.tool_results]
        assert (await session.ask("Are you there?")).result == "Still here."
        offered = {each["name"]: each for each in session.api.conversation[0].body["tools"]}
    assert [bool(block.get("is_error")) for block in told] == [True, False, True, False]
    assert "Input validation error" in str(told[0]["content"])
    assert ["ordered 3 figs" in str(told[1]["content"]), "3" in str(told[3]["content"])] == [True, True]
    if "mcp__shop__order" in offered:  # newer versions load the schemas of tools only when the model asks
        assert offered["mcp__shop__order"]["input_schema"]["properties"]["fruit"]["description"] == "which fruit"
