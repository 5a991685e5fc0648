"""`Listener`: a listening socket of a gateway or a bridge host; how it is opened, and the check that it is safe to open it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.streams.address import Address
from claude_transport.streams.sockets import SocketStream, keep_alive
from claude_transport.streams.websocket import check_websocket

logger: logging.Logger = logging.getLogger(__name__)

_BACKLOG: Final = 512
_OUT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.1
"""Seconds until the next try when the system has no room for another connection. Connections that end meanwhile make room."""


class Listener:
    """A listening socket. `address` has the real port in place of 0."""

    def __init__(self, listening: socket.socket, *, address: Address) -> None:
        listening.setblocking(False)
        self._socket = listening
        self.address = address
        self._inode = _inode(address.path) if address.scheme == "unix" else None

    async def accept(self) -> tuple[SocketStream, str]:
        """Wait for the next connection; return it with the address of the client. Raises `ClosedResourceError` after `close()`."""
        while True:
            await anyio.lowlevel.checkpoint()
            try:
                accepted, where = self._socket.accept()
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError as exc:
                if exc.errno == errno.EBADF:
                    raise anyio.ClosedResourceError from exc
                if exc.errno in _OUT_OF_ROOM:
                    logger.warning("no connection can be accepted on %s: %s", self.address, exc.strerror)
                    await anyio.sleep(_PAUSE)
                # any other error concerns one connection, which is gone again
            else:
                if self.address.scheme != "unix":
                    keep_alive(accepted)
                peer = _peer_name(where)
                return SocketStream(accepted, address=peer), peer

    def close(self) -> None:
        """Stop listening, and remove the file of a Unix socket if it is still the same file."""
        anyio.notify_closing(self._socket)
        self._socket.close()
        if self._inode is not None and _inode(self.address.path) == self._inode:
            with contextlib.suppress(OSError):
                os.unlink(self.address.path)  # noqa: PTH108 - the path is plain text


async def accept_all(listeners: Sequence[Listener], attend: Callable[[SocketStream, Address, str], Coroutine[Any, Any, None]]) -> None:
    """Accept connections on all `listeners` until they are closed. Run `attend(stream, address, peer)` for each in a task of its own.

    `address` is that of the listener, `peer` that of the client.
    """

    async def accept(listener: Listener) -> None:
        while True:
            try:
                stream, peer = await listener.accept()
            except anyio.ClosedResourceError:
                return
            tasks.start_soon(attend, stream, listener.address, peer)

    async with anyio.create_task_group() as tasks:
        for listener in listeners:
            tasks.start_soon(accept, listener)


async def open_listeners(address: Address) -> list[Listener]:
    """Listen at every IP address of a host name (`localhost` has two), or at a path.

    A Unix socket gets mode 0600. It replaces a socket file that no process listens at any more.

    Raises:
        ConfigurationError: the address is taken, not allowed, or not one of this machine.
    """
    try:
        if address.scheme == "unix":
            return [Listener(_bind_unix(address.path), address=address)]
        found = await anyio.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as exc:  # UnicodeError: a name that no host can have
        raise _cannot(address, exc) from exc
    listeners: list[Listener] = []
    try:
        for family, _type, _proto, _name, where in found:
            if listeners and address.port == 0:  # all of them get the same port
                where = (where[0], listeners[0].address.port, *where[2:])
            listening = _bind(family, where)
            port = listening.getsockname()[1]
            listeners.append(Listener(listening, address=msgspec.structs.replace(address, port=port)))
    except OSError as exc:
        for listener in listeners:
            listener.close()
        raise _cannot(address, exc) from exc
    return listeners


def check_exposure(address: Address, *, authenticates: bool, ssl_context: ssl.SSLContext | None, allow_plaintext: bool) -> None:
    """Check that `address` is safe to listen at, and that the packages it needs are installed.

    Args:
        address: where to listen.
        authenticates: clients need a token or a certificate.
        ssl_context: the certificate of the server.
        allow_plaintext: a proxy in front encrypts.

    Raises:
        ConfigurationError: other machines could connect without authentication or in plain text, or a certificate or a package is missing.
    """
    if address.is_websocket:
        check_websocket()
    if address.is_encrypted and ssl_context is None:
        raise ConfigurationError(f"{address} needs a certificate: give ssl_context", option="ssl_context")
    if address.stays_here:
        return
    if not authenticates:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and every client could do what claude can do here: "
            "give tokens, or ask for client certificates",
            option="tokens",
        )
    if not address.is_encrypted and not allow_plaintext:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and would carry tokens and conversations in plain text: "
            "use tls:// or wss://, or allow_plaintext=True behind a proxy that encrypts",
            option="listen",
        )


def _bind(family: int, where: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _bind_unix(path: str) -> socket.socket:
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # chmod after bind would leave an instant in which every user can connect. The umask is that of the whole process: files that other
    # threads create in this instant can only become more private.
    before = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _remove_stale(path: str) -> None:
    """Remove a socket file that no process listens at. Raise `OSError` when one does. Leave other files: bind() then fails."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
    raise OSError(errno.EADDRINUSE, "another process listens there already")


def _cannot(address: Address, exc: OSError | UnicodeError) -> ConfigurationError:
    return ConfigurationError(f"cannot listen on {address}: {getattr(exc, 'strerror', None) or exc}", option="listen")


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _peer_name(where: Any) -> str:
    if not isinstance(where, tuple):
        return "unix"  # the client of a Unix socket has no address
    host, port = where[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
