"""A wrapper of your own: one that looks, and one that changes something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

import claude_transport as ct
from claude_transport import testing


class ToolWatch(ct.wrappers.ObservingWrapper):
    """Calls `on_tool(name)` for every tool that Claude uses."""

    def __init__(self, transport: ct.TransportLike, *, on_tool: Callable[[str], object]) -> None:
        super().__init__(transport)
        self._on_tool = on_tool

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Look at what was read."""
        for line in lines:
            if b'"tool_use"' in line:  # decoding costs more than looking
                message = ct.decode_message(line)
                for block in message.content if isinstance(message, ct.AssistantMessage) else ():
                    if isinstance(block, ct.ToolUseBlock):
                        self._on_tool(block.name)


class WriteLimit(ct.TransportWrapper):
    """Refuses lines over `max_bytes`, before anything of them is sent."""

    def __init__(self, transport: ct.TransportLike, *, max_bytes: int) -> None:
        super().__init__(transport)
        self._max_bytes = max_bytes

    async def write(self, data: str | bytes) -> None:
        """Write what is short enough."""
        size = len(data.encode() if isinstance(data, str) else data)
        if size > self._max_bytes:
            raise ct.UsageError(f"{size} bytes are more than {self._max_bytes}")
        await super().write(data)


REPLIES = [testing.tool_use("Read", {"file_path": "a.txt"}), testing.result("It is empty.")]


async def main() -> None:
    tools: list[str] = []
    transport = ToolWatch(WriteLimit(ct.MockTransport(REPLIES), max_bytes=10_000), on_tool=tools.append)
    async with ct.Query(transport) as query:
        result = await (await query.send("What is in a.txt?")).result()
        print(result.result, tools)
        try:
            await query.send("x" * 20_000)
        except ct.UsageError as error:
            print("refused:", str(error).partition(" are ")[2])


if __name__ == "__main__":
    anyio.run(main)
