"""The library's own media for the conformance kit: mock, memory, a child process, sockets, WebSocket, ssh, a link, a gateway, wrappers.

Owns how each subject is made, and which clauses its medium cannot express. The other ends are in `memory_peer` and
`socket_peer`; the base classes of media, and what users pass instead of one, are in `medium`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.lowlevel
from anyio.abc import ByteStreamConnectable, TaskGroup

from claude_transport.backoff import Backoff
from claude_transport.errors import CLIConnectionError
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import ClaudeOptions
from claude_transport.link.carrier import LinkConnectable
from claude_transport.protocol.envelope import encode_line
from claude_transport.serving.door import GatewayLimits
from claude_transport.streams.memory import MemoryConnectable, MemoryStream, memory_stream_pair
from claude_transport.testing.conformance.bench import wire
from claude_transport.testing.conformance.clauses import CLAUSES
from claude_transport.testing.conformance.medium import LiveMedium, Medium, Wrapped
from claude_transport.testing.conformance.memory_peer import MemoryPeer
from claude_transport.testing.conformance.socket_peer import LinkPeer, RelayPeer, SocketPeer, WebSocketPeer, certificates
from claude_transport.testing.conformance.sshd import missing_for_sshd, shared_sshd
from claude_transport.testing.conformance.subject import Inexpressible, Peer, Play, Reason, Subject
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.network import NetworkTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import LineWrapper, ObservingWrapper, TransportWrapper
from claude_transport.wrappers.failover import FailoverTransport
from claude_transport.wrappers.faults import Duplicate
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import MetricsTransport
from claude_transport.wrappers.observable import ObservableTransport
from claude_transport.wrappers.recording import RecordingTransport
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

_LINE_LIMIT: Final = 64 * 2**10
"""Bytes of the longest line: small, so that much longer lines are cheap. Windows and replay buffers have the same size."""

_ABSORBS: Final = 2**20 if os.name == "posix" else 2**21
"""Bytes that no buffers of pipes, memory streams, windows and the relay hold together; each of them holds 64 KiB. On Windows, the event
loop has buffers of its own for each pipe.
"""

_SOCKET_ABSORBS: Final = 12 * 2**20
"""`_ABSORBS` for TCP on loopback, which holds up to 4 MiB of sent and 6 MiB of received bytes (defaults of Linux)."""

_SSH_ABSORBS: Final = 16 * 2**20
"""`_ABSORBS` for ssh, whose window alone is 2 MiB, with sockets and pipes on both sides of it."""

_GATEWAY_LIMIT: Final = _ABSORBS + 2**17
"""Bytes of a line that the gateway accepts: above the lines that the clauses write, below those that must not fit anywhere."""

_CLOSE_TIMEOUT: Final = 1.0 if os.name == "posix" else 3.0
"""Seconds that a process gets which does not exit by itself. One that does exits within milliseconds."""

_SSH_CLOSE_TIMEOUT: Final = 2.0
"""`_CLOSE_TIMEOUT` for a process behind ssh."""

_SOCKET_CLOSE_TIMEOUT: Final = 0.5
"""Seconds that closing a stream may take when the peer does not answer."""

_FAILURE: Final = 3
"""The exit code of a process that fails."""

_NEVER: Final = 2**62
"""The number of a line that no clause reaches."""

_RELAY: Final = Path(__file__).with_name("relay.py")

_NO_RESET: Mapping[str, Reason] = dict.fromkeys(("read.failure-after-last-message", "ready.not-when-broken"), Reason.CANNOT_BREAK)
_NEVER_FULL: Mapping[str, Reason] = dict.fromkeys(("write.backpressure", "write.cancel-poisons", "close.wakes-writer"), Reason.NEVER_WAITS)


def mock() -> Medium:
    """`MockTransport`. Clauses that need an active peer are excluded."""
    return _MockMedium()


def memory(*, capacity: int = 65536) -> Medium:
    """`StreamTransport` over a pair of streams in memory, each with a buffer of `capacity` bytes."""
    return _MemoryMedium(name="memory", capacity=capacity)


def lockstep() -> Medium:
    """`StreamTransport` over a pair of streams without a buffer: each write waits until the peer has read its last byte."""
    return _MemoryMedium(name="lockstep memory", capacity=0)


def subprocess(*, failure: int = _FAILURE) -> Medium:
    """`SubprocessTransport` to a real child process. When it fails it exits with `failure`; a negative number is a signal."""
    return _SubprocessMedium(failure=failure)


def tcp(*, compression: bool = False) -> Medium:
    """`NetworkTransport` over `tcp://`. With zstd `compression` the kit cannot make a writer wait: its data shrinks to nothing."""
    if not compression:
        return _SocketMedium("tcp", scheme="tcp")
    return _SocketMedium("tcp with zstd", scheme="tcp", compression=True, excludes=_NEVER_FULL)


def unix() -> Medium:
    """`NetworkTransport` over `unix://`. Its peer cannot fail: Unix sockets have no reset."""
    return _SocketMedium("unix", scheme="unix", excludes=_NO_RESET)


def tls() -> Medium:
    """`NetworkTransport` over `tls://`, which checks the certificate of the server. Needs `trustme`."""
    return _SocketMedium("tls", scheme="tls")


def mutual_tls() -> Medium:
    """`NetworkTransport` over `tls://`, where the client shows a certificate too. Needs `trustme`."""
    return _SocketMedium("mutual tls", scheme="tls", mutual=True)


def ws() -> Medium:
    """`NetworkTransport` over `ws://`, to a WebSocket server of the kit."""
    return _SocketMedium("ws", scheme="ws")


def wss() -> Medium:
    """`NetworkTransport` over `wss://`, which checks the certificate of the server. Needs `trustme`."""
    return _SocketMedium("wss", scheme="wss")


def ssh() -> Medium:
    """`SubprocessTransport` to a child behind a real ssh and sshd on loopback, with one sshd for each process that runs the kit.

    Every clause is excluded where one of the two programs is missing.
    """
    return _SshMedium()


def link() -> Medium:
    """`StreamTransport` over a resumable link, to a peer that speaks the server's side of its protocol."""
    return _LinkMedium()


