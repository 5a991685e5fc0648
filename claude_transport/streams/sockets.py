"""Sockets as byte streams: TCP and Unix, dialled (`SocketConnectable`) or accepted (`SocketStream`).

The sockets are read and written directly. A stream of asyncio closes as a whole when a write fails, and what the peer
sent before it left would be lost. TLS is in `streams.tls`, WebSocket in `streams.websocket`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, ByteStreamConnectable, SocketAttribute

from claude_transport.errors import CLIConnectionError, ConfigurationError, ConnectTimeout
from claude_transport.streams.address import Address, StreamAttribute
from claude_transport.streams.room import ReadSize

DEFAULT_CONNECT_TIMEOUT = 30.0
"""Seconds to find the host and reach it: a lost SYN is repeated after 1, 3 and 7 seconds, and a name server may need 15."""

_HEAD_START = 0.25
"""Seconds that one address of a host gets before the next is tried beside it (RFC 8305)."""

_READ_UP_BYTES, _READ_UP_CHUNKS = 65536, 64
"""Bounds of what is read and dropped when the connection is closed. A peer that sends more gets a reset."""

_WIDE_BYTES = 2**20
"""Bytes asked for as receive buffer of a connection within this machine. Linux grants a user without special rights some 400 KB."""

_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})

_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Probe after 30 silent seconds, and give up a minute after the last sign of life. Home routers forget a connection after 60
seconds at the earliest. `TCP_KEEPALIVE` is the name of `TCP_KEEPIDLE` on macOS."""


async def _wait_writable(sender: socket.socket, data: memoryview) -> int:
    await anyio.wait_writable(sender)
    return 0


async def _not_here(dialled: socket.socket, where: Any) -> bool:
    return False


async def _wait_and_accept(listening: socket.socket) -> tuple[socket.socket, Any]:
    while True:
        await anyio.wait_readable(listening)
        with contextlib.suppress(BlockingIOError):  # the client has left
            return listening.accept()


accept: Callable[[socket.socket], Awaitable[tuple[socket.socket, Any]]] = _wait_and_accept
"""Wait for the next connection; return its socket, and the address of the client. Raises `ClosedResourceError` and `OSError`."""

notify_closing: Callable[[socket.socket], None] = anyio.notify_closing
"""End every wait for a socket that is about to be closed."""

_wait_readable: Callable[[socket.socket], Awaitable[None]] = anyio.wait_readable
_send_some: Callable[[socket.socket, memoryview], Awaitable[int]] = _wait_writable
_connect: Callable[[socket.socket, Any], Awaitable[bool]] = _not_here

if os.name == "nt":
    from claude_transport.loops import overlapped

    accept, notify_closing = overlapped.accept, overlapped.closing
    _wait_readable, _send_some, _connect = overlapped.wait_readable, overlapped.send_some, overlapped.connect


class SocketConnectable(ByteStreamConnectable):
    """Opens a TCP connection to a `tcp`, `tls`, `ws` or `wss` address, or a Unix socket, within `connect_timeout` seconds.

    TLS and WebSocket are layers above: see `TLSConnectable` and `WebSocketConnectable`.
    """

    def __init__(self, address: Address, *, connect_timeout: float = DEFAULT_CONNECT_TIMEOUT) -> None:
        if address.scheme == "unix" and not hasattr(socket, "AF_UNIX"):
            raise ConfigurationError("this system has no Unix sockets: use tcp:// on loopback", option="url")
        if address.scheme != "unix" and address.port == 0:
            raise ConfigurationError("port 0 can be listened on, but not be dialled: give the port of the server", option="url")
        self.address = address
        self._connect_timeout = connect_timeout

    async def connect(self) -> SocketStream:
        """Return a connected socket.

        Raises:
            ConnectTimeout: there was no answer in time.
            CLIConnectionError: no server listens there (`code` is `connect.refused`), the host does not exist (`connect.unresolved`),
                or there is no way to it. `retryable` is False where a second try cannot help.
        """
        address = self.address
        try:
            with anyio.fail_after(self._connect_timeout):
                if address.scheme == "unix":
                    return SocketStream(await _dial(socket.AF_UNIX, address.path), address=str(address))
                reached = await dial(address.host, address.port)
        except TimeoutError as exc:
            message = f"{address} did not answer within {self._connect_timeout:g} s"
            raise ConnectTimeout(message, waited=self._connect_timeout) from exc
        except OSError as exc:
            raise _connection_error(address, exc) from exc
        keep_alive(reached)
        return SocketStream(reached, address=str(address))


