"""What a subagent says, kept apart from what Claude says to the user."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import assistant, result, tool_use


def busy_claude() -> ct.MockTransport:
    """Stands in for a Claude that works with a subagent: everything comes through one stream."""
    return ct.MockTransport(
        [
            tool_use("Agent", {"description": "count the files"}, id="toolu_1"),
            assistant("I have somebody count the files."),
            assistant("Listing src ...", parent_tool_use_id="toolu_1"),
            assistant("Meanwhile I read the README."),
            assistant("There are 12.", parent_tool_use_id="toolu_1"),
            result("Twelve files."),
        ]
    )


async def main() -> None:
    aside: dict[ct.client.Lane, list[str]] = {}
    async with ct.Query(busy_claude()) as query:
        turn = await query.send("How many files are there?")
        async for lane, message in ct.client.split_by_parent(turn):
            if not isinstance(message, ct.AssistantMessage) or not message.text:
                continue
            if lane.is_main:
                print(message.text)
            else:
                aside.setdefault(lane, []).append(message.text)
    for lane, said in aside.items():
        print(f"[{lane.description}] {' / '.join(said)}")


if __name__ == "__main__":
    anyio.run(main)
