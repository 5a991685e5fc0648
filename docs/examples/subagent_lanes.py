"""What a subagent says, kept apart from what Claude says to the user."""

from __future__ import annotations

import anyio

import claude_transport as ct

Frame = dict[str, object]


def says(text: str, *, parent: str | None = None) -> Frame:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}, "parent_tool_use_id": parent}


def starts_agent(tool_use_id: str, description: str) -> Frame:
    content = [{"type": "tool_use", "id": tool_use_id, "name": "Agent", "input": {"description": description}}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}, "parent_tool_use_id": None}


def busy_claude() -> ct.MockTransport:
    """Stands in for a Claude that works with a subagent: everything comes through one stream."""
    return ct.MockTransport(
        [
            starts_agent("toolu_1", "count the files"),
            says("I have somebody count the files."),
            says("Listing src ...", parent="toolu_1"),
            says("Meanwhile I read the README."),
            says("There are 12.", parent="toolu_1"),
            {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Twelve files."},
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
