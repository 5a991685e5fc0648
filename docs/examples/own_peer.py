"""A transport over queues, and the peer at their other end, which the conformance kit controls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, ByteStreamConnectable, ObjectReceiveStream, ObjectSendStream

import claude_transport as ct
from claude_transport.testing.conformance import Peer, Subject, run_conformance


class Queues(ByteStream, ByteStreamConnectable):
    """Your medium: here, a queue in each direction. It opens itself."""

    def __init__(self, outgoing: ObjectSendStream[bytes], incoming: ObjectReceiveStream[bytes]) -> None:
        self.outgoing, self.incoming = outgoing, incoming

    async def connect(self) -> ByteStream:
        return self

    async def send(self, item: bytes) -> None:
        for start in range(0, len(item), 65536):  # whatever the size of a line, a queue holds little
            await self.outgoing.send(item[start : start + 65536])

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self.incoming.receive()

    async def send_eof(self) -> None:
        await self.outgoing.aclose()

    async def aclose(self) -> None:
        await self.outgoing.aclose()
        await self.incoming.aclose()


class QueuePeer(Peer):
    """What the kit needs of the other end. A queue cannot crash, so `fail()` is left out."""

    def __init__(self, outgoing: ObjectSendStream[bytes], incoming: ObjectReceiveStream[bytes]) -> None:
        super().__init__()
        self.outgoing, self.incoming, self.may_read = outgoing, incoming, anyio.Event()
        self.may_read.set()

    async def listen(self) -> None:
        """Tell the kit what arrives, until the transport sends no more."""
        async for data in self.incoming:
            self.take(data)
            await self.may_read.wait()
        self.input_over()

    async def send(self, data: bytes) -> None:
        await self.outgoing.send(data)

    async def finish(self) -> None:
        await self.outgoing.aclose()

    async def stop_reading(self) -> None:
        self.may_read = anyio.Event()

    async def resume_reading(self) -> None:
        self.may_read.set()


@asynccontextmanager
async def queues() -> AsyncIterator[Subject]:
    """A transport that is not connected yet, and its peer; the kit asks for one per clause."""
    to_peer, from_transport = anyio.create_memory_object_stream[bytes]()
    to_transport, from_peer = anyio.create_memory_object_stream[bytes]()
    transport = ct.StreamTransport(Queues(to_peer, from_peer), max_line_bytes=65536)
    peer = QueuePeer(to_transport, from_transport)
    async with to_peer, from_transport, to_transport, from_peer, anyio.create_task_group() as tasks:
        tasks.start_soon(peer.listen)
        yield Subject(transport=transport, peer=peer, max_line_bytes=65536)
        tasks.cancel_scope.cancel()


async def main() -> None:
    report = await anyio.to_thread.run_sync(run_conformance, queues)
    print(report)


if __name__ == "__main__":
    anyio.run(main)
