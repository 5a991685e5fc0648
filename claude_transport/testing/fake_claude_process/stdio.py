"""The two pipes of the fake: lines as they arrive, and bytes written whole."""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 1 << 20  # larger than any pipe, so one read empties it


class ThreadedPipe:
    """A pipe that can be waited for on systems where `select()` takes sockets only (Windows): one thread reads one chunk ahead."""

    def __init__(self, fd: int) -> None:
        import _thread

        self._fd = fd
        self._chunk: bytes | None = None
        self._wanted = _thread.allocate_lock()
        self._there = _thread.allocate_lock()
        self._wanted.acquire()
        self._there.acquire()
        self._asked = False
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            self._chunk = os.read(self._fd, CHUNK_BYTES)
            self._there.release()
            if not self._chunk:
                return

    def read(self, timeout: float | None) -> bytes | None:
        """The next chunk, `b""` at the end, None when none came in `timeout` seconds."""
        if not self._asked:
            self._asked = True
            self._wanted.release()
        if not self._there.acquire(timeout=-1 if timeout is None else timeout):
            return None
        self._asked = False
        return self._chunk


class SelectedPipe:
    """A pipe on a system whose `select()` takes any file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, timeout: float | None) -> bytes | None:
        """The next chunk, `b""` at the end, None when none came in `timeout` seconds."""
        if not select.select([self._fd], [], [], timeout)[0]:
            return None
        return os.read(self._fd, CHUNK_BYTES)


class Input:
    """Lines of stdin, taken one at a time, never waited for longer than asked."""

    def __init__(self, fd: int) -> None:
        self.ended: bool = False
        self.stopped = False
        self._pipe = ThreadedPipe(fd) if os.name == "nt" else SelectedPipe(fd)
        self._buffer = bytearray()
        self._searched = 0

    def receive(self, timeout: float | None) -> bool:
        """Waits up to `timeout` seconds for more bytes; False when nothing came. Sleeps when there is nothing more to come."""
        if self.ended or self.stopped:
            time.sleep(3600 if timeout is None else timeout)
            return False
        chunk = self._pipe.read(timeout)
        if chunk is None:
            return False
        self.ended = not chunk
        self._buffer += chunk
        return True

    def next_line(self) -> bytes | None:
        """The next line without its newline, or None; at the end of input also a last line that has none (recording 18s)."""
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if not (self.ended and self._buffer):
                return None
            end = len(self._buffer)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line


class Output:
    """Bytes to one descriptor. A reader that went away is forgotten, as the CLI does (recording 20m): it lives on until its input ends."""

    def __init__(self, fd: int, chunk_size: int | None = None) -> None:
        self.writing: bool = False
        self._fd = fd
        self._chunk_size = chunk_size
        self._closed = False

    def write(self, data: bytes, *, chunk_size: int | None = None, pause: Callable[[], None] | None = None) -> None:
        size = chunk_size or self._chunk_size or max(len(data), 1)
        self.writing = True  # a signal's steps must not start in the middle of a line
        try:
            for start in range(0, len(data), size):
                if start and pause is not None:
                    pause()
                self._write_all(memoryview(data)[start : start + size])
        finally:
            self.writing = False

    def _write_all(self, view: memoryview) -> None:
        while view and not self._closed:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError:  # EPIPE: nobody reads; there is nobody to tell either
                self._closed = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # a plain close() would let the next open() take the number 1 and write into a stranger's file
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._fd)
            os.close(null)
