"""Listening sockets of a gateway or a bridge host: opens them, accepts connections, and refuses addresses that are not safe.

What happens to an accepted connection is in `gateway.py` and `bridge/host.py`. Addresses are parsed in `streams/address.py`.
"""

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
from anyio.abc import ByteStream, SocketAttribute

from claude_transport.errors import ConfigurationError
from claude_transport.loggers import logger_for
from claude_transport.streams.address import Address
from claude_transport.streams.sockets import SocketStream, accept, keep_alive, notify_closing, reuse_address
from claude_transport.streams.websocket import check_websocket

logger: logging.Logger = logger_for(__name__)

_BACKLOG: Final = 512
_CLOSED: Final = frozenset({errno.EBADF, errno.ENOTSOCK})
"""Error numbers of `accept()` on a closed socket, of POSIX and of Windows."""

_PAUSE: Final = 0.1
"""Seconds until the next attempt after accept() failed, for example without a free file descriptor. Connections that end may free one."""


class Listener:
    """A listening socket. In `address`, port 0 is replaced by the port that the system chose."""

    def __init__(self, listening: socket.socket, *, address: Address) -> None:
        listening.setblocking(False)
        self._socket = listening
        self.address = address
        self._inode = _inode(address.path) if address.scheme == "unix" else None

    async def accept(self) -> tuple[SocketStream, str]:
        """Wait for the next connection. Return its stream, and the address of the client as text for the log.

        A failed accept() is logged and repeated after 0.1 s. Raises `ClosedResourceError` after `close()`.
        """
        while True:
            await anyio.lowlevel.checkpoint()
            try:
                accepted, where = await self._next()
            except ConnectionAbortedError:
                pass  # the client gave up before its connection was accepted
            except OSError as exc:
                if exc.errno in _CLOSED:
                    raise anyio.ClosedResourceError from exc
                logger.warning("no connection can be accepted on %s: %s", self.address, exc.strerror)
                await anyio.sleep(_PAUSE)
            else:
                if self.address.scheme != "unix":
                    keep_alive(accepted)
                peer = _peer_name(where)
                return SocketStream(accepted, address=peer), peer

    async def _next(self) -> tuple[socket.socket, Any]:
        try:
            return self._socket.accept()
        except BlockingIOError:
            return await accept(self._socket)

    def close(self) -> None:
        """Stop listening. Remove the file of a Unix socket, unless another process has replaced it."""
        notify_closing(self._socket)
        self._socket.close()
        inode, self._inode = self._inode, None  # another gateway may use the number for its own file
        if inode is not None and _inode(self.address.path) == inode:
            with contextlib.suppress(OSError):
                os.unlink(self.address.path)  # noqa: PTH108 - the path is plain text


async def accept_all(listeners: Sequence[Listener], attend: Callable[[SocketStream, Address, str], Coroutine[Any, Any, None]]) -> None:
    """Accept connections until all `listeners` are closed. Call `attend(stream, address, peer)` for each connection, in a task of its own.

    `address` is the address of the listener, `peer` the address of the client as text. Returns when the last `attend()` has returned.
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
    """Listen at every IP address of the host in `address` (`localhost` has two), or at the path of a Unix socket.

    A Unix socket gets mode 0600. If no process listens at an existing socket file, the file is replaced.

    Raises:
        ConfigurationError: the address is in use, is not an address of this machine, cannot be resolved, or needs more rights.
    """
    try:
        if address.scheme == "unix":
            return [Listener(_bind_unix(address.path), address=address)]
        found = await anyio.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as exc:  # UnicodeError: not a valid host name
        raise _listen_error(address, exc) from exc
    listeners: list[Listener] = []
    try:
        for family, _type, _proto, _name, where in dict.fromkeys(found):  # the hosts file may list an address twice
            if listeners:  # all have the port of the first, also one that the system chose
                where = (where[0], listeners[0].address.port, *where[2:])
            listening = _bind(family, where)
            port = listening.getsockname()[1]
            listeners.append(Listener(listening, address=msgspec.structs.replace(address, port=port)))
    except OSError as exc:
        for listener in listeners:
            listener.close()
        raise _listen_error(address, exc) from exc
    return listeners


def local_address(stream: ByteStream) -> str | None:
    """Return the address of this machine that the client has connected to; None for what is not an IP socket."""
    raw: socket.socket | None = stream.extra(SocketAttribute.raw_socket, None)  # noqa: S610 - anyio's method, not Django's
    try:
        name = None if raw is None else raw.getsockname()
    except OSError:
        return None  # it is closed
    return str(name[0]) if isinstance(name, tuple) else None


def check_exposure(address: Address, *, authenticates: bool, ssl_context: ssl.SSLContext | None, allow_plaintext: bool) -> None:
    """Check that `address` is safe to listen at, and that the packages it needs are installed.

    Args:
        address: where to listen.
        authenticates: whether clients must show a token or a certificate.
        ssl_context: the TLS configuration with the server's certificate.
        allow_plaintext: permit unencrypted addresses that other machines can reach; for a server behind a proxy that encrypts.

    Raises:
        ConfigurationError: other machines could connect without authentication or without encryption, or `ssl_context` or the package for
            WebSockets is missing.
    """
    if address.is_websocket:
        check_websocket()
    if address.is_encrypted and ssl_context is None:
        raise ConfigurationError(f"{address} needs a certificate: pass ssl_context", option="ssl_context")
    if address.stays_here:
        return
    if not authenticates:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and does not authenticate clients: each could run claude on this machine. "
            "Pass tokens, or an ssl_context that requires client certificates",
            option="tokens",
        )
    if not address.is_encrypted and not allow_plaintext:
        raise ConfigurationError(
            f"{address} can be reached from other machines, and would carry tokens and conversations without encryption: "
            "use tls:// or wss://, or pass allow_plaintext=True behind a proxy that encrypts",
            option="listen",
        )


def _bind(family: int, where: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        reuse_address(listening)
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
    # Every user could connect between bind() and a later chmod(), so the umask sets the mode. It applies to the whole process: a file that
    # another thread creates at this moment may lose permissions, but never gains any.
    previous_umask = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(previous_umask)
    return listening


def _remove_stale(path: str) -> None:
    """Remove the socket file at `path` if no process listens at it. Raise `OSError` if one does. Other files stay: bind() then fails."""
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
    raise OSError(errno.EADDRINUSE, "another process already listens there")


def _listen_error(address: Address, exc: OSError | UnicodeError) -> ConfigurationError:
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
