"""A wrapper that masks a word in what Claude says, in each place where the text stands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import msgspec

import claude_transport as ct
from claude_transport import testing
from claude_transport.wrappers import LineWrapper, peek


class Mask(LineWrapper):
    """Replaces `word` in answers. Partial messages (`include_partial_messages`) may cut the word, so leave them off."""

    speaks = False

    def __init__(self, transport: ct.TransportLike, word: str) -> None:
        super().__init__(transport)
        self.word = word

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        return [self.masked(line) for line in await super().read_batch(source)]

    def masked(self, line: bytes) -> bytes:
        kind = peek(line).type
        if kind not in ("assistant", "result"):
            return line
        frame: dict[str, Any] = msgspec.json.decode(line)
        if kind == "result":  # the text stands here once more
            frame["result"] = frame.get("result", "").replace(self.word, "***")
        else:
            for block in frame["message"]["content"]:
                if block["type"] == "text":
                    block["text"] = block["text"].replace(self.word, "***")
        return msgspec.json.encode(frame)


async def main() -> None:
    said = "The project is called Bluebird."
    claude = ct.MockTransport([testing.assistant(said), testing.result(said)])
    async with ct.Query(Mask(claude, "Bluebird")) as query:
        turn = await query.send("What is it called?")
        async for message in turn:
            if isinstance(message, ct.AssistantMessage):
                print("said:", message.text)
        print("result:", (await turn.result()).result)


if __name__ == "__main__":
    anyio.run(main)
