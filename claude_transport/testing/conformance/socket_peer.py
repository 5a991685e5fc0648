"""Peers at the other end of a socket on this machine: `SocketPeer`, `WebSocketPeer`, and `RelayPeer`, which controls a child process.

`LinkPeer` is the peer behind a resumable link: it speaks the server's side of the protocol, and the kit plays the process.

Also the certificates for TLS on loopback. The program of the child process is `relay`.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from claude_transport.errors import ClaudeTransportError, ConfigurationError, ConnectionLost
from claude_transport.link.carrier import LinkCarrier, LinkInbox
from claude_transport.link.machine import (
    LINK_VERSION,
    Bye,
    Data,
    End,
    Hello,
    LinkEnd,
    LinkEvent,
    Refusal,
    Welcome,
    decode_frame,
    encode_frame,
)
from claude_transport.loops.current import Wakeup
from claude_transport.streams.compression import CompressedStream
from claude_transport.streams.sockets import SocketStream, accept, notify_closing, reuse_address
from claude_transport.streams.tls import TLSStream
from claude_transport.streams.websocket import accept_websocket
from claude_transport.testing.conformance.memory_peer import ReadingPeer
from claude_transport.testing.conformance.relay import HEADER
from claude_transport.testing.conformance.subject import Peer

if TYPE_CHECKING:
    import trustme


_RECEIVE_BUFFER = 64 * 2**10
"""Bytes. Fixed, so that the system does not grow the buffer to megabytes, which clauses about back pressure would have to fill."""

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionLost, ssl.SSLError, OSError)


class SocketPeer(ReadingPeer):
    """Listen on 127.0.0.1, or at the `path` of a Unix socket, and use the newest connection.

    `ssl_context` makes it a TLS server. With `compressed` it expects zstd.
    """

    def __init__(self, *, path: str | None = None, ssl_context: ssl.SSLContext | None = None, compressed: bool = False) -> None:
        super().__init__()
        self.path = path
        self.port: int = 0
        self._ssl_context = ssl_context
        self._compressed = compressed
        self._listener: socket.socket | None = None
        self._listens = anyio.Event()
        self._socket: SocketStream | None = None
        self._stream: ByteStream | None = None
        self._connected = anyio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[SocketPeer]:
        """Accept connections until the end of the block."""
        self.refuse(False)
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                while True:
                    tasks.start_soon(self._attend, await self._accept())

            tasks.start_soon(listen)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()
                self.refuse(True)

    def refuse(self, refusing: bool) -> None:
        """Stop listening, or listen at the same address again."""
        if refusing and self._listener is not None:
            self._listens = anyio.Event()
            listener, self._listener = self._listener, None
            notify_closing(listener)
            listener.close()
        elif not refusing and self._listener is None:
            self._listener = self._listen()
            self._listens.set()

    def _listen(self) -> socket.socket:
        if self.path is None:
            listener = socket.socket()
            reuse_address(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            listener.bind(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
        else:
            Path(self.path).unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.path)
        listener.setblocking(False)
        listener.listen()
        return listener

    async def _accept(self) -> SocketStream:
        while True:
            await self._listens.wait()
            listener = self._listener
            if listener is None:
                continue
            try:
                accepted, _ = await accept(listener)
                return SocketStream(accepted)
            except (anyio.ClosedResourceError, ConnectionAbortedError):
                continue  # it stopped listening, or the client has left
            except OSError:
                if listener is self._listener:
                    raise

    async def _attend(self, bare: SocketStream) -> None:
        async with bare:
            with contextlib.suppress(anyio.EndOfStream, *_GONE):
                stream: ByteStream = bare
                if self._ssl_context is not None:
                    stream = await TLSStream.wrap(bare, ssl_context=self._ssl_context, server_side=True)
                if self._compressed:
                    stream = CompressedStream(stream)
                self._socket, self._stream = bare, stream
                self._connected.set()
                await self._take_in(stream)

    async def _take_in(self, stream: ByteStream) -> None:
        try:
            await self.read_all(stream)
        except anyio.EndOfStream:
            if self._stream is stream:
                self.input_over()
        except _GONE:
            if self._stream is stream and self.received:  # without bytes it was a cancelled connect(); another one follows
                self.input_over()
        await anyio.sleep_forever()  # the other direction stays open until the end of the block or `fail()`

    async def _speaker(self) -> ByteStream:
        await self._connected.wait()
        if self._stream is None:
            raise anyio.BrokenResourceError
        return self._stream

    async def send(self, data: bytes) -> None:
        """Send `data`."""
        await (await self._speaker()).send(data)

    async def finish(self) -> None:
        """End the sending side."""
        await (await self._speaker()).send_eof()

    async def fail(self) -> None:
        """Break the connection: with TLS or zstd without their closing bytes, else with a reset."""
        await self._speaker()
        if self._socket is not None and (self._ssl_context is not None or self._compressed):
            await self._socket.aclose()
        elif self._socket is not None:
            self._socket.abort()
            await anyio.lowlevel.checkpoint()


_GONE_WEBSOCKET = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ClaudeTransportError, OSError)


class WebSocketPeer(SocketPeer):
    """A `SocketPeer` that speaks WebSocket, inside TLS with an `ssl_context`."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__(ssl_context=ssl_context)

    async def _attend(self, bare: SocketStream) -> None:
        async with bare:
            with contextlib.suppress(*_GONE_WEBSOCKET):
                wire: ByteStream = bare
                if self._ssl_context is not None:
                    wire = await TLSStream.wrap(bare, ssl_context=self._ssl_context, server_side=True)
                stream = await accept_websocket(wire)
                if stream is not None:
                    self._socket, self._stream = bare, stream
                    self._connected.set()
                    try:
                        await self._take_in(stream)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await anyio.aclose_forcefully(stream)

    async def fail(self) -> None:
        """Close the socket without the closing handshake of WebSocket."""
        await self._speaker()
        if self._socket is not None:
            await self._socket.aclose()


