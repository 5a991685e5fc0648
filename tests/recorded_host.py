"""A host that does what the host of a recording did, through a live `Query` over a `ReplayTransport`, and keeps what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import anyio.abc
import msgspec

from claude_transport import Allow, ClaudeTransportError, Deny, Message, Query, ReplayTransport, ResultMessage, Turn
from claude_transport.errors import ControlRequestFailed
from claude_transport.protocol.tape import INPUT_ENDED, Tape, TapeRecord
from claude_transport.wrappers.base import LineWrapper


def decoded(line: bytes) -> dict[str, Any]:
    """The object on this line; an empty one when there is none."""
    try:
        frame = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError):
        return {}
    return frame if isinstance(frame, dict) else {}


def subtype_of(frame: Mapping[str, Any]) -> str | None:
    request = frame.get("request") if frame.get("type") == "control_request" else None
    return request.get("subtype") if isinstance(request, dict) else None


def is_prompt(frame: Mapping[str, Any]) -> bool:
    """Whether a `Query` would send this, too: some recordings are about what the CLI does with worse [18h, 18i]."""
    message = frame.get("message")
    return (
        frame.get("type") == "user"
        and isinstance(message, dict)
        and message.get("role") == "user"
        and isinstance(message.get("content"), str | list)
    )


class Tap(LineWrapper):
    """Keeps the lines that are heard, counts those that are said, and tells when one passes."""

    def __init__(self, transport: ReplayTransport) -> None:
        super().__init__(transport)
        self.heard: list[bytes] = []
        self.said = 0
        self.change = anyio.Event()

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        try:
            batch = await super().read_batch(source)
            self.heard.extend(batch)
            return batch
        finally:
            self.change.set()

    async def write(self, data: str | bytes) -> None:
        try:
            await super().write(data)
            self.said += (data.encode() if isinstance(data, str) else data).count(b"\n")
        finally:
            self.change.set()


class RecordedHost:
    """Says what the host on the tape said, when it said it; `run()` returns when everything has ended."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.replay = ReplayTransport(tape)
        self.tap = Tap(self.replay)
        self.query = Query(self.tap, can_use_tool=self.can_use_tool, on_request=self.on_request)
        self.messages: list[Message] = []
        self.turns: list[Turn] = []
        self.recorded_uuids: dict[str, str] = {}
        self.unanswered: list[ClaudeTransportError] = []
        self.error: ClaudeTransportError | None = None
        self.start_error: ClaudeTransportError | None = None
        self.started = anyio.Event()
        frames = [(record.dir, decoded(record.line)) for record in tape]
        self.questions = [frame for way, frame in frames if way == "out" and frame.get("type") == "control_request"]
        self.answers = {
            frame["response"].get("request_id"): frame["response"]
            for way, frame in frames
            if way == "in" and frame.get("type") == "control_response"
        }
        # Where some prompts have a uuid, those without are said past the Query, which would give them one that the tape does not name.
        self.names_prompts = any(way == "in" and is_prompt(frame) and "uuid" in frame for way, frame in frames)
        self.introduces_itself = any(way == "in" and subtype_of(frame) == "initialize" for way, frame in frames)

    @property
    def results(self) -> list[ResultMessage]:
        return [message for message in self.messages if isinstance(message, ResultMessage)]

    async def run(self) -> None:
        await self.tap.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.converse)
            await self.talk(tasks)
            await self.started.wait()
            while not self.query.has_ended:
                await self.something_happens()
            await self.query.aclose(timeout=0)

    async def converse(self) -> None:
        try:
            await self.query.start()
        except ClaudeTransportError as error:
            self.start_error = error
        finally:
            self.started.set()
        try:
            async for message in self.query.messages():
                self.messages.append(message)
        except ClaudeTransportError as error:
            self.error = error

    async def something_happens(self) -> None:
        self.tap.change = anyio.Event()
        await self.tap.change.wait()

    async def talk(self, tasks: anyio.abc.TaskGroup) -> None:
        introduced = not self.introduces_itself
        due = 0 if introduced is False else 1  # an answer to `initialize` that is not on the tape
        said = 0 if introduced is False else 1
        for record in self.tape:
            if record.dir == "note" and record.line == b"out EOF":
                return
            if record.dir == "out":
                due += 1
            elif record.dir == "in" or record.line == INPUT_ENDED:
                while len(self.tap.heard) < due and not self.query.has_ended:
                    await self.something_happens()
                if introduced:
                    await self.started.wait()
                if record.dir == "in" and subtype_of(decoded(record.line)) == "initialize" and not introduced:
                    introduced = True
                else:
                    with contextlib.suppress(ClaudeTransportError):
                        await self.say(record, said, tasks)
                said += record.dir == "in"

    async def say(self, record: TapeRecord, said: int, tasks: anyio.abc.TaskGroup) -> None:
        frame = decoded(record.line) if record.dir == "in" else {}
        if record.dir == "note":
            while self.tap.said < said and not self.query.has_ended:
                await self.something_happens()
            await self.query.end_input()
        elif is_prompt(frame) and self.start_error is None and self.started.is_set() and (not self.names_prompts or "uuid" in frame):
            turn = await self.query.send(frame["message"]["content"], priority=frame.get("priority"))
            self.turns.append(turn)
            if "uuid" in frame:
                self.recorded_uuids[turn.uuid] = frame["uuid"]
        elif subtype_of(frame) and "request_id" in frame and self.started.is_set():
            tasks.start_soon(self.ask, frame["request"])
        elif frame.get("type") != "control_response" or frame["response"]["request_id"] not in {q["request_id"] for q in self.asked()}:
            await self.tap.write(record.line + b"\n")  # the callbacks say the rest

    def asked(self) -> list[dict[str, Any]]:
        """Every question on the tape."""
        return [frame for record in self.tape if record.dir == "out" and subtype_of(frame := decoded(record.line))]

    async def ask(self, request: dict[str, Any]) -> None:
        fields = {name: value for name, value in request.items() if name != "subtype"}
        try:
            await self.query.request(request["subtype"], **fields)
        except ControlRequestFailed:
            pass  # that is an answer
        except ClaudeTransportError as error:
            self.unanswered.append(error)

    async def can_use_tool(self, _name: str, _input: dict[str, Any], context: Any) -> Any:
        answer = await self.answer_to(context.request_id)
        if answer.get("behavior") == "deny":
            return Deny(answer["message"], interrupt=answer.get("interrupt", False))
        return Allow(answer.get("updatedInput"))

    async def on_request(self, subtype: str, fields: dict[str, Any]) -> Mapping[str, Any] | None:
        for question in self.questions:
            if question["request"] == {"subtype": subtype, **fields}:
                self.questions.remove(question)
                return await self.answer_to(question["request_id"])
        raise AssertionError(f"{subtype} was not asked")

    async def answer_to(self, request_id: str) -> Any:
        answer = self.answers.get(request_id)
        if answer is None:
            await anyio.sleep_forever()  # so did the recorded host, until it was over
        assert answer is not None
        if answer["subtype"] == "error":
            raise ControlRequestFailed(answer["error"])
        return answer.get("response", {})
