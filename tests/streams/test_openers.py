"""Every opener is an `anyio.abc.ByteStreamConnectable`, and anyio's own openers open transports."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from anyio.streams.stapled import MultiListener

import claude_transport as ct
from claude_transport.link.carrier import LinkConnectable
from claude_transport.streams.compression import CompressedConnectable, accept_compression
from claude_transport.streams.launched import LaunchedConnectable
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.streams.process import ProcessConnectable
from claude_transport.streams.sockets import SocketConnectable
from claude_transport.streams.tls import TLSConnectable
from claude_transport.streams.websocket import WebSocketConnectable, accept_websocket

PATIENCE = 30.0


@pytest.mark.parametrize(
    "opener",
    [
        CompressedConnectable,
        LaunchedConnectable,
        LinkConnectable,
        MemoryConnectable,
        ProcessConnectable,
        SocketConnectable,
        TLSConnectable,
        WebSocketConnectable,
    ],
)
def test_every_opener_is_a_connectable_of_anyio(opener: type) -> None:
    assert issubclass(opener, ByteStreamConnectable)


async def echo(stream: ByteStream) -> None:
    """Send everything back, until the end."""
    async with stream:
        async for data in stream:
            await stream.send(data)


async def echo_compressed(stream: ByteStream) -> None:
    await echo(await accept_compression(stream))


async def echo_websocket(stream: ByteStream) -> None:
    accepted = await accept_websocket(stream)
    assert accepted is not None
    await echo(accepted)


def websocket_over(opener: ByteStreamConnectable) -> ByteStreamConnectable:
    return WebSocketConnectable("ws://localhost/", opener=opener)


LAYERS: Mapping[str, tuple[Callable[[ByteStreamConnectable], ByteStreamConnectable], Callable[[ByteStream], object]]] = {
    "bare": (lambda opener: opener, echo),
    "compressed": (CompressedConnectable, echo_compressed),
    "websocket": (websocket_over, echo_websocket),
}


@asynccontextmanager
async def served(kind: str, handler: Callable[[ByteStream], object]) -> AsyncIterator[ByteStreamConnectable]:
    """Run a server inside the block, and give an opener of anyio for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "socket")
        if kind == "UNIXConnectable":
            listener = await anyio.create_unix_listener(path)
            remote: ByteStreamConnectable = anyio.UNIXConnectable(path)
        else:
            tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
            port = tcp.extra(anyio.abc.SocketAttribute.local_port)
            remote = anyio.as_connectable(("127.0.0.1", port)) if kind == "as_connectable" else anyio.TCPConnectable("127.0.0.1", port)
            listener = MultiListener([tcp])
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handler)
            yield remote
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("kind", ["as_connectable", "TCPConnectable", "UNIXConnectable"])
async def test_what_anyio_opens_carries_messages_with_and_without_a_layer_of_ours(kind: str, layer: str) -> None:
    wrap, handler = LAYERS[layer]
    with anyio.fail_after(PATIENCE):
        async with served(kind, handler) as remote, ct.StreamTransport(wrap(remote)) as transport:
            await transport.write('{"type": "hello"}')
            await transport.end_input()
            heard = [message async for message in transport.read_messages()]
    assert heard == [{"type": "hello"}]
