"""Every recording is replayed through a live `Query`, which says what the recorded host said, and hears what it heard."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
import pytest

from claude_transport.errors import ClaudeTransportError, ControlRequestFailed
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.messages import Message
from claude_transport.protocol.tape import INPUT_ENDED, Tape, TapeRecord
from claude_transport.query.handlers import Allow, Deny
from claude_transport.query.query import Query
from claude_transport.transports.replay import ReplayTransport
from claude_transport.wrappers.lines import LineWrapper

# those of this repository, or another CLI's: the folder that CLAUDE_TRANSPORT_RECORDINGS names
RECORDINGS = sorted(Path(os.environ.get("CLAUDE_TRANSPORT_RECORDINGS") or Path(__file__).parent.parent / "recordings").glob("*.ndjson"))

CONTROL = ("control_request", "control_response", "control_cancel_request", "keep_alive")


def decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError):
        return None


class Tap(LineWrapper):
    """Keeps the lines that pass, and tells when one does."""

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
    """Says what the host on the tape said, when it said it."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.replay = ReplayTransport(tape)
        self.tap = Tap(self.replay)
        self.query = Query(self.tap, can_use_tool=self.can_use_tool, on_request=self.on_request)
        self.messages: list[Message] = []
        self.error: ClaudeTransportError | None = None
        self.refused = False
        self.uuids: dict[str, str] = {}
        self.started = anyio.Event()
        frames = [(record.dir, decoded(record.line)) for record in tape]
        self.asked = [frame for way, frame in frames if way == "out" and kind_of(frame) == "control_request"]
        self.questions = {frame["request_id"] for frame in self.asked}
        self.answers = {
            frame["response"]["request_id"]: frame["response"] for way, frame in frames if way == "in" and kind_of(frame) == CONTROL[1]
        }
        self.introduces_itself = any(way == "in" and subtype_of(frame) == "initialize" for way, frame in frames)

    async def run(self) -> None:
        await self.tap.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.converse)
            await self.talk(tasks)
            await self.started.wait()
            while not self.query.has_ended:
                await self.something_happens()
            await self.query.aclose(timeout=0)
            tasks.cancel_scope.cancel()

    async def converse(self) -> None:
        try:
            await self.query.start()
        except ClaudeTransportError as error:
            self.error, self.refused = error, isinstance(error, ControlRequestFailed)
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

    # ------------------------------------------------------------------------------------------------------------- talking

    async def talk(self, tasks: anyio.abc.TaskGroup) -> None:
        introduced = not self.introduces_itself
        due = 0 if self.introduces_itself else 1  # an answer to `initialize` that is not on the tape
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
                frame = decoded(record.line)
                if subtype_of(frame) == "initialize" and not introduced:
                    introduced = True
                    continue
                with contextlib.suppress(ClaudeTransportError):
                    await self.say(record, frame, tasks)

    async def say(self, record: TapeRecord, frame: Any, tasks: anyio.abc.TaskGroup) -> None:
        if record.dir == "note":
            while self.tap.said < self.to_be_said(record) and not self.query.has_ended:
                await self.something_happens()
            await self.query.end_input()
        elif kind_of(frame) == "user" and self.started.is_set() and self.error is None and is_prompt(frame):
            turn = await self.query.send(frame["message"]["content"])
            if "uuid" in frame:
                self.uuids[turn.uuid] = frame["uuid"]
        elif kind_of(frame) == "control_request" and "request_id" in frame and subtype_of(frame) and self.started.is_set():
            tasks.start_soon(self.ask, frame["request"])
        elif kind_of(frame) == "control_response" and frame["response"]["request_id"] in self.questions:
            return  # the callbacks do that
        else:
            await self.tap.write(record.line + b"\n")

    async def ask(self, request: dict[str, Any]) -> None:
        fields = {name: value for name, value in request.items() if name != "subtype"}
        with contextlib.suppress(ClaudeTransportError):
            await self.query.request(request["subtype"], **fields)

    def to_be_said(self, note: TapeRecord) -> int:
        """Lines before this note that the host says, the `initialize` that is not on the tape included."""
        before = [record for record in self.tape.records[: self.tape.records.index(note)] if record.dir == "in"]
        return len(before) + (0 if self.introduces_itself else 1)

    # ------------------------------------------------------------------------------------------------------------ answering

    async def can_use_tool(self, _name: str, _input: dict[str, Any], context: Any) -> Any:
        answer = await self.answer_to(context.request_id)
        if answer.get("behavior") == "deny":
            return Deny(answer["message"], interrupt=answer.get("interrupt", False))
        return Allow(answer.get("updatedInput"))

    async def on_request(self, subtype: str, fields: dict[str, Any]) -> Mapping[str, Any] | None:
        for asked in self.asked:
            if asked["request"] == {"subtype": subtype, **fields}:
                self.asked.remove(asked)
                return await self.answer_to(asked["request_id"])
        raise AssertionError(f"{subtype} was not asked")

    async def answer_to(self, request_id: str) -> Any:
        answer = self.answers.get(request_id)
        if answer is None:
            await anyio.sleep_forever()  # so did the recorded host, until it was over
        assert answer is not None
        if answer["subtype"] == "error":
            raise ControlRequestFailed(answer["error"])
        return answer.get("response", {})


def kind_of(frame: Any) -> Any:
    return frame.get("type") if isinstance(frame, dict) else None


def subtype_of(frame: Any) -> Any:
    request = frame.get("request") if kind_of(frame) == "control_request" else None
    return request.get("subtype") if isinstance(request, dict) else None


def is_prompt(frame: Any) -> bool:
    message = frame.get("message")
    return isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str | list)


def with_recorded_ids(line: bytes, uuids: Mapping[str, str]) -> Any:
    """The frame with the ids that it has on the tape, except those of requests, which are the live host's own affair."""
    for live, recorded in uuids.items():
        line = line.replace(live.encode(), recorded.encode())
    frame = decoded(line)
    if kind_of(frame) == "control_response":
        frame["response"].pop("request_id", None)
    elif kind_of(frame) == "system":
        frame.pop("request_id", None)
    return frame if frame is not None else line


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
async def test_a_recording_is_replayed_to_its_end_and_heard_as_it_was(path: Path) -> None:
    host = RecordedHost(Tape.read(path))
    with anyio.fail_after(30):
        await host.run()
    assert host.refused or not isinstance(host.error, ExpectationFailed), host.error
    expected = [record.whole_line for record in host.tape if record.dir == "out"]
    heard = host.tap.heard if host.introduces_itself else host.tap.heard[1:]
    if host.refused:  # a Query whose `initialize` is refused leaves, where that host went on [02j, 02k]
        del expected[len(heard) :]
    else:
        host.replay.assert_played()
    assert heard or not expected
    assert [with_recorded_ids(line, host.uuids) for line in heard] == [with_recorded_ids(line, {}) for line in expected]
    typed = [message.raw for message in LineDecoder().messages(host.tap.heard) if message.type not in CONTROL]
    assert [message.raw for message in host.messages] == typed
