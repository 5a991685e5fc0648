"""`ask_cli_version`: the version of a binary that no file tells, asked of the binary itself, once for each state of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Mapping
from os import PathLike
from typing import Final

from claude_transport.launch.discovery import CLI, CLIState, read_cli_state, read_cli_version, remember_cli_version

__all__ = ["PROBE_TIMEOUT", "ask_cli_version"]

PROBE_TIMEOUT: Final = 5.0
"""Seconds that `claude --version` gets. It takes 10 ms (docs/reference/protocol.md#timing), and 300 ms from a slow disk."""

_KILL_TIMEOUT: Final = 1.0  # seconds for a killed process to be gone
_LONGEST_ANSWER: Final = 200  # bytes; "2.1.330 (Claude Code)" has 21
_ANSWER: Final = re.compile(rb"(\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[\w.]{1,40})?)\s+\(Claude Code\)")

_asked: Final[set[CLIState]] = set()
_lock: Final = threading.Lock()


def ask_cli_version(cli: CLI | str | PathLike[str], *, env: Mapping[str, str] | None = None) -> str | None:
    """Return the version of a binary: what `read_cli_version` knows, else what `claude --version` says; None when neither tells.

    It blocks, for `PROBE_TIMEOUT` seconds at most, so call it in a worker thread. One state of a binary (path, time of modification, size)
    is asked once in this process, whatever it answers. `env` is the environment of that process.
    """
    known = read_cli_version(cli)
    state = read_cli_state(cli)
    if known is not None or state is None:
        return known
    with _lock:  # of two threads, the second waits for the answer of the first
        if state not in _asked:
            _asked.add(state)
            version = _run(state[0], env)
            if version is not None and read_cli_state(cli) == state:
                remember_cli_version(cli, version)
    return read_cli_version(cli)


def _run(path: str, env: Mapping[str, str] | None) -> str | None:
    """Run it. The answer goes through a file: a grandchild that holds a pipe open could keep its reader waiting."""
    import subprocess  # most processes need neither
    import tempfile

    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                [path, "--version"],
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError):
            return None  # connecting says what is wrong with it
        try:
            child.wait(PROBE_TIMEOUT)
        except subprocess.TimeoutExpired:
            _kill_group(child.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_KILL_TIMEOUT)
            return None
        output.seek(0)
        match = _ANSWER.search(output.read(_LONGEST_ANSWER))
    return None if match is None else match[1].decode()


def _kill_group(pid: int) -> None:
    """Kill the child and everything that it started. It was not collected yet, so the number is still its own."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