def gateway(mode: Literal["link", "plain"] = "link") -> Medium:
    """`StreamTransport` to a real child process behind a `Gateway`, in one of its two modes."""
    return _GatewayMedium(mode)


def fleet(url: str | Callable[[], str]) -> Medium:
    """`FleetTransport` to a real child process on a worker, through the broker at `url`. Each subject has keys of its own there.

    A function that returns the URL is called before the first subject.
    """
    return _FleetMedium(url)


def wrapped(medium: Medium, wrapper: Callable[[Transport], Transport], *, name: str | None = None) -> Medium:
    """Put `wrapper` around every transport of `medium`. It must keep the same clauses."""
    return Wrapped(medium, wrapper, name=name)


def recorded(medium: Medium) -> Medium:
    """Put a `RecordingTransport` around every transport of `medium`, each with its own tape, which is deleted afterwards."""
    return _RecordedMedium(medium)


def shipped() -> tuple[Medium, ...]:
    """Return every medium of this library, and every wrapper around memory: the columns of the contract page."""
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
        wrapped(memory(), ObservableTransport),
        wrapped(memory(), TracingTransport),
        recorded(memory()),
        wrapped(memory(), retried, name="RetryingTransport(memory)"),
        wrapped(memory(), only_one, name="FailoverTransport(memory)"),
        wrapped(memory(), without_faults, name="FaultyTransport(memory)"),
    )


def without_faults(transport: Transport) -> Transport:
    """Wrap in a `FaultyTransport` that inspects every line and changes none."""
    return FaultyTransport(transport, [Duplicate(line=_NEVER)])


def logged(transport: Transport) -> Transport:
    """Wrap in a `LoggingTransport` that logs everything to a logger without output."""
    logger = logging.Logger("conformance", logging.DEBUG)  # noqa: LOG001 - without a parent, so that no other handler gets it
    logger.addHandler(logging.NullHandler())
    return LoggingTransport(transport, logger=logger, bodies=True)


def watched(transport: Transport) -> Transport:
    """Wrap in a `StatefulTransport` with a callback."""
    return StatefulTransport(transport, on_change=lambda _old, _new: None)