class RelayPeer(Peer):
    """Control a child process that runs `relay.py`. `failure` is the exit code of `fail()`, or a negative signal number."""

    def __init__(self, *, port: int, failure: int) -> None:
        super().__init__()
        self.port = port
        self._failure = failure
        self._link: ByteStream | None = None
        self._linked = anyio.Event()
        self._gone = anyio.Event()
        self._done = anyio.Event()
        self._one_at_a_time = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def listening(cls, *, failure: int) -> AsyncIterator[RelayPeer]:
        """Give a peer that waits for a relay at its `port` on 127.0.0.1 until the end of the block."""
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            peer = cls(port=listener.extra(SocketAttribute.local_port), failure=failure)  # noqa: S610 - not Django's
            tasks.start_soon(listener.serve, peer._attend)
            try:
                yield peer
            finally:
                tasks.cancel_scope.cancel()

    async def _attend(self, link: ByteStream) -> None:
        self._link = link
        self._linked.set()
        frames = BufferedByteReceiveStream(link)
        try:
            async with link:
                while True:
                    kind, size = HEADER.unpack(await frames.receive_exactly(HEADER.size))
                    payload = await frames.receive_exactly(size) if size else b""
                    if kind == b"D":
                        self.take(payload)
                    elif kind == b"E":
                        self.input_over()
                    else:
                        self._done.set()
        except (anyio.IncompleteRead, anyio.BrokenResourceError, OSError):
            self._gone.set()
            self._done.set()
            self.input_over()

    async def _order(self, kind: bytes, payload: bytes = b"") -> None:
        """Give the relay an order, and wait until it is done. Raises `anyio.BrokenResourceError` when the relay is gone."""
        async with self._one_at_a_time:
            await self._linked.wait()
            self._done = anyio.Event()
            if self._gone.is_set() or self._link is None:
                raise anyio.BrokenResourceError
            await self._link.send(HEADER.pack(kind, len(payload)) + payload)
            await self._done.wait()

    async def send(self, data: bytes) -> None:
        """Let it write `data` to its stdout."""
        await self._order(b"S", data)

    async def finish(self) -> None:
        """Let it exit with 0."""
        await self._leave(0)

    async def fail(self) -> None:
        """Let it exit or die as `failure` says."""
        await self._leave(self._failure)

    async def _leave(self, how: int) -> None:
        await self._order(*((b"K", b"%d" % -how) if how < 0 else (b"X", b"%d" % how)))
        await self._gone.wait()

    async def stop_reading(self) -> None:
        """Let it stop reading its stdin."""
        await self._order(b"P")

    async def resume_reading(self) -> None:
        """Let it read its stdin again."""
        await self._order(b"R")

    async def persist(self) -> None:
        """Let it stay when its input ends and on SIGTERM."""
        await self._order(b"I")


LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")


