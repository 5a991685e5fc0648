"""`RecordingTransport`: everything that is said, on a tape, to be replayed, inspected or sent to somebody who can help."""

from __future__ import annotations

import datetime as dt
import logging
import os
import queue
import stat
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Self

import anyio
import anyio.lowlevel

from claude_transport.background import HostLoop
from claude_transport.errors import ClaudeTransportError, ConfigurationError, TransportClosed, UsageError
from claude_transport.printable import printable
from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import (
    CLOSED,
    INPUT_ENDED,
    OUTPUT_ENDED,
    Direction,
    TapeHeader,
    TapeRecord,
    note_of_exit,
    note_of_withdrawal,
)
from claude_transport.transport import Transport, TransportLike
from claude_transport.wrappers.base import LineWrapper, TransportWrapper
from claude_transport.wrappers.redactor import redactor_for

# --- `TapeFile`: a tape that is being written, by a thread of its own, so that no disk can hold up or fail the conversation.


logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_MAX_PENDING_BYTES = 64 * 2**20
"""Bytes of memory waiting for the disk, over which it counts as failed: a conversation is not kept in memory because a disk hangs."""

_BESIDE_BYTES = 192
"""Of each record beside its line: the record, its time, the header of its bytes, its place in the queue. Measured: 183."""

_BATCH_BYTES = 2**20
"""Of records that are put into one write: they are in memory twice meanwhile."""

_EXIT_PATIENCE = 1.0
"""Seconds for what is still waiting, when the interpreter ends or nobody holds the file any more."""


