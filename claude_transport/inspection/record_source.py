"""`RecordSource`: the records of a tape one after the other, from a file of any size, a few megabytes of it at a time."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord, without_withdrawn

__all__ = ["OnProgress", "RecordSource"]

OnProgress = Callable[[int, int], object]
"""Called with the bytes read so far, and those there are."""

_BLOCK_BYTES = 2**20
"""Read at a time, and then on to the end of the line."""

_MAX_LINE_BYTES = 2**31
"""Bytes of one line: as JSON, a line of 256 MiB that is not UTF-8 has half as much. A file of any size may hold no newline at all."""

_WITHDRAWAL = b"withdrawn in "
"""What a note begins with that takes a line back (`protocol.tape.note_of_withdrawal`)."""


class RecordSource:
    """The records of `tape` (a file or a `Tape`), numbered from 1, without the lines that were withdrawn. Iterate it once.

    Raises `ConfigurationError`, as `Tape.read` does, for what is no tape or cannot be read. Afterwards `is_torn` is known.
    """

    def __init__(self, tape: Tape | str | os.PathLike[str], *, on_progress: OnProgress | None = None) -> None:
        self._tape = tape
        self._on_progress = on_progress
        self.header: TapeHeader = TapeHeader()
        self.is_torn: bool = False

    def __iter__(self) -> Iterator[tuple[int, TapeRecord]]:
        tape = self._tape
        if isinstance(tape, Tape):
            self.header, self.is_torn = tape.header, tape.is_torn
            yield from _without(_withdrawn_of(enumerate(tape, 1)), enumerate(tape, 1))
            return
        try:
            with _open_seekable(tape) as file:
                _refuse_other_files(file, name=Path(tape).name)
                yield from self._read(file, name=Path(tape).name)
        except OSError as error:
            raise ConfigurationError(f"cannot read the tape {os.fspath(tape)}: {error.strerror or error}", option="path") from error

    def _read(self, file: BinaryIO, *, name: str) -> Iterator[tuple[int, TapeRecord]]:
        withdrawn: frozenset[int] = frozenset()
        if any(_WITHDRAWAL in block for block in _blocks(file, name=name)):  # rare: only then is everything read twice
            withdrawn = _withdrawn_of(self._records(file, name=name, on_progress=None))
        yield from _without(withdrawn, self._records(file, name=name, on_progress=self._on_progress))

    def _records(self, file: BinaryIO, *, name: str, on_progress: OnProgress | None) -> Iterator[tuple[int, TapeRecord]]:
        total = file.seek(0, os.SEEK_END)
        number = lines = done = 0
        for block in _blocks(file, name=name):
            tape = _parse(block, name=name, lines_before=lines, header=self.header)
            if not lines:
                self.header = tape.header
            self.is_torn = tape.is_torn
            lines += block.count(b"\n")
            for record in tape:
                number += 1
                yield number, record
            done += len(block)
            if on_progress is not None:
                on_progress(done, total)
        if not total:
            Tape.parse(b"", name=name)  # which says that it is empty, in the words of everywhere else


def _parse(block: bytes, *, name: str, lines_before: int, header: TapeHeader) -> Tape:
    if not lines_before:
        return Tape.parse(block, name=name)
    first = header.encode()
    try:
        return Tape.parse(first + block, name=name)
    except ConfigurationError:
        # once more, with as many lines before it as there were, so that the error names the right one
        return Tape.parse(first + b"\n" * (lines_before - 1) + block, name=name)


def _open_seekable(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, or a temporary copy of what a pipe has to say: it may have to be read twice."""
    file = Path(path).open("rb")  # noqa: SIM115 - whoever called closes it
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        copy = tempfile.TemporaryFile()  # noqa: SIM115
        shutil.copyfileobj(file, copy)
        return copy


def _refuse_other_files(file: BinaryIO, *, name: str) -> None:
    """Raise for a file that does not begin as a tape does, before all of it is read in search of the end of its first line."""
    file.seek(0)
    beginning = file.read(_BLOCK_BYTES)
    text = beginning.lstrip()
    if text and not text.startswith(b"{"):
        line = beginning[: len(beginning) - len(text)].count(b"\n") + 1
        raise ConfigurationError(f"{name} is no tape, line {line}: every line of a tape is a JSON object", option="path")


def _blocks(file: BinaryIO, *, name: str) -> Iterator[bytes]:
    """The file from its beginning, in blocks of whole lines."""
    file.seek(0)
    lines = 1
    while block := file.read(_BLOCK_BYTES):
        if not block.endswith(b"\n"):
            block += file.readline(_MAX_LINE_BYTES)
            if not block.endswith(b"\n") and file.read(1):
                lines += block.count(b"\n")
                raise ConfigurationError(f"{name} is no tape, line {lines}: it is longer than {_MAX_LINE_BYTES} bytes", option="path")
        lines += block.count(b"\n")
        yield block


def _without(withdrawn: frozenset[int], records: Iterator[tuple[int, TapeRecord]]) -> Iterator[tuple[int, TapeRecord]]:
    return (pair for pair in records if pair[0] not in withdrawn) if withdrawn else records


def _withdrawn_of(records: Iterator[tuple[int, TapeRecord]]) -> frozenset[int]:
    """The numbers of the lines that were withdrawn, and of the notes that say so."""
    # Stand-ins for the records, each of which says its number: what counts as withdrawn is decided in one place, the tape's own.
    relevant = [
        (number, record) for number, record in records if record.dir == "in" or (record.dir == "note" and _WITHDRAWAL in record.line)
    ]
    stand_ins = [TapeRecord(number, record.dir, record.line if record.dir == "note" else b"") for number, record in relevant]
    kept = {record.t for record in without_withdrawn(stand_ins)}
    return frozenset(number for number, _ in relevant if number not in kept)
