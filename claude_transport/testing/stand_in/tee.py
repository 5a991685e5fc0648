"""Runs the real `claude` in place of itself, carries every byte both ways, and hands copies to `recorder.py`, which writes the tape.

Nothing here waits for the tape: one thread for each stream reads and writes, and copies go into a pipe. The recorder is a process of its
own, with a session of its own. So a host may kill this process at any time: the recorder writes what it has, and ends `claude`.

A flood is not read at all on Linux, because new memory for each byte costs more than the pipes do. The kernel hands its pages on
(`splice(2)`), and keeps them in further pipes for the recorder (`tee(2)`).

`claude` has a process group of its own, because a signal to the group of this process must reach it once: this process passes it on.
"""

from __future__ import annotations

import _thread
import errno
import os
import sys
import time

TYPE_CHECKING: bool = False
if TYPE_CHECKING:  # `typing` takes longer to import than everything else here
    from collections.abc import Callable, Iterator

PARENT = "CLAUDE_TRANSPORT_TEE_PID"
"""The variable that tells a tee that another one has started it as its claude: the process id of that one, and how many there are."""

MARK = "CLAUDE_TRANSPORT_CHILD"
"""The variable by which everything is found that a claude has started (see `streams.guard`). A host of this library has set it already."""

DONE = b"\0"
"""The last byte of the recorder. It is missing when the recorder was killed."""

INCOMPLETE = ".incomplete"
"""The ending of the file that marks a tape as incomplete."""

_READ_BYTES = 2**18
_AT_ONCE = 64  # copies in one write
_FLOOD_BYTES = 2**16  # so much at once begins a flood; less than a quarter of it ends one
_PIPE_BYTES = 2**20
_MOST_PIPES = 32  # that keep a flood. The system gives a user the pages of twice as many; after that its pipes are tiny
_F_SETPIPE_SZ = 1031
_MOST_WAITING = 64 * 2**20  # bytes of copies that wait for the recorder; then the streams wait, too
_PATIENCE = 10.0  # seconds for a recorder that takes and writes nothing; then the tape is given up
_DRAIN = 1.0  # seconds without output after the end of claude: a process that it has left holds the stream open
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL for a claude whose host is gone
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH", "SIGTSTP")
_MOST_NESTED = 8  # recorders inside one another. A claude may start a host with one; more is a script that starts itself
_ASKS_ONLY = frozenset(("-v", "--version", "-h", "--help"))

EXIT_USAGE = 2
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


