"""`Tape`: a conversation as it was on the wire, in a file that people, programs and version control can read.

NDJSON. The first line is the header, every other line one record:

```text
{"tape": 1, "cli_version": "2.1.329", "created_at": "2026-11-20T21:00:00+00:00", "scrubbed": true, "t": 0, "dir": "note", "line": "tape"}
{"t": 0.002, "dir": "in", "line": "{\"type\":\"user\",…}"}
{"t": 0.654, "dir": "out", "line": "{\"type\":\"system\",…}"}
```

`t` is seconds since the start; `dir` is `in` (host to CLI), `out` (CLI to host), `err` (a line of standard error) or `note` (what
happened besides: see the functions below). `line` is the line without its newline. One that is not UTF-8 has its exact bytes in
`base64`, beside a `line` with replacement characters for people. The header has the shape of a record, too, so that whoever knows
only records can read the file; one without a header is read as well (the recordings behind the protocol reference have none).

A file that ends in the middle of a line was being written when its writer died: what is whole is read, and `is_torn` says so.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.encoding import encode_line
from claude_transport.protocol.home_paths import find_home_users
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.trimmed import restore_trimmed

__all__ = [
    "CLOSED",
    "INPUT_ENDED",
    "OUTPUT_ENDED",
    "Direction",
    "Tape",
    "TapeHeader",
    "TapeRecord",
    "note_of_exit",
    "note_of_withdrawal",
    "read_exit_note",
    "without_withdrawn",
]

TAPE_VERSION = 1
Direction = Literal["in", "out", "err", "note"]
_DIRECTIONS: dict[object, Direction] = {direction: direction for direction in get_args(Direction)}

INPUT_ENDED = b"stdin closed by driver"
"""The note that the host ended its input."""
OUTPUT_ENDED = b"out EOF"
"""The note that nothing more came from the CLI."""
CLOSED = b"closed by host"
"""The note that the host closed its transport: what comes after it was the closing itself."""
_EXIT = re.compile(rb"exit code (-?\d{1,10})")
_WITHDRAWN = re.compile(rb"withdrawn in (\d{1,9})")


def note_of_exit(*, exit_code: int | None, signal: int | None) -> bytes:
    """The note that says how the process ended; a death by signal is a negative exit code."""
    return b"exit code %d" % (-signal if signal is not None else exit_code or 0)


def read_exit_note(line: bytes) -> tuple[int | None, int | None] | None:
    """`(exit_code, signal)`, one of them None, of a note that says how the process ended; None for any other note."""
    found = _EXIT.fullmatch(line)
    if found is None:
        return None
    code = int(found[1])
    return (None, -code) if code < 0 else (code, None)


def note_of_withdrawal(*, back: int) -> bytes:
    """The note that an `in` line was not said after all: its writing failed or was cancelled before anything of it had gone out.

    It is the `back`-th last of the `in` records before the note, counted from 1. Whoever does not know the note takes the line as said.
    """
    return b"withdrawn in %d" % back


def without_withdrawn(records: Iterable[TapeRecord]) -> list[TapeRecord]:
    """The records of what was said: those without the lines that were withdrawn, and without the notes that say so."""
    left: list[TapeRecord | None] = []
    said: list[int] = []
    for record in records:
        found = _WITHDRAWN.fullmatch(record.line) if record.dir == "note" else None
        if found is None:
            if record.dir == "in":
                said.append(len(left))
            left.append(record)
        elif 0 < int(found[1]) <= len(said):
            left[said[-int(found[1])]] = None
    return [record for record in left if record is not None]


class TapeHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the recording: `created_at` in UTC, and whether secrets were taken out while it was made."""

    version: int = TAPE_VERSION
    cli_version: str | None = None
    created_at: dt.datetime | None = None
    scrubbed: bool = False

    def encode(self) -> bytes:
        """The first line of a tape, with its newline."""
        created_at = None if self.created_at is None else self.created_at.isoformat()
        about = {"tape": self.version, "cli_version": self.cli_version, "created_at": created_at, "scrubbed": self.scrubbed}
        return encode_line({**about, "t": 0, "dir": "note", "line": "tape"})


class TapeRecord(msgspec.Struct, frozen=True):
    """One line, `t` seconds after the start. `trimmed_from_chars` is the length of a line of which only the beginning was kept."""

    t: float
    dir: Direction
    line: bytes
    trimmed_from_chars: int | None = None

    @property
    def whole_line(self) -> bytes:
        """The line to play: for a trimmed one, the smallest line of the same type."""
        return self.line if self.trimmed_from_chars is None else restore_trimmed(self.line)

    def encode(self) -> bytes:
        """The line of the tape, with its newline."""
        row: dict[str, Any] = {"t": round(self.t, 6), "dir": self.dir}
        try:
            row["line"] = self.line.decode()
        except UnicodeDecodeError:
            row["line"] = self.line.decode("utf-8", "replace")
            row["base64"] = base64.b64encode(self.line).decode()
        if self.trimmed_from_chars is not None:
            row["trimmed_from_chars"] = self.trimmed_from_chars
        return encode_line(row)


