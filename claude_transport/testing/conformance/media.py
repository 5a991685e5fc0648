"""The media that come with the library, as subjects for the kit: mock, memory, a child process, sockets, ssh, a link, and wrappers."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.lowlevel
from anyio.abc import ByteStreamConnectable, TaskGroup

from claude_transport.backoff import Backoff
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.door import GatewayLimits
from claude_transport.gateway.gateway import Gateway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.streams.link import LinkConnectable
from claude_transport.streams.memory import MemoryConnectable, MemoryStream, memory_stream_pair
from claude_transport.testing.conformance.clauses import CLAUSES
from claude_transport.testing.conformance.link_peer import LinkPeer
from claude_transport.testing.conformance.medium import LiveMedium, Medium, Wrapped
from claude_transport.testing.conformance.memory_peer import MemoryPeer
from claude_transport.testing.conformance.mock_peer import MockPeer
from claude_transport.testing.conformance.socket_peer import RelayPeer, SocketPeer, WebSocketPeer, certificates
from claude_transport.testing.conformance.sshd import missing_for_sshd, shared_sshd
from claude_transport.testing.conformance.subject import Play, Reason, Subject
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.network import NetworkTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import LineWrapper, ObservingWrapper, TransportWrapper
from claude_transport.wrappers.faults import Duplicate
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import MetricsTransport
from claude_transport.wrappers.recording import RecordingTransport
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

# --- A gateway as a medium of the kit: a child process behind it, a client in front of it, connections in memory between the two.


_LINE_LIMIT = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap. The windows and the replay buffers are as large."""

_GATEWAY_ABSORBS = 2**20
"""Bytes: windows, replay buffers, pipes and memory streams hold 64 KiB each."""

_GATEWAY_LIMIT = _GATEWAY_ABSORBS + 2**17
"""Bytes of a line that the gateway takes: over those that the clauses write, under those that they expect nobody to hold."""

_CLOSE_TIMEOUT = 1.0
"""Seconds that a child which does not want to leave gets."""

_RELAY = Path(__file__).with_name("relay.py")


class GatewayMedium(LiveMedium):
    """`StreamTransport` to a process behind a `Gateway`, in link or in plain mode."""

    def __init__(self, mode: Literal["link", "plain"]) -> None:
        self._mode: Literal["link", "plain"] = mode
        self.name = f"gateway, {mode}"
        if mode == "plain":
            failure = ("read.failure-after-last-message", "write.broken-stays-broken", "ready.not-when-broken")
            waiting = ("write.backpressure", "write.cancel-poisons", "close.wakes-writer")
            self.excludes: Mapping[str, Reason] = {**dict.fromkeys(failure, Reason.NO_STATUS), **dict.fromkeys(waiting, Reason.WHOLE_LINES)}

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport to a new process."""
        async with RelayPeer.listening(failure=3) as peer, anyio.create_task_group() as tasks:

            def launch(_: ClaudeOptions) -> Transport:
                command = [os.path.realpath(sys.executable), "-I", "-S", str(_RELAY), "127.0.0.1", str(peer.port)]
                return SubprocessTransport(command=command, close_timeout=_CLOSE_TIMEOUT, max_line_bytes=_GATEWAY_LIMIT)

            limits = GatewayLimits(replay_bytes=_LINE_LIMIT, line_bytes=_GATEWAY_LIMIT)
            async with Gateway(launch=launch, modes=[self._mode], limits=limits) as gateway:
                door = _GatewayDoor(gateway, tasks)
                opener = door if self._mode == "plain" else self._link(door)
                yield Subject(
                    transport=StreamTransport(opener, max_line_bytes=_LINE_LIMIT, close_timeout=3 * _CLOSE_TIMEOUT),
                    peer=peer,
                    refuse=door.refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=3 * _CLOSE_TIMEOUT,
                    absorbs=_GATEWAY_ABSORBS,
                    # in plain mode nothing says that the process is there; its first answer does
                    prime=peer.resume_reading,
                )
                await gateway.aclose()
            tasks.cancel_scope.cancel()

    def _link(self, door: _GatewayDoor) -> LinkConnectable:
        return LinkConnectable(door, window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT, close_timeout=2 * _CLOSE_TIMEOUT)


class _GatewayDoor(ByteStreamConnectable):
    """Opens connections in memory, and has the gateway attend to them."""

    def __init__(self, gateway: Gateway, tasks: TaskGroup) -> None:
        self._gateway = gateway
        self._tasks = tasks
        self._refusing = False

    def refuse(self, refusing: bool) -> None:
        self._refusing = refusing

    async def connect(self) -> MemoryStream:
        await anyio.lowlevel.checkpoint()
        if self._refusing:
            raise ConnectionRefusedError("nobody is at home")
        ours, theirs = memory_stream_pair()
        self._tasks.start_soon(self._gateway.attend, Arrival(theirs, medium="memory", peer="the kit"))
        return ours


# --- The resumable link as a medium of the kit: over connections in memory, to a peer that speaks the server's side.


"""Bytes: as small as possible, so that lines far over it are cheap. The window and the replay buffers are as large."""

"""Seconds that a far process which does not want to leave gets."""


class LinkMedium(LiveMedium):
    """`StreamTransport` over a `LinkConnectable`."""

    name = "link"

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport of a new session."""
        door = _LinkDoor()
        async with LinkPeer(window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT).listening(door.accept) as peer:
            link = LinkConnectable(door, window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT, close_timeout=_CLOSE_TIMEOUT)
            yield Subject(
                transport=StreamTransport(link, max_line_bytes=_LINE_LIMIT, close_timeout=2 * _CLOSE_TIMEOUT),
                peer=peer,
                refuse=door.refuse,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=2 * _CLOSE_TIMEOUT,
                absorbs=2**20,
            )


