"""Marks, by which everything that a child starts is found again, and the guard, which ends children when their host is killed.

A host that is killed with SIGKILL closes nothing. At the end of its input an idle CLI exits, but one that runs a tool does not, and its
tool shells live on. So while children live, one small shell (the guard) reads from a pipe whose writing end only the host has, and which
the host never writes to. When the pipe ends, the host is gone, for whatever reason. The guard then reads in a file which children there
were, sends SIGTERM to them and to everything marked, and two seconds later SIGKILL.

The file has no name. It has a row for each child, which the host writes and clears without waking the guard.

A guard stays for a moment after the last child, so that sessions that follow each other share one. It has nothing to end then.

The kernel's parent-death signal would not do: it follows the thread that forked and not the process, it reaches only the direct child,
and setting it needs code between fork and exec.

The guard's environment has a PATH of system folders and nothing of the host's. The host's PATH may be empty, or name a folder where an
attacker has put a `grep`. Without a system `grep` the shell itself reads the files of `/proc`, which takes seconds on a machine with
thousands of processes. Without a system `sleep`, processes get less time between the two signals.

Closing a child while the host lives is in `streams.reaping`; killing what has left its group is in `streams.sweeping`.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from logging import Logger
from typing import Any

from claude_transport.loggers import logger_for
from claude_transport.text.printable import printable

logger: Logger = logger_for(__name__)

MARK_VARIABLE = "CLAUDE_TRANSPORT_CHILD"
"""The environment variable that holds the mark of a child."""

SPARED_VARIABLE = "CLAUDE_TRANSPORT_ENDER"
"""Set in the environment of processes that end others, such as the guard of another host. They are not killed for an inherited number."""

SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin:/run/current-system/profile/bin"
"""Folders of system programs, where only the administrator writes: on every Linux and macOS, then on NixOS and on Guix."""

_FIRST_LIMIT = 2**61
"""The smallest number that is used as a mark: 73,000 years in microseconds, and still a number that every tool can read."""

_LIMITS = 2**60 - 93
"""How many numbers there are. A prime, so that every bit of the mark counts."""

_MOST_DESCENDANTS = 1_000
"""Descendants that are looked up through their parents. A fork bomb must not keep its host from closing."""

_MOST_BYTES = 8 * 2**20
"""Bytes of a file that are read. Linux allows 6 MiB at most, for arguments and environment together."""

_READ_AT_ONCE = 32 * 2**10

_KILL_SECONDS = 1.0
"""Seconds to wait for a process that was killed. SIGKILL takes microseconds, or for ever."""


_LINGER = 0.25
"""Seconds for which a guard without children waits for the next one. Starting and ending a guard costs a quarter of a millisecond."""


_OVERDUE = ""
"""In the place of a mark: look whether an idle guard has to end."""


# Marks. Each child gets two, and what it starts inherits both: a random text in the environment, and a number as a resource limit.


def new_mark() -> str:
    """Return a random mark: 32 hexadecimal digits."""
    return os.urandom(16).hex()


def environment_marks(environ: bytes) -> list[str]:
    """Return the marks in the environment of a process: usually none or one. `environ` is the content of its `/proc` file."""
    key = f"{MARK_VARIABLE}=".encode()
    if key not in environ:
        return []
    return [entry[len(key) :].decode("ascii", "replace") for entry in environ.split(b"\0") if entry.startswith(key)]


def is_spared(environ: bytes) -> bool:
    """Return True when the environment says that the process ends others."""
    return f"\0{SPARED_VARIABLE}=".encode() in b"\0" + environ


@functools.lru_cache(maxsize=256)
def limit_of(mark: str) -> int:
    """Return the number that stands for `mark` as a resource limit."""
    return _FIRST_LIMIT + int.from_bytes(mark.encode(), "big") % _LIMITS


def carried_limit(pid: int) -> int | None:
    """Return the number that marks the process; None when it has none, or when the system does not tell."""
    found = _limits(pid)
    return found[0] if found is not None and found[0] >= _FIRST_LIMIT else None


def mark_limits(pid: int, mark: str) -> bool:
    """Set the number of `mark` on the process and its present descendants.

    Returns False where the system forbids it, or where the limit is in use already.
    """
    if not _set_limit(pid, limit_of(mark)):
        return False
    for descendant in descendants(pid):
        _set_limit(descendant, limit_of(mark))
    return True


def _limits(pid: int) -> tuple[int, int] | None:
    try:
        import resource  # not on Windows

        return resource.prlimit(pid, resource.RLIMIT_RTTIME) if sys.platform == "linux" else None
    except (ImportError, AttributeError, OSError, ValueError, OverflowError):
        return None


def _set_limit(pid: int, number: int) -> bool:
    limits = _limits(pid)
    if limits is None or sys.maxsize < number or 0 <= limits[0] < _FIRST_LIMIT:
        return False  # a limit that small was set on purpose
    import resource

    try:
        if sys.platform == "linux":
            resource.prlimit(pid, resource.RLIMIT_RTTIME, (number, limits[1]))
    except (OSError, ValueError):
        return False
    return True


# Finding processes.


def read_file(path: str) -> bytes:
    """Return the content of a file in `/proc`. An environment reads as empty when it is, and while the process is inside `execve`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(fd, _READ_AT_ONCE)]
        while chunks[-1] and len(chunks) * _READ_AT_ONCE < _MOST_BYTES:
            chunks.append(os.read(fd, _READ_AT_ONCE))
    finally:
        os.close(fd)
    return b"".join(chunks)


