"""Transports of third parties, as somebody would write them for the official SDK: the six methods, and no class of ours."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")
Frame = dict[str, Any]
PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite
_STEPS = 2_000  # of all tasks; what happens inside of one process has happened by then


class ForeignTransport:
    """A scripted peer with the six methods. What is put with `say()` comes out of `read_messages()`; `finish()` ends the stream.

    `on_write(frame)` sees everything that is written. Control requests are answered unless `answers` is off, and the stream ends with
    the input, as the CLI's does, unless `ends` is off.
    """

    def __init__(self, *, answers: bool = True, ends: bool = True, on_write: Callable[[Frame], None] | None = None) -> None:
        self.written: list[Frame] = []
        self.writes: list[str] = []
        self.calls: list[str] = []
        self.answers = answers
        self.ends = ends
        self.on_write = on_write
        self.read_error: BaseException | None = None
        self._frames: deque[Frame] = deque()
        self._finished = False
        self._ready = False
        self._news = anyio.Event()

    # ------------------------------------------------------------------------------------------------------ the six methods

    async def connect(self) -> None:
        self.calls.append("connect")
        self._ready = True

    async def write(self, data: str) -> None:
        assert isinstance(data, str)
        self.writes.append(data)
        frame = json.loads(data)
        self.written.append(frame)
        if frame["type"] == "control_request" and self.answers:
            self.say(answer_to(frame))
        if self.on_write is not None:
            self.on_write(frame)

    async def read_messages(self) -> AsyncIterator[Frame]:
        try:
            while True:
                while self._frames:
                    yield self._frames.popleft()
                if self._finished:
                    break
                self._news = anyio.Event()
                await self._news.wait()
            if self.read_error is not None:
                raise self.read_error
        finally:
            self.calls.append("reader closed")

    async def end_input(self) -> None:
        self.calls.append("end_input")
        if self.ends:
            self.finish()

    async def close(self) -> None:
        self.calls.append("close")
        self.finish()

    def is_ready(self) -> bool:
        return self._ready

    # ---------------------------------------------------------------------------------------------------------- for the test

    def say(self, *frames: Frame) -> None:
        self._frames.extend(frames)
        self._news.set()

    def finish(self, error: BaseException | None = None) -> None:
        if not self._finished:
            self._finished = True
            self.read_error = error
            self._news.set()

    def prompts(self) -> list[Frame]:
        return [frame for frame in self.written if frame["type"] == "user"]

    def responses(self) -> dict[str, Frame]:
        return {frame["response"]["request_id"]: frame["response"] for frame in self.written if frame["type"] == "control_response"}

    def requests(self, subtype: str) -> list[Frame]:
        return [frame for frame in self.written if frame["type"] == "control_request" and frame["request"]["subtype"] == subtype]


def answer_to(request: Frame, **response: Any) -> Frame:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request["request_id"], "response": response}}


def said(text: str = "word", **fields: Any) -> Frame:
    return {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}, **fields}


def result(text: str | None = "done", **fields: Any) -> Frame:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "terminal_reason": "completed",
        "num_turns": 1,
        "result": text,
        **fields,
    }


def partial(text: str) -> Frame:
    return {"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}}


def permission(request_id: str = "q1", **fields: Any) -> Frame:
    body = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1", **fields}
    return {"type": "control_request", "request_id": request_id, "request": body}


async def soon(condition: Callable[[], object]) -> None:
    """Let everything else run until the condition holds, at most for `PATIENCE` seconds of the loop's clock.

    After many steps it waits between two looks, so that a clock that jumps comes to the end of the patience.
    """
    with anyio.fail_after(PATIENCE):
        for _ in range(_STEPS):
            if condition():
                return
            await anyio.lowlevel.checkpoint()
        while not condition():
            await anyio.sleep(0.01)


async def in_time(awaitable: Awaitable[T]) -> T:
    """What it gives, or a failure in place of a hang."""
    with anyio.fail_after(PATIENCE):
        return await awaitable
