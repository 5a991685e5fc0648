"""`FakeClaude`: an executable that speaks the CLI's protocol and does exactly what its scenario says, faults included."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing.scenario import Scenario

PLAYER = Path(__file__).parent / "fake_claude_process" / "__main__.py"


class FakeClaudeCall(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a fake claude, from its journal.

    `argv` is what the host appended, `env` the values of the variables that were asked for, `stdin` the lines received (at most
    1 MiB of each, undecodable bytes as `\\xNN`), `grandchildren` pids. `exit_code` is None while it runs, and after a death by signal;
    `killed_by` is the signal number of a `DieBySignal` step, `signals` are the numbers of the signals that were caught.
    """

    pid: int
    argv: list[str]
    cwd: str
    env_names: list[str]
    env: dict[str, str]
    stdin: list[str]
    signals: list[int]
    grandchildren: list[int]
    exit_code: int | None
    killed_by: int | None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The received lines that are JSON objects, decoded."""
        decoded = [_decoded(line) for line in self.stdin]
        return [message for message in decoded if isinstance(message, dict)]

    @property
    def prompts(self) -> list[Any]:
        """The content of every user message received."""
        return [message["message"]["content"] for message in self.messages if message.get("type") == "user"]

    def requests(self, subtype: str) -> list[dict[str, Any]]:
        """The `request` of every control request of this subtype received."""
        bodies = [message.get("request") for message in self.messages if message.get("type") == "control_request"]
        return [body for body in bodies if isinstance(body, dict) and body.get("subtype") == subtype]


class FakeClaude:
    """A real program to test with instead of `claude`: give its `command` to a transport, or its `path` as `cli_path`.

    Every run plays `scenario` from the start. `record_env` names the environment variables whose values the journal keeps; of all others
    only the names. What the fake needs lies in a private directory, removed by `close()`, at the end of the `with` block, or at interpreter
    exit; it does not end processes, their owner does. Raises `ConfigurationError` when `scenario` is not a `Scenario`.
    """

    def __init__(self, scenario: Scenario, *, record_env: Sequence[str] = (), python: str = sys.executable) -> None:
        if not isinstance(scenario, Scenario):
            raise ConfigurationError(f"FakeClaude plays a Scenario, not {type(scenario).__name__}", option="scenario")
        self.scenario = scenario
        self._directory = Path(tempfile.mkdtemp(prefix="fake-claude-"))
        # bound to the class, not to self: FakeClaude(…).command must outlive the object it was taken from
        self._remove = weakref.finalize(FakeClaude, shutil.rmtree, self._directory, ignore_errors=True)
        (self._directory / "journal").mkdir()
        (self._directory / "scenario.json").write_bytes(msgspec.json.encode({"scenario": scenario, "record_env": list(record_env)}))
        # -I and -S: neither the environment nor installed packages can slow it down or change it
        self._command = [python, "-I", "-S", str(PLAYER), str(self._directory)]
        self._path = self._write_executable()

    @property
    def directory(self) -> Path:
        """The private directory that relative paths in the scenario's steps refer to."""
        self._check_open()
        return self._directory

    @property
    def command(self) -> list[str]:
        """The argv that plays the scenario; whatever flags are appended are accepted and journaled."""
        self._check_open()
        return list(self._command)

    @property
    def path(self) -> Path:
        """An executable file (mode 0700) that does the same, for everything that wants one path, such as `cli_path`."""
        self._check_open()
        return self._path

    def _write_executable(self) -> Path:
        # a shell line instead of a shebang with the interpreter: those are cut at 127 bytes and split at spaces
        if os.name == "nt":
            path = self._directory / "claude.cmd"
            path.write_text("@" + " ".join(f'"{word}"' for word in self._command) + " %*\r\n", "utf-8")
        else:
            path = self._directory / "claude"
            path.write_text(f'#!/bin/sh\nexec {shlex.join(self._command)} "$@"\n', "utf-8")
            path.chmod(0o700)
        return path

    def open_gate(self, name: str) -> None:
        """Lets every `WaitForFile(name)` step pass."""
        self.directory.joinpath(name).touch()

    def calls(self) -> list[FakeClaudeCall]:
        """What every run did so far, in the order they started."""
        runs = [_read_run(path) for path in sorted(self.directory.joinpath("journal").iterdir())]
        return [run for run in runs if run is not None]

    def close(self) -> None:
        """Removes the directory; safe to call again."""
        self._remove()

    def _check_open(self) -> None:
        if not self._remove.alive:
            raise UsageError("this FakeClaude is closed: its files are gone")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _read_run(path: Path) -> FakeClaudeCall | None:
    events = [event for event in (_decoded(line) for line in path.read_text("utf-8").splitlines()) if isinstance(event, dict)]
    if not events:
        return None  # it is starting just now
    start = events[0]
    of_kind = {kind: [event for event in events if event["event"] == kind] for kind in ("stdin", "signal", "grandchild", "exit", "dies")}
    return FakeClaudeCall(
        pid=start["pid"],
        argv=start["argv"],
        cwd=start["cwd"],
        env_names=start["env_names"],
        env=start["env"],
        stdin=[event["line"] for event in of_kind["stdin"]],
        signals=[event["number"] for event in of_kind["signal"]],
        grandchildren=[event["pid"] for event in of_kind["grandchild"]],
        exit_code=of_kind["exit"][-1]["code"] if of_kind["exit"] else None,
        killed_by=of_kind["dies"][-1]["signal"] if of_kind["dies"] else None,
    )
