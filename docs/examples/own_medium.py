"""The short way to a transport of your own: an opener, for the transport that is there already."""

from __future__ import annotations

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, ByteStreamConnectable

import claude_transport as ct
from claude_transport.testing.conformance import run_conformance


class Handed(ByteStreamConnectable):
    """Opens what is open already. Yours may dial, log in, or start something."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def connect(self) -> ByteStream:
        return self.stream


class HandedTransport(ct.StreamTransport):
    """Everything else is inherited."""

    max_line_bytes = 65536

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(Handed(stream), max_line_bytes=self.max_line_bytes)


async def main() -> None:
    report = await anyio.to_thread.run_sync(run_conformance, HandedTransport)
    print(report)


if __name__ == "__main__":
    anyio.run(main)
