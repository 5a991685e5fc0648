"""`TapeShelf`: what the fixture `claude_tape` gives to a test: it replays or records the tapes of the test, as the mode says.

A transport of the test's own process is replayed or recorded here. For any other host, `cli_path()` makes an executable that does it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.launch.discovery import find_cli
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import Tape, tape_number
from claude_transport.protocol.tape_comparison import check_match
from claude_transport.testing.stand_in import VARIABLE, WORDS
from claude_transport.testing.stand_in.player import Met, read_notes
from claude_transport.testing.stand_in.tee import INCOMPLETE
from claude_transport.testing.standing import Standing
from claude_transport.transport import Transport, TransportLike
from claude_transport.transports.replay import ReplayTransport
from claude_transport.wrappers.recording import RecordingTransport, options_of

MODES: dict[str, str] = {
    "none": "replay only; a missing tape fails the test",
    "once": "record missing tapes, replay the others",
    "new": "as once, and record again tapes that cannot be replayed: torn, unreadable, of a newer format",
    "all": "record every tape again; keep the old one when the test fails",
    "rewrite": "as all, but delete the old tape first",
}
"""The modes of `--claude-record`, each with a sentence on what it does."""

_PATIENCE = 5.0  # seconds for a recorder to end a claude whose tee was killed, and to write the rest
_HERE = Path(__file__).parent / "stand_in"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Opener = Callable[[], TransportLike] | TransportLike


def mode_from_environment(environ: Mapping[str, str] | None = None) -> str:
    """Return the mode that `CLAUDE_TRANSPORT_TAPES` names; `none` when it is not set. Raises `ConfigurationError` for another word."""
    word = (os.environ if environ is None else environ).get(VARIABLE, "") or "none"
    if word not in WORDS:
        raise ConfigurationError(f"{VARIABLE} is {word!r}; set it to one of {', '.join(WORDS)}", option=VARIABLE)
    return WORDS[word]


class TapeMissing(ConfigurationError):
    """There is no tape to replay at `path`. The message contains the command that records it."""

    code = "testing.tape_missing"

    def __init__(self, message: str = "", *, path: str = "", command: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.path = path
        self.command = command


class TapeShelf:
    """Call it with a function that makes the real transport. It returns a transport that replays a tape, or records one.

    Args:
        folder: the folder of the tapes.
        name: the name of the tape when a call gives none.
        mode: one of `MODES`.
        command: the command that records missing tapes, for error messages.
        strict: replays are strict, as in the fixture (`ReplayTransport`).
    """

    def __init__(self, folder: Path, *, name: str, mode: str = "none", command: str = "", strict: bool = False) -> None:
        if mode not in MODES:
            raise ConfigurationError(f"{mode!r} is not a recording mode; use one of {', '.join(MODES)}", option="mode")
        self._folder = folder
        self._name = name
        self._mode = mode
        self._command = command
        self._strict = strict
        self._recorders: dict[Path, RecordingTransport] = {}
        self._replays: list[_Replay] = []
        self._stand_ins: list[_StandIn] = []
        self._path_before: str | None = None

    def __call__(self, open_transport: Opener, *, name: str | None = None, match: Iterable[str] = ()) -> Transport:
        """Return a transport that replays the tape called `name`, or records it from the real transport.

        `open_transport` makes the real transport, or is one. It is not called when the tape is replayed, unless `match` has `options`: then
        its options are compared with the recorded ones. The other names in `match` are those of `ReplayTransport`.

        Raises:
            TapeMissing: there is no tape, and the mode does not record one.
            ConfigurationError: the tape cannot be read.
            UsageError: the test has used this name before.
        """
        path = self.path(name)
        wanted = check_match(match)
        if not self._must_record(path):
            replay = _Replay(path, match=wanted, strict=self._strict)
            if "options" in wanted:
                real = open_transport() if callable(open_transport) else open_transport
                replay.assert_same_options(options_of(real))
            self._replays.append(replay)
            return replay
        self._make_room(path)
        inside = open_transport() if callable(open_transport) else open_transport
        recorder = RecordingTransport(inside, path.with_name(f".{path.name}.{os.getpid()}.recording"))
        self._recorders[path] = recorder
        return recorder

    def cli_path(
        self,
        real: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        match: Iterable[str] = (),
        on_path: bool = False,
    ) -> Path:
        """Return the path of an executable for any host, which replays the tape called `name`, or records it from the `claude` at `real`.

        Each start of the executable has a tape of its own: `name.ndjson`, `name.2.ndjson` and so on. A host that deviates from its tape
        gets exit code 2 and a diff on standard error, and the test fails with the same diff.

        Args:
            real: the `claude` to record; by default the one that `find_cli` finds. It is not looked for when the tape is replayed.
            name: the name of the tape; by default that of the test.
            match: what must be the same as on the tape, as for `ReplayTransport`; `options` is the command line, too.
            on_path: put the folder of the executable, whose name is `claude`, first on `PATH` of this process until the test ends.

        Raises:
            TapeMissing: there is no tape, and the mode does not record one.
            CLINotFoundError: there is no `claude` to record.
            ConfigurationError: the system is not POSIX.
            UsageError: the test has used this name before.
        """
        if os.name != "posix":
            raise ConfigurationError("cli_path() makes a POSIX executable; use claude_tape(...) with a transport here", option="cli_path")
        path = self.path(name)
        wanted = check_match(match)
        stand_in = _StandIn(path, records=self._must_record(path))
        try:
            if stand_in.records:
                self._make_room(path)
                stand_in.write([*_TEE, str(stand_in.folder / path.name), "--", find_cli(real).path])
            else:
                stand_in.write([*_PLAYER, str(path.absolute()), str(stand_in.folder), ",".join(sorted(wanted)), "--"])
        except BaseException:
            stand_in.remove()
            raise
        self._stand_ins.append(stand_in)
        if on_path:
            before = os.environ.get("PATH", "")
            self._path_before = before if self._path_before is None else self._path_before
            os.environ["PATH"] = f"{stand_in.executable.parent}{os.pathsep}{before}"
        return stand_in.executable

    def _make_room(self, path: Path) -> None:
        if self._mode == "rewrite":
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)

    def path(self, name: str | None = None) -> Path:
        """Return the path of the tape called `name`, whether it exists or not."""
        return self._folder / f"{_UNSAFE.sub('-', name or self._name).strip('-.') or 'tape'}.ndjson"

    @property
    def is_recording(self) -> bool:
        """True when at least one tape is being recorded."""
        return bool(self._recorders) or any(stand_in.records for stand_in in self._stand_ins)

    def finish(self, *, passed: bool) -> Sequence[Path]:
        """Move the recorded tapes to their places if the test passed, else delete them. Returns the paths of the kept tapes.

        Raises:
            ExpectationFailed: the test passed, but a tape was not replayed to its end; or a host deviated from the tape of `cli_path()`.
            TapeMissing: a host has started the executable of `cli_path()` once more than there are tapes.
            ConfigurationError: a recording failed, or its transport was not closed.
        """
        if self._path_before is not None:
            os.environ["PATH"] = self._path_before
        try:
            return [*self._finish_transports(passed=passed), *self._finish_stand_ins(passed=passed)]
        finally:
            for stand_in in self._stand_ins:
                stand_in.remove()

    def _finish_stand_ins(self, *, passed: bool) -> Iterator[Path]:
        for stand_in in self._stand_ins:
            if stand_in.records:
                yield from stand_in.keep() if passed else ()
                continue
            for met in read_notes(stand_in.folder):  # also after a failure, of which it may be the cause
                self._judge(met, passed=passed)

    def _judge(self, met: Met, *, passed: bool) -> None:
        if met.is_missing:
            raise TapeMissing(
                f"there is no tape at {met.tape} for start {met.number} of claude; record it with: {self._command}",
                path=met.tape,
                command=self._command,
            )
        if met.failure:
            raise ExpectationFailed(f"{Path(met.tape).name}: {met.failure}", step=met.whereabouts, diff=met.diff)
        if passed and not met.is_complete:
            raise ExpectationFailed.at(met.whereabouts, expected="to be played to its end", actual="a host that left before")

    def _finish_transports(self, *, passed: bool) -> list[Path]:
        kept: list[Path] = []
        for path, recorder in self._recorders.items():
            if not passed:
                recorder.path.unlink(missing_ok=True)
                continue
            if recorder.failure is not None:
                raise ConfigurationError(f"the tape {path} could not be recorded: {recorder.failure}", option="path") from recorder.failure
            if not recorder.is_complete:
                raise ConfigurationError(f"the tape {path} is not complete: the test must close its transport", option="path")
            if recorder.path.exists():
                Tape.read(recorder.path).redact().write(path)
                recorder.path.unlink()
                kept.append(path)
        if passed:
            for replay in self._replays:
                if (leftover := replay.leftover()) is not None:
                    raise leftover
        return kept

    def standings(self) -> list[Standing]:
        """Return where each replayed tape stands, for the report of a test."""
        return [
            Standing(
                name=f"tape {replay.tape_path.name}",
                whereabouts=replay.whereabouts,
                received_last=replay.received_last,
                failure=replay.failure,
                leftover=replay.leftover(),
                is_over=replay.is_closed,
            )
            for replay in self._replays
        ]

    def _must_record(self, path: Path) -> bool:
        """Return whether to record the tape. Raises when the test has used it, or it is not there and must not be recorded."""
        used = {*self._recorders, *(replay.tape_path for replay in self._replays), *(stand_in.path for stand_in in self._stand_ins)}
        if path in used:
            raise UsageError(f"this test has already used the tape {path.name}; give each conversation its own name")
        if self._mode in ("all", "rewrite"):
            return True
        if path.exists():
            return self._mode == "new" and not _can_be_replayed(path)
        if self._mode == "none":
            raise TapeMissing(f"there is no tape at {path}; record it with: {self._command}", path=str(path), command=self._command)
        return True


_TEE = [sys.executable, "-I", "-S", str(_HERE / "tee.py")]
_PLAYER = [sys.executable, "-P", str(_HERE / "player.py")]


class _StandIn:
    """An executable in a folder of its own, where it keeps what it records, or what it has met."""

    def __init__(self, path: Path, *, records: bool) -> None:
        self.path = path
        self.records = records
        self.folder = Path(tempfile.mkdtemp(prefix="claude-tape-"))
        self.executable = self.folder / "bin" / "claude"

    def write(self, command: Sequence[str]) -> None:
        """Write the executable, which runs the command with the arguments of the host."""
        self.executable.parent.mkdir()
        self.executable.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', "utf-8")
        self.executable.chmod(0o700)

    def keep(self) -> Iterator[Path]:
        """Move the recorded tapes to their places. Remove the tapes of starts that there were before, and that there are no more."""
        number = 1
        while (recorded := tape_number(self.folder / self.path.name, number)).exists():
            target = tape_number(self.path, number)
            _wait_for_recorder(recorded)
            number += 1
            lost = Path(f"{recorded}{INCOMPLETE}")
            if lost.exists():
                raise ConfigurationError(f"the tape {target} could not be recorded: {lost.read_text('utf-8').strip()}", option="path")
            if recorded.exists() and recorded.stat().st_size:  # else the host has killed it before it began
                Tape.read(recorded).redact().write(target)
                yield target
        while number > 1 and (old := tape_number(self.path, number)).exists():
            old.unlink()
            number += 1

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _wait_for_recorder(path: Path) -> None:
    """Wait until the recorder has written everything: a host may have killed the tee, which would have waited for it."""
    import fcntl  # only POSIX has it, and only POSIX comes here

    deadline = time.monotonic() + _PATIENCE
    with path.open("rb") as tape:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(tape, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.01)
            else:
                return


class _Replay(ReplayTransport):
    """A replay with its path, and whether it was connected."""

    def __init__(self, path: Path, *, match: Iterable[str], strict: bool) -> None:
        super().__init__(path, match=match, strict=strict)
        self.tape_path = path
        self.was_connected = False

    async def connect(self) -> None:
        self.was_connected = True
        await super().connect()

    def leftover(self) -> ExpectationFailed | None:
        """Return the error of a tape that was begun and not played to its end."""
        try:
            if self.was_connected:
                self.assert_played()
        except ExpectationFailed as failed:
            return failed
        return None


def _can_be_replayed(path: Path) -> bool:
    try:
        return not Tape.read(path).is_torn
    except ConfigurationError:
        return False
