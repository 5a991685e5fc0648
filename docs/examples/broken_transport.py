"""One careless line, and what the kit says to it."""

from __future__ import annotations

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, ByteStreamConnectable

import claude_transport as ct
from claude_transport.testing.conformance import run_conformance


class CarelessTransport(ct.StreamTransport):
    """Keeps quiet about what it cannot send."""

    max_line_bytes = 65536

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(Handed(stream), max_line_bytes=self.max_line_bytes)

    async def write(self, data: str | bytes) -> None:
        if self.is_ready():  # the careless line
            await super().write(data)


class Handed(ByteStreamConnectable):
    """Opens what is open already."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def connect(self) -> ByteStream:
        return self.stream


async def main() -> None:
    report = await anyio.to_thread.run_sync(lambda: run_conformance(CarelessTransport, backends=["trio"]))
    print(len(report.passed), "kept,", len(report.failed), "broken:")
    for row in report.failed:
        print(row)


if __name__ == "__main__":
    anyio.run(main)