class Tape:
    """A recorded conversation: iterate it for each `TapeRecord`, in order.

    `is_torn` is True when the recording was interrupted in the middle of a line; that line is not among the records.
    """

    def __init__(self, records: Iterable[TapeRecord] = (), *, header: TapeHeader | None = None, is_torn: bool = False) -> None:
        self.records: list[TapeRecord] = list(records)
        self.header: TapeHeader = header or TapeHeader()
        self.is_torn = is_torn

    # ---------------------------------------------------------------------------------------------------- reading and writing

    @classmethod
    def parse(cls, data: bytes, *, name: str = "tape") -> Tape:
        """The tape that a file called `name` holds. Raises `ConfigurationError`, naming the line, for anything else."""
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
                records.append(_read_record(row, name, number))
        if header is None and not records:
            number, why = (1, "it is empty") if torn is None else (torn[0], f"this is the only line, and it is not whole JSON: {torn[1]}")
            raise _no_tape(name, number, why)
        return cls(records, header=header, is_torn=torn is not None)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tape:
        """The tape in this file. Raises `ConfigurationError` when there is none, or something else."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read the tape {os.fspath(path)}: {error.strerror}", option="path") from error
        return cls.parse(data, name=Path(path).name)

    def encode(self) -> bytes:
        """The file."""
        return self.header.encode() + b"".join(record.encode() for record in self.records)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Put it into a file that only its owner can read (mode 0600), in one step: there is always a whole tape there, old or new."""
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.touch(mode=0o600)
            beside.write_bytes(self.encode())
            beside.replace(target)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise ConfigurationError(f"cannot write the tape {target}: {error.strerror}", option="path") from error

    def append(self, record: TapeRecord) -> None:
        """Add a record at the end. Raises `ConfigurationError` for one that lies before the last."""
        if self.records and record.t < self.records[-1].t:
            raise ConfigurationError(f"a record at {record.t} s cannot follow one at {self.records[-1].t} s", option="record")
        self.records.append(record)

    # ----------------------------------------------------------------------------------------------------------------- using

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
        """The lines of one direction, in order."""
        return [record.line for record in self.records if record.dir == direction]

    def redact(self, redactor: Redactor | None = None) -> Tape:
        """The same tape without secrets and personal data; users whose homes are named anywhere in it are unnamed everywhere."""
        texts = (record.line.decode("utf-8", "replace").replace("\\\\", "\\") for record in self.records)
        users = {user for text in texts for user in find_home_users(text)}
        knowing = (redactor or Redactor()).with_users(users)
        records = [msgspec.structs.replace(record, line=knowing.line(record.line)) for record in self.records]
        return Tape(records, header=msgspec.structs.replace(self.header, scrubbed=True), is_torn=self.is_torn)


def _read_header(row: dict[str, Any], name: str, number: int) -> TapeHeader:
    version = row["tape"]
    if not isinstance(version, int) or version < 1:
        raise _no_tape(name, number, "the version is no number")
    if version > TAPE_VERSION:
        raise ConfigurationError(f"{name} is a tape of version {version}; this program reads versions up to {TAPE_VERSION}", option="path")
    try:
        return msgspec.convert({**row, "version": version}, TapeHeader)
    except msgspec.ValidationError as error:
        raise _no_tape(name, number, str(error)) from error


def _read_record(row: dict[str, Any], name: str, number: int) -> TapeRecord:
    t, direction, line, exact = row.get("t"), _DIRECTIONS.get(str(row.get("dir"))), row.get("line"), row.get("base64")
    if isinstance(t, bool) or not isinstance(t, int | float) or direction is None or not isinstance(line, str):
        raise _no_tape(name, number, "a record has a number `t`, a `dir` of in, out, err, note, and a text `line`")
    trimmed = row.get("trimmed_from_chars")
    try:
        data = line.encode() if exact is None else base64.b64decode(exact, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _no_tape(name, number, f"base64: {error}") from error
    try:
        seconds = float(t)
    except OverflowError as error:
        raise _no_tape(name, number, "`t` is a number out of range") from error
    return TapeRecord(seconds, direction, data, trimmed if isinstance(trimmed, int) else None)


def _no_tape(name: str, number: int, why: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is no tape, line {number}: {why}", option="path")
