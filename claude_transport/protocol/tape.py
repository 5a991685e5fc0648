r"""`Tape`: a recorded conversation in a file that people, programs and version control can read; `Playback` plays it as a state machine.

The file is NDJSON. The first line is the header, each other line one record:

```text
{"tape": 1, "cli_version": "2.1.329", "created_at": "2026-11-20T21:00:00+00:00", "scrubbed": true, "t": 0, "dir": "note", "line": "tape"}
{"t": 0.002, "dir": "in", "line": "{\"type\":\"user\",…}"}
{"t": 0.654, "dir": "out", "line": "{\"type\":\"system\",…}"}
```

`t` is seconds since the start. `dir` is `in` (host to CLI), `out` (CLI to host), `err` (a line of standard error) or `note` (another event:
see the functions below). `line` is the line without its newline. A line that is not UTF-8 has its exact bytes in `base64`, and a `line`
with replacement characters for people.

A tape can be edited by hand: `line` may be a JSON object, and a record without `t` has the time of the one before it.

The header also has the shape of a record, so programs that know only records can read the file. A file without a header can be read, too
(the recordings behind the protocol reference have none). A file may end in the middle of a line, because its writer died. Then the complete
lines are read, and `is_torn` is True.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NoReturn, get_args

import msgspec

from claude_transport.errors import ConfigurationError, ConnectionLost, ProcessError, TruncatedStream
from claude_transport.platform.winapi import make_private
from claude_transport.protocol.envelope import JSONTextError, encode_json, encode_line, parse_json
from claude_transport.protocol.expectation import ExpectationFailed, describe_message, error_answered, registered_hooks
from claude_transport.protocol.fragments import FragmentRedactor
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape_comparison import Comparison, check_match
from claude_transport.protocol.tape_lines import IGNORED, ClaudeLines, Key, TapeLines
from claude_transport.text.secret_forms import find_home_users

TAPE_VERSION = 1
Direction = Literal["in", "out", "err", "note"]
_DIRECTIONS: dict[object, Direction] = {direction: direction for direction in get_args(Direction)}

INPUT_ENDED = b"stdin closed by driver"
"""Note: the host ended its input."""
OUTPUT_ENDED = b"out EOF"
"""Note: the output of the CLI ended."""
CLOSED = b"closed by host"
"""Note: the host closed its transport. Later records belong to the closing."""
_EXIT = re.compile(rb"exit code (-?\d{1,10})")
_WITHDRAWN = re.compile(rb"withdrawn in (\d{1,9})")


class TapeHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a recording, in the first line of a tape file.

    `version` is that of the format, `cli_version` that of the recorded CLI, `created_at` the beginning in UTC; the last two are None when
    unknown. `scrubbed` is True when secrets have been removed.
    """

    version: int = TAPE_VERSION
    cli_version: str | None = None
    created_at: dt.datetime | None = None
    scrubbed: bool = False

    def encode(self) -> bytes:
        """Return this header as the first line of a tape file, with its newline."""
        created_at = None if self.created_at is None else self.created_at.isoformat()
        about = {"tape": self.version, "cli_version": self.cli_version, "created_at": created_at, "scrubbed": self.scrubbed}
        return encode_line({**about, "t": 0, "dir": "note", "line": "tape"})


class TapeRecord(msgspec.Struct, frozen=True):
    """One line of a recorded conversation, with its time and direction.

    `t` is seconds after the start. `dir` is `in` (host to CLI), `out` (CLI to host), `err` (standard error) or `note` (another event).
    `line` has no newline. `trimmed_from_chars` is the original length of a line of which only the beginning was kept; else None.
    """

    t: float
    dir: Direction
    line: bytes
    trimmed_from_chars: int | None = None

    @property
    def whole_line(self) -> bytes:
        """The line to replay. It is `line`, but in place of a trimmed line a small valid one with the same type, subtype and request id."""
        return self.line if self.trimmed_from_chars is None else restore_trimmed(self.line)

    def encode(self) -> bytes:
        """Return this record as one line of a tape file, with its newline."""
        row: dict[str, Any] = {"t": round(self.t, 6), "dir": self.dir}
        try:
            row["line"] = text = self.line.decode()
            if self.trimmed_from_chars is None and text.isascii() and math.isfinite(self.t):
                # most are, and this takes a tenth of the time of `encode_line`
                return b'{"t":%a,"dir":%b,"line":%b}\n' % (row["t"], msgspec.json.encode(self.dir), msgspec.json.encode(text))
        except UnicodeDecodeError:
            row["line"] = self.line.decode("utf-8", "replace")
            row["base64"] = base64.b64encode(self.line).decode()
        if self.trimmed_from_chars is not None:
            row["trimmed_from_chars"] = self.trimmed_from_chars
        return encode_line(row)


