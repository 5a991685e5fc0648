"""The parent-death net: when the host is killed, what it started is ended for it.

A host that is killed with SIGKILL closes nothing. End of input makes an idle CLI leave, but not one that runs a tool, and its
tool shells live on. So while children are alive, one small shell waits beside them at the end of a pipe that only the host
holds: the pipe's end is the host's end, however it came, and then the shell asks all of them to go, and makes them.

Why not the kernel's parent-death signal: it follows the *thread* that forked, not the process, it reaches only the direct
child, and setting it needs code between fork and exec.

The shell gets a PATH of system folders and nothing else of the host's environment. The host's own PATH may be empty, or name a folder in
which an attacker has put a `grep`. Where the system folders have no `grep`, the shell reads the files itself, which takes seconds on a
machine with thousands of processes. Where they have no `sleep`, what is left gets less time to go.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from logging import Logger, getLogger
from typing import Any

from claude_transport.printable import printable

# --- The marks of a child, by which everything it started is found again, wherever it has gone.


MARK_VARIABLE = "CLAUDE_TRANSPORT_CHILD"
"""The variable that holds the mark of a child."""

SPARED_VARIABLE = "CLAUDE_TRANSPORT_ENDER"
"""A process with this variable ends other processes, such as the guard of another host. It is not killed for the number it inherited."""

_FIRST_LIMIT = 2**61
"""The smallest of our numbers: 73,000 years in microseconds, and still a number that every tool can read."""

_LIMITS = 2**60 - 93
"""How many numbers there are: a prime, so that every bit of the mark counts."""

_MOST_DESCENDANTS = 1_000
"""Descendants that are looked up through their parents. A fork bomb must not keep its host from closing."""

_MOST_BYTES = 8 * 2**20
"""Bytes of a file that are read. Linux allows 6 MiB at most, for arguments and environment together."""

_READ_AT_ONCE = 32 * 2**10


def new_mark() -> str:
    """Make a mark that no other child has."""
    return os.urandom(16).hex()


def read_file(path: str) -> bytes:
    """Return what a file of `/proc` holds. An environment is empty when there is none, and while the process is inside `execve`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(fd, _READ_AT_ONCE)]
        while chunks[-1] and len(chunks) * _READ_AT_ONCE < _MOST_BYTES:
            chunks.append(os.read(fd, _READ_AT_ONCE))
    finally:
        os.close(fd)
    return b"".join(chunks)


def environment_marks(environ: bytes) -> list[str]:
    """Return the marks in an environment: none, or one as a rule."""
    key = f"{MARK_VARIABLE}=".encode()
    if key not in environ:
        return []
    return [entry[len(key) :].decode("ascii", "replace") for entry in environ.split(b"\0") if entry.startswith(key)]


def is_spared(environ: bytes) -> bool:
    """Return True for the environment of a process that ends others."""
    return f"\0{SPARED_VARIABLE}=".encode() in b"\0" + environ


# --------------------------------------------------------------------------------------------------------- the number in a limit


def limit_of(mark: str) -> int:
    """Return the number that stands for `mark` as a resource limit."""
    return _FIRST_LIMIT + int.from_bytes(mark.encode(), "big") % _LIMITS


def carried_limit(pid: int) -> int | None:
    """Return the number of ours that the process carries; None when it has none, or when the system does not say."""
    found = _limits(pid)
    return found[0] if found is not None and found[0] >= _FIRST_LIMIT else None


def mark_limits(pid: int, mark: str) -> bool:
    """Set the number on the process and on what it has started already. Return False where the system or a limit in use forbids it."""
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


# ------------------------------------------------------------------------------------------------------------- finding them


def descendants(pid: int, *, proc: str = "/proc") -> dict[int, int]:
    """Return the processes that lead back to `pid` through their parents at this moment, with the inodes that identify them in `/proc`."""
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
    with contextlib.suppress(OSError, ValueError):  # it has ended, or this kernel does not list children
        for task in os.listdir(tasks):  # noqa: PTH208 - as above
            children += map(int, read_file(f"{tasks}/{task}/children").split())
    return children


