"""`Playback`: a tape as a state machine: what the host said goes in, what may be said now comes out. No clock, no I/O.

The CLI's lines come in their recorded order. Before a recorded line of the host, the playback waits until the live host has said the
same: a control request of the same subtype, an answer to the same question, a prompt. The host may be ahead of the tape (it is what
hosts do when a batch arrives at once); what it says early counts for the next record of its kind. What it says that the tape has
no record for is an `ExpectationFailed`. A line that the recorded host withdrew, before anything of it had gone out, is no record.

Ids are the live host's: the answers carry the request ids it made, and frames about its prompts the uuids it gave them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from claude_transport.errors import ConnectionLost, ProcessError, TruncatedStream
from claude_transport.protocol.encoding import encode_line
from claude_transport.protocol.expectation import ExpectationFailed, describe_message
from claude_transport.protocol.jsontext import JSONTextError, parse_json
from claude_transport.protocol.tape import CLOSED, INPUT_ENDED, OUTPUT_ENDED, Tape, TapeRecord, read_exit_note, without_withdrawn

__all__ = ["Playback"]

Key = tuple[str, str]
"""What kind of line it is: its type, and the subtype of a request or the id of the question that is answered."""

_MALFORMED = ("malformed", "")
_IGNORED = ("ignored", "")
_HEEDED = frozenset({"user", "control_request", "control_response"})
"""The types of lines that the CLI reacts to; all others need not be said again (recordings 18d to 18z)."""

_STRING = re.compile(rb'"([^"\\]{1,200})"')
_NOT_ON_THE_TAPE = -1.0
_MIN_UUID = 8
"""Characters: a shorter id of a prompt could be any string of the frame."""


class _Step:
    """A line of the host, on the tape."""

    __slots__ = ("index", "is_needed", "key", "message", "met")

    def __init__(self, index: int, key: Key, message: Any, *, is_needed: bool) -> None:
        self.index = index
        self.key = key
        self.message = message
        self.is_needed = is_needed
        self.met = False


class Playback:
    """Plays `tape`. `next_out()` gives the records that can be played now, and moves on."""

    def __init__(self, tape: Tape) -> None:
        self._records = _until_the_end(tape)
        self._position = 0
        self._steps = {step.index: step for step in _read_steps(self._records)}
        self._unmet = list(self._steps.values())
        self._request_ids: dict[object, deque[str | None]] = {}  # recorded to live ones; a request may have none [18l]
        self._uuids: dict[bytes, bytes] = {}
        self._input_ended = False
        self._stderr: list[str] = []
        self._failure: ExpectationFailed | None = None
        self._ending = _read_ending(tape)
        self._answers: deque[bytes] = deque()

    # --------------------------------------------------------------------------------------------------------- what goes in

    def received(self, line: bytes) -> None:
        """The host wrote this. Raises `ExpectationFailed`, naming the step, when the tape has no such line (any more)."""
        key, message = _read_line(line)
        if key == _IGNORED:
            return
        for position, step in enumerate(self._unmet):
            if step.key == key:
                del self._unmet[position]
                step.met = True
                self._learn_ids(step.message, message)
                return
        if key == ("control_request", "initialize"):
            self._answers.append(_initialized(message))  # a host may introduce itself to a tape whose host did not
            return
        self._fail(next((step for step in self._unmet if step.is_needed), None), actual=describe_message(message))

    def input_ended(self) -> None:
        """The host ended its input."""
        self._input_ended = True

    # --------------------------------------------------------------------------------------------------------- what comes out

    def next_record(self) -> TapeRecord | None:
        """The next record that can be played now, standard error and notes included; None when the host must act first, or at the end.

        A record that is not on the tape has a time below zero. Raises `ExpectationFailed` once the host has left the tape: said
        something that is not there, or ended its input too early.
        """
        if self._failure is not None:
            raise self._failure
        if self._answers:
            return TapeRecord(_NOT_ON_THE_TAPE, "out", self._answers.popleft())
        if self._position >= len(self._records) or self._is_waiting():
            if self._input_ended and self._position in self._steps:
                self._fail(self._steps[self._position], actual="the end of the input")
            return None
        record = self._records[self._position]
        self._position += 1
        if record.dir == "out":
            return TapeRecord(record.t, "out", self._with_live_ids(record.whole_line))
        if record.dir == "err":
            self._stderr.append(record.line.decode("utf-8", "replace"))
        return record

    @property
    def is_over(self) -> bool:
        """True when everything has been played and the stream ends: on its own if it did on the tape, else with the host's input."""
        return not self._answers and self._position >= len(self._records) and (self._ending.by_itself or self._input_ended)

    @property
    def is_complete(self) -> bool:
        """True when nothing is left to play."""
        return self._position >= len(self._records)

    @property
    def error(self) -> Exception | None:
        """What the stream ends with, as on the tape; None for a good end."""
        return self._ending.error("\n".join(self._stderr)) if self._ending.by_itself else None

    @property
    def stderr_tail(self) -> str:
        """What has been said on standard error so far."""
        return "\n".join(self._stderr)

    @property
    def exit_status(self) -> tuple[int | None, int | None]:
        """`(exit_code, signal)` of the recorded process, once everything has been played."""
        return (self._ending.exit_code, self._ending.signal) if self.is_over else (None, None)

    @property
    def whereabouts(self) -> str:
        """Where the tape stands, in words, and what it waits for."""
        place = f"record {min(self._position + 1, len(self._records))} of {len(self._records)}"
        if self._position >= len(self._records):
            return f"{place}: everything has been played"
        step = self._steps.get(self._position)
        waits_for = "the end of the input" if step is None else describe_message(step.message)
        return f"{place}: waiting for {waits_for}" if self._is_waiting() else place

    # ---------------------------------------------------------------------------------------------------------------- details

    def _fail(self, step: _Step | None, *, actual: str) -> None:
        self._failure = ExpectationFailed.at(
            f"record {min(self._position if step is None else step.index, len(self._records) - 1) + 1} of {len(self._records)}",
            expected="nothing more from the host" if step is None else describe_message(step.message),
            actual=actual,
        )
        raise self._failure

    def _is_waiting(self) -> bool:
        record = self._records[self._position]
        if record.dir == "in":
            step = self._steps[self._position]
            return step.is_needed and not step.met
        return record.dir == "note" and record.line == INPUT_ENDED and not self._input_ended

    def _learn_ids(self, recorded: Any, live: Any) -> None:
        if not isinstance(recorded, dict) or not isinstance(live, dict):
            return
        if recorded.get("type") == "control_request":
            identity = live.get("request_id")
            self._request_ids.setdefault(recorded.get("request_id"), deque()).append(identity)
        elif recorded.get("type") == "user":
            old, new = recorded.get("uuid"), live.get("uuid")
            if isinstance(old, str) and isinstance(new, str) and old != new and len(old) >= _MIN_UUID:
                self._uuids[old.encode()] = new.encode()

    def _with_live_ids(self, line: bytes) -> bytes:
        if b"request_id" in line or None in self._request_ids:
            line = self._with_live_request_id(line)
        if not any(old in line for old in self._uuids):
            return line
        return _STRING.sub(lambda match: b'"%s"' % self._uuids.get(match[1], match[1]), line)

    def _with_live_request_id(self, line: bytes) -> bytes:
        """The line with the live host's request id, where it is about a request of the host."""
        try:
            message = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return line
        kind = message.get("type")
        holder = message.get("response") if kind == "control_response" else message
        if kind not in ("control_response", "system") or not isinstance(holder, dict):
            return line
        old = holder.get("request_id")
        waiting = self._request_ids.get(old) if isinstance(old, str | None) else None
        if not waiting or (old is None and kind != "control_response"):
            return line
        # the same id may have been used twice, and is then answered twice [08e]
        new = waiting.popleft() if kind == "control_response" and len(waiting) > 1 else waiting[0]
        if new == old:
            return line
        if not isinstance(old, str) or new is None:
            holder.pop("request_id", None)
            return encode_line(message if new is None else _with_id(message, holder, new))[:-1]
        return re.sub(rb'("request_id"\s*:\s*)"%s"' % re.escape(msgspec.json.encode(old)[1:-1]), _replacement(new), line, count=1)


