"""Peers for the tests of WebSocket: both ends of this library in memory, and peers that send frame by frame and can break the rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import ByteStream, ByteStreamConnectable
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.streams.websocket import WebSocketConnectable, WebSocketStream, accept_websocket

URL = "ws://claude.example/talk"

PATIENCE = 30.0
"""Seconds after which a test fails."""


class Given(ByteStreamConnectable):
    """An opener that returns the stream it was made with."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def connect(self) -> ByteStream:
        return self.stream


@asynccontextmanager
async def both_ends(
    *, capacity: int = 65536, close_timeout: float = 5.0, admit: Any = None, **options: Any
) -> AsyncIterator[tuple[WebSocketStream, WebSocketStream]]:
    """Give the client's and the server's end of one connection in memory."""
    here, there = memory_stream_pair(capacity=capacity)
    connectable = WebSocketConnectable(URL, opener=Given(here), close_timeout=close_timeout, **options)
    ends: list[WebSocketStream | None] = []
    clients: list[WebSocketStream] = []
    async with anyio.create_task_group() as tasks:

        async def accept() -> None:
            ends.append(await accept_websocket(there, admit=admit, close_timeout=close_timeout, **options))

        tasks.start_soon(accept)
        clients.append(await connectable.connect())
    (client,), (server,) = clients, ends
    assert server is not None
    try:
        with anyio.fail_after(PATIENCE):
            yield client, server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(client)
            await anyio.aclose_forcefully(server)


class FramePeer:
    """One end of a connection that sends given frames, and keeps those it receives."""

    def __init__(self, wire: MemoryStream, protocol: Protocol) -> None:
        self.wire = wire
        self.protocol = protocol
        self.frames: list[Frame] = []

    async def flush(self) -> None:
        await self.wire.send(b"".join(self.protocol.data_to_send()))

    async def say(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> None:
        await self.wire.send(Frame(opcode, data, fin).serialize(mask=isinstance(self.protocol, ClientProtocol), extensions=self.extensions))

    @property
    def extensions(self) -> Any:
        return self.protocol.extensions

    async def next_frame(self) -> Frame:
        """Return the next frame. Raises `anyio.EndOfStream` when there is none."""
        while not self.frames:
            self.protocol.receive_data(await self.wire.receive())
            self.frames += [event for event in self.protocol.events_received() if isinstance(event, Frame)]
        return self.frames.pop(0)


@asynccontextmanager
async def client_and_frames(
    *, behind: bytes = b"", farewell: bool = False, capacity: int = 65536, compression: bool = False, **options: Any
) -> AsyncIterator[tuple[WebSocketStream, FramePeer]]:
    """Give a client of this library and a server that sends frames. `behind` and `farewell` arrive in one piece with its answer."""
    here, there = memory_stream_pair(capacity=capacity)
    clients: list[WebSocketStream] = []
    protocol = ServerProtocol(extensions=[ServerPerMessageDeflateFactory()] if compression else None, max_size=None)
    async with anyio.create_task_group() as tasks:

        async def accept() -> None:
            while not (events := protocol.events_received()):
                protocol.receive_data(await there.receive())
            (request,) = events
            assert isinstance(request, Request)
            protocol.send_response(protocol.accept(request))
            if behind:
                protocol.send_text(behind)
            if farewell:
                protocol.send_close(1012, "restarting")
            await there.send(b"".join(protocol.data_to_send()))

        tasks.start_soon(accept)
        clients.append(await WebSocketConnectable(URL, opener=Given(here), compression=compression, **options).connect())
    (client,) = clients
    try:
        with anyio.fail_after(PATIENCE):
            yield client, FramePeer(there, protocol)
    finally:
        await _close(client, there)


@asynccontextmanager
async def server_and_frames(
    *, capacity: int = 65536, compression: bool = False, **options: Any
) -> AsyncIterator[tuple[WebSocketStream, FramePeer]]:
    """Give a server of this library and a client that sends frames."""
    here, there = memory_stream_pair(capacity=capacity)
    offer = [ClientPerMessageDeflateFactory()] if compression else None
    protocol = ClientProtocol(parse_uri(URL), extensions=offer, max_size=None)
    ends: list[WebSocketStream | None] = []
    async with anyio.create_task_group() as tasks:

        async def accept() -> None:
            ends.append(await accept_websocket(here, compression=compression, **options))

        tasks.start_soon(accept)
        protocol.send_request(protocol.connect())
        await there.send(b"".join(protocol.data_to_send()))
        while not protocol.events_received():
            protocol.receive_data(await there.receive())
    (server,) = ends
    assert server is not None
    try:
        with anyio.fail_after(PATIENCE):
            yield server, FramePeer(there, protocol)
    finally:
        await _close(server, there)


async def _close(stream: WebSocketStream, wire: MemoryStream) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(stream)
        await wire.aclose()


async def receive_all(stream: ByteStream) -> bytes:
    """Return all bytes up to the end of the peer's input."""
    received = b""
    while True:
        try:
            received += await stream.receive()
        except anyio.EndOfStream:
            return received
