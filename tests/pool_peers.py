"""Sessions for the tests of the pool: transports that count themselves, and a clock that the test moves."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel

from claude_transport import ClaudeOptions, TransportInfo
from claude_transport.launch.features import NEWEST_CLI

Frame = dict[str, Any]


class World:
    """Makes and counts the transports of one pool. Their number must never exceed `limit`."""

    def __init__(self, *, limit: int = 1000) -> None:
        self.made: list[Peer] = []
        self.live = 0
        self.most_live = 0
        self.limit = limit
        self.gate = anyio.Event()
        """No `initialize` is answered before this event is set."""
        self.gate.set()
        self.failures: deque[Exception] = deque()
        """The errors with which the next connections fail."""
        self.replies: dict[str, Frame] = {}
        """What every peer answers to a control request, by subtype: a response; `error` alone fails it, `silent` drops it."""

    def __call__(self, options: ClaudeOptions) -> Peer:
        self.made.append(Peer(self, pid=10_000 + len(self.made), options=options))
        return self.made[-1]

    def hold(self) -> anyio.Event:
        """Hold all new sessions until the returned event is set."""
        self.gate = anyio.Event()
        return self.gate

    def count(self, change: int) -> None:
        self.live += change
        self.most_live = max(self.most_live, self.live)
        assert self.live <= self.limit


class Peer:
    """A CLI that answers all requests, as a transport with the six methods."""

    def __init__(self, world: World, *, pid: int, options: ClaudeOptions | None = None) -> None:
        self.world = world
        self.options = options or ClaudeOptions()
        self.info = TransportInfo(kind="peer", pid=pid)
        self.pid = pid
        self.is_deaf = False
        """True for a peer that accepts all input and answers nothing."""
        self.asked: list[str] = []
        self.requests: list[Frame] = []
        self.prompts: list[str] = []
        self.questions: list[Frame] = []
        self.answers: list[Frame] = []
        self.is_connected = False
        self.is_closed = False
        self._frames: deque[Frame] = deque()
        self._is_over = False
        self._news = anyio.Event()

    async def connect(self) -> None:
        if self.world.failures:
            raise self.world.failures.popleft()
        self.is_connected = True
        self.world.count(+1)

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        if frame["type"] == "control_response":
            self.answers.append(frame["response"]["response"])
        elif frame["type"] == "user":
            self.prompts.append(frame["message"]["content"])
            self.say({"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": f"peer {self.pid}"})
        elif frame["type"] == "control_request" and not self.is_deaf:
            subtype = frame["request"]["subtype"]
            self.asked.append(subtype)
            self.requests.append(frame["request"])
            if subtype == "initialize":
                await self.world.gate.wait()
            reply = self.world.replies.get(subtype, {"claude_code_version": NEWEST_CLI} if subtype == "initialize" else {})
            if "silent" in reply:
                return
            outcome = {"subtype": "error", **reply} if "error" in reply else {"subtype": "success", "response": reply}
            self.say({"type": "control_response", "response": {**outcome, "request_id": frame["request_id"]}})

    async def read_messages(self) -> AsyncIterator[Frame]:
        while True:
            while self._frames:
                yield self._frames.popleft()
            if self._is_over:
                return
            self._news = anyio.Event()
            await self._news.wait()

    async def end_input(self) -> None:
        self.die()

    async def close(self) -> None:
        self.die()
        await anyio.lowlevel.checkpoint()  # a process takes a moment to end
        if self.is_connected and not self.is_closed:
            self.world.count(-1)
        self.is_closed = True

    def is_ready(self) -> bool:
        return self.is_connected and not self.is_closed

    def say(self, *frames: Frame) -> None:
        self._frames.extend(frames)
        self._news.set()

    def die(self) -> None:
        """End the process."""
        self._is_over = True
        self._news.set()

    def ask_permission(self) -> None:
        """Ask for permission to run a command."""
        body = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"}
        self.say({"type": "control_request", "request_id": "q1", "request": body})


class HandClock:
    """A manual clock: `clock` and `sleep` of one pool, on both event loops."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due = 0.0
        self._ring = anyio.Event()
        self._asleep = anyio.Event()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self._due = self.now + seconds
        self._ring = anyio.Event()
        self._asleep.set()
        await self._ring.wait()

    async def advance(self, seconds: float) -> None:
        """Move the clock. Returns when the pool has done its work of that time and sleeps again."""
        until = self.now + seconds
        await self._asleep.wait()
        while self._due <= until:
            self.now = self._due
            self._asleep = anyio.Event()
            self._ring.set()
            await self._asleep.wait()
        self.now = until