def retried(transport: Transport) -> Transport:
    """Wrap in a `RetryingTransport` that does not wait between attempts."""
    return RetryingTransport(transport, backoff=Backoff(first=0))


def only_one(transport: Transport) -> Transport:
    """Wrap in a `FailoverTransport` that has no other transport."""
    return FailoverTransport([lambda _session_id: transport])


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
        peer = _MockPeer(transport)
        yield Subject(transport=transport, peer=peer, absorbs=1000, prime=peer.prime)


class _MockPeer(Peer):
    """Sees what the transport wrote, and that it is closed. It cannot send: its output is fixed before the transport connects."""

    _QUESTION: Final = {"type": "control_request", "request_id": "conformance", "request": {"subtype": "conformance"}}

    def __init__(self, transport: MockTransport) -> None:
        super().__init__()
        self._transport = transport
        self._seen = 0

    async def prime(self) -> None:
        """Send the mock a question: from then on it waits instead of ending, as under the control protocol."""
        await self._transport.write(wire(self._QUESTION))
        await anext(aiter(self._transport.read_messages()))
        self._seen = len(self._transport.written)

    def _look(self) -> None:
        new = self._transport.written[self._seen :]
        self._seen += len(new)
        if new:
            self.take(b"".join(encode_line(each) for each in new))
        if not self._transport.is_ready():
            self.input_over()

    @property
    def received(self) -> bytes:
        self._look()
        return super().received

    @property
    def input_ended(self) -> bool:
        self._look()
        return super().input_ended

    async def receive_line(self) -> bytes:
        self._look()
        return await super().receive_line()

    async def wait_input_end(self) -> None:
        self._look()
        await super().wait_input_end()

    async def send(self, data: bytes) -> None:
        raise Inexpressible(Reason.SCRIPTED)

    async def finish(self) -> None:
        raise Inexpressible(Reason.SCRIPTED)

    async def fail(self) -> None:
        raise Inexpressible(Reason.CANNOT_BREAK)

    async def stop_reading(self) -> None:
        pass  # the mock accepts every write at once

    async def resume_reading(self) -> None:
        pass


class _Refusing(ByteStreamConnectable):
    """An opener whose connections can be made to fail."""

    _refuses = False

    def refuse(self, refusing: bool) -> None:
        """Let every `connect()` fail, or succeed again."""
        self._refuses = refusing

    def _check(self) -> None:
        if self._refuses:
            raise ConnectionRefusedError("the conformance kit refuses this connection")


class _MemoryMedium(LiveMedium):
    def __init__(self, *, name: str, capacity: int) -> None:
        self.name = name
        self._capacity = capacity

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        async with MemoryPeer.pair(capacity=self._capacity) as (stream, peer):
            opener = _MemoryOpener(stream)
            transport = StreamTransport(opener, max_line_bytes=_LINE_LIMIT)
            yield Subject(transport=transport, peer=peer, refuse=opener.refuse, max_line_bytes=_LINE_LIMIT, absorbs=_ABSORBS)


class _MemoryOpener(_Refusing):
    """Returns its one stream, after a few checkpoints at which the call can be cancelled."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream

    async def connect(self) -> MemoryStream:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        self._check()
        return self._stream


@contextmanager
def _folder() -> Iterator[tuple[Path, Callable[[bool], None]]]:
    """Give a working directory, and a function that takes it away, so that `connect()` fails. For Windows, where a link needs rights."""
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as outer:
        folder = Path(outer, "here")

        def refuse(refusing: bool) -> None:
            if refusing:
                folder.rmdir()
            else:
                folder.mkdir(exist_ok=True)

        refuse(False)
        yield folder, refuse


@contextmanager
def _python() -> Iterator[tuple[str, Callable[[bool], None]]]:
    """Give the path of a Python for the relay, and a function that takes it away, so that `connect()` fails."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        python = Path(folder, "python")

        def refuse(refusing: bool) -> None:
            with contextlib.suppress(FileNotFoundError):
                python.unlink()
            if not refusing:
                python.symlink_to(os.path.realpath(sys.executable))

        refuse(False)
        yield str(python), refuse


def _relay(python: str, peer: RelayPeer) -> list[str]:
    return [python, "-I", "-S", str(_RELAY), "127.0.0.1", str(peer.port)]


