"""Plays the Codex side of a recording: says what Codex said, each time after the host has said what it said there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from codex_recordings import entries_of, object_on

from claude_transport import StreamTransport
from claude_transport.codex import CodexSession, CodexTurn
from claude_transport.streams.memory import MemoryConnectable, MemoryStream

PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite


class Codex:
    """The other end of the connection, line by line. `heard` is what the session has said."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.heard: list[dict[str, Any]] = []
        self._rest = b""
        self._lines: list[bytes] = []

    async def hear(self) -> dict[str, Any]:
        """Return the next message of the session. Raises `anyio.EndOfStream` when its input has ended."""
        while not self._lines:
            *lines, self._rest = (self._rest + await self.stream.receive()).split(b"\n")
            self._lines += lines
        message: dict[str, Any] = json.loads(self._lines.pop(0))
        self.heard.append(message)
        return message

    async def say(self, *messages: dict[str, Any] | bytes) -> None:
        lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        await self.stream.send(b"".join(line + b"\n" for line in lines))

    async def answer(self, result: Any, *, method: str) -> dict[str, Any]:
        """Hear a request, which must be of this method, and answer it."""
        request = await self.hear()
        assert request.get("method") == method, request
        await self.say({"id": request["id"], "result": result})
        return request

    async def begin(self, *, thread: str = "T") -> None:
        """Shake hands, and open a thread."""
        await self.answer({"userAgent": "codex/0"}, method="initialize")
        assert await self.hear() == {"method": "initialized"}
        request = await self.hear()
        assert request["method"] in ("thread/start", "thread/resume")
        await self.say({"id": request["id"], "result": {"thread": {"id": thread}}})

    async def turn(self, turn: str = "U") -> dict[str, Any]:
        """Take a prompt."""
        request = await self.answer({"turn": {"id": turn}}, method="turn/start")
        await self.tell("turn/started", turn={"id": turn, "status": "inProgress"})
        return request

    async def tell(self, method: str, *, thread: str = "T", **params: Any) -> None:
        await self.say({"method": method, "params": {"threadId": thread, **params}})

    async def complete(self, turn: str = "U", *, status: str = "completed", **fields: Any) -> None:
        await self.tell("turn/completed", turn={"id": turn, "status": status, "items": [], **fields})

    async def until_the_end_of_input(self) -> None:
        """Hear what else the session says, interrupt turns where it asks for that, and end when its input does."""
        try:
            while True:
                request = await self.hear()
                if request.get("method") == "turn/interrupt":
                    await self.say({"id": request["id"], "result": {}})
                    await self.complete(request["params"]["turnId"], status="interrupted")
        except anyio.EndOfStream:
            await self.stream.aclose()


async def sent(session: CodexSession, codex: Codex, text: str, *, turn: str = "U") -> CodexTurn:
    """The turn of a prompt that is sent, and that Codex takes."""
    turns: list[CodexTurn] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(codex.turn, turn)
        turns.append(await session.send(text))
    return turns[0]


async def play(codex: Codex, name: str) -> None:
    """Play the recording `name` to its end. The session must say what its host said; ids may differ."""
    ids: dict[Any, Any] = {}
    for entry in entries_of(name):
        message = object_on(entry["line"].encode()) if entry["dir"] in ("in", "out") else None
        if message is None:
            continue
        if entry["dir"] == "in":
            heard = await codex.hear()
            assert heard.get("method") == message.get("method"), (heard, message)
            if "method" in message and "id" in message:
                ids[message["id"]] = heard["id"]
        else:
            if "method" not in message:
                message["id"] = ids[message["id"]]
            await codex.say(message)


@asynccontextmanager
async def playing(name: str, *, to_the_end: bool = True, **arguments: Any) -> AsyncIterator[tuple[CodexSession, Codex]]:
    """A session with the Codex of a recording. It ends when its input does or, with `to_the_end=False`, where the recording ends."""

    async def part(codex: Codex) -> None:
        await play(codex, name)
        if to_the_end:
            await codex.until_the_end_of_input()
        else:
            await codex.stream.aclose()

    async with acting(part, **arguments) as (session, codex):
        yield session, codex


@asynccontextmanager
async def acting(
    part: Callable[[Codex], Awaitable[None]], *, capacity: int = 2**20, **arguments: Any
) -> AsyncIterator[tuple[CodexSession, Codex]]:
    """A session that was started with a Codex that plays a part."""
    connectable = MemoryConnectable(capacity=capacity)
    session = CodexSession(StreamTransport(connectable), **arguments)
    stage: list[Codex] = []

    async def act() -> None:
        stage.append(Codex(await connectable.accept()))
        await part(stage[0])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            async with session:
                yield session, stage[0]
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def connected(**arguments: Any) -> AsyncIterator[tuple[CodexSession, Codex]]:
    """A session with an open thread `T`, and its Codex, which the test plays from there on."""
    async with acting(Codex.begin, initialize_timeout=PATIENCE, **arguments) as (session, codex):
        try:
            yield session, codex
        finally:
            await session.aclose(timeout=0.05)
