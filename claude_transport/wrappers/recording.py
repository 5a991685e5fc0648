"""`RecordingTransport`: records both directions of a conversation on a tape, to replay it, inspect it or send it with a bug report.

`TapeFile` writes the file in a thread of its own. The format of tapes is in `protocol/tape.py`, and `transports/replay.py` plays them.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import queue
import stat
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from claude_transport.errors import ClaudeTransportError, ConfigurationError, TransportClosed, UsageError
from claude_transport.loggers import logger_for
from claude_transport.loops.current import HostLoop
from claude_transport.platform.winapi import make_private
from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.fragments import FragmentRedactor
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import (
    CLOSED,
    INPUT_ENDED,
    OUTPUT_ENDED,
    Direction,
    TapeHeader,
    TapeRecord,
    note_of_exit,
    note_of_start,
    note_of_withdrawal,
    tape_number,
)
from claude_transport.text.printable import printable
from claude_transport.transport import Transport, TransportLike, confidential_of
from claude_transport.wrappers.base import LineWrapper
from claude_transport.wrappers.redactor import redactor_for

logger: logging.Logger = logger_for(__name__)

DEFAULT_FLUSH_TIMEOUT = 2.0
"""Seconds that `close()` waits for the disk. A healthy disk needs milliseconds."""

DEFAULT_MAX_PENDING_BYTES = 64 * 2**20
"""Bytes of memory that may wait for the disk before it counts as failed: a hanging disk must not fill the memory."""

_BESIDE_BYTES = 192
"""Bytes of memory per record besides its line: the record, its time, the header of its bytes, its place in the queue. Measured: 183."""

_BATCH_BYTES = 2**20
"""Bytes of records that are put into one write; they are in memory twice meanwhile."""

_NAMES_ALONE = frozenset({"env", "headers", "http_headers"})
"""Options whose values may be secrets, whatever their names are."""

_EXIT_PATIENCE = 1.0
"""Seconds for records that still wait when the interpreter ends or the file is dropped."""


class TapeSeries:
    """The paths of the tapes of one session, one for each connection: `x.ndjson`, `x.2.ndjson`, `x.3.ndjson`, …

    Give the same object, as `path`, to each `RecordingTransport` of a session that reconnects. Then every connection has a tape of its own,
    and none is overwritten.

    Args:
        path: the path of the first tape, here `x.ndjson`. Existing files of these names are overwritten.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._first = Path(path)
        self._paths: list[Path] = []

    @property
    def first(self) -> Path:
        """The path of the first tape, as it was given."""
        return self._first

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that `next()` has returned so far, in order. A path is given out before its file exists."""
        return tuple(self._paths)

    def next(self) -> Path:
        """Return the path for the next tape, and count it as used. A `RecordingTransport` calls it once. It creates no file."""
        number = len(self._paths) + 1
        path = tape_number(self._first, number)
        self._paths.append(path)
        return path


class RecordingTransport(LineWrapper):
    """Records both directions of `transport` to a tape at `path`, as raw lines with their times. `connect()` creates the file.

    Args:
        path: the file (mode 0600); an existing file is overwritten. A `TapeSeries` gives each connection a file of its own.
        scrub: remove secrets, home directories, user names and e-mail addresses before anything reaches the disk. Secrets are texts that
            look like one, and the values of variables of this process, and of the transport's options, whose names say so.
        redactor: the `Redactor` that scrubs, in place of the default one.
        created_at: the time for the header in UTC, in place of now.
        flush_timeout: seconds that `close()` may wait for the disk.

    The tape also has the end of the input, the exit code, the end of standard error, failures, and the closing. The conversation never
    waits for the disk and never fails because of it. A failing disk is reported once, as a warning in the log, and `failure` says why the
    recording has stopped.

    Raises:
        ConfigurationError: `scrub` is False although there is a redactor; or a `RecordingTransport` inside has the same `path`.
    """

    speaks = False

    def __init__(
        self,
        transport: TransportLike,
        path: str | os.PathLike[str] | TapeSeries,
        *,
        scrub: bool = True,
        redactor: Redactor | None = None,
        created_at: dt.datetime | None = None,
        flush_timeout: float = DEFAULT_FLUSH_TIMEOUT,
    ) -> None:
        if not scrub and redactor is not None:
            raise ConfigurationError("scrub=False and a redactor contradict each other", option="redactor")
        super().__init__(transport)
        self._series = path if isinstance(path, TapeSeries) else TapeSeries(path)
        taken = f"a RecordingTransport inside writes {self._series.first}, too, and nothing could read the tape. Give each its own path."
        self.claim(("tape", _place_of(self._series.first)), taken=taken, option="path")
        self._path: Path | None = None
        self._redactor = (redactor or redactor_for(transport)) if scrub else None
        self._created_at = created_at
        self._flush_timeout = flush_timeout
        self._file: TapeFile | None = None
        self._failed_attempts: list[tuple[float, bytes]] = []
        self._start: float | None = None
        self._write_lock = anyio.Lock(fast_acquire=True)  # a line that waits here was not sent, and is not on the tape
        self._input_ended = False
        self._output_ended = False
        self._exit_noted = False
        self._closing = False
        self._complete = False

    @property
    def path(self) -> Path:
        """The file that this transport records to; `connect()` creates it. From a `TapeSeries`, the first look takes the next path."""
        if self._path is None:
            self._path = self._series.next()
        return self._path

    @property
    def failure(self) -> Exception | None:
        """The exception of the disk that stopped the recording; None while the recording continues, and when it has ended well."""
        return None if self._file is None else self._file.failure

    @property
    def is_complete(self) -> bool:
        """True once `close()` is over: the file is complete, or will never be (see `failure`)."""
        return self._complete

    async def connect(self) -> None:
        """Connect the wrapped transport, then create the tape. The errors of the wrapped transport pass unchanged.

        A failed attempt creates no file. It is recorded when a later attempt succeeds, or at the latest by `close()`.
        """
        self._elapsed()
        try:
            await super().connect()
        except Exception as error:
            # kept for later, because a failed connect() leaves nothing open, not even a tape
            self._failed_attempts.append((self._elapsed(), _failure_note("connect", error)))
            raise
        self._open_file()

    async def write(self, data: str | bytes) -> None:
        """Record the lines in `data`, then write them to the wrapped transport. So an answer never comes before its question on the tape.

        When the write fails or is cancelled, and certainly nothing was sent, a note on the tape withdraws the lines.
        """
        async with self._write_lock:
            await anyio.lowlevel.checkpoint_if_cancelled()  # nothing is on the tape yet
            recorded = 0
            if not self._closing and not self._input_ended and (self._file is not None or self.is_ready()):
                lines = _lines_of(data)
                for line in lines:
                    self._put("in", line)
                recorded = len(lines)
            before = self.info.bytes_written
            try:
                await super().write(data)
            except BaseException as error:
                if isinstance(error, Exception):
                    self._note_failure("write", error)
                if self._is_unsaid(error, before):
                    for back in range(recorded, 0, -1):
                        self._put("note", note_of_withdrawal(back=back))
                raise

    async def end_input(self) -> None:
        """End the input of the wrapped transport, after the writes that came before, and record that.

        When it fails on a connected transport, its exception is recorded as well and passes unchanged.
        """
        async with self._write_lock:
            await self._end_input()

    async def _end_input(self) -> None:
        ends = not self._input_ended and not self._closing and (self._file is not None or self.is_ready())
        if ends:
            self._input_ended = True
            self._put("note", INPUT_ENDED)
        try:
            await super().end_input()
        except BaseException as error:
            if ends:
                self._input_ended = False  # it may still be open, so later lines are recorded
            if isinstance(error, Exception):
                self._note_failure("end_input", error)
            raise

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return the next batch of `source`, the lines of the wrapped transport, and record it.

        At the end of the stream it records how that ended, and raises what `source` raised.
        """
        try:
            batch = await super().read_batch(source)
        except StopAsyncIteration:
            self._note_end()
            raise
        except Exception as error:
            self._note_failure("read", error)
            self._note_end(error)
            raise
        if batch:
            t, file = self._elapsed(), self._open_file()
            for line in batch:
                file.put(t, "out", bytes(line))
        return batch

    async def close(self) -> None:
        """Close the wrapped transport, then the tape. Later calls do nothing and wait for the first.

        It waits up to `flush_timeout` seconds for the disk.
        """
        if not self._closing and (self._file is not None or self._failed_attempts):
            self._put("note", CLOSED)
        self._closing = True
        try:
            await super().close()
        finally:
            file = self._file
            if file is not None:
                self._note_exit()
                await file.aclose(timeout=self._flush_timeout)
            self._complete = True

    def _elapsed(self) -> float:
        """Return the seconds since the first attempt to connect."""
        now = anyio.current_time()
        if self._start is None:
            self._start = now
        return now - self._start

    def _open_file(self) -> TapeFile:
        if self._file is None:
            header = TapeHeader(
                cli_version=self.info.cli_version,
                created_at=self._created_at or dt.datetime.now(dt.UTC),
                scrubbed=self._redactor is not None,
            )
            self._file = TapeFile(self.path, header=header, redactor=self._redactor)
            if options := options_of(self.transport):
                self._file.put(0.0, "note", note_of_start({"options": options}))
            for t, note in self._failed_attempts:
                self._file.put(t, "note", note)
        return self._file

    def _put(self, direction: Direction, line: bytes) -> None:
        t = self._elapsed()
        self._open_file().put(t, direction, line)

    def _is_unsaid(self, error: BaseException, before: int) -> bool:
        """Return whether certainly nothing was sent by a write that raised `error`. `before` is the count of bytes when it began."""
        if isinstance(error, UsageError) and not isinstance(error, TransportClosed):
            return True  # by the contract such a refusal comes before anything is sent
        # By the contract, a transport that has sent a part of a line cannot be written to any more. Whether it has sent the whole line,
        # its count of bytes says, if it has one.
        return isinstance(self.innermost, Transport) and self.is_ready() and self.info.bytes_written == before

    def _note_failure(self, where: str, error: Exception) -> None:
        if self._file is not None:  # otherwise it was never connected, and there is no tape yet
            self._put("note", _failure_note(where, error))

    def _note_end(self, error: Exception | None = None) -> None:
        if not self._output_ended and not self._closing:
            self._output_ended = True
            self._put("note", OUTPUT_ENDED)
            self._note_exit(error)

    def _note_exit(self, error: Exception | None = None) -> None:
        """Record how the peer ended, and the end of its standard error, once they are known."""
        if self._exit_noted:
            return
        info = self.info
        exit_code, signal = getattr(error, "exit_code", info.exit_code), getattr(error, "signal", info.signal)
        if exit_code is None and signal is None:
            return
        self._exit_noted = True
        last_words = getattr(error, "stderr_tail", "") or info.stderr_tail
        if self._redactor is not None:  # before splitting: a private key has many lines, and only the first one is recognised
            last_words = self._redactor.text(last_words)
        for line in last_words.encode("utf-8", "surrogatepass").split(b"\n"):
            if line:
                self._put("err", line)
        self._put("note", note_of_exit(exit_code=exit_code, signal=signal))