class _SubprocessMedium(LiveMedium):
    name = "subprocess"
    _close_timeout = _CLOSE_TIMEOUT
    _absorbs = _ABSORBS

    def __init__(self, *, failure: int) -> None:
        self._failure = failure

    def _launcher(self) -> Launcher | None:
        return None

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        is_posix = os.name == "posix"
        with _python() if is_posix else _folder() as (place, refuse):
            async with RelayPeer.listening(failure=self._failure) as peer:
                yield Subject(
                    transport=SubprocessTransport(
                        ClaudeOptions(cwd=None if is_posix else place),
                        command=_relay(str(place) if is_posix else sys.executable, peer),
                        launcher=self._launcher(),
                        max_line_bytes=_LINE_LIMIT,
                        close_timeout=self._close_timeout,
                    ),
                    peer=peer,
                    refuse=refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=self._close_timeout,
                    absorbs=self._absorbs,
                )


class _SshMedium(_SubprocessMedium):
    """The same child behind ssh; each subject logs in anew."""

    name = "ssh"
    _close_timeout = _SSH_CLOSE_TIMEOUT
    _absorbs = _SSH_ABSORBS

    def __init__(self) -> None:
        super().__init__(failure=_FAILURE)
        if missing_for_sshd():
            self.excludes: Mapping[str, Reason] = {clause.id: Reason.NO_SSHD for clause in CLAUSES}

    def prepare(self) -> None:
        shared_sshd()

    def _launcher(self) -> Launcher:
        return shared_sshd().launcher()


class _SocketMedium(LiveMedium):
    """`NetworkTransport` in plain mode, to a listener on this machine."""

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
        is_secure = self._scheme in {"tls", "wss"}
        server = certificates().server_context(asks_for_certificate=self._mutual) if is_secure else None
        client = certificates().client_context(shows_certificate=self._mutual) if is_secure else None
        is_websocket = self._scheme in {"ws", "wss"}
        close_timeout = _SOCKET_CLOSE_TIMEOUT if is_websocket else _CLOSE_TIMEOUT
        with ExitStack() as stack:
            path = None
            if self._scheme == "unix":
                path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")), "peer"))
            listener = (
                WebSocketPeer(ssl_context=server)
                if is_websocket
                else SocketPeer(path=path, ssl_context=server, compressed=self._compression)
            )
            async with listener.listening() as peer:
                place = path if path is not None else f"127.0.0.1:{peer.port}{'/talk' if is_websocket else ''}"
                transport = NetworkTransport(
                    f"{self._scheme}://{place}",
                    ssl_context=client,
                    resume=False,
                    compression="zstd" if self._compression else None,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=close_timeout,
                )
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=peer.refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=close_timeout,
                    absorbs=_SOCKET_ABSORBS,
                )


class _LinkMedium(LiveMedium):
    name = "link"

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        opener = _LinkOpener()
        async with LinkPeer(window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT).listening(opener.accept) as peer:
            link = LinkConnectable(opener, window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT, close_timeout=_CLOSE_TIMEOUT)
            yield Subject(
                transport=StreamTransport(link, max_line_bytes=_LINE_LIMIT, close_timeout=2 * _CLOSE_TIMEOUT),
                peer=peer,
                refuse=opener.refuse,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=2 * _CLOSE_TIMEOUT,
                absorbs=_ABSORBS,
            )


class _LinkOpener(_Refusing, MemoryConnectable):
    async def connect(self) -> MemoryStream:
        self._check()
        return await super().connect()