class _Ending(msgspec.Struct, frozen=True):
    """How the recorded stream ended: by itself, or because its host closed it (or nobody knows)."""

    by_itself: bool = False
    exit_code: int | None = None
    signal: int | None = None
    failure: Mapping[str, Any] = {}

    def error(self, stderr_tail: str) -> Exception | None:
        if self.exit_code or self.signal is not None:
            how = f"exit code {self.exit_code}" if self.signal is None else f"signal {self.signal}"
            return ProcessError(
                f"the recorded claude ended with {how}", exit_code=self.exit_code, signal=self.signal, stderr_tail=stderr_tail
            )
        message = str(self.failure.get("message", ""))
        if self.failure.get("error") == "TruncatedStream":
            return TruncatedStream(message)
        return ConnectionLost(message) if self.failure else None


def _until_the_end(tape: Tape) -> list[TapeRecord]:
    """The records up to where the stream ended: what a host said or did afterwards changed nothing."""
    records: list[TapeRecord] = []
    said = without_withdrawn(tape)
    for record in said:
        if record.dir == "note" and record.line in (OUTPUT_ENDED, CLOSED):
            break
        records.append(record)
    # words on standard error may be recorded with the exit they explain
    rest = said[len(records) :]
    if rest and rest[0].line == OUTPUT_ENDED:
        records += [record for record in rest if record.dir == "err"]
    return records