def _lines_of(data: object) -> list[bytes]:
    """Return the lines of what is written; none of what is no text and no bytes, which the transport refuses."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return [line for line in bytes(data).split(b"\n") if line] if isinstance(data, bytes | bytearray | memoryview) else []


def _place_of(path: Path) -> str:
    """Return the same text for every spelling of one path."""
    try:
        return os.path.normcase(os.path.realpath(path))
    except OSError:  # the working directory is gone; opening the tape says so
        return str(path)


def options_of(transport: TransportLike) -> dict[str, Any]:
    """Return the options of a transport, or of the one below its wrappers, that differ from the defaults; functions by name.

    Of environments and headers, at any depth, it returns the names alone: any value may be a secret.
    """
    options = confidential_of(transport).options
    if options is None:
        return {}
    default = type(options)()
    given = {name: value for name, value in msgspec.structs.asdict(options).items() if value != getattr(default, name)}
    plain = msgspec.to_builtins(given, str_keys=True, enc_hook=_by_name)
    return {name: _without_values(name, value) for name, value in plain.items()}


def _without_values(name: str, value: object) -> object:
    """Return `value` with the names alone of each environment and of all headers in it. `name` is the key under which `value` stands."""
    if isinstance(value, dict):
        if name in _NAMES_ALONE:
            return sorted(value)
        return {key: _without_values(key, inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_without_values("", inside) for inside in value]
    return value


def _by_name(value: object) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    return str(getattr(value, "__qualname__", type(value).__name__))


def _failure_note(where: str, error: Exception) -> bytes:
    about = {"failure": where, "error": type(error).__name__, "message": str(error)}
    if isinstance(error, ClaudeTransportError):
        about["code"] = error.code
    return encode_line(about)[:-1]


class TapeFile:
    """Appends records to a new file at `path` (mode 0600), redacted by `redactor` before they reach the disk.

    A thread of its own writes the file, so no disk can hold up or fail the conversation. Whole lines are appended as they come, each batch
    in one write. So a crash loses the last moment and tears at most the last line. When the file cannot be written, or more than
    `max_pending_bytes` of memory wait for the disk, one warning is logged, `failure` is set, and later records are dropped.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        header: TapeHeader,
        redactor: Redactor | None,
        max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
    ) -> None:
        self._max_pending_bytes = max_pending_bytes
        self._writer = _Writer(os.fspath(path), header, redactor)
        self._put_bytes = 0
        self._finish = weakref.finalize(self, self._writer.finish, patience=_EXIT_PATIENCE)

    @property
    def failure(self) -> Exception | None:
        """The exception that stopped the writing; None while it goes on."""
        return self._writer.failure

    def put(self, t: float, direction: Direction, line: bytes) -> None:
        """Append a record. Never waits and never raises."""
        if self._writer.failure is not None or not self._finish.alive:
            return
        self._put_bytes += len(line) + _BESIDE_BYTES
        if self._put_bytes - self._writer.written_bytes > self._max_pending_bytes:
            self._writer.fail(OSError(f"the disk is too slow: more than {self._max_pending_bytes} bytes wait for it"))
            return
        self._writer.inbox.put(TapeRecord(t, direction, line))

    async def aclose(self, *, timeout: float) -> None:
        """Wait until everything is on its way to the disk, at most `timeout` seconds. Nothing can be put any more.

        Several callers wait together. After a failure no call waits.
        """
        if self._finish.detach() is not None:
            self._writer.finish()
        elif self._writer.failure is not None:
            return
        finished = anyio.Event()
        loop = HostLoop()
        self._writer.when_finished(lambda: loop.call_soon(finished.set))
        with anyio.move_on_after(timeout, shield=True):
            await finished.wait()
            self._writer.join()
            return
        self._writer.fail(OSError(f"the disk has not taken everything within {timeout:g} s"))


