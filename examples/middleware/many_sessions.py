"""Two hundred sessions at once, each in its own stack: what they share is given to every wrapper as an argument."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

import claude_transport as ct
from claude_transport import testing
from claude_transport.transports import Client, SessionTerms
from claude_transport.wrappers import MetricsRegistry, ObservingWrapper, peek

SESSIONS, PLACES = 200, 20


class AtMost(ObservingWrapper):
    """Lets a prompt begin when one of `places`, which all sessions share, is free. For sessions that send one prompt at a time."""

    def __init__(self, transport: ct.TransportLike, places: anyio.CapacityLimiter) -> None:
        super().__init__(transport)
        self.places = places
        self.has_place = False

    def attach(self, client: Client) -> SessionTerms:
        return super().attach(client).with_before_prompt(self.wait)

    async def wait(self, line: bytes) -> bytes:
        if not self.has_place:  # else a prompt that was withdrawn has left it
            await self.places.acquire_on_behalf_of(self)
            self.has_place = True
        return line

    def on_lines(self, lines: Sequence[bytes]) -> None:
        if any(peek(line).type == "result" for line in lines):
            self.leave()

    def on_closed(self, error: BaseException | None) -> None:
        self.leave()  # however the session has ended

    def leave(self) -> None:
        if self.has_place:
            self.has_place = False
            self.places.release_on_behalf_of(self)


async def main() -> None:
    registry, places = MetricsRegistry(), anyio.CapacityLimiter(PLACES)
    answers: list[str] = []
    most = 0

    async def converse(number: int) -> None:
        nonlocal most
        claude = ct.MockTransport([testing.result(f"first {number}"), testing.result(f"second {number}")])
        async with ct.Query(AtMost(ct.MetricsTransport(claude, registry=registry), places)) as query:
            for prompt in ("One", "Two"):
                turn = await query.send(prompt)
                most = max(most, places.borrowed_tokens)
                answers.append((await turn.result()).result or "")

    async with anyio.create_task_group() as tasks:
        for number in range(SESSIONS):
            tasks.start_soon(converse, number)
    counted = registry.snapshot()
    print("answers:", len(answers), "different ones:", len(set(answers)))
    print("prompts:", counted.prompts, "connects:", counted.connects)
    print("at most 20 at once:", 0 < most <= PLACES, "places taken at the end:", places.borrowed_tokens)


if __name__ == "__main__":
    anyio.run(main)
