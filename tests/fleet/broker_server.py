"""`BrokerServer`: a real redis-server with a file or without one, which a test kills and starts again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis_server import free_port, redis_program


class BrokerServer:
    """A server on one port. `kill()` is a `kill -9`; what it has on disk stays."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(exist_ok=True)

    def start(self) -> None:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder), "--daemonize", "no"]
        where += ["--repl-diskless-sync-delay", "0"]  # else it waits five seconds before it serves a replica
        self._process = subprocess.Popen([redis_program(), *where, *self._arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:  # bounded by the time of the test
            said.append(line)
            if b"Ready to accept connections" in line:
                return
        raise AssertionError(b"".join(said).decode())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def file(self) -> Path:
        """The append-only file."""
        (newest,) = self.folder.glob("appendonlydir/*.incr.aof")
        return newest

    def cut_file(self, size: int, *, kept: int = 0) -> None:
        """Take `size` bytes from the end of the append-only file, as a power cut does, but leave the first `kept` ones."""
        whole = self.file.read_bytes()
        self.file.write_bytes(whole[: max(len(whole) - size, kept)])


@contextmanager
def broker_server(folder: Path, *arguments: str) -> Iterator[BrokerServer]:
    """A running server, which is gone when the block ends."""
    server = BrokerServer(folder, *arguments)
    server.start()
    try:
        yield server
    finally:
        server.kill()
