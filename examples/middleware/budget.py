"""A wrapper that sends no further prompt once the conversation has cost enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

import claude_transport as ct
from claude_transport import testing
from claude_transport.transports import Client, SessionTerms
from claude_transport.wrappers import ObservingWrapper


class OverBudget(Exception):
    """The conversation has cost as much as it may."""


class Budget(ObservingWrapper):
    """Refuses prompts when the results have reached `most` US dollars."""

    def __init__(self, transport: ct.TransportLike, *, most: float) -> None:
        super().__init__(transport)
        self.most = most
        self.spent = 0.0

    def on_lines(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if b'"total_cost_usd"' in line:  # few lines have it, so few are decoded
                message: dict[str, Any] = msgspec.json.decode(line)
                if message.get("type") == "result":
                    self.spent = message["total_cost_usd"]  # of the whole session so far

    def attach(self, client: Client) -> SessionTerms:
        return super().attach(client).with_before_prompt(self.check)

    async def check(self, line: bytes) -> bytes:
        if self.spent >= self.most:
            raise OverBudget(f"{self.spent:.2f} of {self.most:.2f} dollars are spent")
        return line


async def main() -> None:
    claude = ct.MockTransport([testing.result("one", total_cost_usd=0.3), testing.result("two", total_cost_usd=0.6)])
    async with ct.Query(Budget(claude, most=0.5)) as query:
        for number in range(3):
            try:
                turn = await query.send(f"prompt {number}")
            except OverBudget as error:
                print(error)
            else:
                print((await turn.result()).result)


if __name__ == "__main__":
    anyio.run(main)
