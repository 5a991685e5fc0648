"""A transport of your own: Claude runs in another container, and two named pipes on a shared volume lead to it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, ByteStreamConnectable

import claude_transport as ct
from claude_transport import testing


class FifoStream(ByteStream):
    """Bytes over two named pipes."""

    def __init__(self, reading: int, writing: int, spare: int) -> None:
        self.ends = {"reading": reading, "writing": writing, "spare": spare}

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await anyio.lowlevel.checkpoint()
            await anyio.wait_readable(self.end("reading"))  # a cancellation here has taken no byte
            with contextlib.suppress(BlockingIOError):
                data = os.read(self.end("reading"), max_bytes)
                self.drop("spare")  # the other side is there: from now on, a write can fail
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self.end("writing"), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self.end("writing"))
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.drop("writing")

    async def aclose(self) -> None:
        for name in tuple(self.ends):
            self.drop(name)
        await anyio.lowlevel.checkpoint()

    def end(self, name: str) -> int:
        if name not in self.ends:
            raise anyio.ClosedResourceError
        return self.ends[name]

    def drop(self, name: str) -> None:
        if name in self.ends:
            anyio.notify_closing(self.ends[name])  # whoever waits for it gets ClosedResourceError
            os.close(self.ends.pop(name))


class Fifos(ByteStreamConnectable):
    """Opens the two pipes, in any order with the other side."""

    def __init__(self, outgoing: Path, incoming: Path) -> None:
        self.outgoing, self.incoming = outgoing, incoming

    async def connect(self) -> FifoStream:
        await anyio.lowlevel.checkpoint()
        with contextlib.ExitStack() as opened:

            def open_end(path: Path, flags: int) -> int:
                descriptor = os.open(path, flags | os.O_NONBLOCK)
                opened.callback(os.close, descriptor)
                return descriptor

            reading = open_end(self.incoming, os.O_RDONLY)
            spare = open_end(self.outgoing, os.O_RDONLY)  # without a reader, the next line would raise an error
            writing = open_end(self.outgoing, os.O_WRONLY)
            opened.pop_all()
        return FifoStream(reading, writing, spare)


def fifo_transport(folder: Path) -> ct.StreamTransport:
    """Framing, locks, errors and the order of closing are those of `StreamTransport`."""
    return ct.StreamTransport(Fifos(folder / "in", folder / "out"), max_line_bytes=65536)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name, testing.FakeClaude(testing.Scenario.text("Hello from the other side.")) as fake:
        for pipe in ("in", "out"):
            os.mkfifo(Path(name, pipe))
        start = ["sh", "-c", 'cd "$1" && shift && exec "$@" <in >out', "sh", name, *fake.command]
        async with await anyio.open_process(start, stdin=None, stdout=None) as other:
            async with ct.Query(fifo_transport(Path(name))) as query:
                print((await (await query.send("Hello")).result()).result)
            print("exit code of the other side:", await other.wait())


if __name__ == "__main__":
    anyio.run(main)