class _GatewayMedium(LiveMedium):
    """A child process behind the gateway, a client in front of it, and connections in memory between the two."""

    def __init__(self, mode: Literal["link", "plain"]) -> None:
        self._mode: Literal["link", "plain"] = mode
        self.name = f"gateway, {mode}"
        if mode == "plain":
            failure = ("read.failure-after-last-message", "write.broken-stays-broken", "ready.not-when-broken")
            self.excludes: Mapping[str, Reason] = {
                **dict.fromkeys(failure, Reason.NO_STATUS),
                **dict.fromkeys(_NEVER_FULL, Reason.WHOLE_LINES),
            }

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        async with RelayPeer.listening(failure=_FAILURE) as peer, anyio.create_task_group() as tasks:

            def launch(_: ClaudeOptions) -> Transport:
                command = _relay(os.path.realpath(sys.executable), peer)
                return SubprocessTransport(command=command, close_timeout=_CLOSE_TIMEOUT, max_line_bytes=_GATEWAY_LIMIT)

            limits = GatewayLimits(replay_bytes=_LINE_LIMIT, line_bytes=_GATEWAY_LIMIT)
            async with Gateway(launch=launch, modes=[self._mode], limits=limits) as gateway:
                door = _GatewayOpener(gateway, tasks)
                link = LinkConnectable(door, window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT, close_timeout=2 * _CLOSE_TIMEOUT)
                yield Subject(
                    transport=StreamTransport(
                        door if self._mode == "plain" else link, max_line_bytes=_LINE_LIMIT, close_timeout=3 * _CLOSE_TIMEOUT
                    ),
                    peer=peer,
                    refuse=door.refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=3 * _CLOSE_TIMEOUT,
                    absorbs=_ABSORBS,
                    # plain mode does not say when the process has started; its first answer does
                    prime=peer.resume_reading,
                )
                await gateway.aclose()
            tasks.cancel_scope.cancel()


class _GatewayOpener(_Refusing):
    """Opens connections in memory and hands their other ends to the gateway."""

    def __init__(self, gateway: Gateway, tasks: TaskGroup) -> None:
        self._gateway = gateway
        self._tasks = tasks

    async def connect(self) -> MemoryStream:
        await anyio.lowlevel.checkpoint()
        self._check()
        ours, theirs = memory_stream_pair()
        self._tasks.start_soon(self._gateway.attend, Arrival(theirs, medium="memory", peer="the kit"))
        return ours


class _FleetMedium(LiveMedium):
    """A child process on a worker of a fleet, a client, and a real broker between the two."""

    name = "fleet"

    def __init__(self, url: str | Callable[[], str]) -> None:
        self._find_url = url if callable(url) else lambda: url

    def prepare(self) -> None:
        self._find_url()

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        from claude_transport.fleet import FleetTransport, FleetWorker  # the kit without a fleet needs no coredis

        refuses = False

        def refuse(refusing: bool) -> None:
            nonlocal refuses
            refuses = refusing

        async with RelayPeer.listening(failure=_FAILURE) as peer, anyio.create_task_group() as tasks:

            def launch(_: ClaudeOptions) -> Transport:
                if refuses:
                    raise CLIConnectionError("the conformance kit refuses this connection")
                command = _relay(os.path.realpath(sys.executable), peer)
                return SubprocessTransport(command=command, close_timeout=_CLOSE_TIMEOUT, max_line_bytes=_GATEWAY_LIMIT)

            url = f"{self._find_url()}?prefix=kit-{secrets.token_hex(4)}"
            worker = FleetWorker(url, launch=launch, limits=GatewayLimits(line_bytes=_GATEWAY_LIMIT))
            tasks.start_soon(worker.serve)
            await worker.started.wait()
            yield Subject(
                transport=FleetTransport(url, window=_LINE_LIMIT, max_line_bytes=_LINE_LIMIT, close_timeout=3 * _CLOSE_TIMEOUT),
                peer=peer,
                refuse=refuse,
                max_line_bytes=_LINE_LIMIT,
                close_timeout=4 * _CLOSE_TIMEOUT,
                absorbs=_ABSORBS,
            )
            tasks.cancel_scope.cancel()


class _RecordedMedium(Medium):
    is_wrapper = True

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self.name = f"RecordingTransport({medium.name})"
        self.excludes = dict(medium.excludes)

    def prepare(self) -> None:
        self._medium.prepare()

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            async with self._in(folder).open(play) as subject:
                yield subject

    @asynccontextmanager
    async def around(self, inside: Transport) -> AsyncIterator[Transport]:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            async with self._in(folder).around(inside) as transport:
                yield transport

    def _in(self, folder: str) -> Medium:
        return wrapped(self._medium, lambda transport: RecordingTransport(transport, Path(folder, "tape")))
