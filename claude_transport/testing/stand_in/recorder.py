"""Writes the tape of `tee.py`, in a process and a session of its own, and ends `claude` when the tee was killed.

Standard input has the copies, standard output takes what the user must know, descriptor 3 is the tape. The arguments are the path of the
tape, the path of the tape whose turn is replaced, and the number of that turn, or 0.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))  # noqa: PTH100, PTH118, PTH120

if TYPE_CHECKING:
    from claude_transport.protocol.fragments import FragmentRedactor
    from claude_transport.protocol.framing import LineFramer
    from claude_transport.protocol.tape import Direction, TapeRecord

MOST_LINE_BYTES: Final = 64 * 2**20
"""The longest line that is kept whole. Of a longer one only the beginning is on the tape."""

_TAPE: Final = 3
_READ_BYTES: Final = 2**20
_F_GETPIPE_SZ: Final = 1032
_SMALL_PIPE_BYTES: Final = 2**14  # the pipes of macOS
_PAUSE: Final = 0.1  # seconds between two batches: to be woken for each line would delay that line where processors are few
_NICENESS: Final = 10  # of the process, which it cannot take back: a tenth of what another gets, and enough to end
_NICENESS_OF_SESSION: Final = 19  # until claude has ended; then the tee takes it back
_GRACE: Final = 2.0  # seconds between SIGTERM and SIGKILL
_DIRECTIONS: Final[dict[str, Direction]] = {"i": "in", "o": "out", "e": "err"}


class Claude:
    """The process that the tee has started, which is no child of this one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor: int | None = None
        self._is_gone = False
        if sys.platform == "linux":
            try:
                self._descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._is_gone = True  # the id may be that of another process now
            except OSError:  # an old kernel
                pass

    def end(self) -> None:
        """End the process, with SIGKILL when SIGTERM does not do."""
        if self._signal(signal.SIGTERM) and not self._has_ended(_GRACE):
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        if self._is_gone:
            return False
        try:
            if sys.platform == "linux" and self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, number)
            else:
                os.kill(self._pid, number)
        except OSError:
            return False
        return True

    def _has_ended(self, patience: float) -> bool:
        if self._descriptor is not None:
            return bool(select.select([self._descriptor], [], [], patience)[0])
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not self._signal(0):
                return True
            time.sleep(0.05)
        return False


def end_marked(mark: str) -> None:
    """Kill what a claude that could not do it has left: the shells of its tools."""
    from claude_transport.streams.guard import kill_marked

    deadline = time.monotonic() + _GRACE
    while mark and kill_marked(mark) and time.monotonic() < deadline:
        time.sleep(0.01)


class Recording:
    """What is on the tape so far, and the beginnings of lines whose end has not come yet."""

    def __init__(self) -> None:
        self.claude: Claude | None = None
        self.mark: str = ""
        self.is_whole: bool = False
        self.was_killed: bool = False
        self.cut_bytes: int = 0
        """The size of the longest line of which only the beginning is on the tape."""
        self._start: float | None = None
        self._framers: dict[str, LineFramer] = {}
        self._fragments: FragmentRedactor[TapeRecord] | None = None

    def learn(self, kind: str, data: bytes) -> None:
        """Note what a copy says about the process of claude. It goes on when nothing can be written any more."""
        if kind == "m":
            self.mark = data.decode()
        elif kind == "c":
            self.claude = Claude(int(data.split(b"\0", 1)[0]))
        elif kind == "x":
            self.is_whole, self.was_killed = True, int(data) < 0

    def take(self, kind: str, at: float, data: bytes) -> Iterator[bytes]:
        """Take one copy, and yield what is to be written."""
        self.learn(kind, data)  # at once: the imports take a while
        if kind == "m":
            return
        from claude_transport.protocol.tape import note_of_exit

        self._start = at if self._start is None else self._start
        t = at - self._start
        if kind == "c":
            yield from self._begin(data)
        elif kind in _DIRECTIONS:
            for line in self._framer(kind).feed(data):
                yield from self._put(t, _DIRECTIONS[kind], line)
        elif kind == "x":
            code = int(data)
            yield from self._rest()
            note = note_of_exit(exit_code=code, signal=None) if code >= 0 else note_of_exit(exit_code=None, signal=-code)
            yield from self._put(t, "note", note)
        else:
            yield from self._end_of(kind.lower(), t)

    def _end_of(self, kind: str, t: float) -> Iterator[bytes]:
        from claude_transport.protocol.tape import INPUT_ENDED, OUTPUT_ENDED

        yield from self._put(t, _DIRECTIONS[kind], self._framer(kind).finish())  # a last line without its newline
        if kind != "e":
            yield from self._put(t, "note", INPUT_ENDED if kind == "i" else OUTPUT_ENDED)

    def _framer(self, kind: str) -> LineFramer:
        from claude_transport.protocol.framing import LineFramer

        if kind not in self._framers:
            self._framers[kind] = LineFramer(max_line_bytes=MOST_LINE_BYTES)
        return self._framers[kind]

    def _begin(self, data: bytes) -> Iterator[bytes]:
        from claude_transport.launch.discovery import read_cli_version
        from claude_transport.protocol.fragments import FragmentRedactor
        from claude_transport.protocol.redaction import redactor_knowing
        from claude_transport.protocol.tape import TapeHeader, note_of_start

        _, cwd, *argv = data.decode("utf-8", "replace").split("\0")
        self._fragments = FragmentRedactor(redactor_knowing([os.environ], confidential=argv))
        yield TapeHeader(cli_version=read_cli_version(argv[0]), created_at=dt.datetime.now(dt.UTC), scrubbed=True).encode()
        yield from self._put(0.0, "note", note_of_start({"command": argv, "cwd": cwd}))

    def _put(self, t: float, direction: Direction, line: bytes) -> Iterator[bytes]:
        from claude_transport.protocol.framing import OversizedLine
        from claude_transport.protocol.tape import TapeRecord

        size = None
        if isinstance(line, OversizedLine):
            size = line.size
            self.cut_bytes = max(self.cut_bytes, size)
            line = line.rpartition(b'"')[0]  # a string that was cut may be half of a secret
        if line and self._fragments is not None:
            record = TapeRecord(t, direction, line, trimmed_from_chars=size)
            yield from _encoded(self._fragments.feed(record, line, received=direction == "out"))

    def _rest(self) -> Iterator[bytes]:
        if self._fragments is not None:
            yield from _encoded(self._fragments.rest())

    def end(self) -> Iterator[bytes]:
        """Yield what still waits when the copies have ended."""
        yield from self._rest()


