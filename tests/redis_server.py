"""A real redis-server of one test, on loopback, without a file."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
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


@contextmanager
def redis_server(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """A running server; its URL. It has answered once when this begins, and is gone when it ends."""
    port = port or free_port()
    folder.mkdir(exist_ok=True)
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder), "--daemonize", "no"]
    process = subprocess.Popen([redis_program(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        for line in process.stdout:  # bounded by the time of the test
            if b"Ready to accept connections" in line:
                break
        else:
            raise AssertionError("redis-server did not start")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
