"""Two gateways as senders: the process of one is a stream in memory, the other runs a real process (a shell that becomes `cat`)."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport import Gateway
from claude_transport.gateway import GatewayLimits
from claude_transport.transports.stream import StreamTransport
from wire.flow import ECHO, Flow

__all__ = ["gateway_side"]

_AT = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0")
_LIMITS = GatewayLimits(starts_per_minute=None)


@asynccontextmanager
async def gateway_side(folder: Path, flow: Flow) -> AsyncIterator[dict[str, str]]:
    """Serve inside the block. Give the URLs by name."""
    script = folder / "stand-in"
    files = " ".join([shlex.quote(str(flow.file))] * flow.times)
    script.write_text(f'#!/bin/sh\nread -r line\ncase "$line" in *echo*) echo "$line"; exec cat;; *) exec cat {files};; esac\n', "utf-8")
    script.chmod(0o755)
    chunks = flow.chunks()
    memory = Gateway(launch=lambda _options: StreamTransport(_StandIn(chunks, flow.times)), listen=_AT, limits=_LIMITS)
    async with memory, Gateway(command=[str(script)], listen=_AT, limits=_LIMITS) as real:
        yield dict(zip(("memory, tcp", "memory, ws", "process, tcp", "process, ws"), (*memory.urls, *real.urls), strict=True))


class _StandIn(ByteStream):
    """A simulated process: it does what the first line asks for."""

    def __init__(self, chunks: list[bytes], times: int) -> None:
        self._chunks = chunks
        self._times = times
        self._output: deque[bytes] = deque()
        self._begun = False
        self._ended = False
        self._changed = anyio.Event()

    async def connect(self) -> _StandIn:
        await anyio.lowlevel.checkpoint()
        return self

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._output:
            if self._ended:
                raise anyio.EndOfStream
            self._changed = anyio.Event()
            await self._changed.wait()
        return self._output.popleft()

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._begun or item == ECHO:
            self._output.append(item)
        else:
            self._output.extend(chunk for _ in range(self._times) for chunk in self._chunks)
            self._ended = True
        self._begun = True
        self._changed.set()

    async def send_eof(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._ended = True
        self._changed.set()
        await anyio.lowlevel.checkpoint()
