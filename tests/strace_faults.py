"""Let every system call of a session fail, one after the other: `strace_faults.py [WORKLOAD ...]`. Needs `strace` and Linux.

It is the same host as in `test_faults.py`, and the same is asked of it. But the calls fail in the kernel: also those that are made in C,
and those of the child, which then dies in a way that has to be told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from test_faults import HOST, WORKLOADS, is_wrong

CALLS = {
    "openat": "EMFILE",
    "pipe2": "EMFILE",
    "pidfd_open": "EMFILE",
    "epoll_create1": "EMFILE",
    "epoll_ctl": "ENOSPC",
    "clone,clone3,fork,vfork": "EAGAIN",
    "execve": "ENOMEM",
    "read": "EIO",
    "write": "ENOSPC",
    "mkdir,mkdirat": "ENOSPC",
    "unlink,unlinkat": "EACCES",
    "rmdir": "EBUSY",
    "getdents64": "EIO",
    "ioctl": "ENOTTY",
}
"""System calls, and how they fail. A `close` or `kill` that does nothing would leave something by itself."""
MOST = 100
"""The last call of each kind that fails. A search through `/proc` makes as many as there are processes."""


class Host:
    """A `fault_host.py` that runs one workload again and again, each time in a fork to which an strace is attached."""

    def __init__(self, backend: str, workload: str, folder: Path) -> None:
        command = [sys.executable, HOST, backend, workload, "0", "0"]
        environ = {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, bufsize=0)
        self.log = folder / "strace.log"

    def hear(self, last: str) -> list[tuple[str, Any]]:
        """What the host says, up to and with `last`."""
        assert self.process.stdout is not None
        heard: list[tuple[str, Any]] = []
        while not heard or heard[-1][0] != last:
            name, value = json.loads(self.process.stdout.readline())
            heard.append((name, value))
        return heard

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b".")

    def run(self, call: str, error: str, number: int) -> list[tuple[str, Any]] | None:
        """What the workload says when call `number` of each of its processes and threads fails; None when there is none."""
        self.tell()
        _, pid = self.hear("ready")[-1]
        inject = f"inject={call}:error={error}:when={number}"
        command = ["strace", "-f", "-o", self.log, "-e", f"trace={call}", "-e", inject, "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            said = strace.stderr.readline()
            assert "attached" in said, said
            self.tell()
            heard = self.hear("over")
            strace.terminate()
        return heard if "INJECTED" in self.log.read_text(errors="replace") else None


def what_is_wrong(heard: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """What a run must not say. After the workload, the call that fails is one of the test itself: then only what is left counts."""
    if any("TrioInternalError" in str(value) for _, value in heard):
        return []  # the event loop itself has broken: it cannot do without its own descriptors
    names = [name for name, _ in heard]
    if "done" not in names:
        return heard
    workload, afterwards = heard[: names.index("done")], heard[names.index("done") :]
    return [*(step for step in workload if is_wrong(*step)), *(step for step in afterwards if step[0] == "left")]


def main(workloads: list[str]) -> int:
    failures = 0
    for workload in workloads or WORKLOADS:
        for backend in ("asyncio", "trio"):
            with tempfile.TemporaryDirectory() as folder:
                host = Host(backend, workload, Path(folder))
                for call, error in CALLS.items():
                    number = 1
                    while (heard := host.run(call, error, number)) is not None and number < MOST:
                        if wrong := what_is_wrong(heard):
                            failures += 1
                            print(f"{workload} on {backend}: {call} number {number} fails with {error}: {wrong}", flush=True)
                        number += 1
                    print(f"{workload} on {backend}: {number - 1} of {call}", flush=True)
                assert host.process.stdin is not None
                host.process.stdin.close()
                host.process.wait()
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
