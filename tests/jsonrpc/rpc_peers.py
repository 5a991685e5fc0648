"""The other end of a JSON-RPC conversation, played line by line by the test, over a connection in memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from claude_transport import JSONRPCPeer, StreamTransport
from claude_transport.streams.memory import MemoryConnectable, MemoryStream

T = TypeVar("T")
PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite


class Other:
    """The other end. `heard` are the messages that were read so far, also those that `hear()` has returned."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.heard: list[dict[str, Any]] = []
        self._unheard: deque[dict[str, Any]] = deque()
        self._rest = b""

    async def say(self, *messages: object) -> None:
        """Send messages, each on its line; bytes are sent as they are."""
        with anyio.fail_after(PATIENCE):
            lines = [message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n" for message in messages]
            await self.stream.send(b"".join(lines))

    async def hear(self) -> dict[str, Any]:
        """Return the next message."""
        with anyio.fail_after(PATIENCE):
            while not self._unheard:
                *lines, self._rest = (self._rest + await self.stream.receive()).split(b"\n")
                messages = [json.loads(line) for line in lines]
                self.heard += messages
                self._unheard += messages
        return self._unheard.popleft()

    async def answer(self, result: object = None, *, request: dict[str, Any] | None = None) -> None:
        """Answer `request`, or else the next one."""
        request = request or await self.hear()
        await self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def answer_with(self, members: dict[str, Any]) -> None:
        """Answer the next request with these members beside its id."""
        await self.say({"id": (await self.hear())["id"], **members})

    async def hang_up(self) -> None:
        """End the connection well."""
        await self.stream.aclose()


@asynccontextmanager
async def connected(*, capacity: int = 2**20, max_line_bytes: int = 2**20, **options: Any) -> AsyncIterator[tuple[JSONRPCPeer, Other]]:
    """A peer of this library, and the other end of its connection."""
    connectable = MemoryConnectable(capacity=capacity)
    async with JSONRPCPeer(StreamTransport(connectable, max_line_bytes=max_line_bytes), **options) as peer:
        yield peer, Other(await connectable.accept())


class SixMethods:
    """A transport of another library: the six methods, and no class of ours. `say()` puts what the peer says, `finish()` ends it."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.calls: list[str] = []
        self.connect_error: Exception | None = None
        self.write_error: Exception | None = None
        self.read_error: Exception | None = None
        self.connects = anyio.Event()
        self.connects.set()
        self._messages: deque[dict[str, Any]] = deque()
        self._is_finished = self._is_ready = False
        self._news = anyio.Event()

    async def connect(self) -> None:
        self.calls.append("connect")
        await self.connects.wait()
        if self.connect_error is not None:
            raise self.connect_error
        self._is_ready = True

    async def write(self, data: str) -> None:
        if self.write_error is not None:
            raise self.write_error
        assert isinstance(data, str)
        self.written.append(data)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while self._messages or not self._is_finished:
            while self._messages:
                yield self._messages.popleft()
            if not self._is_finished:
                self._news = anyio.Event()
                await self._news.wait()
        if self.read_error is not None:
            raise self.read_error

    async def end_input(self) -> None:
        self.calls.append("end_input")

    async def close(self) -> None:
        self.calls.append("close")
        self.finish()

    def is_ready(self) -> bool:
        return self._is_ready

    def say(self, *messages: dict[str, Any]) -> None:
        self._messages.extend(messages)
        self._news.set()

    def finish(self) -> None:
        self._is_finished = True
        self._is_ready = False
        self._news.set()


async def soon(condition: Callable[[], object]) -> None:
    """Let everything else run until the condition holds."""
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def in_time(awaitable: Awaitable[T]) -> T:
    """What it gives, or a failure in place of a hang."""
    with anyio.fail_after(PATIENCE):
        return await awaitable


async def settled() -> None:
    """Let all tasks run until none of them has anything to do but to wait."""
    await anyio.wait_all_tasks_blocked()
