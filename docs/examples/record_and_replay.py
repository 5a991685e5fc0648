"""Record a conversation once, replay it for ever: without a CLI, a network or a key."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, Tape
from claude_transport.transports.replay import ReplayTransport
from claude_transport.wrappers.recording import RecordingTransport


async def ask(transport: ct.Transport, prompt: str) -> str:
    """The program: it does not know whether it is recorded, replayed, or neither."""
    async with ct.Query(transport) as query:
        result = await (await query.send(prompt)).result()
        return result.result or ""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, FakeClaude(Scenario.text("Call me at me@mail.org")) as claude:
        path = Path(folder, "hello.ndjson")
        real = ct.SubprocessTransport(command=claude.command)
        print("recorded:", await ask(RecordingTransport(real, path), "Hello, my key is sk-ant-api03-0123"))
        print("replayed:", await ask(ReplayTransport(path), "Hello"))

        tape = Tape.read(path)
        (prompt,) = [line for line in tape.lines("in") if b'"user"' in line]
        print("on tape: ", ct.decode_message(prompt).to_dict()["message"]["content"])


if __name__ == "__main__":
    anyio.run(main)