def remark(text: str) -> None:
    """Write one line to the host's standard error, which may be gone."""
    try:
        os.write(2, f"claude-transport: {text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass


def open_tape(path: str, *, overwrite: bool) -> tuple[str, int]:
    """Create the tape, or the next free one of `x.ndjson`, `x.2.ndjson`, … Return its path and its descriptor. Raises `OSError`.

    The tape is locked until its recorder has ended. One that another recorder writes now is not overwritten.
    """
    stem, suffix = os.path.splitext(path)  # noqa: PTH122 - pathlib takes longer than everything else here
    number = 1
    while True:
        name = path if number == 1 else f"{stem}.{number}{suffix}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if overwrite else os.O_EXCL)
        try:
            descriptor = os.open(name, flags, 0o600)
        except FileExistsError:
            number += 1
            continue
        is_ours = _lock(descriptor)
        if not overwrite:
            return name, descriptor
        if is_ours:
            _empty(descriptor)
            return name, descriptor
        os.close(descriptor)
        overwrite = False


def _empty(descriptor: int) -> None:
    """Empty a tape that was there, and make it readable only for its owner. A device is left as it is."""
    import stat

    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.ftruncate(descriptor, 0)
        os.fchmod(descriptor, 0o600)


def mark_incomplete(tape: str, why: str) -> None:
    """Leave a file beside the tape which says that the tape is not complete. The disk may be full: then the file is empty, or missing."""
    try:
        mark = os.open(tape + INCOMPLETE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        return
    try:
        os.write(mark, f"{why}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass
    os.close(mark)


class Pipe:
    """A pipe that keeps a part of a flood until the recorder has it. Raises `OSError` when the system gives no large one."""

    def __init__(self) -> None:
        self.taken_bytes: int = 0  # changed by the thread of the stream alone
        self.sent_bytes: int = 0  # changed under the lock of the copies alone
        self.output: int
        self.input: int
        self.output, self.input = os.pipe()
        if not _widen(self.input):
            self.close()
            raise OSError(errno.ENOBUFS, "the pipes of this user have too many pages")

    def close(self) -> None:
        os.close(self.output)
        os.close(self.input)


class Held:
    """The next bytes of a pipe that keeps a flood, as one copy."""

    def __init__(self, pipe: Pipe, size: int) -> None:
        self._pipe = pipe
        self._size = size

    def __len__(self) -> int:
        return self._size

    def send(self, descriptor: int) -> int:
        """Hand bytes on to `descriptor`, and return how many. Raises `BlockingIOError` when it takes none now, and `OSError`."""
        sent = _splice(self._pipe.output, descriptor, self._size)
        self.drop(sent)
        return sent

    def drop(self, count: int) -> None:
        """Count bytes as sent. A pipe of which all bytes are sent is closed when the next one is made."""
        self._size -= count
        self._pipe.sent_bytes += count


class Reservoir:
    """The pipes that keep the flood of one stream."""

    def __init__(self) -> None:
        self._pipes: list[Pipe] = []
        self._tee: Callable[[int, int, int, int], int] | None = None
        self._is_possible: bool = sys.platform == "linux"

    def hold(self, source: int) -> Held | None:
        """Wait for bytes of `source`, and keep a copy of them; they stay to be read. None at the end, and where this is not possible."""
        if not self._is_possible:
            return None
        try:
            import ctypes  # takes longer than a line may: only a flood needs it

            if self._tee is None:
                self._tee = ctypes.CDLL(None, use_errno=True).tee
        except (ImportError, AttributeError, OSError):  # a Python without ctypes, a C library without tee()
            self._is_possible = False
            return None
        _wait_for(source, writes=False)
        try:
            for pipe in self._with_room():
                size = self._tee(source, pipe.input, _PIPE_BYTES, os.SPLICE_F_NONBLOCK)
                if size >= 0:
                    pipe.taken_bytes += size
                    return Held(pipe, size) if size else None
                if ctypes.get_errno() != errno.EAGAIN:  # `source` is no pipe
                    self._is_possible = False
                    break
        except OSError:  # too many open files, or pages of pipes
            self._is_possible = False
        return None

    def _with_room(self) -> Iterator[Pipe]:
        """Yield the newest pipe, which may be full, and then a new one. Raises `OSError` when there can be none."""
        yield from self._pipes[-1:]
        self.free()
        if len(self._pipes) < _MOST_PIPES:
            self._pipes.append(Pipe())
            yield self._pipes[-1]

    def free(self) -> None:
        """Close the pipes which the recorder has, or does not want any more."""
        for pipe in [pipe for pipe in self._pipes if pipe.sent_bytes == pipe.taken_bytes]:
            self._pipes.remove(pipe)
            pipe.close()


class Copies:
    """The way to the recorder: a pipe that never makes a stream wait, until too much waits for it."""

    def __init__(self, descriptor: int, wake: int, *, tape: str) -> None:
        os.set_blocking(descriptor, False)
        self._tape = tape
        self._descriptor = descriptor
        self._wake = wake
        self._lock = _thread.allocate_lock()
        self._waiting: list[bytes | Held] = []
        self._waiting_bytes = 0
        self.is_lost: bool = False
        self._is_closed = False

    @property
    def is_behind(self) -> bool:
        """Whether something waits for the recorder."""
        return bool(self._waiting)

    def fileno(self) -> int:
        return self._descriptor

    def put(self, kind: str, data: bytes | Held = b"") -> None:
        """Send one copy, or keep it until the recorder takes it."""
        head = f"{kind} {time.monotonic():.6f} {len(data)}\n".encode()
        least, since = self._waiting_bytes, time.monotonic()
        while self._waiting_bytes > _MOST_WAITING and not self.is_lost:
            if self._waiting_bytes < least:
                least, since = self._waiting_bytes, time.monotonic()
            if time.monotonic() - since > _PATIENCE:
                self.lose("its recorder takes nothing")
            time.sleep(0.01)
        with self._lock:
            if self.is_lost or self._is_closed:
                _forget([data])
                return
            is_first = not self._waiting
            self._waiting += (head, data) if data else (head,)
            self._waiting_bytes += len(head) + len(data)
            if is_first:
                while self._waiting and self._write():
                    pass
                if self._waiting:
                    os.write(self._wake, b"\0")

    def flush(self) -> None:
        """Send what waits, as far as the recorder takes it."""
        with self._lock:
            while self._waiting and not self.is_lost and self._write():
                pass

    def _write(self) -> bool:
        """Send some of what waits. Return False when the recorder takes no more now."""
        first = self._waiting[0]
        try:
            sent = first.send(self._descriptor) if isinstance(first, Held) else os.writev(self._descriptor, self._leading_bytes())
        except BlockingIOError:
            return False
        except OSError:
            self.lose("its recorder has ended")
            return False
        self._waiting_bytes -= sent
        if isinstance(first, Held):
            if not first:
                del self._waiting[0]
            return True
        while sent and isinstance(copy := self._waiting.pop(0), bytes):
            if sent < len(copy):
                self._waiting.insert(0, copy[sent:])
            sent -= min(sent, len(copy))
        return True

    def _leading_bytes(self) -> list[bytes]:
        """Return what waits before the next part of a flood, as much as one write takes."""
        found: list[bytes] = []
        for copy in self._waiting[:_AT_ONCE]:
            if isinstance(copy, Held):
                break
            found.append(copy)
        return found

    def lose(self, why: str) -> None:
        """Give the tape up, and say so. The conversation goes on."""
        self.is_lost = True
        _forget(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        mark_incomplete(self._tape, why)
        remark(f"the tape {self._tape} is not complete: {why} [tape.incomplete]")

    def close(self) -> None:
        """Close the pipe. What a host does later, when claude has ended, is on no tape."""
        with self._lock:
            self._is_closed = True
            os.close(self._descriptor)


class Stream:
    """One direction: a thread reads from `source`, copies, and writes to `sink`."""

    def __init__(self, kind: str, source: int, sink: int, copies: Copies, wake: int) -> None:
        self.is_over: bool = False
        self.is_writing: bool = False
        self.read_bytes: int = 0
        self._kind = kind
        self._source = source
        self._sink = sink
        self._copies = copies
        self._wake = wake
        self._reservoir = Reservoir()
        _thread.start_new_thread(self._carry, ())

    def _carry(self) -> None:
        try:
            room = memoryview(bytearray(_READ_BYTES))  # a new one for each read would be mapped anew
            while size := read_into(self._source, room):
                self._hand_on(bytes(room[:size]))
                if size >= _FLOOD_BYTES:
                    self._carry_flood()
        except OSError:  # the reader is gone: the writer is told by the closed pipe
            if self._source == 0:
                _let_go(0)
        self.is_writing = False
        self._copies.put(self._kind.upper())
        os.close(self._sink if self._source == 0 else self._source)
        self.is_over = True
        os.write(self._wake, b"\0")

    def _carry_flood(self) -> None:
        """Carry without reading, until little comes at once, or the recorder is far behind. Raises `OSError` when the reader is gone."""
        while not self._copies.is_lost and (held := self._reservoir.hold(self._source)) is not None:
            size = len(held)
            self._hand_on(held)
            if size < _FLOOD_BYTES // 4:
                break
        self._reservoir.free()

    def _hand_on(self, data: bytes | Held) -> None:
        size = len(data)
        self.read_bytes += size
        self.is_writing = True
        self._copies.put(self._kind, data)  # first, so that an answer never stands before its question
        if isinstance(data, Held):
            pass_on(self._source, self._sink, size)
        else:
            write_all(self._sink, data)
        self.is_writing = False


class RecorderProgress:
    """Watches whether the recorder still works after claude has ended, and gives it its share of the processors back."""

    def __init__(self, recorder: int, tape: str, *, patience: float) -> None:
        self._autogroup: str = f"/proc/{recorder}/autogroup"
        self._tape = tape
        self._size = -1
        self._patience = patience
        self._since = time.monotonic()

    @property
    def has_ended(self) -> bool:
        """Whether nothing was taken or written for as long as the patience lasts."""
        return time.monotonic() - self._since > self._patience

    def note(self) -> None:
        """Begin to count anew: the recorder has taken something."""
        self._since = time.monotonic()

    def look(self) -> float:
        """Give the recorder its share back, note what it has written, and return how many seconds to wait before the next look."""
        _give_back_its_share(self._autogroup)
        try:
            size = os.stat(self._tape).st_size  # noqa: PTH116 - as above
        except OSError:
            size = self._size
        if size != self._size:
            self._size = size
            self.note()
        return 0.1


class Tee:
    """The running claude, its streams, and the recorder."""

    def __init__(
        self, argv: list[str], tape: int, *, path: str, recorder: list[str], passes_input: bool, patience: float = _PATIENCE
    ) -> None:
        import signal

        self._signal = signal
        self._path = path
        self._patience_at_the_end = patience
        self._status: int | None = None
        self._told_to_end: float | None = None
        self._shares_group = not passes_input  # the terminal is read by its foreground group only, and signals all of that group
        self._wake_in, self._wake = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake, False)
        self.copies: Copies = Copies(self._start_recorder(recorder, tape), self._wake, tape=path)
        os.close(tape)
        inputs, outputs, errors = os.pipe(), os.pipe(), os.pipe()
        _widen(outputs[1])
        self._mark = "" if MARK in os.environ else os.urandom(16).hex()
        self.copies.put("m", self._mark.encode())  # before there is a claude that could be left behind
        self.child: int = self._start_claude(argv, inputs[0] if passes_input else None, outputs[1], errors[1])
        self._pass_signals()
        about = [str(self.child), _folder(), *argv]
        self.copies.put("c", "\0".join(about).encode("utf-8", "surrogateescape"))
        for descriptor in (inputs[0], outputs[1], errors[1]):
            os.close(descriptor)
        self._input = Stream("i", 0, inputs[1], self.copies, self._wake) if passes_input else None
        if self._input is None:
            os.close(inputs[1])
        self._output = Stream("o", outputs[0], 1, self.copies, self._wake)
        self._errors = Stream("e", errors[0], 2, self.copies, self._wake)

    def _start_recorder(self, command: list[str], tape: int) -> int:
        """Start the recorder, and return the descriptor that takes its copies."""
        frames_in, frames_out = os.pipe()
        self._report, report_out = os.pipe()
        dup = os.POSIX_SPAWN_DUP2
        actions = [(dup, frames_in, 0), (dup, report_out, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0), (dup, tape, 3)]
        try:  # in a session of its own: a signal to the host's group must not end it before its work is done
            self._recorder = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)
        except NotImplementedError:  # an old system: the recorder does it itself, a little later
            self._recorder = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        os.close(report_out)
        os.close(frames_in)
        _widen(frames_out)
        return frames_out

    def _start_claude(self, argv: list[str], stdin: int | None, stdout: int, stderr: int) -> int:
        dup = os.POSIX_SPAWN_DUP2
        actions = [(dup, stdout, 1), (dup, stderr, 2), *([] if stdin is None else [(dup, stdin, 0)])]
        defaults = [getattr(self._signal, name) for name in _IGNORED_BY_PYTHON]
        env = {**os.environ, PARENT: f"{os.getpid()}:{_read_parent()[1] + 1}", **({MARK: self._mark} if self._mark else {})}
        if self._shares_group:
            return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsigdef=defaults)
        return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsigdef=defaults, setpgroup=0)

    def _pass_signals(self) -> None:
        """Pass each signal on to claude, except those that the host has this process ignore: claude ignores them, too."""
        signal = self._signal
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for name in _PASSED_ON:
            number = getattr(signal, name)
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _frame: object) -> None:
        if not (self._shares_group and number in (self._signal.SIGINT, self._signal.SIGQUIT, self._signal.SIGTSTP)):
            self._send(number)
        if number == self._signal.SIGTSTP:
            os.kill(os.getpid(), self._signal.SIGSTOP)

    def _send(self, number: int) -> None:
        if self._status is None:  # until then its id is its own
            try:
                os.kill(self.child, number)
            except (ProcessLookupError, PermissionError):  # it has just ended, or runs as another user
                pass

    def run(self) -> int:
        """Carry everything until claude has ended, and return its wait status."""
        import select

        ended: float | None = None
        while True:
            if self._status is None:
                pid, status = os.waitpid(self.child, os.WNOHANG)
                if pid:
                    self._status, ended = status, time.monotonic()
            now = time.monotonic()
            if ended is not None and self._is_drained(now - ended):
                break
            poll = select.poll()
            poll.register(self._wake_in, select.POLLIN)
            if self.copies.is_behind and not self.copies.is_lost:
                poll.register(self.copies.fileno(), select.POLLOUT)
            if self._told_to_end is None and self._status is None and (self._input is None or self._input.is_over):
                poll.register(1, 0)  # reports only that the reader is gone
            before = self._output.read_bytes + self._errors.read_bytes
            found = dict(poll.poll(self._patience(ended)))
            self._take_wakes()
            self.copies.flush()
            if found.get(1, 0) & (select.POLLERR | select.POLLHUP) and self._told_to_end is None:  # the host is gone
                self._told_to_end = now
                self._send(self._signal.SIGTERM)
            elif self._told_to_end is not None and self._status is None and now - self._told_to_end > _GRACE:
                self._send(self._signal.SIGKILL)
            if ended is not None and self._output.read_bytes + self._errors.read_bytes != before:
                ended = now
        return self._status or 0

    def _is_drained(self, waited: float) -> bool:
        if self._output.is_over and self._errors.is_over:
            return True
        return waited > _DRAIN and not (self._output.is_writing or self._errors.is_writing)

    def _patience(self, ended: float | None) -> int | None:
        if ended is not None:
            return 100
        return None if self._told_to_end is None else int(_GRACE * 1000) + 50

    def _take_wakes(self) -> None:
        try:
            os.read(self._wake_in, 4096)
        except BlockingIOError:
            pass

    def finish(self, status: int) -> None:
        """Tell the recorder how claude ended, wait until the tape is written, and show what the recorder has to say."""
        import select

        code = os.waitstatus_to_exitcode(status)
        self.copies.put("x", str(code).encode())
        _let_go(1)  # the host sees the end of the output at once
        progress = RecorderProgress(self._recorder, self._path, patience=self._patience_at_the_end)
        while self.copies.is_behind and not self.copies.is_lost:
            if select.select([], [self.copies.fileno()], [], progress.look())[1]:
                progress.note()
            elif progress.has_ended:
                self.copies.lose("its recorder takes nothing")
            self.copies.flush()
        self.copies.close()
        said, has_ended = b"", False
        while not has_ended and not self.copies.is_lost and not progress.has_ended:
            if select.select([self._report], [], [], progress.look())[0]:
                data = os.read(self._report, 4096)
                said, has_ended = said + data, not data
        if not said.endswith(DONE) and not self.copies.is_lost:
            self.copies.lose("its recorder has ended" if has_ended else "its recorder takes too long")
        try:
            os.write(2, said.removesuffix(DONE))
        except OSError:  # the host does not want to know
            pass

    def end_as(self, status: int) -> None:
        """End this process as claude has ended: with its exit code, or by the same signal."""
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # claude has dumped its own
            if -code not in (self._signal.SIGKILL, self._signal.SIGSTOP):
                self._signal.signal(-code, self._signal.SIG_DFL)
            os.kill(os.getpid(), -code)
            self._signal.pthread_sigmask(self._signal.SIG_UNBLOCK, [-code])
            code = 128 - code
        os._exit(code)


