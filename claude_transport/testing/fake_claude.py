"""`FakeClaude`: an executable that speaks the CLI's protocol and plays a scenario, faults included.

Owns the files of a fake and the journal of its runs. Scenarios are in `scenario`, the program itself is in `fake_claude_process`.
"""

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
    """One run of a `FakeClaude`: how it was started, what it has received, and how it ended. `FakeClaude.calls()` returns it.

    * `argv`: the arguments that the host added. `cwd`: its working directory.
    * `env`: the values of the variables in `record_env`. `env_names`: the names of all variables.
    * `stdin`: the received lines (at most 1 MiB of each; undecodable bytes as `\\xNN`).
    * `signals`: the numbers of the signals that it has caught. `grandchildren`: ids of the processes that it has started.
    * `exit_code`: None while the process runs, and after a death by signal. `killed_by`: the signal number of a `DieBySignal` step.
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
        """The lines that this run has received and that are JSON objects, decoded, in order."""
        decoded = [_decoded(line) for line in self.stdin]
        return [message for message in decoded if isinstance(message, dict)]

    @property
    def prompts(self) -> list[Any]:
        """The `content` of every user message that this run has received, in order: a text, or a list of content blocks."""
        return [message["message"]["content"] for message in self.messages if message.get("type") == "user"]

    def requests(self, subtype: str) -> list[dict[str, Any]]:
        """Return the `request` object of every control request of this `subtype` that this run has received, in order."""
        bodies = [message.get("request") for message in self.messages if message.get("type") == "control_request"]
        return [body for body in bodies if isinstance(body, dict) and body.get("subtype") == subtype]


class FakeClaude:
    """Makes a program that behaves like the CLI and plays `scenario`, to test with instead of `claude`. It needs no network and no key.

    Pass its `command` to a transport, or its `path` as `cli_path`. Every run plays the scenario from the start; `calls()` tells what each
    run has received. Its files are in a private directory, which is deleted by `close()`, at the end of the `with` block, or when the
    interpreter exits. Closing ends no process.

    Args:
        scenario: what every run does.
        record_env: names of environment variables whose values `calls()` shows; of the others it shows only the names.
        python: the Python interpreter that runs the program.

    Raises:
        ConfigurationError: `scenario` is not a `Scenario`.
    """

    def __init__(self, scenario: Scenario, *, record_env: Sequence[str] = (), python: str = sys.executable) -> None:
        if not isinstance(scenario, Scenario):
            raise ConfigurationError(f"FakeClaude: {type(scenario).__name__} is not a Scenario", option="scenario")
        self.scenario = scenario
        self._directory = Path(tempfile.mkdtemp(prefix="fake-claude-"))
        # bound to the class, not to self: the files of `FakeClaude(…).command` must outlive that object
        self._remove = weakref.finalize(FakeClaude, shutil.rmtree, self._directory, ignore_errors=True)
        (self._directory / "journal").mkdir()
        (self._directory / "scenario.json").write_bytes(msgspec.json.encode({"scenario": scenario, "record_env": list(record_env)}))
        # -I and -S: the environment and installed packages must not change the fake or slow it down
        self._command = [python, "-I", "-S", str(PLAYER), str(self._directory)]
        self._path = self._write_executable()

    @property
    def directory(self) -> Path:
        """The private directory of this fake. Relative paths in the steps of the scenario start here.

        Raises `UsageError` after `close()`.
        """
        self._check_open()
        return self._directory

    @property
    def command(self) -> list[str]:
        """The command line that starts a run of the fake, program first. It accepts any further flags and records them.

        Raises `UsageError` after `close()`.
        """
        self._check_open()
        return list(self._command)

    @property
    def path(self) -> Path:
        """The path of an executable file that starts a run of the fake, for arguments such as `cli_path`.

        Raises `UsageError` after `close()`.
        """
        self._check_open()
        return self._path

    def _write_executable(self) -> Path:
        # a shell line, because a shebang with the interpreter would be cut at 127 bytes and split at spaces
        if os.name == "nt":
            path = self._directory / "claude.cmd"
            path.write_text("@" + " ".join(f'"{word}"' for word in self._command) + " %*\r\n", "utf-8")
        else:
            path = self._directory / "claude"
            path.write_text(f'#!/bin/sh\nexec {shlex.join(self._command)} "$@"\n', "utf-8")
            path.chmod(0o700)
        return path

    def open_gate(self, name: str) -> None:
        """Let every step `WaitForFile(name)` of the scenario continue, in runs that wait at it now and in those that reach it later.

        Raises `UsageError` after `close()`.
        """
        self.directory.joinpath(name).touch()

    def calls(self) -> list[FakeClaudeCall]:
        """Return what every run of the fake has received and done so far, one `FakeClaudeCall` for each run, the first run first.

        Raises `UsageError` after `close()`.
        """
        runs = [_read_run(path) for path in sorted(self.directory.joinpath("journal").iterdir())]
        return [run for run in runs if run is not None]

    def close(self) -> None:
        """Delete the private directory with the program and its journal. A second call does nothing.

        Runs that are still alive are not ended.
        """
        self._remove()

    def _check_open(self) -> None:
        if not self._remove.alive:
            raise UsageError("this FakeClaude is closed and its files are deleted; make a new one")

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
        return None  # the run is just starting
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
