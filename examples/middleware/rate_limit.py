"""A wrapper that lets a prompt pass every few seconds. Interrupts, permissions and hooks pass at once."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport import testing
from claude_transport.transports import Client, SessionTerms


class RateLimit(ct.TransportWrapper):
    """At most one prompt in `seconds`."""

    def __init__(self, transport: ct.TransportLike, *, seconds: float) -> None:
        super().__init__(transport)
        self.seconds = seconds
        self.next_at = 0.0

    def attach(self, client: Client) -> SessionTerms:
        return super().attach(client).with_before_prompt(self.wait)

    async def wait(self, line: bytes) -> bytes:
        await anyio.sleep_until(self.next_at)  # a sender that is cancelled here has sent nothing
        self.next_at = anyio.current_time() + self.seconds
        return line


async def main() -> None:
    claude = ct.MockTransport([testing.result("one"), testing.result("two"), testing.result("three")])
    begin = anyio.current_time()
    async with ct.Query(RateLimit(claude, seconds=0.2)) as query:
        for number in range(3):
            turn = await query.send(f"prompt {number}")
            print((await turn.result()).result)
    print("at least 0.4 seconds:", anyio.current_time() - begin >= 0.4)


if __name__ == "__main__":
    anyio.run(main)