class _Writer:
    """The thread. It has no reference to its `TapeFile`, so that dropping the `TapeFile` ends it."""

    def __init__(self, path: str, header: TapeHeader, redactor: Redactor | None) -> None:
        self.inbox: queue.SimpleQueue[TapeRecord | None] = queue.SimpleQueue()
        self.written_bytes = 0
        self.failure: Exception | None = None
        self._path = path
        self._header = header
        self._fragments: FragmentRedactor[TapeRecord] | None = None if redactor is None else FragmentRedactor(redactor)
        self._on_finished: list[Callable[[], object]] = []
        self._finished = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"claude tape {path}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no thread left: only the tape is lost
            self._finished = True
            self.fail(error)

    def when_finished(self, call: Callable[[], object]) -> None:
        """Call `call` once when nothing more will be written: at once, or later from the thread."""
        with self._lock:
            if not self._finished:
                self._on_finished.append(call)
                return
        call()

    def finish(self, *, patience: float = 0.0) -> None:
        """Write what is there and end. Wait at most `patience` seconds for that."""
        self.inbox.put(None)
        if patience:
            self._join(patience)

    def join(self) -> None:
        """Wait for the thread, which has finished writing, to end."""
        self._join(_EXIT_PATIENCE)

    def fail(self, error: Exception) -> None:
        """Remember and log the first error that stops the writing."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
        logger.warning("recording to %s has stopped: %s", printable(self._path), printable(error))

    def _join(self, patience: float) -> None:
        if self._thread.ident is not None:  # otherwise it was never started
            self._thread.join(patience)

    def _run(self) -> None:
        try:
            descriptor = _create(self._path)
            try:
                _append(descriptor, self._header.encode())
                while batch := self._take():
                    _append(descriptor, b"".join(self._encode(batch)))
                    self.written_bytes += _size(batch)
                if self._fragments is not None:
                    _append(descriptor, b"".join(_encoded(self._fragments.rest())))
            finally:
                os.close(descriptor)
        except Exception as error:  # noqa: BLE001 - a record that cannot be redacted or written is never written in another way
            self.fail(error)
        with self._lock:
            self._finished = True
        for call in self._on_finished:
            call()

    def _take(self) -> list[TapeRecord]:
        """Wait for records, and return at least one and not much more than `_BATCH_BYTES`; an empty list at the end."""
        batch: list[TapeRecord] = []
        size = 0
        record = self.inbox.get()
        while record is not None:
            batch.append(record)
            size += len(record.line) + _BESIDE_BYTES
            if size >= _BATCH_BYTES:
                return batch
            try:
                record = self.inbox.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self.inbox.put(None)  # the end mark, to be read again after this batch
        return batch

    def _encode(self, batch: list[TapeRecord]) -> Iterator[bytes]:
        """Yield the records as they are written. A fragment that ends within a word waits for the rest of it."""
        for record in batch:
            if self._fragments is None:
                yield record.encode()
            else:
                yield from _encoded(self._fragments.feed(record, record.line, received=record.dir == "out"))


def _encoded(records: Iterator[tuple[TapeRecord, bytes]]) -> Iterator[bytes]:
    return (TapeRecord(record.t, record.dir, line).encode() for record, line in records)


def _size(batch: list[TapeRecord]) -> int:
    return sum(len(record.line) + _BESIDE_BYTES for record in batch)


def _create(path: str) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # the mode of a device or a pipe is left alone
            # an existing file may have had another mode
            os.chmod(descriptor if os.chmod in os.supports_fd else path, 0o600)  # noqa: PTH101 - pathlib knows no descriptors
            make_private(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _append(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