class _LinkDoor(MemoryConnectable):
    """Connections in memory, when there are any to be had."""

    def __init__(self) -> None:
        super().__init__()
        self._refusing = False

    def refuse(self, refusing: bool) -> None:
        self._refusing = refusing

    async def connect(self) -> MemoryStream:
        if self._refusing:
            raise ConnectionRefusedError("nobody is at home")
        return await super().connect()


# --- The media of `NetworkTransport` in plain mode: TCP, Unix sockets, TLS (also mutual), zstd; each against a listener on this machine.


"""Bytes: as small as possible, so that lines far over it are cheap."""

_SOCKET_ABSORBS = 12 * 2**20
"""Bytes: a TCP connection on loopback holds up to 4 MiB that were sent and up to 6 MiB that were not received (Linux's defaults)."""

"""Seconds that closing a stream may take."""

_NO_RESET: Mapping[str, Reason] = {
    "read.failure-after-last-message": Reason.CANNOT_BREAK,
    "ready.not-when-broken": Reason.CANNOT_BREAK,
}
_NEVER_FULL: Mapping[str, Reason] = {
    "write.backpressure": Reason.NEVER_WAITS,
    "write.cancel-poisons": Reason.NEVER_WAITS,
    "close.wakes-writer": Reason.NEVER_WAITS,
}


def tcp(*, compression: bool = False) -> Medium:
    """`NetworkTransport` over `tcp://`, on request with zstd, where the kit cannot make a writer wait: its flood shrinks to nothing."""
    if not compression:
        return _SocketMedium("tcp", scheme="tcp")
    return _SocketMedium("tcp with zstd", scheme="tcp", compression=True, excludes=_NEVER_FULL)


def unix() -> Medium:
    """`NetworkTransport` over `unix://`, whose peer cannot break off: it has no reset, and its end is the end."""
    return _SocketMedium(
        "unix",
        scheme="unix",
        excludes={"read.failure-after-last-message": Reason.CANNOT_BREAK, "ready.not-when-broken": Reason.CANNOT_BREAK},
    )


def tls() -> Medium:
    """`NetworkTransport` over `tls://`, the server's certificate checked. Its subjects need `trustme`."""
    return _SocketMedium("tls", scheme="tls")


