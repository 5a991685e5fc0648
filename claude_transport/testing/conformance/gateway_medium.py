"""A gateway as a medium of the kit: a child process behind it, a client in front of it, connections in memory between the two."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.limits import GatewayLimits
from claude_transport.launch.options import ClaudeOptions
from claude_transport.streams.link import LinkConnectable
from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.testing.conformance.medium import LiveMedium
from claude_transport.testing.conformance.reason import Reason
from claude_transport.testing.conformance.relay_peer import RelayPeer
from claude_transport.testing.conformance.subject import Subject
from claude_transport.transport import Transport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport

__all__ = ["GatewayMedium"]

_LINE_LIMIT = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap. The windows and the replay buffers are as large."""

_ABSORBS = 2**20
"""Bytes: windows, replay buffers, pipes and memory streams hold 64 KiB each."""

_GATEWAY_LIMIT = _ABSORBS + 2**17
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
            self.excludes: Mapping[str, Reason] = {**dict.fromkeys(failure, Reason.no_status), **dict.fromkeys(waiting, Reason.whole_lines)}

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport to a new process."""
        async with RelayPeer.listening(failure=3) as peer, anyio.create_task_group() as tasks:

            def launch(_: ClaudeOptions) -> Transport:
                command = [os.path.realpath(sys.executable), "-I", "-S", str(_RELAY), "127.0.0.1", str(peer.port)]
                return SubprocessTransport(command=command, close_timeout=_CLOSE_TIMEOUT, max_line_bytes=_GATEWAY_LIMIT)

            limits = GatewayLimits(replay_bytes=_LINE_LIMIT, line_bytes=_GATEWAY_LIMIT)
            async with Gateway(launch=launch, modes=[self._mode], limits=limits) as gateway:
                door = _Door(gateway, tasks)
                opener = door if self._mode == "plain" else self._link(door)
                yield Subject(
                    transport=StreamTransport(opener, max_line_bytes=_LINE_LIMIT, close_timeout=3 * _CLOSE_TIMEOUT),
                    peer=peer,
                    refuse=door.refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=3 * _CLOSE_TIMEOUT,
                    absorbs=_ABSORBS,
                    # in plain mode nothing says that the process is there; its first answer does
                    prime=peer.resume_reading,
                )
                await gateway.aclose()
            tasks.cancel_scope.cancel()

    def _link(self, door: _Door) -> LinkConnectable:
        return LinkConnectable(door, window=_LINE_LIMIT, replay_bytes=_LINE_LIMIT, close_timeout=2 * _CLOSE_TIMEOUT)


class _Door:
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