def _give_back_its_share(autogroup: str) -> None:
    """Undo what the recorder does at its start. It may do that late, and the system allows few changes a second: look again later."""
    try:
        descriptor = os.open(autogroup, os.O_RDWR)
    except OSError:  # another system, or the recorder has ended
        return
    try:
        if not os.read(descriptor, 100).endswith(b" 0\n"):
            os.write(descriptor, b"0")
    except OSError:
        pass
    finally:
        os.close(descriptor)


def read_into(descriptor: int, room: memoryview) -> int:
    """Read as `os.readv` does, also when the host has made the descriptor non-blocking. Raises `OSError`."""
    while True:
        try:
            return os.readv(descriptor, (room,))
        except BlockingIOError:
            _wait_for(descriptor, writes=False)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, also when the host has made the descriptor non-blocking. Raises `OSError` when the reader is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            _wait_for(descriptor, writes=True)


def pass_on(source: int, sink: int, size: int) -> None:
    """Hand the next `size` bytes of a pipe on without reading them; read them where `sink` cannot take them so. Raises `OSError`."""
    while size:
        try:
            size -= _splice(source, sink, size)
        except BlockingIOError:
            _wait_for(sink, writes=True)
        except OSError:  # a file to append to takes no pages, and a sandbox may forbid the call; where the reader is gone, writing says so
            data = os.read(source, size)
            size -= len(data)
            write_all(sink, data)


