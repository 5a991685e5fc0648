"""Waits for sockets on Windows, where asyncio's Proactor loop cannot watch them: the same waits as overlapped calls.

anyio watches sockets for that loop in a thread with `select()`. A socket that is closed while it is watched ends this thread, and then no
wait of the process returns any more. On trio and on other loops of asyncio, sockets are watched by the loop as elsewhere.

`closing()` must be called before a socket is closed, as `anyio.notify_closing()` elsewhere.
"""

from __future__ import annotations

import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from claude_transport.loops.current import asyncio_loop_here

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_Result = TypeVar("_Result")

_SEND_BYTES = 64 * 2**10
"""Bytes of one overlapped send. The system keeps them in memory until the peer takes them."""

_waits: dict[socket.socket, list[anyio.CancelScope]] = {}
"""The waits of each socket, for `closing()`."""


def proactor_here() -> AbstractEventLoop | None:
    """Return the running loop when it is asyncio's Proactor loop; None on every other one."""
    loop = asyncio_loop_here()
    if loop is None or not any(kind.__name__ == "BaseProactorEventLoop" for kind in type(loop).__mro__):
        return None
    return loop


async def wait_readable(waited: socket.socket) -> None:
    """Wait until a connected socket can be read.

    Raises `ClosedResourceError` after `closing()`, and `OSError` when the connection breaks meanwhile.
    """
    loop = proactor_here()
    if loop is None:
        await anyio.wait_readable(waited)
    else:
        await _until(waited, loop.sock_recv(waited, 0))  # it returns when there is something, and takes nothing


async def send_some(sender: socket.socket, data: memoryview) -> int:
    """Wait until a socket whose buffer is full takes more. Return how many bytes were sent meanwhile, which may be none.

    Raises `ClosedResourceError` after `closing()`, and `OSError` when the connection breaks meanwhile.
    """
    loop = proactor_here()
    if loop is None:
        await anyio.wait_writable(sender)
        return 0
    part = bytes(data[:_SEND_BYTES])
    await _until(sender, loop.sock_sendall(sender, part))
    return len(part)


async def connect(dialled: socket.socket, where: Any) -> bool:
    """Connect a socket. Returns False where the caller has to do that with `connect_ex()` and a wait. Raises `OSError`."""
    loop = proactor_here()
    if loop is None:
        return False
    await _until(dialled, loop.sock_connect(dialled, where))
    return True


async def accept(listening: socket.socket) -> tuple[socket.socket, Any]:
    """Wait for the next connection; return its socket, and the address of the client.

    Raises `ClosedResourceError` after `closing()`, and `OSError`.
    """
    loop = proactor_here()
    if loop is not None:
        return await _until(listening, loop.sock_accept(listening))
    while True:
        await anyio.wait_readable(listening)
        try:
            return listening.accept()
        except BlockingIOError:
            pass  # the client has left


def closing(waited: socket.socket) -> None:
    """End every wait for a socket that is about to be closed."""
    if proactor_here() is None:
        anyio.notify_closing(waited)
    for scope in _waits.pop(waited, ()):
        scope.cancel()


async def _until(waited: socket.socket, call: Coroutine[Any, Any, _Result]) -> _Result:
    with anyio.CancelScope() as scope:
        scopes = _waits.setdefault(waited, [])
        scopes.append(scope)
        try:
            return await call
        finally:
            scopes.remove(scope)
            if not scopes and _waits.get(waited) is scopes:
                del _waits[waited]
    raise anyio.ClosedResourceError
