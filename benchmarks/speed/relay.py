"""Programs that stand between clients and children: the gateway, and a bare relay that only copies bytes. Each is a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from claude_transport import ClaudeOptions
from claude_transport.gateway import Gateway, GatewayLimits

__all__ = ["command_of"]

_MANY = 100_000
_GRACE = 60.0
"""Seconds for 400 sessions to end."""


def command_of(subject: str, *, backend: str, child: str) -> list[str]:
    """Return the command that prints the port on loopback at which `subject` listens, and serves until its standard input ends.

    Each client gets a process of the program `child`.
    """
    return [sys.executable, __file__, subject, backend, child]


async def _serve(subject: str, backend: str, child: str) -> None:
    relay = _asyncio_relay if backend == "asyncio" else _trio_relay
    async with {"relay": relay, "relay of callbacks": _callback_relay, "gateway": _gateway}[subject](child) as port:
        print(port, flush=True)
        os.set_blocking(0, False)
        while True:
            await anyio.wait_readable(0)
            if not os.read(0, 1):
                return


@asynccontextmanager
async def _gateway(child: str) -> AsyncIterator[int]:
    limits = GatewayLimits(
        half_open=_MANY, half_open_per_address=_MANY, total_sessions=_MANY, connections=_MANY, sessions=_MANY, starts_per_minute=None
    )
    async with Gateway(ClaudeOptions(), listen=["tcp://127.0.0.1:0"], command=[child], limits=limits) as gateway:
        yield int(gateway.urls[0].rpartition(":")[2])


def _start(child: str) -> subprocess.Popen[bytes]:
    # In a session of its own, as behind the gateway: Linux may give each session the same share of the processors.
    return subprocess.Popen([child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait(_GRACE)


# asyncio: two tasks for each client, with the calls of the loop for sockets


@asynccontextmanager
async def _asyncio_relay(child: str) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        listener.setblocking(False)
        clients: set[asyncio.Task[None]] = set()

        async def accept() -> None:
            while True:
                client, _ = await loop.sock_accept(listener)
                task = loop.create_task(_relay_one(client, child))
                clients.add(task)
                task.add_done_callback(clients.discard)

        accepting = loop.create_task(accept())
        try:
            yield listener.getsockname()[1]
        finally:
            for task in (accepting, *clients):
                task.cancel()
            await asyncio.wait([accepting, *clients])


async def _relay_one(client: socket.socket, child: str) -> None:
    loop = asyncio.get_running_loop()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    process = _start(child)
    assert process.stdin is not None
    assert process.stdout is not None
    source, target = process.stdout.fileno(), process.stdin.fileno()
    os.set_blocking(source, False)

    async def up() -> None:
        while data := await loop.sock_recv(client, 65536):
            os.write(target, data)

    async def down() -> None:
        while True:
            try:
                data = os.read(source, 65536)
            except BlockingIOError:
                await anyio.wait_readable(source)
                continue
            if not data:
                return
            await loop.sock_sendall(client, data)

    halves = [loop.create_task(up()), loop.create_task(down())]
    try:
        await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for half in halves:
            half.cancel()
        await asyncio.wait(halves)
        with client, process:
            process.kill()


# asyncio: the protocols and transports of the loop, which read and write in its callbacks


@asynccontextmanager
async def _callback_relay(child: str) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(child), "127.0.0.1", 0, backlog=512)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class _Connection(asyncio.Protocol):
    """A client: what it sends goes to its child."""

    def __init__(self, child: str) -> None:
        self._command = child
        self._early: list[bytes] = []
        self._input: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.client = transport
        self.child = _start(self._command)
        self._joining = asyncio.get_running_loop().create_task(self._join())

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self.child.stdin)
        self.output, _ = await loop.connect_read_pipe(lambda: _Output(self.client), self.child.stdout)
        for data in self._early:
            self._input.write(data)

    def data_received(self, data: bytes) -> None:
        self._early.append(data) if self._input is None else self._input.write(data)

    def pause_writing(self) -> None:
        self.output.pause_reading()

    def resume_writing(self) -> None:
        self.output.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._input is not None:
            if not self._input.is_closing():  # the child may have ended first
                self._input.abort()
            self.output.close()
        _end(self.child)


class _Output(asyncio.Protocol):
    """The output of a child: it goes to the client."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._write, self._close = client.write, client.close

    def data_received(self, data: bytes) -> None:
        self._write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close()


# trio: two tasks for each client, with the streams of trio


@asynccontextmanager
async def _trio_relay(child: str) -> AsyncIterator[int]:
    import trio

    async def attend(stream: trio.SocketStream) -> None:
        process = _start(child)
        assert process.stdin is not None
        assert process.stdout is not None
        source, target = (trio.lowlevel.FdStream(os.dup(pipe.fileno())) for pipe in (process.stdout, process.stdin))

        async def copy(one: Any, other: Any) -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                async for chunk in one:
                    await other.send_all(chunk)
            nursery.cancel_scope.cancel()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(copy, stream, target)
                nursery.start_soon(copy, source, stream)
        finally:
            for end in (source, target, stream):
                await trio.aclose_forcefully(end)
            with process:
                process.kill()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(functools.partial(trio.serve_tcp, attend, 0, host="127.0.0.1", backlog=512))
        try:
            yield listener.socket.getsockname()[1]
        finally:
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(_serve, *sys.argv[1:], backend=sys.argv[2])
