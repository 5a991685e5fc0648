"""A first wrapper, in three steps: one that does nothing, one that looks, and the proof that both are transports."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

import claude_transport as ct
from claude_transport.testing.conformance import media, run_conformance


class Nothing(ct.TransportWrapper):
    """Step 1: delegates everything."""


class ByteCount(ct.wrappers.ObservingWrapper):
    """Step 2: counts what is read, in bytes and lines."""

    def __init__(self, transport: ct.TransportLike) -> None:
        super().__init__(transport)
        self.bytes = self.lines = 0

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Called with what was read, before it is handed on."""
        self.lines += len(lines)
        self.bytes += sum(map(len, lines))


async def main() -> None:
    answer = {"type": "result", "subtype": "success", "is_error": False, "result": "Counted.", "session_id": "s1"}
    counted = ByteCount(Nothing(ct.MockTransport([answer])))
    async with ct.Query(counted) as query:
        turn = await query.send("Hello")
        print((await turn.result()).result)
    print(f"{counted.lines} lines, more than 100 bytes: {counted.bytes > 100}")


def prove() -> None:
    """Step 3: every clause of the contract, on asyncio and on trio."""
    report = run_conformance(media.wrapped(media.memory(), ByteCount))
    print(str(report).splitlines()[-1])
    report.raise_for_failures()


if __name__ == "__main__":
    anyio.run(main)
    prove()
