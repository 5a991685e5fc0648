"""Five wrappers in the recommended order, and what each of them gets to see of two prompts."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport import testing
from claude_transport.transports import Client, SessionTerms
from claude_transport.wrappers import MetricsRegistry


class NotAllowed(Exception):
    """The rules of the house do not allow this prompt."""


class HouseRules(ct.TransportWrapper):
    """Refuses prompts with a password, and names no customer."""

    def attach(self, client: Client) -> SessionTerms:
        return super().attach(client).with_before_prompt(self.judge)

    async def judge(self, line: bytes) -> bytes:
        if b"password" in line:
            raise NotAllowed("no passwords, please")
        return line.replace(b"ACME", b"the customer")


def stack(transport: ct.Transport, *, tape: Path, registry: MetricsRegistry, logger: logging.Logger) -> ct.StatefulTransport:
    """Return `transport` in all five. Read it from below: the outermost wrapper stands last."""
    transport = ct.RecordingTransport(transport, tape)  # what the transport has carried, and nothing else
    transport = ct.LoggingTransport(transport, logger=logger)
    transport = ct.MetricsTransport(transport, registry=registry)
    transport = HouseRules(transport)  # around the observers, so they see what really went to the CLI
    return ct.StatefulTransport(transport)  # outermost: a call that it refuses reaches no other one


async def main() -> None:
    registry, logger = MetricsRegistry(), logging.Logger("stack", logging.INFO)  # noqa: LOG001 - one for this program
    with tempfile.TemporaryDirectory() as folder:
        tape = Path(folder, "tape.ndjson")
        transport = stack(ct.MockTransport([testing.result("Noted.")]), tape=tape, registry=registry, logger=logger)
        async with ct.Query(transport) as query:
            for prompt in ("The password is 1234", "Remember that ACME has moved"):
                try:
                    print((await (await query.send(prompt)).result()).result)
                except NotAllowed as error:
                    print("refused:", error)
            print("state:", transport.state.name)
        kept = await anyio.Path(tape).read_text("utf-8")
    print("prompts counted:", registry.snapshot().prompts)
    print("on the tape:", {word: word in kept for word in ("password", "ACME", "the customer has moved")})


if __name__ == "__main__":
    anyio.run(main)
