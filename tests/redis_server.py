"""A real redis-server of one test, on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def redis_program() -> str:
    """The path of the server. The test is skipped where it is missing, but not where CI is set."""
    found = shutil.which("redis-server")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("redis-server is not installed; .ci/run installs it")
        pytest.skip("redis-server is not installed")
    return found


class RedisServer:
    """A server that can be killed and started again, on the same port. With `durable`, what it has acknowledged is in a file."""

    def __init__(
        self, folder: Path, *, port: int | None = None, durable: bool = False, settings: Sequence[str] = (), tls: bool = False
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.port = port or free_port()
        self.url = f"redis{'s' * tls}://127.0.0.1:{self.port}/0"
        ports = ["--port", "0", "--tls-port", str(self.port)] if tls else ["--port", str(self.port)]
        self._command = [redis_program(), *ports, "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
        self._command += ["--save", "", "--appendonly", "yes" if durable else "no", "--appendfsync", "always", *settings]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        self._process = process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        for line in process.stdout:  # bounded by the time of the test
            if b"Ready to accept connections" in line:
                return
        self.kill()
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        """End it with SIGKILL, wherever it is."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def redis_server(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """A running server; its URL. It has answered once when this begins, and is gone when it ends."""
    server = RedisServer(folder, port=port)
    try:
        server.start()
        yield server.url
    finally:
        server.kill()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
