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
import subprocess
import sys
import threading
from collections import deque
from logging import Logger, getLogger

from claude_transport.printable import printable
from claude_transport.streams.birth import SafePopen
from claude_transport.streams.marking import MARK_VARIABLE, SPARED_VARIABLE, limit_of

__all__ = ["SYSTEM_PATH", "Guard", "guard", "guard_shell"]

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