def is_running(process: str) -> bool:
    """Return False when the process has ended, collected by its parent or not. `process` is its folder in `/proc`."""
    try:
        return read_file(f"{process}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def descendants(pid: int, *, proc: str = "/proc", platform: str = sys.platform) -> dict[int, int]:
    """Return the descendants that lead back to `pid` through living parents: process ids, with what identifies them.

    That is the inode in `/proc`, and on macOS the time of the start.
    """
    if platform == "darwin":
        from claude_transport.streams.libproc import Tree  # elsewhere it would cost an import

        return Tree().descendants(pid)
    found: dict[int, int] = {}
    parents = [pid]
    while parents and len(found) < _MOST_DESCENDANTS:
        for child in _children(f"{proc}/{parents.pop()}/task"):
            with contextlib.suppress(OSError):
                if child not in found:
                    found[child] = os.stat(f"{proc}/{child}").st_ino  # noqa: PTH116 - a Path costs as much as the call
                    parents.append(child)
    return found


def _children(tasks: str) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError, ValueError):  # the process has ended, or this kernel does not list children
        for task in os.listdir(tasks):  # noqa: PTH208 - as above
            children += map(int, read_file(f"{tasks}/{task}/children").split())
    return children


def find_marked(mark: str, *, proc: str = "/proc", platform: str = sys.platform, read: Callable[[str], bytes] = read_file) -> list[int]:
    """Return the ids of all running processes that carry `mark`. Reads every process of the machine; returns none but on Linux."""
    found: list[int] = []
    if not platform.startswith("linux"):
        return found
    with contextlib.suppress(OSError), os.scandir(proc) as processes:
        for process in processes:
            if process.name.isdigit():
                with contextlib.suppress(OSError):  # it has ended, or belongs to another user: it cannot be signalled either
                    environ = read(f"{process.path}/environ")
                    by_limit = carried_limit(int(process.name)) == limit_of(mark) and not is_spared(environ)
                    if (by_limit or mark in environment_marks(environ)) and is_running(process.path):
                        found.append(int(process.name))
    return found


def kill_marked(mark: str) -> int:
    """Kill all processes that carry `mark`, and return their number. Only for the case that no `Sweeper` can work."""
    killed = 0
    for pid in find_marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


# Starting.


class SafePopen(subprocess.Popen[bytes]):
    """A `Popen` that leaves no process behind when its constructor raises: the process and its group are killed first."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        """Start `command`, with the options of `Popen`."""
        try:
            super().__init__(command, **options)
        except BaseException:
            self._kill_if_started()
            raise

    def _kill_if_started(self) -> None:
        # `pid` is set by the start, `returncode` when the process is collected
        if getattr(self, "pid", None) is None or self.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()  # it may not lead its group yet
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_KILL_SECONDS)


# The guard.

# Without `/proc`, as on macOS, no marks can be read: then the descendants that lead back to a child through living parents are ended.
# Standard output is the file with a row for each child: its mark, its group and its number. A row without a child is blank.
_SCRIPT = """
exec 3<&1 >/dev/null
while read -r nothing; do :; done
children=
while read -r mark group limit; do
  case $mark$group$limit in ''|*[!0-9a-f]*) ;; *) children="$children$mark:$group:$limit " ;; esac
done <&3
exec 3<&-
[ -n "$children" ] || exit 0
patterns=
for child in $children; do
  patterns="$patterns $NAME=${child%%:*} ${child##*:}"
done
if command -v grep; then
  holding() { printf '%s\\n' $patterns | grep -lsF -f - "$@"; }