class SocketStream(ByteStream):
    """A connected socket. The stream owns the socket, and closes it.

    After the connection broke, what the peer sent before is received first. A cancelled `receive()` loses nothing; a cancelled
    `send()` may have sent a part. One task at a time may send and one may receive (`anyio.BusyResourceError`).
    """

    def __init__(self, connected: socket.socket, *, address: str | None = None) -> None:
        """Take over `connected`. `address` names the peer in messages."""
        connected.setblocking(False)
        self._socket = connected
        self._address = address
        self._started_at = dt.datetime.now(dt.UTC)
        self._read_size = ReadSize()
        self._is_widened = False
        self._closed = False
        self._eof_sent = False
        self._sending = anyio.ResourceGuard("writing to")
        self._receiving = anyio.ResourceGuard("reading from")

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte, and return at most `max_bytes`. More than 64 KiB come only while the peer sends without a pause.

        Raises:
            anyio.EndOfStream: the peer has ended its side.
            anyio.BrokenResourceError: the connection broke; `__cause__` is the system's error.
            anyio.ClosedResourceError: this end is closed.
        """
        with self._receiving:
            # before the read and not after it: a cancellation here must not lose bytes
            await anyio.lowlevel.checkpoint()
            size = self._read_size
            while not self._closed:
                try:
                    data = self._socket.recv(min(max_bytes, size.bytes))
                except BlockingIOError:
                    try:
                        await _wait_readable(self._socket)
                    except anyio.ClosedResourceError:
                        pass
                    except OSError as exc:
                        raise anyio.BrokenResourceError from exc
                except OSError as exc:
                    raise anyio.BrokenResourceError from exc
                else:
                    if not data:
                        raise anyio.EndOfStream
                    if size.note(len(data)) and not self._is_widened:
                        self._is_widened = True
                        _widen(self._socket)
                    return data
            raise anyio.ClosedResourceError

    async def send(self, item: bytes) -> None:
        """Send all of `item`. Waits while the peer does not read.

        Raises:
            anyio.BrokenResourceError: the peer is gone; `__cause__` is the system's error.
            anyio.ClosedResourceError: this end is closed, or `send_eof()` was called.
        """
        with self._sending:
            await anyio.lowlevel.checkpoint_if_cancelled()
            rest = memoryview(item)
            while rest:
                if self._closed or self._eof_sent:
                    raise anyio.ClosedResourceError
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    try:
                        rest = rest[await _send_some(self._socket, rest) :]
                    except anyio.ClosedResourceError:
                        pass
                    except OSError as exc:
                        raise anyio.BrokenResourceError from exc
                except OSError as exc:
                    raise anyio.BrokenResourceError from exc
            await anyio.lowlevel.cancel_shielded_checkpoint()

    def send_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Send as much of the `pieces` as fits without waiting, and return how many bytes that is. Not while a `send()` waits.

        Raises:
            anyio.BusyResourceError, anyio.BrokenResourceError, anyio.ClosedResourceError: as `send()`.
        """
        with self._sending:
            if self._closed or self._eof_sent:
                raise anyio.ClosedResourceError
            try:
                return _send_pieces(self._socket, pieces)
            except BlockingIOError:
                return 0
            except OSError as exc:
                raise anyio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will be sent (`shutdown(SHUT_WR)`); receiving goes on."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._closed and not self._eof_sent:
            self._eof_sent = True
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as exc:
                raise anyio.BrokenResourceError from exc

    async def aclose(self) -> None:
        """Close the socket. Tasks that wait on it get `ClosedResourceError`, the peer gets the end."""
        if not self._closed:
            # A TCP socket that is closed with unread data sends a reset, and the peer may lose the last bytes we sent.
            with contextlib.suppress(OSError):  # nothing more is there, or the connection is broken
                for _ in range(_READ_UP_CHUNKS):
                    if not self._socket.recv(_READ_UP_BYTES):
                        break
        self._close()
        await anyio.lowlevel.checkpoint()

    def abort(self) -> None:
        """Close the socket as a crash would: over TCP, the peer gets a reset instead of the end."""
        _make_abrupt(self._socket)
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            notify_closing(self._socket)
            self._socket.close()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        facts: dict[Any, Callable[[], Any]] = {
            SocketAttribute.raw_socket: lambda: self._socket,
            SocketAttribute.family: lambda: self._socket.family,
            StreamAttribute.started_at: lambda: self._started_at,
        }
        if self._address is not None:
            facts[StreamAttribute.address] = lambda: self._address
        return facts


def reuse_address(listening: socket.socket) -> None:
    """Let a socket listen where a connection of an earlier program is still known; on Windows, let no other program take the address."""
    # on Windows, SO_REUSEADDR would let every program take the address over
    option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
    listening.setsockopt(socket.SOL_SOCKET, option, 1)


def _send_pieces(connected: socket.socket, pieces: Sequence[bytes | memoryview]) -> int:
    if hasattr(connected, "sendmsg"):
        return connected.sendmsg(pieces)
    return connected.send(b"".join(pieces))  # Windows