def _encoded(records: Iterator[tuple[TapeRecord, bytes]]) -> Iterator[bytes]:
    import msgspec

    return (msgspec.structs.replace(record, line=clean).encode() for record, clean in records)


def read_copies(descriptor: int, *, pause: float = _PAUSE) -> Iterator[list[tuple[str, float, bytes]]]:
    """Yield the copies of the tee, all that have come at once, until it has closed the pipe or was killed.

    After copies that are no flood it waits for `pause` seconds, or for the end of the tee.
    """
    gone = select.poll()
    gone.register(descriptor, 0)  # reports only that the tee is gone
    flood = _size_of_pipe(descriptor) // 4  # its pages may be half empty
    waiting = b""
    while data := os.read(descriptor, _READ_BYTES):
        waiting += data
        found: list[tuple[str, float, bytes]] = []
        place = 0
        while (head := waiting.find(b"\n", place)) >= 0:
            kind, at, size = waiting[place:head].decode().split(" ")
            stop = head + 1 + int(size)
            if stop > len(waiting):
                break
            found.append((kind, float(at), waiting[head + 1 : stop]))
            place = stop
        waiting = waiting[place:]
        if found:
            yield found
            if len(data) < flood:
                gone.poll(pause * 1000)


def _size_of_pipe(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, _F_GETPIPE_SZ) if sys.platform == "linux" else _SMALL_PIPE_BYTES


def append(data: bytes) -> None:
    """Append whole lines to the tape."""
    view = memoryview(data)
    while view:
        view = view[os.write(_TAPE, view) :]


def replace_turn(recorded: str, target: str, number: int) -> None:
    """Put one turn of the tape `recorded` on the tape `target`. Raises `ConfigurationError` if there is none, or it cannot be written."""
    from claude_transport.protocol.tape import Tape

    Tape.read(target).with_turn(number, Tape.read(recorded)).write(target)


def record(recording: Recording, tape: str) -> bool:
    """Write the tape, and return whether everything is on it. If not, it is said, and the conversation goes on."""
    try:
        for copies in read_copies(0):
            append(b"".join(line for copy in copies for line in recording.take(*copy)))
        append(b"".join(recording.end()))
    except Exception as error:  # noqa: BLE001 - a record that cannot be redacted or written is never written in another way
        from claude_transport.testing.stand_in import tee

        said = getattr(error, "strerror", None) or error
        tee.mark_incomplete(tape, str(said))
        _report(f"the tape {tape} is not complete: {said} [tape.incomplete]")
        for copies in read_copies(0):  # it must be seen when the tee is killed
            for kind, _, data in copies:
                recording.learn(kind, data)
        return False
    if recording.cut_bytes:
        _report(f"the tape {tape} has only the beginning of a line of {recording.cut_bytes} bytes [tape.incomplete]")
    return True


def _step_back() -> None:
    """Leave the processors to what is recorded.

    Linux shares them between sessions first, so that the niceness of a process that is alone in its session changes nothing.
    """
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        niceness = os.open("/proc/self/autogroup", os.O_WRONLY)
        try:
            os.write(niceness, str(_NICENESS_OF_SESSION).encode())
        finally:
            os.close(niceness)


def main(tape: str, target: str, turn: int) -> None:
    """Write what comes, and then end what the tee has left behind."""
    with contextlib.suppress(OSError):
        os.setsid()  # a signal to the host's group must not end it before its work is done
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(_TAPE + 1, 4096)  # what the host has left open for its claude must end when that ends
    _step_back()
    recording = Recording()
    is_complete = record(recording, tape)
    from claude_transport.testing.stand_in import tee

    if not recording.is_whole and recording.claude is not None:
        recording.claude.end()
    if not recording.is_whole or recording.was_killed:
        end_marked(recording.mark)
    if turn:
        _use_turn(recording, tape, target, turn, is_complete=is_complete)
    elif recording.claude is None:  # the tee was killed before it had started a claude
        _remove(tape)
    os.close(_TAPE)  # the lock ends before the tee does, which waits for this
    with contextlib.suppress(OSError):  # the tee may be gone
        os.write(1, tee.DONE)


def _use_turn(recording: Recording, tape: str, target: str, number: int, *, is_complete: bool) -> None:
    """Put the turn that was recorded on the tape, and remove the rest of the recording."""
    from claude_transport.errors import ConfigurationError
    from claude_transport.testing.stand_in import tee

    try:
        if is_complete and recording.is_whole and not recording.was_killed:
            replace_turn(tape, target, number)
    except ConfigurationError as error:
        _report(f"the tape {target} is as it was: {error} [{error.code}]")
    finally:
        _remove(tape)
        _remove(tape + tee.INCOMPLETE)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # the tee may have done it
        os.unlink(path)  # noqa: PTH108 - the path of an argument


def _report(text: str) -> None:
    with contextlib.suppress(OSError):  # the tee may be gone
        os.write(1, f"claude-transport: {text}\n".encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