def _splice(source: int, sink: int, size: int) -> int:
    if sys.platform != "linux":  # nothing is kept in pipes there
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.splice(source, sink, size)


def _forget(copies: list[bytes | Held]) -> None:
    """Free the pages of copies that are not sent."""
    for copy in copies:
        if isinstance(copy, Held):
            copy.drop(len(copy))


def _wait_for(descriptor: int, *, writes: bool) -> None:
    """Wait until a non-blocking descriptor, which this process shares with the host, is ready, or its other end is gone."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if writes else select.POLLIN)
    poll.poll()


def _let_go(descriptor: int) -> None:
    """Close a standard stream. Something else stands in its place, so that no other file gets its number."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _open_missing_streams() -> None:
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # the host has closed it: no pipe may get its number
            _let_go(descriptor)


def _widen(descriptor: int) -> bool:
    """Make the pipe a mebibyte large, where the system has such a call and allows it. Return whether it did."""
    try:
        import fcntl

        if sys.platform == "linux":
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
            return True
    except (ImportError, OSError):  # a smaller one only makes more copies wait in memory
        pass
    return False


def _lock(descriptor: int) -> bool:
    """Lock the tape until its recorder has ended, so that a reader can wait for that. Return False when another recorder has it."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # not every file system has locks; then a reader does not wait
        pass
    return True


def resolve(program: str) -> str:
    """Return the path of the program; a bare name is looked up on PATH."""
    if os.sep in program:
        return program
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(directory, program)  # noqa: PTH118 - as above
        if os.path.isabs(directory) and os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113, PTH117 - as above
            return path
    return program


def record(tape: str, argv: list[str], *, overwrite: bool = False, turn: int | None = None) -> int:
    """Run `argv` as claude and record it at `tape`. It returns an exit code only when nothing was run; else the process ends with it.

    `turn` is the number of the only turn to replace on a tape that is there.
    """
    parent, nested = _read_parent()
    if parent == os.getppid() or nested >= _MOST_NESTED:
        remark(
            f"{argv[0]} is this recorder, not a claude. Name the real one: `record --as-claude {tape} -- /path/to/claude` [config.invalid]"
        )
        return EXIT_USAGE
    argv = [resolve(argv[0]), *argv[1:]]
    if _ASKS_ONLY & set(argv[1:2]) or (os.isatty(0) and os.isatty(1)):  # no conversation, or one with a person at a terminal
        return _become(argv)
    target = tape
    if turn is not None:
        if not os.path.isfile(tape):  # noqa: PTH113 - as above
            remark(f"there is no tape {tape} whose turn {turn} could be recorded again; record all of it first [config.invalid]")
            return EXIT_USAGE
        folder, name = os.path.split(tape)
        tape, overwrite = os.path.join(folder, f".{name}.{os.getpid()}.turn"), True  # noqa: PTH118 - as above
    try:
        tape, descriptor = open_tape(tape, overwrite=overwrite)
    except OSError as error:
        remark(f"the tape {tape} cannot be written: {error.strerror} [config.invalid]")
        return EXIT_USAGE
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
    recorder = [sys.executable, "-P", os.path.join(here, "recorder.py"), tape, target, str(turn or 0)]  # noqa: PTH118 - as above
    try:
        tee = Tee(argv, descriptor, path=tape, recorder=recorder, passes_input=not os.isatty(0))
    except OSError as error:
        _remove(tape)
        return _cannot_start(argv[0], error)
    status = tee.run()
    tee.finish(status)
    tee.end_as(status)
    return EXIT_USAGE  # never reached


def _remove(tape: str) -> None:
    """Remove a tape with nothing on it, which the recorder may have removed already."""
    try:
        os.unlink(tape)  # noqa: PTH108 - as above
    except OSError:
        pass


def _read_parent() -> tuple[int, int]:
    """Return the process id of the recorder that this process is inside of, and how many there are; zeros when there is none."""
    pid, _, nested = os.environ.get(PARENT, "").partition(":")
    return (int(pid), int(nested)) if pid.isdecimal() and nested.isdecimal() else (0, 0)


def _folder() -> str:
    """Return the working directory; nothing when it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - as above
    except OSError:
        return ""


def _become(argv: list[str]) -> int:
    import signal

    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - it is the program that the host wants
    except OSError as error:
        return _cannot_start(argv[0], error)


def _cannot_start(program: str, error: OSError) -> int:
    remark(f"cannot start {program}: {error.strerror} [spawn.failed]")
    return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE


def main(words: list[str]) -> int:
    """Read `[--force] [--turn N] TAPE -- CLAUDE [ARGUMENT]...`, which `TapeShelf` and `record --as-claude` have checked, and record."""
    if not hasattr(os, "posix_spawn"):
        remark("recording in place of claude needs a POSIX system [config.invalid]")
        return EXIT_USAGE
    _open_missing_streams()
    split = words.index("--")
    options, argv = words[:split], words[split + 1 :]
    turn = int(options[options.index("--turn") + 1]) if "--turn" in options else None
    return record(options[-1], argv, overwrite="--force" in options, turn=turn)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
