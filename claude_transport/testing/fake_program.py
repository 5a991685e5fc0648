"""The files of a fake program and the journal of its runs, whatever it plays: the base of all fake agents."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.protocol.expectation import ExpectationFailed, describe_message
from claude_transport.testing.standing import Standing

STDERR_CHARS = 4000


class FakePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run of a fake program stands in its scenario, or where it has ended. `str()` says it in words.

    * `step`: the step. `waits_for`: what it waits for there, if anything. `received_last`: the last line that it had received then.
    * `cut_by`: what ended the waiting: the host has interrupted the turn, or ended the input.
    """

    step: str = ""
    waits_for: str = ""
    received_last: str = ""
    cut_by: str = ""

    def __str__(self) -> str:
        text = self.step or "started"
        if self.cut_by:
            return f"{text}: waiting for {self.waits_for or 'nothing'} until {self.cut_by} came"
        return f"{text}: waiting for {self.waits_for}" if self.waits_for else text


class FakeCall(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a fake program: how it was started, what it has received, and how it ended. `calls()` of the fake returns it.

    * `argv`: the arguments that the host added. `cwd`: its working directory.
    * `env`: the values of the variables in `record_env`. `env_names`: the names of all variables.
    * `stdin`: the received lines (at most 1 MiB of each; undecodable bytes as `\\xNN`).
    * `signals`: the numbers of the signals that it has caught. `grandchildren`: ids of the processes that it has started.
    * `exit_code`: None while the process runs, and after a death by signal. `killed_by`: the signal number of a `DieBySignal` step.
    * `stderr`: the end of what it has written to standard error. `place`: where it stands. `failure`: what the host has done against the
      scenario, or why a step could not be played.
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
    stderr: str = ""
    place: FakePlace = FakePlace()
    failure: ExpectationFailed | None = None
    counts: bool = True
    turns_played: int = 0
    is_done: bool = False

    @property
    def has_ended(self) -> bool:
        """True when the run has ended by itself or by a signal that it has caught; a killed one cannot say so."""
        return self.exit_code is not None or self.killed_by is not None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The lines that this run has received and that are JSON objects, decoded, in order."""
        decoded = [_decoded(line) for line in self.stdin]
        return [message for message in decoded if isinstance(message, dict)]


Call = TypeVar("Call", bound=FakeCall)


class FakeProgram:
    """A private directory with scenarios, a program that plays them, and the journal of its runs.

    With `repeats`, every start plays the only scenario; otherwise each start plays the next one.
    """

    def __init__(
        self,
        scenarios: Sequence[msgspec.Struct],
        *,
        repeats: bool,
        name: str,
        player: Path,
        record_env: Sequence[str],
        python: str,
        strict: bool = False,
    ) -> None:
        if isinstance(record_env, str):
            raise ConfigurationError(f"{type(self).__name__}: record_env is a list of names, not a text", option="record_env")
        self._name = name
        self._directory = Path(tempfile.mkdtemp(prefix=f"fake-{name}-"))
        # bound to the class, not to self: the files of `FakeClaude(…).command` must outlive that object
        self._remove = weakref.finalize(type(self), shutil.rmtree, self._directory, ignore_errors=True)
        (self._directory / "journal").mkdir()
        (self._directory / "starts").mkdir()
        play_file = {"scenarios": list(scenarios), "repeats": repeats, "record_env": list(record_env), "strict": strict}
        (self._directory / "scenario.json").write_bytes(msgspec.json.encode(play_file))
        # -I and -S: the environment and installed packages must not change the fake or slow it down
        self._command = [python, "-I", "-S", str(player), str(self._directory)]
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

    def __fspath__(self) -> str:
        """Return `path` as a str, so that the fake itself can be given where a path is wanted.

        Raises `UsageError` after `close()`.
        """
        return str(self.path)

    def _write_executable(self) -> Path:
        # a shell line, because a shebang with the interpreter would be cut at 127 bytes and split at spaces
        if os.name == "nt":
            path = self._directory / f"{self._name}.cmd"
            path.write_text("@" + " ".join(f'"{word}"' for word in self._command) + " %*\r\n", "utf-8")
        else:
            path = self._directory / self._name
            path.write_text(f'#!/bin/sh\nexec {shlex.join(self._command)} "$@"\n', "utf-8")
            path.chmod(0o700)
        return path

    def open_gate(self, name: str) -> None:
        """Let every step `WaitForFile(name)` of the scenario continue, in runs that wait at it now and in those that reach it later.

        Raises `UsageError` after `close()`.
        """
        self.directory.joinpath(name).touch()

    def _calls(self, kind: type[Call]) -> list[Call]:
        runs = [_read_run(path, kind) for path in sorted(self.directory.joinpath("journal").iterdir())]
        return [run for run in runs if run is not None]

    def standings_of(self, calls: Sequence[FakeCall], *, leftover: ExpectationFailed | None) -> list[Standing]:
        """Return where this fake stands, as one `Standing` in a list. `calls` are its runs, `leftover` is what none of them has played."""
        last = calls[-1] if calls else None
        received = "" if last is None else last.place.received_last
        return [
            Standing(
                name=f"fake {self._name}",
                whereabouts="never started" if last is None else f"run {len(calls)}, {last.place}",
                received_last=describe_message(_decoded(received)) if received else "",
                calls=tuple(_described(number, call) for number, call in enumerate(calls, 1)),
                stderr="" if last is None else last.stderr,
                failure=next((call.failure for call in calls if call.failure is not None), None),
                leftover=leftover,
                is_over=bool(calls) and all(call.has_ended for call in calls),
            )
        ]

    def close(self) -> None:
        """Delete the private directory with the program and its journal. A second call does nothing.

        Runs that are still alive are not ended.
        """
        self._remove()

    def _check_open(self) -> None:
        if not self._remove.alive:
            raise UsageError(f"this {type(self).__name__} is closed and its files are deleted; make a new one")

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


def _read_run(path: Path, kind: type[Call]) -> Call | None:
    events = [event for event in (_decoded(line) for line in path.read_text("utf-8").splitlines()) if isinstance(event, dict)]
    if not events:
        return None  # the run is just starting
    start = events[0]
    of_kind: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        of_kind.setdefault(event["event"], []).append(event)
    return kind(
        pid=start["pid"],
        argv=start["argv"],
        cwd=start["cwd"],
        env_names=start["env_names"],
        env=start["env"],
        stdin=[event["line"] for event in of_kind.get("stdin", ())],
        signals=[event["number"] for event in of_kind.get("signal", ())],
        grandchildren=[event["pid"] for event in of_kind.get("grandchild", ())],
        exit_code=of_kind["exit"][-1]["code"] if "exit" in of_kind else None,
        killed_by=of_kind["dies"][-1]["signal"] if "dies" in of_kind else None,
        stderr="".join(event["text"] for event in of_kind.get("stderr", ()))[-STDERR_CHARS:],
        place=_read_place(events),
        failure=_failure_of(of_kind.get("failed", ())),
        counts=start.get("counts", True),
        turns_played=len(of_kind.get("turn", ())),
        is_done="done" in of_kind,
    )


def _read_place(events: Sequence[dict[str, Any]]) -> FakePlace:
    """Return where a run stands. After the host has cut it short, that is where it stood, until another prompt comes."""
    place = FakePlace()
    before = ""
    for event in events:
        match event["event"]:
            case "at" if not place.cut_by:
                place = msgspec.structs.replace(place, step=event["place"], waits_for=event["waits_for"])
            case "cut" if not place.cut_by:
                place = msgspec.structs.replace(place, cut_by=event["by"], received_last=before)
            case "stdin":
                before = place.received_last
                is_prompt = '"user"' in event["line"]
                if is_prompt or not place.cut_by:
                    place = msgspec.structs.replace(place, received_last=event["line"], cut_by="" if is_prompt else place.cut_by)
    return place


def _described(number: int, call: FakeCall) -> str:
    """Describe one run in a line: its arguments, what it has received, and how it ended."""
    end = "no exit code: it runs, or was killed"
    if call.killed_by is not None:
        end = f"signal {call.killed_by}"
    elif call.exit_code is not None:
        end = f"exit code {call.exit_code}"
    return f"run {number}: {end}; {len(call.stdin)} lines received; arguments {shlex.join(call.argv) or 'none'}"


def _failure_of(events: Sequence[dict[str, Any]]) -> ExpectationFailed | None:
    return next((ExpectationFailed.at(event["place"], expected=event["expected"], actual=event["actual"]) for event in events), None)