def mutual_tls() -> Medium:
    """The same, and the client shows a certificate, too."""
    return _SocketMedium("mutual tls", scheme="tls", mutual=True)


class _SocketMedium(LiveMedium):
    def __init__(
        self, name: str, *, scheme: str, compression: bool = False, mutual: bool = False, excludes: Mapping[str, Reason] | None = None
    ) -> None:
        self.name = name
        self.excludes = excludes or {}
        self._scheme = scheme
        self._compression = compression
        self._mutual = mutual

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        is_tls = self._scheme == "tls"
        server = certificates().server_context(asks_for_certificate=self._mutual) if is_tls else None
        client = certificates().client_context(shows_certificate=self._mutual) if is_tls else None
        with ExitStack() as stack:
            path = None
            if self._scheme == "unix":
                path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")), "peer"))
            async with SocketPeer(path=path, ssl_context=server, compressed=self._compression).listening() as peer:
                transport = NetworkTransport(
                    f"unix://{path}" if path is not None else f"{self._scheme}://127.0.0.1:{peer.port}",
                    ssl_context=client,
                    resume=False,
                    compression="zstd" if self._compression else None,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                )
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=peer.refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                    absorbs=_SOCKET_ABSORBS,
                )


# --- ssh as a medium of the kit: a child process at the other end of the system's own ssh, by way of a real sshd on loopback.