class TapeFile:
    """Appends records to a new file at `path` (mode 0600), redacted by `redactor` before they reach the disk.

    `put` never waits and never raises. Whole lines are appended as they come, each batch in one write, so a crash costs what came
    in the last moment, and at most tears the last line. When the file cannot be written, that is logged once, `failure` is set, and
    everything later is dropped; a file that was begun stays as far as it got. That is also what happens when more than
    `max_pending_bytes` of memory wait for the disk.
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
        """Why nothing more is written; None while all is well."""
        return self._writer.failure

    def put(self, t: float, direction: Direction, line: bytes) -> None:
        """Have a record written."""
        if self._writer.failure is not None or not self._finish.alive:
            return
        self._put_bytes += len(line) + _BESIDE_BYTES
        if self._put_bytes - self._writer.written_bytes > self._max_pending_bytes:
            self._writer.fail(OSError(f"the disk is too slow: more than {self._max_pending_bytes} bytes wait for it"))
            return
        self._writer.inbox.put(TapeRecord(t, direction, line))

    async def aclose(self, *, timeout: float) -> None:
        """Return when everything is on its way to the disk, or after `timeout` seconds; nothing can be put any more.

        Whoever calls it while another one waits, waits as well; once the disk was given up, nobody does.
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
    """The thread. It knows nothing of its `TapeFile`, so that dropping that one ends it."""

    def __init__(self, path: str, header: TapeHeader, redactor: Redactor | None) -> None:
        self.inbox: queue.SimpleQueue[TapeRecord | None] = queue.SimpleQueue()
        self.written_bytes = 0
        self.failure: Exception | None = None
        self._path = path
        self._header = header
        self._redactor = redactor
        self._on_finished: list[Callable[[], object]] = []
        self._finished = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"claude tape {path}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no thread to spare: that costs the tape, and no more
            self._finished = True
            self.fail(error)

    def when_finished(self, call: Callable[[], object]) -> None:
        """Have `call` called, once, when nothing more will be written; perhaps at once, perhaps from the thread."""
        with self._lock:
            if not self._finished:
                self._on_finished.append(call)
                return
        call()

    def finish(self, *, patience: float = 0.0) -> None:
        """Write what is there and end; wait at most `patience` seconds for it."""
        self.inbox.put(None)
        if patience:
            self._join(patience)

    def join(self) -> None:
        """Wait for the last steps of a thread that has finished writing."""
        self._join(_EXIT_PATIENCE)

    def fail(self, error: Exception) -> None:
        """Note, once, that nothing more can be written."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
        logger.warning("recording to %s has stopped: %s", printable(self._path), printable(error))

    def _join(self, patience: float) -> None:
        if self._thread.ident is not None:  # else it was never started
            self._thread.join(patience)

    def _run(self) -> None:
        try:
            descriptor = _create(self._path)
            try:
                _append(descriptor, self._header.encode())
                while batch := self._take():
                    _append(descriptor, b"".join(self._encode(record) for record in batch))
                    self.written_bytes += _size(batch)
            finally:
                os.close(descriptor)
        except Exception as error:  # noqa: BLE001 - whatever it is: what cannot be redacted and written safely is not written
            self.fail(error)
        with self._lock:
            self._finished = True
        for call in self._on_finished:
            call()

    def _take(self) -> list[TapeRecord]:
        """What waits, at least one record, and not much more than `_BATCH_BYTES`; an empty list at the end."""
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
            self.inbox.put(None)  # the end comes again, after this batch
        return batch

    def _encode(self, record: TapeRecord) -> bytes:
        if self._redactor is None:
            return record.encode()
        return TapeRecord(record.t, record.dir, self._redactor.line(record.line)).encode()


def _size(batch: list[TapeRecord]) -> int:
    return sum(len(record.line) + _BESIDE_BYTES for record in batch)


def _create(path: str) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # the mode of a device or a pipe is nobody's to change
            # a file that was there may have had another mode
            os.chmod(descriptor if os.chmod in os.supports_fd else path, 0o600)  # noqa: PTH101 - pathlib knows no descriptors
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _append(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


DEFAULT_FLUSH_TIMEOUT = 2.0
"""Seconds that closing waits for the disk; a healthy one needs milliseconds."""


class RecordingTransport(LineWrapper):
    """Records both directions of `transport` to a tape at `path`, as raw lines with their times; the file is created by `connect()`.

    Args:
        path: the file (mode 0600); one that is there is overwritten.
        scrub: take secrets, home directories, user names and e-mail addresses out before anything reaches the disk. Besides what
            looks secret, these are values of secretly named variables of this process and of the transport's options.
        redactor: does the scrubbing in a way of its own.
        created_at: for the header, instead of now; in UTC.
        flush_timeout: seconds that `close()` may wait for the disk.

    Recorded besides: the end of the input, the exit code, the last words on standard error, failures, and the closing. The
    conversation never waits for the disk, and never fails because of it: a disk that fails is reported once, by a warning in the
    log, and `failure` says why the recording has stopped. After `reconnect()` the new one goes on in a file of its own.
    """

    def __init__(
        self,
        transport: TransportLike,
        path: str | os.PathLike[str],
        *,
        scrub: bool = True,
        redactor: Redactor | None = None,
        created_at: dt.datetime | None = None,
        flush_timeout: float = DEFAULT_FLUSH_TIMEOUT,
    ) -> None:
        if not scrub and redactor is not None:
            raise ConfigurationError("scrub=False and a redactor contradict each other", option="redactor")
        super().__init__(transport)
        self._path = self._first_path = Path(path)
        self._number = 1
        self._redactor = (redactor or redactor_for(transport)) if scrub else None
        self._created_at = created_at
        self._flush_timeout = flush_timeout
        self._file: TapeFile | None = None
        self._failed_attempts: list[tuple[float, bytes]] = []
        self._start: float | None = None
        self._write_lock = anyio.Lock(fast_acquire=True)  # what waits for its turn has not been said, and is not on the tape
        self._input_ended = False
        self._output_ended = False
        self._exit_noted = False
        self._closing = False
        self._complete = False

    @property
    def path(self) -> Path:
        """Where the tape is."""
        return self._path

    @property
    def failure(self) -> Exception | None:
        """Why the recording has stopped; None while all is well."""
        return None if self._file is None else self._file.failure

    @property
    def is_complete(self) -> bool:
        """True once the transport is closed, and everything that was said is in the file (or never will be: see `failure`)."""
        return self._complete

    # ------------------------------------------------------------------------------------------------------------ the contract

    def rewrapped(self, transport: TransportLike) -> Self:
        """A recorder that writes beside this one's tape: `x.ndjson` is followed by `x.2.ndjson`, so that nothing is overwritten."""
        another = super().rewrapped(transport)
        another._first_path, another._number = self._first_path, self._number + 1  # noqa: SLF001 - one of us
        another._path = self._first_path.with_suffix(f".{another._number}{self._first_path.suffix}")  # noqa: SLF001
        return another

    async def connect(self) -> None:
        """Connect the transport inside; a failure is recorded, too."""
        self._elapsed()
        try:
            await super().connect()
        except Exception as error:
            # kept for later: a failed connect() leaves nothing open, not even a tape
            self._failed_attempts.append((self._elapsed(), _failure_note("connect", error)))
            raise
        self._open_file()

    async def write(self, data: str | bytes) -> None:
        """Record the lines, then write them: on the tape, an answer never comes before its question.

        Lines of which certainly nothing went out, since the write failed or was cancelled before, are noted as withdrawn.
        """
        async with self._write_lock:
            await anyio.lowlevel.checkpoint_if_cancelled()  # here nothing is on the tape yet
            recorded = 0
            if not self._closing and not self._input_ended and (self._file is not None or self.is_ready()):
                raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
                lines = [line for line in raw.split(b"\n") if line]
                for line in lines:
                    self._put("in", line)
                recorded = len(lines)
            before = self.info.bytes_written
            try:
                await super().write(data)
            except BaseException as error:
                if isinstance(error, Exception):
                    self._note_failure("write", error)
                if recorded and self._is_unsaid(error, before):
                    for back in range(recorded, 0, -1):
                        self._put("note", note_of_withdrawal(back=back))
                raise

    async def end_input(self) -> None:
        """Record the end of the input, after the writes that came before, then end it."""
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
                self._input_ended = False  # as far as anybody knows: what is written from now on counts
            if isinstance(error, Exception):
                self._note_failure("end_input", error)
            raise

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """The next lines, recorded."""
        try:
            batch = await super().read_batch(source)
        except StopAsyncIteration:
            self._note_end()
            raise
        except Exception as error:
            self._note_failure("read", error)
            self._note_end(error)
            raise
        for line in batch:
            self._put("out", bytes(line))
        return batch

    async def close(self) -> None:
        """Close the transport inside, then the tape."""
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

    # --------------------------------------------------------------------------------------------------------------- the tape

    def _elapsed(self) -> float:
        """Seconds since the first attempt to connect."""
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
            self._file = TapeFile(self._path, header=header, redactor=self._redactor)
            for t, note in self._failed_attempts:
                self._file.put(t, "note", note)
        return self._file

    def _put(self, direction: Direction, line: bytes) -> None:
        t = self._elapsed()
        self._open_file().put(t, direction, line)

    def _is_unsaid(self, error: BaseException, before: int) -> bool:
        """Whether certainly nothing went out of a write that ended with `error`, `before` bytes having been written when it began."""
        if isinstance(error, UsageError) and not isinstance(error, TransportClosed):
            return True  # by the contract such a refusal comes before anything is handed over
        innermost = self.transport
        while isinstance(innermost, TransportWrapper):
            innermost = innermost.transport
        # By the contract, one that has sent a part of a line cannot be written to any more; whether it has sent all of it is for its
        # count of bytes to say, if it has one.
        return isinstance(innermost, Transport) and self.is_ready() and self.info.bytes_written == before

    def _note_failure(self, where: str, error: Exception) -> None:
        if self._file is not None:  # else it was never connected, and there is nothing to record yet
            self._put("note", _failure_note(where, error))

    def _note_end(self, error: Exception | None = None) -> None:
        if not self._output_ended and not self._closing:
            self._output_ended = True
            self._put("note", OUTPUT_ENDED)
            self._note_exit(error)

    def _note_exit(self, error: Exception | None = None) -> None:
        """How the peer ended, and its last words, as soon as they are known."""
        if self._exit_noted:
            return
        info = self.info
        exit_code, signal = getattr(error, "exit_code", info.exit_code), getattr(error, "signal", info.signal)
        if exit_code is None and signal is None:
            return
        self._exit_noted = True
        last_words = getattr(error, "stderr_tail", "") or info.stderr_tail
        if self._redactor is not None:  # before it comes apart: a private key has many lines, and only the first one says what it is
            last_words = self._redactor.text(last_words)
        for line in last_words.encode("utf-8", "surrogatepass").split(b"\n"):
            if line:
                self._put("err", line)
        self._put("note", note_of_exit(exit_code=exit_code, signal=signal))


def _failure_note(where: str, error: Exception) -> bytes:
    about = {"failure": where, "error": type(error).__name__, "message": str(error)}
    if isinstance(error, ClaudeTransportError):
        about["code"] = error.code
    return encode_line(about)[:-1]
