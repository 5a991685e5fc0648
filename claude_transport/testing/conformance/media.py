"""The media that come with the library, as subjects for the kit: mock, memory, a child process, sockets, ssh, a link, and wrappers."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio.lowlevel

from claude_transport.backoff import Backoff
from claude_transport.streams.memory import MemoryStream
from claude_transport.testing.conformance.gateway_medium import GatewayMedium
from claude_transport.testing.conformance.link_medium import LinkMedium
from claude_transport.testing.conformance.medium import LiveMedium, Medium, Wrapped
from claude_transport.testing.conformance.memory_peer import MemoryPeer
from claude_transport.testing.conformance.mock_peer import MockPeer
from claude_transport.testing.conformance.reason import Reason
from claude_transport.testing.conformance.relay_peer import RelayPeer
from claude_transport.testing.conformance.socket_media import mutual_tls, tcp, tls, unix
from claude_transport.testing.conformance.ssh_medium import SshMedium
from claude_transport.testing.conformance.subject import Play, Subject
from claude_transport.testing.conformance.websocket_medium import WebSocketMedium
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.faults import Duplicate
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.lines import LineWrapper
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import MetricsTransport
from claude_transport.wrappers.observing import ObservingWrapper
from claude_transport.wrappers.recording import RecordingTransport
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

__all__ = [
    "gateway",
    "link",
    "lockstep",
    "logged",
    "memory",
    "mock",
    "mutual_tls",
    "recorded",
    "retried",
    "shipped",
    "ssh",
    "subprocess",
    "tcp",
    "tls",
    "unix",
    "watched",
    "without_faults",
    "wrapped",
    "ws",
    "wss",
]

_LINE_LIMIT = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap."""

_ABSORBS = 2**20
"""Bytes: a pipe or a memory stream holds 64 KiB, the kit's relay another 64 KiB."""

_NEVER = 2**62
"""The number of a line that no clause gets to."""

_CLOSE_TIMEOUT = 1.0
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
        "connect.failure-is-clean": Reason.no_refusal,
        "ready.not-when-broken": Reason.cannot_break,
        "write.whole-lines": Reason.no_bytes,
        "write.backpressure": Reason.never_waits,
        "write.cancel-poisons": Reason.never_waits,
        "write.broken-stays-broken": Reason.cannot_break,
        "write.large-write-while-peer-writes": Reason.never_waits,
        "read.any-chunking": Reason.no_bytes,
        "read.line-limit": Reason.no_line_limit,
        "read.final-line-without-newline": Reason.no_bytes,
        "read.truncated-tail-is-reported": Reason.no_bytes,
        "read.failure-after-last-message": Reason.cannot_break,
        "read.cancel-loses-nothing": Reason.scripted,
        "end.half-close": Reason.scripted,
        "close.wakes-writer": Reason.never_waits,
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


class _Opener:
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