def find_marked(mark: str, *, proc: str = "/proc", platform: str = sys.platform, read: Callable[[str], bytes] = read_file) -> list[int]:
    """Return the process ids of everything that carries `mark`; empty where that cannot be read. Looks at every process of the machine."""
    found: list[int] = []
    if not platform.startswith("linux"):
        return found
    with contextlib.suppress(OSError), os.scandir(proc) as processes:
        for process in processes:
            # other users' processes cannot be read, and processes end while they are looked at: neither is ours to signal
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = read(f"{process.path}/environ")
                    by_limit = carried_limit(int(process.name)) == limit_of(mark) and not is_spared(environ)
                    if (by_limit or mark in environment_marks(environ)) and is_running(process.path):
                        found.append(int(process.name))
    return found


def is_running(process: str) -> bool:
    """Return False for a process that has ended, also when its parent has not collected it."""
    try:
        return read_file(f"{process}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def kill_marked(mark: str) -> int:
    """Kill everything that carries `mark`, and return how many processes that were. For the rare case that no `Sweeper` can work."""
    killed = 0
    for pid in find_marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


# --- `SafePopen`: a `Popen` that leaves no process behind when it fails half-way.


_PATIENCE = 1.0
"""Seconds to wait for a process that was killed. SIGKILL takes microseconds, or for ever."""


class SafePopen(subprocess.Popen[bytes]):
    """Start a process, with the options of `Popen`. When the constructor raises, the process and the group it leads are killed first."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        try:
            super().__init__(command, **options)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        """Kill the process if there is one: it has an id from its start on, and a return code once it is collected."""
        if getattr(self, "pid", None) is None or self.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()  # it may not lead its group yet
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_PATIENCE)


logger: Logger = getLogger(__name__)

SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin:/run/current-system/profile/bin"
"""Where the programs of a system are: of every Linux and of macOS, then of NixOS and of Guix. Only the administrator writes there."""

# A line of the host is "+ MARK GROUP LIMIT" for a child that was started, and "- MARK" for one that is gone.
_SCRIPT = """
children=' '
while read -r what mark group limit; do
  case $what in
    +) children="$children$mark:$group:$limit " ;;
    -) case $children in *" $mark:"*)
         rest=${children#*" $mark:"}
         children="${children%%" $mark:"*} ${rest#* }" ;;
       esac ;;
  esac
done
[ "$children" != ' ' ] || exit 0
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
spared() { (patterns=$SPARED=; holding "/proc/$1/environ"); }
marked() {
  for digit in 1 2 3 4 5 6 7 8 9; do
    holding /proc/$digit*/environ /proc/$digit*/limits
  done | while IFS=/ read -r nothing proc pid file; do
    [ "$file" = limits ] && [ -n "$(spared "$pid")" ] || printf '%s\\n' "$pid"
  done
}
alive() {
  for child in $children; do
    group=${child#*:}
    kill -s 0 -- "-${group%:*}" && return 0
  done
  [ -n "$(marked)" ]
}
signal() {
  for child in $children; do
    group=${child#*:}
    kill -s "$1" -- "-${group%:*}"
  done
  for pid in $(marked); do kill -s "$1" "$pid"; done
}
signal TERM
tries=0
while [ $tries -lt 20 ]; do
  # twice, because the environment of a process that is just being started reads as empty
  alive || { sleep 0.2; alive || exit 0; }
  sleep 0.1
  tries=$((tries + 1))
done
signal KILL
"""

_LAST_RESORT = 0.5
"""Seconds to wait for a guard that was told to leave. It does so at once, unless something has stopped it: then it is killed."""


def guard_shell(*, platform: str = sys.platform, shell: str = "/bin/sh") -> str | None:
    """The shell a guard runs in; None where there is none (Windows has job objects, and a bare container may have no shell)."""
    if platform == "win32" or not os.access(shell, os.X_OK):
        return None
    return shell


class Guard:
    """The one that ends children whose host cannot do it any more. It lives while there are children, and is gone after the last.

    Nobody ever waits for its lock: a finaliser may run between any two lines, also of whoever holds the lock in the same thread.
    What changes is put in a queue, and whoever has the lock works the queue off before and after letting go.
    """

    def __init__(self, *, path: str = SYSTEM_PATH) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._changes: deque[tuple[str, int | None]] = deque()
        self._children: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._complained = False

    @property
    def pid(self) -> int | None:
        """The guard's process id while it lives."""
        return None if self._process is None else self._process.pid

    def watch(self, mark: str, pgid: int) -> None:
        """From now on, the group `pgid` and everything marked `mark` is ended when the host is gone."""
        self._changes.append((mark, pgid))
        self._work_off()

    def release(self, mark: str) -> None:
        """The child is gone, and everything it started."""
        self._changes.append((mark, None))
        self._work_off()

    def forget(self) -> None:
        """In a fork of the host: leave the guard to the host, whose pipe must not be held open here."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        self._changes.clear()
        self._children.clear()
        if process is not None and process.stdin is not None:
            process.returncode = 0  # not our child: nothing to wait for, and nothing to warn about
            process.stdin.close()

    def _work_off(self) -> None:
        leaving: list[subprocess.Popen[bytes]] = []
        while self._changes and self._lock.acquire(blocking=False):
            try:
                while self._changes:
                    self._apply(*self._changes.popleft(), leaving)
            finally:
                self._lock.release()
        for process in leaving:  # without the lock: somebody else may need a guard meanwhile
            for last in (process.kill, lambda: None):
                try:
                    process.wait(_LAST_RESORT)
                except subprocess.TimeoutExpired:
                    last()

    def _apply(self, mark: str, pgid: int | None, leaving: list[subprocess.Popen[bytes]]) -> None:
        if pgid is not None:
            self._children[mark] = pgid
            line = _started(mark, pgid)
        elif self._children.pop(mark, None) is not None:
            line = f"- {mark}\n"
        else:
            return
        if self._tell(line) and self._children:
            return
        self._end(leaving)
        if self._children:
            self._start()

    def _start(self) -> None:
        shell = guard_shell()
        if shell is None:
            self._complain("there is no shell for a guard: children would survive a killed host")
            return
        try:
            process = SafePopen(
                [shell, "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"PATH": self._path, "NAME": MARK_VARIABLE, "SPARED": SPARED_VARIABLE, SPARED_VARIABLE: "guard"},
                start_new_session=True,
            )
        except OSError as exc:
            self._complain(f"no guard could be started, and children would survive a killed host: {exc}")
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                os.set_blocking(process.stdin.fileno(), False)  # a guard that somebody stopped must not stop us
        self._process = process
        self._tell("".join(_started(mark, pgid) for mark, pgid in tuple(self._children.items())))

    def _tell(self, line: str) -> bool:
        """False when the guard is gone, or does not listen: then a new one is needed."""
        if self._process is None or self._process.stdin is None:
            return False
        try:
            return self._process.stdin.write(line.encode()) == len(line)
        except OSError:
            return False

    def _end(self, leaving: list[subprocess.Popen[bytes]]) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        # A guard that knows no children leaves at the end of its input; one that is to be replaced must not act on those it knows.
        if self._children:
            process.kill()
        with contextlib.suppress(OSError):
            process.stdin.close()
        leaving.append(process)

    def _complain(self, message: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s", printable(message))


def _started(mark: str, pgid: int) -> str:
    return f"+ {mark} {pgid} {limit_of(mark)}\n"


guard: Guard = Guard()
"""The guard of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guard.forget)
