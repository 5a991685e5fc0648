"""A wrapper that answers some prompts itself. The CLI never sees them, and the program cannot tell."""

from __future__ import annotations

import anyio
import msgspec

import claude_transport as ct
from claude_transport import testing
from claude_transport.messages import synthetic_turn
from claude_transport.wrappers import LineWrapper, peek


class CannedAnswers(LineWrapper):
    """Answers the prompts in `answers`."""

    def __init__(self, transport: ct.TransportLike, answers: dict[str, str]) -> None:
        super().__init__(transport)
        self.answers = answers

    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        answer = self.answers.get(msgspec.json.decode(line)["message"]["content"]) if peek(line).type == "user" else None
        if answer is None:
            await super().write(line)
            return
        for said in synthetic_turn(peek(line).uuid or "", answer):
            self.inject(said)


async def main() -> None:
    claude = ct.MockTransport([testing.result("I am Claude.")])
    async with ct.Query(CannedAnswers(claude, {"ping": "pong"})) as query:
        for prompt in ("ping", "Who are you?"):
            result = await (await query.send(prompt)).result()
            print(f"{prompt} {result.result}")
    print("prompts that the CLI has seen:", [frame["type"] for frame in claude.written].count("user"))


if __name__ == "__main__":
    anyio.run(main)
