"""A listener on loopback for tests: its end uses the plain socket module."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import anyio

from claude_transport.streams.address import Address
from claude_transport.streams.sockets import SocketConnectable, SocketStream


class Door:
    """A listening socket and its address."""

    def __init__(self, listener: socket.socket, address: Address) -> None:
        self.listener = listener
        self.address = address

    @classmethod
    def tcp(cls, *, scheme: str = "tcp") -> Door:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        return cls(listener, Address(scheme=scheme, host="127.0.0.1", port=listener.getsockname()[1]))

    @classmethod
    def unix(cls, folder: Path) -> Door:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "door"))
        listener.listen()
        listener.setblocking(False)
        return cls(listener, Address(scheme="unix", path=str(folder / "door")))

    async def accept(self) -> socket.socket:
        """Return the next connection, as a blocking socket."""
        with anyio.fail_after(30):
            await anyio.wait_readable(self.listener)
        accepted, _ = self.listener.accept()
        accepted.settimeout(10)
        return accepted

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[SocketStream, socket.socket]]:
        """Give both ends of a connection inside the block."""
        stream = await SocketConnectable(self.address).connect()
        with await self.accept() as accepted:
            try:
                yield stream, accepted
            finally:
                await stream.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
