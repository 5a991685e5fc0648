"""A gateway in memory whose processes are played by the test: no process, no socket, no real clock."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.link.machine import Ack, Data, Frame, Hello, ProcessEnd, decode_frame, encode_frame, parse_data_header
from claude_transport.streams.memory import MemoryConnectable, MemoryStream, memory_stream_pair
from claude_transport.transport import Transport
from claude_transport.transports.stream import StreamTransport

ALICE, BOB = "alice-has-a-token-0123456789", "bob-has-another-one-987654321"
TOKENS = {"alice": ALICE, "bob": BOB}


class Processes:
    """The launched transports, and the other end of each, which the test plays."""

    def __init__(self) -> None:
        self.options: list[ClaudeOptions] = []
        self._openers: deque[MemoryConnectable] = deque()

    def launch(self, options: ClaudeOptions) -> Transport:
        opener = MemoryConnectable()
        self.options.append(options)
        self._openers.append(opener)
        return StreamTransport(opener)

    async def next(self) -> Talker:
        """Wait for the oldest process that the test does not play yet."""
        with anyio.fail_after(30):
            while not self._openers:
                await anyio.lowlevel.checkpoint()
            return Talker(await self._openers.popleft().accept())


class Talker:
    """One end of a stream that carries lines, or frames with lines in them."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self._unread = b""
        self._said = 0  # the position behind the last line that was sent
        self._data = b""  # received data that is not a whole line yet

    async def say(self, *lines: bytes | dict[str, Any]) -> None:
        await self.stream.send(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))

    async def frame(self, frame: Frame) -> None:
        await self.stream.send(encode_frame(frame))

    async def send_line(self, line: bytes) -> None:
        """Send `line` as data, at the next position."""
        await self.frame(Data(self._said, line + b"\n"))
        self._said += len(line) + 1

    async def hear(self) -> bytes:
        """Return the next line. Raises `anyio.EndOfStream` when there is none."""
        with anyio.fail_after(60):
            while b"\n" not in self._unread:
                self._unread += await self.stream.receive()
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    async def _frame(self) -> Frame:
        line = await self.hear()
        if not line.startswith(b"D "):
            return decode_frame(line)
        position, size = parse_data_header(line)
        with anyio.fail_after(60):
            while len(self._unread) < size:
                self._unread += await self.stream.receive()
        data, self._unread = self._unread[:size], self._unread[size:]
        return Data(position, data)

    async def hear_frame(self, kind: type[Any]) -> Any:
        """Return the next frame of this kind; skip others."""
        while not isinstance(frame := await self._frame(), kind):
            pass
        return frame

    async def hear_data(self, size: int) -> bytes:
        """Return the next `size` bytes of data."""
        while len(self._data) < size:
            self._data += (await self.hear_frame(Data)).data
        data, self._data = self._data[:size], self._data[size:]
        return data

    async def hear_line(self) -> bytes:
        """Return the next line of data, from any number of frames; skip other frames."""
        while b"\n" not in self._data:
            self._data += (await self.hear_frame(Data)).data
        line, _, self._data = self._data.partition(b"\n")
        return line

    async def rest(self, *, patience: float = 60.0) -> bytes:
        """Return all bytes until the end."""
        data, self._unread = self._unread, b""
        with anyio.fail_after(patience):
            try:
                while True:
                    data += await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return data


class Rehearsal:
    """A gateway and its processes; `connect()` returns the client's end of a new connection."""

    def __init__(self, gateway: Gateway, processes: Processes, tasks: TaskGroup) -> None:
        self.gateway = gateway
        self.processes = processes
        self._tasks = tasks
        self._clients: list[Talker] = []
        self.medium = "memory"

    def leave(self) -> None:
        """Break the connections of all clients."""
        for client in self._clients:
            client.stream.break_connection()

    def connect(self, *, token: str | None = None, capacity: int = 2**20) -> Talker:
        ours, theirs = memory_stream_pair(capacity=capacity)
        self._tasks.start_soon(self.gateway.attend, Arrival(theirs, medium=self.medium, peer="the test", token=token))
        self._clients.append(Talker(ours))
        return self._clients[-1]

    async def link(self, *, token: str | None = ALICE, **hello: Any) -> Talker:
        """Return a connection that has sent its hello."""
        client = self.connect()
        await client.frame(Hello(version=1, token=token, **hello))
        return client

    async def plain(self, *, token: str | None = ALICE, **more: Any) -> Talker:
        """Return a connection that has sent its authenticate line."""
        client = self.connect()
        await client.say({"type": "authenticate", "token": token, **more})
        return client

    async def end(self, client: Talker, process: Talker) -> None:
        """End the process, and let its client acknowledge the end."""
        await process.stream.aclose()
        end = await client.hear_frame(ProcessEnd)
        await client.frame(Ack(end.after + 1))

    async def until(self, *, sessions: int) -> None:
        """Wait until there are this many sessions."""
        with anyio.fail_after(30):
            while len(self.gateway.sessions) != sessions:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def rehearsal(**settings: Any) -> AsyncIterator[Rehearsal]:
    """A gateway with the tokens of Alice and Bob, or with those in `settings`."""
    processes = Processes()
    settings = {"tokens": TOKENS, "launch": processes.launch, **settings}
    async with anyio.create_task_group() as tasks, Gateway(**settings) as gateway:
        stage = Rehearsal(gateway, processes, tasks)
        yield stage
        stage.leave()
        await gateway.aclose()
        tasks.cancel_scope.cancel()