class Certificates:
    """Certificates of one authority, and TLS contexts that trust it. Raises `ConfigurationError` when `trustme` is not installed."""

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError as exc:
            raise ConfigurationError(
                "a TLS medium needs the package `trustme` for its certificates: pip install trustme", option="factory"
            ) from exc
        self._authority: trustme.CA = trustme.CA()
        self._server = self._authority.issue_cert(*LOCAL_NAMES)
        self._client = self._authority.issue_cert("client@example.org")

    def server_context(self, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
        """Make the context of a server, with a certificate for all names of loopback. `asks_for_certificate` makes it mutual TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.configure_cert(context)
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            self._authority.configure_trust(context)
        return context

    def client_context(self, *, shows_certificate: bool = False) -> ssl.SSLContext:
        """Make the context of a client that trusts only this authority. With `shows_certificate` it has its own certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        if shows_certificate:
            self._client.configure_cert(context)
        return context


@functools.cache
def certificates() -> Certificates:
    """Return the certificates of this process, which are made once."""
    return Certificates()


_SESSION = "the-only-session"

_CHUNK_BYTES = 64 * 2**10
"""Bytes that are sent or read at once."""


class LinkPeer(Peer):
    """A server of one session. `serve()` gets each connection; the newest one is used.

    `lease` is the promised lease in seconds. `heartbeat` are the seconds of silence before it asks for a sign of life. `failure` is the
    exit code of `fail()`. `window` and `replay_bytes` bound the bytes on their way to the peer and from it.
    """

    def __init__(
        self, *, window: int = 65536, replay_bytes: int = 65536, lease: float = 60.0, heartbeat: float = 15.0, failure: int = 3
    ) -> None:
        super().__init__()
        self.end: LinkEnd = LinkEnd(window=window, replay_bytes=replay_bytes)
        self.hellos: list[Hello] = []
        self.refusal: Refusal | None = None
        self._lease = lease
        self._failure = failure
        self._changed = Wakeup()
        self._carrier = LinkCarrier(self.end, on_event=self._on_event, on_chunk=self._changed.fire, heartbeat=heartbeat)
        self._reads = True
        self._stays = False
        self._unread = LinkInbox()
        self._connection = anyio.CancelScope()
        self._one_at_a_time = anyio.Lock()

    @asynccontextmanager
    async def listening(self, accept: Callable[[], Awaitable[ByteStream]]) -> AsyncIterator[LinkPeer]:
        """Serve every connection that `accept()` returns, until the end of the block."""
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                while True:
                    tasks.start_soon(self.serve, await accept())

            tasks.start_soon(listen)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def serve(self, stream: ByteStream) -> None:
        """Answer the hello, then carry the session over this connection until it is cut or replaced."""
        try:
            said = b""
            while b"\n" not in said:
                said += await stream.receive()
            line, _, unread = said.partition(b"\n")
            hello = decode_frame(line)
            if not isinstance(hello, Hello):
                return
            self.hellos.append(hello)
            if self.refusal is None and hello.session not in {None, _SESSION}:
                self.refusal = Refusal(code="session", text="there is no such session")
            if self.refusal is not None:
                await stream.send(encode_frame(self.refusal))
                return
            self._connection.cancel()
            # the connection before it must release the link first, or it would disconnect this one
            async with self._one_at_a_time:
                with anyio.CancelScope() as self._connection:
                    await self._carry(stream, hello, unread)
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
            pass  # cut during the handshake; the client may connect again
        finally:
            await anyio.aclose_forcefully(stream)

    async def _carry(self, stream: ByteStream, hello: Hello, unread: bytes) -> None:
        end = self.end
        welcome = Welcome(
            version=LINK_VERSION,
            session=_SESSION,
            lease=self._lease,
            received=end.received,
            replay_from=end.replay_from,
            window=end.window,
        )
        end.resume(received=hello.received, replay_from=hello.replay_from, window=hello.window)
        await stream.send(encode_frame(welcome))
        await self._carrier.carry(stream, unread=unread)

    def _on_event(self, event: LinkEvent) -> None:
        match event:
            case Data(_, data):
                self._unread.put(data)
            case End() | Bye():
                if self._reads:
                    self._read()
                self.input_over()
                if not self._stays:
                    self.end.end_process(exit_code=0)
        if self._reads:
            self._read()
        self._carrier.wake()

    def _read(self) -> None:
        while self._unread:
            self.take(self._unread.take(_CHUNK_BYTES))
        self.end.consume(self.end.received)
        self._carrier.acknowledge_soon()

    def cut(self) -> None:
        """Cut the current connection; the session goes on."""
        self._connection.cancel()

    async def send(self, data: bytes) -> None:
        """Send `data`. Waits while too many sent bytes are not acknowledged."""
        for start in range(0, len(data), _CHUNK_BYTES):
            while not self.end.has_room:
                await self._changed.wait()
            self.end.send(data[start : start + _CHUNK_BYTES])
            self._carrier.wake()

    async def finish(self) -> None:
        """Exit with 0."""
        self._exit(0)
        await anyio.lowlevel.checkpoint()

    async def fail(self) -> None:
        """Exit with the code `failure`."""
        self._exit(self._failure)
        await anyio.lowlevel.checkpoint()

    def _exit(self, code: int) -> None:
        self.end.end_process(exit_code=code, stderr_tail="that was all" if code else "")
        self._carrier.wake()

    async def stop_reading(self) -> None:
        """Stop acknowledging what arrives."""
        self._reads = False
        await anyio.lowlevel.checkpoint()

    async def resume_reading(self) -> None:
        """Read and acknowledge again."""
        self._reads = True
        self._read()
        self._carrier.wake()
        await anyio.lowlevel.checkpoint()

    async def persist(self) -> None:
        """Stay when the input ends and when the client asks it to exit."""
        self._stays = True
        await anyio.lowlevel.checkpoint()