_SSH_LINE_LIMIT: Final = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap."""

_SSH_ABSORBS: Final = 16 * 2**20
"""Bytes: a window of ssh alone is 2 MiB, and there are sockets and pipes on both sides of it."""

_SSH_CLOSE_TIMEOUT: Final = 2.0
"""Seconds a process at the other end that does not want to leave gets in all."""

_FAILURE: Final = 3
"""The exit code that is its bad end."""


class SshMedium(LiveMedium):
    """`SubprocessTransport(launcher=Launcher.ssh(…))`. Where there is no sshd, or no ssh, every clause is excluded for that reason."""

    name = "ssh"

    def __init__(self) -> None:
        if missing_for_sshd():
            self.excludes: Mapping[str, Reason] = {clause.id: Reason.NO_SSHD for clause in CLAUSES}

    def prepare(self) -> None:
        """Have the sshd of this process running."""
        shared_sshd()

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport to a new process, each by a login of its own."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            python = Path(folder, "python")  # a link of our own: without it, connect() fails

            def refuse(refusing: bool) -> None:
                with contextlib.suppress(FileNotFoundError):
                    python.unlink()
                if not refusing:
                    python.symlink_to(os.path.realpath(sys.executable))

            refuse(False)
            async with RelayPeer.listening(failure=_FAILURE) as peer:
                transport = SubprocessTransport(
                    command=[str(python), "-I", "-S", str(_RELAY), "127.0.0.1", str(peer.port)],
                    launcher=shared_sshd().launcher(),
                    max_line_bytes=_SSH_LINE_LIMIT,
                    close_timeout=_SSH_CLOSE_TIMEOUT,
                )
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=refuse,
                    max_line_bytes=_SSH_LINE_LIMIT,
                    close_timeout=_SSH_CLOSE_TIMEOUT,
                    absorbs=_SSH_ABSORBS,
                )


# --- WebSocket as a medium of the kit: `NetworkTransport` in plain mode over `ws://` and `wss://`, to a server of our own on loopback.


"""Bytes: as small as possible, so that lines far over it are cheap."""

"""Bytes: a TCP connection on loopback holds up to 4 MiB that were sent and up to 6 MiB that were not received (Linux's defaults)."""

_WEBSOCKET_CLOSE_TIMEOUT = 0.5
"""Seconds that closing a stream may take when the peer does not take part."""


class WebSocketMedium(LiveMedium):
    """`NetworkTransport` over `ws://`, or, `secure`, over `wss://`, which needs `trustme`."""

    def __init__(self, *, secure: bool = False) -> None:
        self._secure = secure
        self.name = "wss" if secure else "ws"

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport to a peer of its own."""
        server = certificates().server_context() if self._secure else None
        client = certificates().client_context() if self._secure else None
        async with WebSocketPeer(ssl_context=server).listening() as peer:
            transport = NetworkTransport(
                f"{self.name}://127.0.0.1:{peer.port}/talk",
                ssl_context=client,
                resume=False,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=_WEBSOCKET_CLOSE_TIMEOUT,
            )
            yield Subject(
                transport=transport,
                peer=peer,
                refuse=peer.refuse,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=_WEBSOCKET_CLOSE_TIMEOUT,
                absorbs=_SOCKET_ABSORBS,
            )


"""Bytes: as small as possible, so that lines far over it are cheap."""

_ABSORBS = 2**20
"""Bytes: a pipe or a memory stream holds 64 KiB, the kit's relay another 64 KiB."""

_NEVER = 2**62
"""The number of a line that no clause gets to."""

"""Seconds a child that does not want to leave gets in all; one that does leaves within milliseconds."""

RELAY = Path(__file__).with_name("relay.py")


def mock() -> Medium:
    """`MockTransport`: what it cannot express, for want of a peer that acts, is excluded."""
    return _MockMedium()


def memory(*, capacity: int = 65536) -> Medium:
    """`StreamTransport` over a pair of streams in memory."""
    return _MemoryMedium(name="memory", capacity=capacity)


def lockstep() -> Medium:
    """`StreamTransport` over a pair without any buffer: each write waits until the peer has taken its last byte."""
    return _MemoryMedium(name="lockstep memory", capacity=0)


def subprocess(*, failure: int = 3) -> Medium:
    """`SubprocessTransport` to a real child; its bad end is the exit code `failure`, or the signal `-failure` when negative."""
    return _SubprocessMedium(failure=failure)


def link() -> Medium:
    """`StreamTransport` over a resumable link, to a peer that speaks the server's side of its protocol."""
    return LinkMedium()


def gateway(mode: Literal["link", "plain"] = "link") -> Medium:
    """`StreamTransport` to a real child behind a `Gateway`, in one of its two modes."""
    return GatewayMedium(mode)


def ws() -> Medium:
    """`NetworkTransport` over `ws://`, to a WebSocket server of our own."""
    return WebSocketMedium()


def wss() -> Medium:
    """The same inside TLS, the server's certificate checked. Its subjects need `trustme`."""
    return WebSocketMedium(secure=True)


def ssh() -> Medium:
    """`SubprocessTransport` to a child behind a real ssh and a real sshd, on loopback: one sshd for each process that runs the kit."""
    return SshMedium()


def wrapped(medium: Medium, wrapper: Callable[[Transport], Transport], *, name: str | None = None) -> Medium:
    """`wrapper` around every transport of `medium`: it owes what the medium owes."""
    return Wrapped(medium, wrapper, name=name)


def recorded(medium: Medium) -> Medium:
    """`RecordingTransport` around every transport of `medium`, each with a tape of its own, thrown away afterwards."""
    return _RecordedMedium(medium)


def shipped() -> tuple[Medium, ...]:
    """Every medium of this library, and every wrapper around memory: what the page of the contract shows."""
    return (
        mock(),
        memory(),
        lockstep(),
        subprocess(),
        tcp(),
        unix(),
        tls(),
        ws(),
        wss(),
        ssh(),
        link(),
        gateway("link"),
        gateway("plain"),
        wrapped(memory(), TransportWrapper),
        wrapped(memory(), LineWrapper),
        wrapped(memory(), ObservingWrapper),
        wrapped(memory(), logged, name="LoggingTransport(memory)"),
        wrapped(memory(), watched, name="StatefulTransport(memory)"),
        wrapped(memory(), MetricsTransport),
        wrapped(memory(), TracingTransport),
        recorded(memory()),
        wrapped(memory(), retried, name="RetryingTransport(memory)"),
        wrapped(memory(), without_faults, name="FaultyTransport(memory)"),
    )


def without_faults(transport: Transport) -> Transport:
    """A `FaultyTransport` at work on what is read that changes none of it."""
    return FaultyTransport(transport, [Duplicate(line=_NEVER)])


def logged(transport: Transport) -> Transport:
    """A `LoggingTransport` that logs everything to nowhere."""
    logger = logging.Logger("conformance", logging.DEBUG)  # noqa: LOG001 - known to nobody, so that nobody above it listens
    logger.addHandler(logging.NullHandler())
    return LoggingTransport(transport, logger=logger, bodies=True)


def watched(transport: Transport) -> Transport:
    """A `StatefulTransport` with somebody to tell."""
    return StatefulTransport(transport, on_change=lambda _old, _new: None)


def retried(transport: Transport) -> Transport:
    """A `RetryingTransport` that loses no time between its attempts."""
    return RetryingTransport(transport, backoff=Backoff(first=0))


class _MockMedium(Medium):
    name = "mock"
    excludes: Mapping[str, Reason] = {
        "connect.failure-is-clean": Reason.NO_REFUSAL,
        "ready.not-when-broken": Reason.CANNOT_BREAK,
        "write.whole-lines": Reason.NO_BYTES,
        "write.backpressure": Reason.NEVER_WAITS,
        "write.cancel-poisons": Reason.NEVER_WAITS,
        "write.broken-stays-broken": Reason.CANNOT_BREAK,
        "write.large-write-while-peer-writes": Reason.NEVER_WAITS,
        "read.any-chunking": Reason.NO_BYTES,
        "read.line-limit": Reason.NO_LINE_LIMIT,
        "read.final-line-without-newline": Reason.NO_BYTES,
        "read.truncated-tail-is-reported": Reason.NO_BYTES,
        "read.failure-after-last-message": Reason.CANNOT_BREAK,
        "read.cancel-loses-nothing": Reason.SCRIPTED,
        "end.half-close": Reason.SCRIPTED,
        "close.wakes-writer": Reason.NEVER_WAITS,
    }

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        transport = MockTransport(b"".join(play.says).split(b"\n")[:-1])
        peer = MockPeer(transport)
        yield Subject(transport=transport, peer=peer, absorbs=1000, prime=peer.prime)


class _MemoryMedium(LiveMedium):
    def __init__(self, *, name: str, capacity: int) -> None:
        self.name = name
        self._capacity = capacity

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        async with MemoryPeer.pair(capacity=self._capacity) as (stream, peer):
            opener = _Opener(stream)
            transport = StreamTransport(opener, max_line_bytes=_LINE_LIMIT)
            yield Subject(transport=transport, peer=peer, refuse=opener.refuse, max_line_bytes=_LINE_LIMIT, absorbs=_ABSORBS)


class _Opener(ByteStreamConnectable):
    """Gives its one stream when asked, after a few turns of the event loop in which the asking may be cancelled."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream
        self._refusing = False

    def refuse(self, refusing: bool) -> None:
        self._refusing = refusing

    async def connect(self) -> MemoryStream:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        if self._refusing:
            raise ConnectionRefusedError("nobody is at home")
        return self._stream


class _SubprocessMedium(LiveMedium):
    def __init__(self, *, failure: int) -> None:
        self._failure = failure
        self.name = "subprocess"

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            python = Path(folder, "python")  # a link of our own: without it, connect() fails

            def refuse(refusing: bool) -> None:
                with contextlib.suppress(FileNotFoundError):
                    python.unlink()
                if not refusing:
                    python.symlink_to(os.path.realpath(sys.executable))

            refuse(False)
            async with RelayPeer.listening(failure=self._failure) as peer:
                command = [str(python), "-I", "-S", str(RELAY), "127.0.0.1", str(peer.port)]
                transport = SubprocessTransport(command=command, max_line_bytes=_LINE_LIMIT, close_timeout=_CLOSE_TIMEOUT)
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                    absorbs=_ABSORBS,
                )


class _RecordedMedium(Medium):
    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self.name = f"RecordingTransport({medium.name})"
        self.excludes = dict(medium.excludes)

    def prepare(self) -> None:
        self._medium.prepare()

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            inside = wrapped(self._medium, lambda transport: RecordingTransport(transport, Path(folder, "tape")))
            async with inside.open(play) as subject:
                yield subject
