"""What the fake reads and writes: lines from stdin, whole writes to stdout and stderr, and the journal of the run."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHUNK_BYTES = 1 << 20  # larger than any pipe, so one read empties it
SCENARIO_GONE = 70  # EX_SOFTWARE, which neither real program uses
SCENARIO_FAILED = 71  # EX_OSERR, which neither uses: the host did what a strict scenario does not expect
JOURNALED_STDERR = 1 << 12  # the end of a text is what a report shows
JOURNALED_BYTES = 1 << 20  # of an input line: the journal must not store a 200 MB prompt


class ThreadedPipe:
    """Read a pipe with a timeout where `select()` takes only sockets (Windows). A thread reads one chunk ahead."""

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
        """Return the next chunk, `b""` at the end, or None when none came within `timeout` seconds."""
        if not self._asked:
            self._asked = True
            self._wanted.release()
        if not self._there.acquire(timeout=-1 if timeout is None else timeout):
            return None
        self._asked = False
        return self._chunk

    def sleep(self, seconds: float) -> None:
        """Wait, and read nothing."""
        time.sleep(seconds)


class SelectedPipe:
    """Read a pipe with a timeout where `select()` takes any file descriptor.

    A signal ends every wait, so that its handler runs: also one that comes after the last look at the signals and before the wait.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._signalled, self._wake = os.pipe()
        for each in (self._signalled, self._wake):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def read(self, timeout: float | None) -> bytes | None:
        """Return the next chunk, `b""` at the end, or None when none came within `timeout` seconds."""
        if self._fd not in self._wait([self._fd], timeout):
            return None
        return os.read(self._fd, CHUNK_BYTES)

    def sleep(self, seconds: float) -> None:
        """Wait, and read nothing."""
        self._wait([], seconds)

    def _wait(self, wanted: list[int], timeout: float | None) -> list[int]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            ready = select.select([*wanted, self._signalled], [], [], left)[0]
            if self._signalled not in ready:
                return ready
            os.read(self._signalled, CHUNK_BYTES)


class Input:
    """Lines of stdin, one at a time, with a timeout for each wait."""

    def __init__(self, fd: int) -> None:
        self.ended: bool = False
        self.stopped = False
        self.held: bool = False
        """True while the steps of the start are played: nothing is read, unless a step waits for input."""
        self._pipe = ThreadedPipe(fd) if os.name == "nt" else SelectedPipe(fd)
        self._buffer = bytearray()
        self._searched = 0

    def receive(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds for more bytes. Returns False when none came; after the end of input it sleeps that long."""
        if self.ended or self.stopped or self.held:
            self._pipe.sleep(3600 if timeout is None else timeout)
            return False
        chunk = self._pipe.read(timeout)
        if chunk is None:
            return False
        self.ended = not chunk
        self._buffer += chunk
        return True

    def next_line(self) -> bytes | None:
        """Return the next line without its newline, or None. A last line needs no newline once the input has ended."""
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
    """Write whole lines to one descriptor. When the reader is gone, drop the output and go on, as the CLI does."""

    def __init__(self, fd: int, chunk_size: int | None = None, journal: Journal | None = None) -> None:
        self.writing: bool = False
        self._journal = journal
        self._fd = fd
        self._chunk_size = chunk_size
        self._closed = False

    def write(self, data: bytes, *, chunk_size: int | None = None, pause: Callable[[], None] | None = None) -> None:
        size = chunk_size or self._chunk_size or max(len(data), 1)
        if self._journal is not None:
            self._journal.record("stderr", text=data[-JOURNALED_STDERR:].decode("utf-8", "replace"))
        self.writing = True  # the steps of a signal must not start in the middle of a line
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
            except OSError:  # EPIPE: the reader is gone
                self._closed = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            # after a plain close(), the next open() would get the number 1, and output would go to that file
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._fd)
            os.close(null)


def claim(folder: str, ending: str) -> tuple[int, int]:
    """Make the next file of a numbered series. Return its descriptor and its number, which counts from 1."""
    number = len(os.listdir(folder)) + 1  # noqa: PTH208 - pathlib costs 5 ms
    while True:
        try:
            return os.open(f"{folder}/{number:04d}{ending}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600), number
        except FileExistsError:  # another run has taken this number
            number += 1


class Journal:
    """Write what this run did, one JSON line per event, to `journal/0001.ndjson` and so on.

    `start` is the number of the start, which begins at 1. A run that does not count has the number of the next start. With `strict`, the
    run ends when the host does what the scenario does not expect.
    """

    def __init__(self, directory: str, *, counts: bool = True, strict: bool = False) -> None:
        self.strict: bool = strict
        self._fd, _ = claim(f"{directory}/journal", ".ndjson")
        self.start: int
        if counts:
            fd, self.start = claim(f"{directory}/starts", "")
            os.close(fd)
        else:
            self.start = len(os.listdir(f"{directory}/starts")) + 1  # noqa: PTH208 - pathlib costs 5 ms

    def record(self, event: str, **fields: Any) -> None:
        # one write per line, so that a reader never sees half a line
        os.write(self._fd, (json.dumps({"event": event, **fields}) + "\n").encode())

    def record_input(self, line: bytes) -> None:
        self.record("stdin", size=len(line), line=line[:JOURNALED_BYTES].decode("utf-8", "backslashreplace"))


def open_scenario(directory: str, argv: list[str], *, fake: str, opened_as: str, counts: bool = True) -> tuple[dict[str, Any], Journal]:
    """Read the scenario of this run in `directory`, and note its start. Return the scenario and the journal.

    The run is the next start when it `counts`; otherwise it only looks at the scenario of the next one. Exits with `SCENARIO_GONE` when
    the files are gone, or no scenario is left; the message names the program as `fake`, and the class to keep open as `opened_as`.
    """
    try:
        with open(f"{directory}/scenario.json", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms
            play_file = json.load(file)
        journal = Journal(directory, counts=counts, strict=play_file.get("strict", False))
    except FileNotFoundError:
        os.write(2, f"{fake}: the scenario is gone; keep the {opened_as} open while its command runs\n".encode())
        sys.exit(SCENARIO_GONE)
    asked = play_file["record_env"]
    journal.record(
        "start",
        pid=os.getpid(),
        argv=argv,
        cwd=os.getcwd(),  # noqa: PTH109 - pathlib costs 5 ms
        env_names=sorted(os.environ),
        env={name: os.environ[name] for name in asked if name in os.environ},
        counts=counts,
    )
    scenarios: list[dict[str, Any]] = play_file["scenarios"]
    if play_file["repeats"]:
        return scenarios[0], journal
    if counts and journal.start > len(scenarios):
        text = f"{fake}: this is start {journal.start}, and the {opened_as} has {len(scenarios)} scenarios; give it one for each start\n"
        os.write(2, text.encode())
        journal.record("stderr", text=text)
        expected = f"no more starts than scenarios, of which there are {len(scenarios)}"
        journal.record("failed", place=f"start {journal.start}", expected=expected, actual="one more")
        journal.record("exit", code=SCENARIO_GONE)
        sys.exit(SCENARIO_GONE)
    return scenarios[min(journal.start, len(scenarios)) - 1], journal