else
  holding() {
    for file; do
      while IFS= read -r line || [ -n "$line" ]; do
        for pattern in $patterns; do
          case $line in *"$pattern"*) printf '%s\\n' "$file"; break 2 ;; esac
        done
      done <"$file"
    done
  }
fi
spared() { (patterns=$SPARED=; holding "$PROC/$1/environ"); }
marked() {
  for digit in 1 2 3 4 5 6 7 8 9; do
    holding $PROC/$digit*/environ $PROC/$digit*/limits
  done | while IFS=/ read -r nothing proc pid file; do
    [ "$file" = limits ] && [ -n "$(spared "$pid")" ] || printf '%s\\n' "$pid"
  done
}
alive() {
  for child in $children; do
    group=${child#*:}
    kill -s 0 -- "-${group%:*}" && return 0
  done
  for pid in $family; do kill -s 0 "$pid" && return 0; done
  [ -n "$(marked)" ]
}
family=
if [ ! -r "$PROC/self/environ" ] && command -v ps; then
  family=' '
  for child in $children; do
    group=${child#*:}
    family="$family${group%:*} "
  done
  rows=$(ps -A -o pid= -o ppid=)
  for depth in 1 2 3 4 5 6 7 8; do
    set -- $rows
    while [ $# -gt 1 ]; do
      case $family in *" $1 "*) ;; *" $2 "*) family="$family$1 " ;; esac
      shift 2
    done
  done
fi
signal() {
  for child in $children; do
    group=${child#*:}
    kill -s "$1" -- "-${group%:*}"
  done
  for pid in $(marked) $family; do kill -s "$1" "$pid"; done
}
signal TERM
tries=0
while [ $tries -lt 20 ]; do
  # twice, because the environment of a process that is just starting reads as empty
  alive || { sleep 0.2; alive || exit 0; }
  sleep 0.1
  tries=$((tries + 1))
done
signal KILL
"""


def guard_shell(*, platform: str = sys.platform, shell: str = "/bin/sh") -> str | None:
    """Return the shell that runs the guard. None on Windows, and where there is no such file, as in a minimal container."""
    if platform == "win32" or not os.access(shell, os.X_OK):
        return None
    return shell


class Guard:
    """The guard process of this host. It is started with the first child, and ends `linger` seconds after the last one is gone.

    No call waits for the lock: a finaliser may run between any two lines, also of the thread that holds the lock. A change is put
    into a queue, and the holder of the lock works the queue off, once more after it has released the lock.
    """

    def __init__(self, *, path: str = SYSTEM_PATH, linger: float = 0.0, proc: str = "/proc") -> None:
        self._path = path
        self._proc = proc
        self._linger = linger
        self._idle_since = 0.0
        self._lingering = _thread.allocate_lock()
        """Held by the thread that waits for the end of an idle guard."""
        self._lock = threading.Lock()
        self._changes: deque[tuple[str, int | None]] = deque()
        self._children: dict[str, int] = {}
        self._rows: _Rows | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._complained = False

    @property
    def pid(self) -> int | None:
        """The process id of the guard; None while there is none."""
        return None if self._process is None else self._process.pid

    def watch(self, mark: str, pgid: int) -> None:
        """From now on, have the guard end the group `pgid` and everything marked `mark` when the host is gone."""
        self._changes.append((mark, pgid))
        self._work_off()

    def release(self, mark: str) -> None:
        """Tell the guard that the child and everything it started are gone."""
        self._changes.append((mark, None))
        self._work_off()

    def forget(self) -> None:
        """In a fork of the host: close the copy of the pipe, which would keep the guard from seeing the end of the host."""
        process, self._process = self._process, None
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()
        self._lock = threading.Lock()
        self._lingering = _thread.allocate_lock()
        self._changes.clear()
        self._children.clear()
        if process is not None and process.stdin is not None:
            process.returncode = 0  # so that `Popen` neither waits nor warns: the guard is the host's child
            process.stdin.close()

    def _work_off(self) -> None:
        leaving: list[subprocess.Popen[bytes]] = []
        while self._changes and self._lock.acquire(blocking=False):
            try:
                while self._changes:
                    self._apply(*self._changes.popleft(), leaving)
            finally:
                self._lock.release()
        for process in leaving:  # without the lock: another thread may need a guard meanwhile
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS)

    def _apply(self, mark: str, pgid: int | None, leaving: list[subprocess.Popen[bytes]]) -> None:
        """Carry out one change; `_OVERDUE` stands for a check of the time. A guard that has to end is added to `leaving`."""
        if mark == _OVERDUE:
            if not self._children and self._seconds_left() <= 0:
                self._end(leaving)
            return
        if pgid is not None:
            self._children[mark] = pgid
        elif self._children.pop(mark, None) is None:
            return
        if self._note(mark, pgid) and (self._children or self._stays_idle()):
            return
        self._end(leaving)
        if self._children:
            self._start()

    def _stays_idle(self) -> bool:
        """Have a thread end the guard after a while. Return False when it has to end now."""
        if self._linger <= 0:
            return False
        self._idle_since = time.monotonic()
        if self._lingering.acquire(blocking=False):
            try:
                _thread.start_new_thread(self._wait_idle, (self._lingering,))
            except RuntimeError:  # the system has no thread left
                self._lingering.release()
                return False
        return True

    def _is_idle(self) -> bool:
        return self._process is not None and not self._children

    def _seconds_left(self) -> float:
        return self._idle_since + self._linger - time.monotonic()

    def _wait_idle(self, lingering: _thread.LockType) -> None:
        """End the guard when it has been without children for `linger` seconds. Runs in a thread of its own."""
        while True:
            while self._is_idle():
                time.sleep(max(self._seconds_left(), 0.0))
                self._changes.append((_OVERDUE, None))
                self._work_off()
            lingering.release()
            # its last child may have gone between the two lines above
            if not self._is_idle() or not lingering.acquire(blocking=False):
                return

    def _start(self) -> None:
        shell = guard_shell()
        if shell is None:
            self._complain("this system has no /bin/sh for a guard: children survive when this process is killed")
            return
        rows: _Rows | None = None
        try:
            rows = _Rows()
            for mark, pgid in tuple(self._children.items()):
                rows.put(mark, pgid)
            self._process = SafePopen(
                [shell, "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=rows.fd,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"PATH": self._path, "NAME": MARK_VARIABLE, "SPARED": SPARED_VARIABLE, SPARED_VARIABLE: "guard", "PROC": self._proc},
                start_new_session=True,
            )
        except OSError as exc:
            if rows is not None:
                rows.close()
            self._complain(f"no guard could be started: children survive when this process is killed: {exc}")
            return
        self._rows = rows

    def _note(self, mark: str, pgid: int | None) -> bool:
        """Put a child into the file, or take it out. Return False when the guard is gone, or the file cannot be written."""
        if self._process is None or self._rows is None or self._process.poll() is not None:
            return False
        try:
            if pgid is None:
                self._rows.clear(mark)
            else:
                self._rows.put(mark, pgid)
        except OSError:
            return False
        return True

    def _end(self, leaving: list[subprocess.Popen[bytes]]) -> None:
        process, self._process = self._process, None
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()
        if process is None or process.stdin is None:
            return
        process.kill()  # it may still know children, as when a row could not be cleared, and would end them
        with contextlib.suppress(OSError):
            process.stdin.close()
        leaving.append(process)

    def _complain(self, message: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s", printable(message))


class _Rows:
    """The file with a row of the same length for each child. A row is used again, so that the file is as long as most children at once."""

    _WIDTH = 80  # a mark, a group and a number take 63 at most

    def __init__(self) -> None:
        self.fd = _nameless_file()
        self._used: dict[str, int] = {}
        self._free: list[int] = []

    def put(self, mark: str, pgid: int) -> None:
        """Write the row of a child. Raises `OSError`."""
        row = self._used.get(mark)
        if row is None:
            row = self._used[mark] = self._free.pop() if self._free else len(self._used)
        self._write(row, f"{mark} {pgid} {limit_of(mark)}")

    def clear(self, mark: str) -> None:
        """Make the row of a child blank. Raises `OSError`."""
        row = self._used.pop(mark, None)
        if row is not None:
            self._free.append(row)
            self._write(row, "")

    def close(self) -> None:
        """Close this end of the file: the guard has its own."""
        os.close(self.fd)

    def _write(self, row: int, text: str) -> None:
        # the guard has the same position in the file, which must stay at its beginning
        os.pwrite(self.fd, text.ljust(self._WIDTH - 1).encode() + b"\n", row * self._WIDTH)


def _nameless_file() -> int:
    """Open a new file that no other process can open. Raises `OSError`."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the kernel or a filter of calls may not have it
            return os.memfd_create("claude_transport guard")
    import tempfile  # memory does without it

    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


guard: Guard = Guard(linger=_LINGER)
"""The guard of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guard.forget)
