"""The reader with the least possible work: the event loop's own socket calls, `bytes.split` and msgspec."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import sniffio
import trio
from speed.harness import Cost, Meter

from wire.flow import BATCHES, CHUNK_BYTES, ECHO, Flow

__all__ = ["decode", "read", "round_trips"]

decode = msgspec.json.Decoder(dict[str, Any]).decode
_Send: TypeAlias = Callable[[bytes], Awaitable[object]]
_Receive: TypeAlias = Callable[[int], Awaitable[bytes]]


async def read(url: str, flow: Flow, *, view: str) -> Cost:
    """Read all lines over TCP: as dicts, or only split."""
    connection, send, receive = await _connect(url)
    count, rest, decodes = 0, b"", view == "dicts"
    with connection, Meter() as meter:
        await send(BATCHES)
        while count < flow.count:
            *lines, rest = (rest + await receive(CHUNK_BYTES)).split(b"\n")
            count += len(lines)
            if decodes:
                for line in lines:
                    decode(line)
    return meter.cost(count)


async def round_trips(url: str, *, line: bytes, count: int) -> Cost:
    """Send a line and read it back, again and again."""
    connection, send, receive = await _connect(url)
    with connection:
        await send(ECHO)
        await receive(CHUNK_BYTES)
        with Meter() as meter:
            for _ in range(count):
                await send(line)
                while not (await receive(CHUNK_BYTES)).endswith(b"\n"):
                    pass
    return meter.cost(count)


async def _connect(url: str) -> tuple[Any, _Send, _Receive]:
    where = ("127.0.0.1", urlsplit(url).port)
    if sniffio.current_async_library() == "trio":
        dialled = await trio.open_tcp_stream(*where)
        return dialled.socket, dialled.send_all, dialled.socket.recv
    connected = socket.create_connection(where)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(False)
    loop = asyncio.get_running_loop()
    return connected, lambda data: loop.sock_sendall(connected, data), lambda size: loop.sock_recv(connected, size)