class Tape:
    """A recorded conversation between a host and the CLI. Iterating it gives each `TapeRecord`, in order; `len()` is their number.

    `records` is the list of records, `header` the facts about the recording. `is_torn` is True when the recording was cut in the middle of
    a line; that line is not among the records.
    """

    def __init__(self, records: Iterable[TapeRecord] = (), *, header: TapeHeader | None = None, is_torn: bool = False) -> None:
        self.records: list[TapeRecord] = list(records)
        self.header: TapeHeader = header or TapeHeader()
        self.is_torn = is_torn

    @classmethod
    def parse(cls, data: bytes, *, name: str = "tape") -> Tape:
        """Return the tape that `data`, the contents of a tape file, holds. `name` is the name of the file for messages.

        A last line that is cut does not matter: `is_torn` is then True. Raises `ConfigurationError`, naming the line, when `data` is not a
        tape.
        """
        header: TapeHeader | None = None
        records: list[TapeRecord] = []
        rows = data.split(b"\n")
        torn: tuple[int, str] | None = None
        for number, text in enumerate(rows, 1):
            if not text.strip():
                continue
            try:
                row = msgspec.json.decode(text, type=dict[str, Any])
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                if number == len(rows):
                    torn = number, str(error)
                    break
                raise _no_tape(name, number, str(error)) from error
            if "tape" in row:
                if header is not None or records:
                    raise _no_tape(name, number, "a second header")
                header = _read_header(row, name, number)
            else:
                records.append(_read_record(row, name, number, records[-1].t if records else 0.0))
        if header is None and not records:
            number, why = (1, "it is empty") if torn is None else (torn[0], f"the only line is not complete JSON: {torn[1]}")
            raise _no_tape(name, number, why)
        return cls(records, header=header, is_torn=torn is not None)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tape:
        """Return the tape in a file, which is read as a whole. Raises `ConfigurationError` when the file cannot be read or is not a tape.

        `is_torn` of the tape says whether the last line was cut.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the tape {os.fspath(path)}: {error.strerror}. `claude-transport record` writes tapes.",
                option="path",
            ) from error
        return cls.parse(data, name=Path(path).name)

    def encode(self) -> bytes:
        """Return the tape as the contents of a tape file: the header and then the records, one JSON object on each line."""
        return self.header.encode() + b"".join(record.encode() for record in self.records)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the tape to a file that only its owner can read (mode 0600). The file is replaced in one step, so it is always complete.

        Raises `ConfigurationError` when it cannot be written.
        """
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.touch(mode=0o600)
            make_private(beside)
            beside.write_bytes(self.encode())
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise ConfigurationError(
                f"cannot write the tape {target}: {error.strerror}. `claude-transport record` writes tapes.", option="path"
            ) from error

    def append(self, record: TapeRecord) -> None:
        """Add a record at the end of the tape. Raises `ConfigurationError` when its time is before that of the last record."""
        if self.records and record.t < self.records[-1].t:
            raise ConfigurationError(
                f"a record at {record.t} s cannot follow one at {self.records[-1].t} s; append in order", option="record"
            )
        self.records.append(record)

    def __iter__(self) -> Iterator[TapeRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __eq__(self, other: object) -> bool:
        return (self.header, self.records) == (other.header, other.records) if isinstance(other, Tape) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # it can be appended to

    def __repr__(self) -> str:
        return f"<Tape of {len(self.records)} records{', torn' if self.is_torn else ''}>"

    def lines(self, direction: Direction) -> list[bytes]:
        """Return the lines of one direction, in order, without their times.

        `direction` is `in` (host to CLI), `out` (CLI to host), `err` (standard error) or `note` (another event).
        """
        return [record.line for record in self.records if record.dir == direction]

    def with_turn(self, number: int, other: Tape) -> Tape:
        """Return a copy of the tape in which turn `number`, counted from 1, is that of `other`.

        A turn begins with a prompt and ends before the next one, or before the end of the input. The replaced turn keeps its session id.
        Raises `ConfigurationError` when one of the tapes has no such turn.
        """
        start, stop = _find_turn(self.records, number, "this tape")
        begin, end = _find_turn(other.records, number, "the other tape")
        names = {new: old for old, new in zip(_session_ids(self.records), _session_ids(other.records), strict=False)}
        later = self.records[start].t - other.records[begin].t
        turn = [_moved(record, by=later, names=names) for record in other.records[begin:end]]
        pause = max((turn[-1].t if turn else 0.0) - (self.records[stop].t if stop < len(self.records) else math.inf), 0.0)
        rest = [_moved(record, by=pause, names={}) for record in self.records[stop:]]
        return Tape([*self.records[:start], *turn, *rest], header=self.header, is_torn=self.is_torn)

    def redact(self, redactor: Redactor | None = None) -> Tape:
        """Return a copy of the tape without secrets and personal data. Its header says `scrubbed`.

        `redactor` removes them; by default a plain `Redactor()`. Users whose home directories occur anywhere in the tape are replaced
        everywhere.
        """
        texts = (record.line.decode("utf-8", "replace").replace("\\\\", "\\") for record in self.records)
        users = {user for text in texts for user in find_home_users(text)}
        knowing = (redactor or Redactor()).with_users(users)
        fragments: FragmentRedactor[TapeRecord] = FragmentRedactor(knowing)
        fed = [fragments.feed(record, record.line, received=record.dir == "out") for record in self.records]
        records = [msgspec.structs.replace(record, line=line) for record, line in (*chain.from_iterable(fed), *fragments.rest())]
        return Tape(records, header=msgspec.structs.replace(self.header, scrubbed=True), is_torn=self.is_torn)


_PROMPT: Final = re.compile(rb'"type"\s*:\s*"user"|"method"\s*:\s*"turn/start"')
_ENDS_A_TURN: Final = re.compile(rb'"type"\s*:\s*"result"|"method"\s*:\s*"turn/completed"')
_SESSION_ID: Final = re.compile(rb'"session_id"\s*:\s*"([^"\\]{8,200})"')


def _find_turn(records: Sequence[TapeRecord], number: int, what: str) -> tuple[int, int]:
    """Return where a turn begins and where it ends. Raises `ConfigurationError` when there is none."""
    prompts = [index for index, record in enumerate(records) if record.dir == "in" and _PROMPT.search(record.line)]
    if not 1 <= number <= len(prompts):
        raise ConfigurationError(f"{what} has {len(prompts)} turns, so no turn {number}", option="number")
    start = prompts[number - 1]
    ends = (INPUT_ENDED, OUTPUT_ENDED, CLOSED)
    last = prompts[number] if number < len(prompts) else len(records)
    stop = next((i for i in range(start, last) if records[i].dir == "note" and records[i].line in ends), last)
    if not any(record.dir == "out" and _ENDS_A_TURN.search(record.line) for record in records[start:stop]):
        raise ConfigurationError(f"{what}: turn {number} has no result before the next prompt, so it cannot stand alone", option="number")
    return start, stop


def _session_ids(records: Iterable[TapeRecord]) -> list[bytes]:
    return list(dict.fromkeys(found for record in records if record.dir == "out" for found in _SESSION_ID.findall(record.line)))


def _moved(record: TapeRecord, *, by: float, names: Mapping[bytes, bytes]) -> TapeRecord:
    line = record.line
    for old, new in names.items():
        line = line.replace(old, new)
    return msgspec.structs.replace(record, t=max(record.t + by, 0.0), line=line)


def _read_header(row: dict[str, Any], name: str, number: int) -> TapeHeader:
    version = row["tape"]
    if not isinstance(version, int) or version < 1:
        raise _no_tape(name, number, "the version is not a number")
    if version > TAPE_VERSION:
        raise ConfigurationError(f"{name} is a tape of version {version}; this program reads versions up to {TAPE_VERSION}", option="path")
    try:
        return msgspec.convert({**row, "version": version}, TapeHeader)
    except msgspec.ValidationError as error:
        raise _no_tape(name, number, str(error)) from error


def _read_record(row: dict[str, Any], name: str, number: int, last_t: float) -> TapeRecord:
    t, direction, line, exact = row.get("t", last_t), _DIRECTIONS.get(str(row.get("dir"))), row.get("line"), row.get("base64")
    if isinstance(line, dict):  # written by hand, without the quotes in quotes
        line = encode_json(line).decode()
    if isinstance(t, bool) or not isinstance(t, int | float) or direction is None or not isinstance(line, str):
        raise _no_tape(name, number, "a record needs a `dir` of in, out, err or note, and a text or an object `line`; `t` is a number")
    trimmed = row.get("trimmed_from_chars")
    try:
        data = line.encode() if exact is None else base64.b64decode(exact, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _no_tape(name, number, f"base64: {error}") from error
    try:
        seconds = float(t)
    except OverflowError as error:
        raise _no_tape(name, number, "the number `t` is too large") from error
    return TapeRecord(seconds, direction, data, trimmed if isinstance(trimmed, int) else None)


def _no_tape(name: str, number: int, why: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is not a tape, line {number}: {why}", option="path")


def note_of_exit(*, exit_code: int | None, signal: int | None) -> bytes:
    """Make the note about the end of the process; a death by signal is a negative exit code."""
    return b"exit code %d" % (-signal if signal is not None else exit_code or 0)


def read_exit_note(line: bytes) -> tuple[int | None, int | None] | None:
    """Read a note about the end of the process: `(exit_code, signal)`, one of them None. Returns None for other notes."""
    found = _EXIT.fullmatch(line)
    if found is None:
        return None
    code = int(found[1])
    return (None, -code) if code < 0 else (code, None)


def note_of_start(about: Mapping[str, Any]) -> bytes:
    """Make the note about how the recorded program was started: its `command` and `cwd`, or its `options`."""
    return encode_json({"started": about})


def read_start(records: Iterable[TapeRecord]) -> Mapping[str, Any]:
    """Return what `note_of_start` was given; nothing when the tape does not say it."""
    for record in records:
        if record.dir == "note" and record.line.startswith(b'{"started":'):
            note = _read_note(record.line).get("started")
            return note if isinstance(note, dict) else {}
    return {}


def read_version(tape: Tape) -> str | None:
    """Return the version of the recorded CLI, from the header or from what the CLI said; None when the tape does not say it."""
    if tape.header.cli_version is not None:
        return tape.header.cli_version
    said = (
        _read_note(record.line).get("claude_code_version") for record in tape if record.dir == "out" and b"_code_version" in record.line
    )
    return next((version for version in said if isinstance(version, str)), None)


def tape_number(first: Path, number: int) -> Path:
    """Return the path of the tape with this number, from 1, in a series that begins with `first`: `x.ndjson`, `x.2.ndjson`, …"""
    return first if number == 1 else first.with_suffix(f".{number}{first.suffix}")


def note_of_withdrawal(*, back: int) -> bytes:
    """Make the note that an `in` line was not sent: its write failed or was cancelled before any byte went out.

    It is the `back`-th last `in` record before the note, counted from 1. Readers that do not know the note take the line as sent.
    """
    return b"withdrawn in %d" % back


def without_withdrawn(records: Iterable[TapeRecord]) -> list[TapeRecord]:
    """Return the records without lines that were recorded but never sent (see `note_of_withdrawal`), and without the notes about them."""
    return [record for _, record in _numbered(records)]


def _numbered(records: Iterable[TapeRecord]) -> list[tuple[int, TapeRecord]]:
    """Return the records of `without_withdrawn()`, each with its number on the tape, from 1."""
    left: list[tuple[int, TapeRecord] | None] = []
    said: list[int] = []
    for number, record in enumerate(records, 1):
        found = _WITHDRAWN.fullmatch(record.line) if record.dir == "note" else None
        if found is None:
            if record.dir == "in":
                said.append(len(left))
            left.append((number, record))
        elif 0 < int(found[1]) <= len(said):
            left[said[-int(found[1])]] = None
    return [pair for pair in left if pair is not None]


_KIND = re.compile(rb'\{"type": ?"(\w+)"(?:, ?"subtype": ?"(\w+)")?')
_REQUEST_ID = re.compile(rb'"request_id": ?"([^"\\]*)"')
_RESULT: dict[str, Any] = {"subtype": "success", "is_error": False, "result": "", "num_turns": 1, "duration_ms": 0, "duration_api_ms": 0}
_REST: dict[str, dict[str, Any]] = {
    "assistant": {
        "message": {"id": "msg_trimmed", "type": "message", "role": "assistant", "content": [{"type": "text", "text": ""}]},
        "parent_tool_use_id": None,
    },
    "transcript_mirror": {"filePath": "", "entries": []},
}


_METHOD = re.compile(rb'\{(?:"id": ?("[^"\\]*"|-?\d+), ?)?"method": ?"([\w/]+)"(?:, ?"id": ?("[^"\\]*"|-?\d+))?')
_ANSWER = re.compile(rb'\{"id": ?("[^"\\]*"|-?\d+), ?"result"')


def _restore_rpc(line: bytes) -> bytes:
    answer = _ANSWER.match(line)
    if answer is not None:
        return b'{"id":%s,"result":{}}' % answer[1]
    found = _METHOD.match(line)
    assert found is not None  # noqa: S101 - for the type checkers: one of the two matches
    identity = found[1] or found[3]
    return b'{"method":"%s"%s,"params":{}}' % (found[2], b"" if identity is None else b',"id":%s' % identity)


def restore_trimmed(line: bytes) -> bytes:
    """Make a small valid line in place of one that was cut: it has the same type, subtype and request id. No newline is added.

    A line of JSON-RPC keeps its method, or the id of the request that it answers.
    """
    if _METHOD.match(line) or _ANSWER.match(line):
        return _restore_rpc(line)
    found = _KIND.match(line)
    if found is None:  # only a `result` does not begin with its type (docs/reference/protocol.md#key-order)
        return encode_json({"type": "result", **_RESULT})
    kind = found[1].decode()
    if kind == "control_response":
        identity = _REQUEST_ID.search(line)
        body: dict[str, Any] = {"subtype": "success", "response": {}}
        if identity is not None:
            body["request_id"] = identity[1].decode("utf-8", "replace")
        return encode_json({"type": kind, "response": body})
    subtype = {} if found[2] is None else {"subtype": found[2].decode()}
    return encode_json({"type": kind, **subtype, **_REST.get(kind, {})})


_NOT_ON_THE_TAPE = -1.0
_INITIALIZE: Final[Key] = ("control_request", "initialize")


class _Step(msgspec.Struct):
    """A line that the host wrote on the tape."""

    index: int
    key: Key
    message: Any
    is_needed: bool
    met: bool = False


class Playback:
    """Plays a tape: the host's lines go in, and the records that may be played now come out. It has no clock and does no I/O.

    `lines` matches the lines of both hosts, as those of Claude when it is None.

    `match` names what must be the same as on the tape, besides the kinds of the lines (see `tape_comparison.MATCHES`). `redactor` removes
    from live lines what it has removed from the tape, and `folder` is where the live program works.

    With `strict`, an answer that is an error does not match a recorded one that is none, and an `initialize` must register the hooks that
    the tape calls.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        lines: TapeLines | None = None,
        match: Iterable[str] = (),
        redactor: Redactor | None = None,
        folder: str = "",
        strict: bool = False,
    ) -> None:
        self._match = check_match(match)
        self._started = read_start(tape)
        self._comparison = Comparison(redactor=redactor, folders=[folder, *_folders_of(tape, self._started)])
        self._early: set[int] = set()  # records that were played before their turn
        played = _until_the_end(tape)
        self._records = [record for _, record in played]
        self._numbers = [number for number, _ in played]  # those of the tape, as `inspect` counts
        self._total = len(tape)
        self._position = 0
        self._lines = ClaudeLines() if lines is None else lines
        self._steps = {step.index: step for step in _read_steps(self._records, self._lines)}
        self._unmet = list(self._steps.values())
        self._input_ended = False
        self._stderr: list[str] = []
        self._failure: ExpectationFailed | None = None
        self._strict = strict
        self._called_hooks = _read_called_hooks(self._records, self._steps.values()) if strict else {}
        self.received_last: str = ""
        """The last line of the host that is on the tape, in a few words; empty before there is one."""
        self._ending = _read_ending(tape)
        self._answers: deque[bytes] = deque()

    def received(self, line: bytes) -> None:
        """Process a line of the host. Raises `ExpectationFailed`, naming the step, when the tape has no such line left."""
        key, message = self._lines.read(line)
        if key == IGNORED:
            return
        self._refuse_lost_hooks(key, message)
        alike = [step for step in self._unmet if step.key == key]
        if alike:
            step = self._closest(alike, key, message)
            if self._strict and (error := error_answered(message)) is not None and error_answered(step.message) is None:
                self._fail(step, actual=f"the error {error!r} in {describe_message(message)}")
            self.received_last = describe_message(message)
            self._unmet.remove(step)
            step.met = True
            self._lines.learn(step.message, message)
            return
        if (answer := self._lines.answer(key, message)) is not None:
            self._answers.append(answer)
            return
        self._refuse(message)

    def _refuse(self, message: Any) -> NoReturn:
        step = next((step for step in self._unmet if step.is_needed), None)
        diff = "" if step is None else self._comparison.differences(_without_ids(step.message), _without_ids(message), path="line")
        self._fail(step, actual=describe_message(message), diff=diff)

    def started(self, about: Mapping[str, Any]) -> None:
        """Compare how the live program was started with how the recorded one was, when `options` are to match.

        `about` is what `note_of_start` takes. Raises `ExpectationFailed` when they differ, or the tape does not say it.
        """
        if "options" not in self._match:
            return
        diff = ""
        for name, live in about.items():
            recorded = self._started.get(name)
            if name == "command" and recorded:  # the first word is the path of the program
                recorded, live = recorded[1:], live[1:]
            diff = self._comparison.differences(recorded, live, path=name)
            if diff:
                expected = f"the recorded {name}" if name in self._started else f"a tape that has the {name}; record it again"
                self._failure = ExpectationFailed.at("the start", expected=expected, actual=f"another {name}", diff=diff)
                raise self._failure

    def _closest(self, alike: Sequence[_Step], key: Key, message: Any) -> _Step:
        """Return the step that says the same as a live line of its kind; else the first one, unless it has to be the same."""
        about, path, live = self._lines.aspect(key, message)
        compares = about in self._match
        if not compares and (about != "requests" or len(alike) == 1):
            return alike[0]
        diffs = [self._comparison.differences(self._lines.aspect(key, step.message)[2], live, path=path) for step in alike]
        if all(diffs) and compares:
            self._fail(alike[0], actual=describe_message(message), diff=diffs[0])
        return next((step for step, diff in zip(alike, diffs, strict=True) if not diff), alike[0])

    def input_ended(self) -> None:
        """Process the end of the host's input."""
        self._input_ended = True

    def next_record(self) -> TapeRecord | None:
        """Return the next record that can be played now, including standard error and notes; None when the host must act first, or at
        the end.

        A record that is not on the tape has a time below zero. Raises `ExpectationFailed` when the host deviated from the tape: it wrote a
        line that is not on it, or ended its input too early.
        """
        if self._failure is not None:
            raise self._failure
        if self._answers:
            return TapeRecord(_NOT_ON_THE_TAPE, "out", self._answers.popleft())
        while self._position in self._early:
            self._position += 1
        if self._position >= len(self._records) or self._is_waiting():
            early = self._answer_ahead()
            if early is not None:
                return early
            if self._input_ended and self._position in self._steps:
                self._fail(self._steps[self._position], actual="the end of the input")
            return None
        record = self._records[self._position]
        self._position += 1
        if record.dir == "out":
            return TapeRecord(record.t, "out", self._lines.relive(record.whole_line))
        if record.dir == "err":
            self._stderr.append(record.line.decode("utf-8", "replace"))
        return record

    @property
    def is_over(self) -> bool:
        """True when everything was played and the stream has ended: by itself if it did so on the tape, else by the end of the host's
        input.
        """
        return not self._answers and self._position >= len(self._records) and (self._ending.by_itself or self._input_ended)

    @property
    def is_complete(self) -> bool:
        """True when all records were played."""
        return self._position >= len(self._records)

    @property
    def error(self) -> Exception | None:
        """The error with which the recorded stream ended; None when it ended well."""
        return self._ending.error("\n".join(self._stderr), agent=self._lines.agent) if self._ending.by_itself else None

    @property
    def stderr_tail(self) -> str:
        """The text of standard error that was played so far."""
        return "\n".join(self._stderr)

    @property
    def exit_status(self) -> tuple[int | None, int | None]:
        """`(exit_code, signal)` of the recorded process, once everything was played."""
        return (self._ending.exit_code, self._ending.signal) if self.is_over else (None, None)

    @property
    def whereabouts(self) -> str:
        """The current position on the tape and what it waits for, in words."""
        place = self._place(self._position)
        if self._position >= len(self._records):
            return f"{place}: everything has been played" + ("" if self.is_over else "; waiting for the end of the input")
        step = self._steps.get(self._position)
        waits_for = "the end of the input" if step is None else describe_message(step.message)
        return f"{place}: waiting for {waits_for}" if self._is_waiting() else place

    @property
    def failure(self) -> ExpectationFailed | None:
        """The first deviation of the host from the tape; None so far."""
        return self._failure

    def _refuse_lost_hooks(self, key: Key, message: Any) -> None:
        """Fail at `initialize` when it lacks hooks that the tape calls later: what follows from that is hard to understand."""
        if key != _INITIALIZE or not self._called_hooks:
            return
        live = registered_hooks(message)
        lost = {name: event for name, event in self._called_hooks.items() if name not in live}
        if not lost:
            return
        events = ", ".join(dict.fromkeys(lost.values()))
        here = f"only hooks for {', '.join(dict.fromkeys(live.values()))}" if live else "no hooks"
        self._failure = self._failure or ExpectationFailed(
            f"the tape calls hooks for {events}, and this program registers {here}: "
            "give it the hooks that it had when the tape was recorded, or record the tape again",
            step=self._place(self._position),
            expected=f"hooks for {events}",
            actual=here,
        )
        raise self._failure

    def _answer_ahead(self) -> TapeRecord | None:
        """Return the answer to a request that came before another one, which it does not depend on: the tape waits for that one."""
        waiting = self._steps.get(self._position)
        if waiting is None or self._lines.aspect(waiting.key, waiting.message)[0] != "requests":
            return None
        for step in self._steps.values():
            if step.index <= self._position or not step.is_needed:
                continue
            if self._lines.aspect(step.key, step.message)[0] != "requests":
                return None
            if step.met:
                for index in range(step.index + 1, len(self._records)):
                    record = self._records[index]
                    if index not in self._early and record.dir == "out" and self._lines.answered_by(step.message, record.line):
                        self._early.add(index)
                        return TapeRecord(record.t, "out", self._lines.relive(record.whole_line))
        return None

    def _fail(self, step: _Step | None, *, actual: str, diff: str = "") -> NoReturn:
        self._failure = self._failure or ExpectationFailed.at(
            self._place(self._position if step is None else step.index),
            expected="no further line from the host" if step is None else describe_message(step.message),
            actual=actual,
            diff=diff,
        )
        raise self._failure

    def _place(self, index: int) -> str:
        number = self._numbers[min(index, len(self._numbers) - 1)] if self._numbers else 0
        return f"record {number} of {self._total}"

    def _is_waiting(self) -> bool:
        record = self._records[self._position]
        if record.dir == "in":
            step = self._steps[self._position]
            return step.is_needed and not step.met
        return record.dir == "note" and record.line == INPUT_ENDED and not self._input_ended


_IDS: Final = frozenset({"request_id", "uuid", "session_id", "id"})


def _without_ids(message: Any) -> Any:
    return {name: value for name, value in message.items() if name not in _IDS} if isinstance(message, dict) else message


def _folders_of(tape: Tape, started: Mapping[str, Any]) -> list[str]:
    """Return the folders where the recorded program has worked, as far as the tape says so."""
    found = [started.get("cwd")]
    for record in tape:
        if record.dir == "out" and b'"cwd"' in record.line and b'"init"' in record.line:
            found.append(_read_note(record.line).get("cwd"))
            break
    return [folder for folder in found if isinstance(folder, str)]


class _Ending(msgspec.Struct, frozen=True):
    """How the recorded stream ended: by itself, or because the host closed it (or for an unknown reason)."""

    by_itself: bool = False
    exit_code: int | None = None
    signal: int | None = None
    failure: Mapping[str, Any] = {}

    def error(self, stderr_tail: str, *, agent: str) -> Exception | None:
        if self.exit_code or self.signal is not None:
            how = f"exit code {self.exit_code}" if self.signal is None else f"signal {self.signal}"
            return ProcessError(
                f"the recorded {agent} ended with {how}", exit_code=self.exit_code, signal=self.signal, stderr_tail=stderr_tail
            )
        message = str(self.failure.get("message", ""))
        if self.failure.get("error") == "TruncatedStream":
            return TruncatedStream(message)
        return ConnectionLost(message) if self.failure else None


def _until_the_end(tape: Tape) -> list[tuple[int, TapeRecord]]:
    """Return the records up to the end of the stream, with their numbers. What the host did afterwards changed nothing."""
    records: list[tuple[int, TapeRecord]] = []
    said = _numbered(tape)
    for number, record in said:
        if record.dir == "note" and record.line in (OUTPUT_ENDED, CLOSED):
            break
        records.append((number, record))
    # the lines of standard error that explain an exit may be recorded after it
    rest = said[len(records) :]
    if rest and rest[0][1].line == OUTPUT_ENDED:
        records += [(number, record) for number, record in rest if record.dir == "err"]
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
            by_itself, failure = True, _read_note(record.line)
    return _Ending(by_itself, status[0], status[1], failure)


def _read_note(line: bytes) -> Mapping[str, Any]:
    try:
        note, _ = parse_json(line)
    except JSONTextError:
        return {}
    return note if isinstance(note, dict) else {}


def _read_called_hooks(records: Sequence[TapeRecord], steps: Iterable[_Step]) -> dict[str, str]:
    """Return the hooks that are registered on the tape and called: the id of each, and its event."""
    registered: dict[str, str] = {}
    for step in steps:
        if step.key == _INITIALIZE:
            registered.update(registered_hooks(step.message))
    called = [record.line for record in records if record.dir == "out" and b'"hook_callback"' in record.line] if registered else []
    return {name: event for name, event in registered.items() if any(f'"{name}"'.encode() in line for line in called)}


def _read_steps(records: Sequence[TapeRecord], lines: TapeLines) -> list[_Step]:
    steps: list[_Step] = []
    for index, record in enumerate(records):
        if record.dir == "out":
            lines.recorded(record.line)
        elif record.dir == "in":
            key, message = lines.read(record.whole_line)
            steps.append(_Step(index, key, message, lines.is_needed(key)))
    return steps
