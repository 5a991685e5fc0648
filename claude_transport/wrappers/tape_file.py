"""`TapeFile`: a tape that is being written, by a thread of its own, so that no disk can hold up or fail the conversation."""

from __future__ import annotations

import logging
import os
import queue
import stat
import threading
import weakref
from collections.abc import Callable

import anyio

from claude_transport.background import HostLoop
from claude_transport.printable import printable
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import Direction, TapeHeader, TapeRecord

__all__ = ["DEFAULT_MAX_PENDING_BYTES", "TapeFile"]

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