def _read_ending(tape: Tape) -> _Ending:
    by_itself = False
    failure: Mapping[str, Any] = {}
    status: tuple[int | None, int | None] = (None, None)
    for record in tape:
        if record.dir != "note":
            continue
        if record.line == CLOSED and not by_itself:
            return _Ending()
        if record.line == OUTPUT_ENDED:
            by_itself = True
        elif (found := read_exit_note(record.line)) is not None:
            by_itself, status = True, found
        elif record.line.startswith(b'{"failure":"read"'):
            by_itself, failure = True, _read_line(record.line)[1]
    return _Ending(by_itself, status[0], status[1], failure)


def _read_steps(records: Sequence[TapeRecord]) -> list[_Step]:
    steps: list[_Step] = []
    questions: set[str] = set()
    for index, record in enumerate(records):
        if record.dir == "out" and b'"control_request"' in record.line:
            _, message = _read_line(record.line)
            if isinstance(message, dict) and message.get("type") == "control_request":
                questions.add(str(message.get("request_id")))
        elif record.dir == "in":
            key, message = _read_line(record.whole_line)
            # an answer to a question that was never asked is ignored [18o]
            is_needed = key != _IGNORED and (key[0] != "control_response" or key[1] in questions)
            steps.append(_Step(index, key, message, is_needed=is_needed))
    return steps


def _read_line(line: bytes) -> tuple[Key, Any]:
    """The key of a line, and the message on it, or the line itself when it holds none."""
    if not line.strip():
        return _IGNORED, line
    try:
        message, _ = parse_json(line)
    except JSONTextError:
        return _MALFORMED, line.decode("utf-8", "replace")
    if not isinstance(message, dict) or message.get("type") not in _HEEDED:
        return _IGNORED, message
    kind = str(message["type"])
    name, field = {"control_request": ("request", "subtype"), "control_response": ("response", "request_id")}.get(kind, ("", ""))
    body = message.get(name)
    return (kind, str(body.get(field)) if isinstance(body, dict) else ""), message


def _initialized(request: Mapping[str, Any]) -> bytes:
    body: dict[str, Any] = {"subtype": "success", "request_id": request.get("request_id"), "response": {}}
    return encode_line({"type": "control_response", "response": body})[:-1]


def _with_id(message: dict[str, Any], holder: dict[str, Any], new: str) -> dict[str, Any]:
    holder["request_id"] = new
    return message


def _replacement(new: str) -> Callable[[re.Match[bytes]], bytes]:
    encoded = msgspec.json.encode(new)
    return lambda match: match[1] + encoded