def _widen(connected: socket.socket) -> None:
    """Let a TCP connection within this machine hold more, if the system allows it.

    Linux raises this limit by itself, slowly within a machine. Over a network it does it well, and further than a program may. Setting the
    limit would end that.
    """
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return  # the buffer of a Unix socket is the sender's
    with contextlib.suppress(OSError):  # it is closed, or the peer is gone: the next read finds out
        is_local = ipaddress.ip_address(connected.getpeername()[0].partition("%")[0]).is_loopback
        if is_local and connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < _WIDE_BYTES:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WIDE_BYTES)


def keep_alive(connected: socket.socket) -> None:
    """Turn on TCP keep-alive probes, and turn off the delay of small packets."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    options += [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _KEEP_ALIVE if hasattr(socket, name)]
    for level, option, value in options:
        with contextlib.suppress(OSError):  # a system may forbid an option that it knows; the connection works without it
            connected.setsockopt(level, option, value)


async def dial(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to a port of a host, and does not block. Raises `OSError`. The caller bounds it."""
    return await _dial_first(await _find(host, port))


async def _find(host: str, port: int) -> list[tuple[int, Any]]:
    """Return family and socket address for each address of a host, in the system's order."""
    # An IPv4 address needs no look-up and no thread. An IPv6 address may name an interface, so the system resolves it.
    with contextlib.suppress(ValueError):
        return [(socket.AF_INET, (str(ipaddress.IPv4Address(host)), port))]
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as exc:  # IDNA refuses the name
        raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from exc
    return [(family, where) for family, _type, _protocol, _name, where in found]


async def _dial(family: int, where: Any) -> socket.socket:
    """Return a socket connected to one address. Nothing stays open when it fails or is cancelled."""
    dialled = socket.socket(family, socket.SOCK_STREAM)
    try:
        dialled.setblocking(False)
        await anyio.lowlevel.checkpoint()
        if await _connect(dialled, where):
            return dialled
        failure = dialled.connect_ex(where)
        if failure in _IN_PROGRESS and family != getattr(socket, "AF_UNIX", None):  # on a Unix socket it means a full backlog
            await anyio.wait_writable(dialled)
            failure = dialled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except BaseException:
        notify_closing(dialled)
        _drop(dialled)
        raise
    if failure:
        dialled.close()
        raise OSError(failure, os.strerror(failure))
    return dialled


async def _dial_first(addresses: Sequence[tuple[int, Any]]) -> socket.socket:
    """Return a socket connected to the address that answers first. Each address gets a head start over the next."""
    reached: list[socket.socket] = []
    failures: list[OSError] = []

    async def attempt(family: int, where: Any, failed: anyio.Event) -> None:
        try:
            reached.append(await _dial(family, where))
            tasks.cancel_scope.cancel()
        except OSError as exc:
            failures.append(exc)
        finally:
            failed.set()

    try:
        async with anyio.create_task_group() as tasks:
            for family, where in addresses:
                failed = anyio.Event()
                tasks.start_soon(attempt, family, where, failed)
                with anyio.move_on_after(_HEAD_START):
                    await failed.wait()
    except BaseException:
        for each in reached:
            _drop(each)
        raise
    for spare in reached[1:]:
        _drop(spare)
    if not reached:
        raise failures[0] if failures else OSError(errno.EADDRNOTAVAIL, "the name of the host has no address")
    return reached[0]


def _drop(dialled: socket.socket) -> None:
    """Close a socket that is not used. A server that accepted it sees a reset, not a client that sent nothing."""
    _make_abrupt(dialled)
    dialled.close()


def _make_abrupt(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already, or a Unix socket
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if os.name == "nt" else "ii", 1, 0))


def _connection_error(address: Address, exc: OSError) -> CLIConnectionError:
    """Return the typed error for an error of the system."""
    if isinstance(exc, socket.gaierror):
        message = f"{address}: the host {address.host!r} was not found ({exc.strerror})"
        return CLIConnectionError(message, code="connect.unresolved", retryable=exc.errno == socket.EAI_AGAIN)
    if isinstance(exc, ConnectionRefusedError):
        return CLIConnectionError(f"{address}: no server listens there. Start it, or correct the address.", code="connect.refused")
    if isinstance(exc, FileNotFoundError):
        return CLIConnectionError(f"{address}: there is no such socket. Start the server, or correct the path.", code="connect.refused")
    if isinstance(exc, PermissionError):
        return CLIConnectionError(f"{address}: not allowed ({exc.strerror})", code="connect.forbidden", retryable=False)
    return CLIConnectionError(f"{address}: {exc.strerror or exc}", code="connect.failed")
