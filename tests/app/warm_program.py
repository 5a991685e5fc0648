"""A process that has imported the program, and forks for each run of it: a run costs a hundredth of a start with all its imports.

Run as a script, this is that process. What runs in a fork is `main` with the arguments, environment, folder and streams of the caller, and
it ends as the interpreter ends. Tests of the start itself, and of the streams of a terminal, start the program in the usual way.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

WARM = (
    "anthropic",
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "rich.console",
    "claude_transport.app.ask",
    "claude_transport.app.doctor",
    "claude_transport.app.main",
    "claude_transport.completion",
    "claude_transport.testing.fake_messages_api",
)

_MOST = 2**20
"""Bytes of one request."""


class WarmProgram:
    """Starts the process, and asks it for runs. `close()` ends it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-W", "error", __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(argv, env=dict(env), pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(
        self, argv: Sequence[str], *, stdin: bytes, env: Mapping[str, str], cwd: Path | None, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `claude-transport` with these arguments, and return what `subprocess.run` would."""
        ours, theirs = zip(*(os.pipe() if number else os.pipe()[::-1] for number in range(3)), strict=True)
        status, answering = socket.socketpair()
        with answering, self._lock:
            request = json.dumps({"argv": list(argv), "env": dict(env), "cwd": os.fspath(cwd or Path.cwd())}).encode()
            socket.send_fds(self._requests, [request], [*theirs, answering.fileno()])
        for each in theirs:
            os.close(each)
        said = [b"", b""]

        def read(number: int) -> None:
            with open(ours[number + 1], "rb") as stream:  # noqa: PTH123 - a descriptor
                said[number] = stream.read()

        readers = [threading.Thread(target=read, args=(number,)) for number in range(2)]
        for reader in readers:
            reader.start()
        with status, status.makefile("r") as answer:
            status.settimeout(timeout)
            pid = int(answer.readline())
            try:
                try:
                    with open(ours[0], "wb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
                        stream.write(stdin)
                except BrokenPipeError:
                    pass  # it has not read its input, as with `subprocess.run`
                code = int(answer.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(argv), timeout) from None
        for reader in readers:
            reader.join(timeout)
        return subprocess.CompletedProcess(list(argv), code, *said)

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Return its arguments in the process that is to run the program, and None at the end of the requests."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that report
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _MOST, 4)
        if not request:
            return None
        if os.fork():
            for each in descriptors:
                os.close(each)
            continue
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        report(descriptors.pop(), descriptors)
        for number, each in enumerate(descriptors):
            os.dup2(each, number)
            os.close(each)
        about = json.loads(request)
        os.environ.clear()
        os.environ.update(about["env"])
        os.chdir(about["cwd"])
        arguments: list[str] = about["argv"]
        return arguments


def report(descriptor: int, streams: Sequence[int]) -> None:
    """Fork once more. Return in the child; here, say its id and at last its exit code, and end."""
    status = socket.socket(fileno=descriptor)
    if not (pid := os.fork()):
        status.close()
        return
    for each in streams:
        os.close(each)  # they end when the program ends
    status.sendall(b"%d\n" % pid)
    _, how = os.waitpid(pid, 0)
    status.sendall(b"%d\n" % os.waitstatus_to_exitcode(how))
    os._exit(0)


def warm() -> None:
    """Import what most runs need."""
    for name in WARM:
        importlib.import_module(name)


if __name__ == "__main__":
    warm()
    gc.freeze()  # the collector leaves alone what every fork has
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        asked = serve(listening)
    if asked is not None:
        sys.argv[1:] = asked
        sys.argv[0] = "claude-transport"
        from claude_transport.app.main import main

        sys.exit(main())
