"""A first conversation: one question, the messages of its turn, and how it ended."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport import testing


def rehearsed_claude() -> ct.MockTransport:
    """A Claude that has one answer ready, and needs neither a key nor a network."""
    answer = "Hello! What shall we build?"
    return ct.MockTransport([testing.assistant(answer), testing.result(answer)])


async def main() -> None:
    async with ct.Query(rehearsed_claude()) as query:
        turn = await query.send("Hello")
        async for message in turn:
            if isinstance(message, ct.AssistantMessage):
                print("Claude:", message.text)
        result = await turn.result()
        result.raise_for_error()
        print("Turns: ", result.num_turns)


if __name__ == "__main__":
    anyio.run(main)
