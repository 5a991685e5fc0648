"""`TapeShelf`: what the fixture `claude_tape` gives to a test: it replays or records the tapes of the test, as the mode says."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import Tape
from claude_transport.testing.standing import Standing
from claude_transport.transport import Transport, TransportLike
from claude_transport.transports.replay import ReplayTransport
from claude_transport.wrappers.recording import RecordingTransport

MODES: dict[str, str] = {
    "none": "replay only; a missing tape fails the test",
    "once": "record missing tapes, replay the others",
    "new": "as once, and record again tapes that cannot be replayed: torn, unreadable, of a newer format",
    "all": "record every tape again; keep the old one when the test fails",
    "rewrite": "as all, but delete the old tape first",
}
"""The modes of `--claude-record`, each with a sentence on what it does."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Opener = Callable[[], TransportLike] | TransportLike


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

    def __call__(self, open_transport: Opener, *, name: str | None = None) -> Transport:
        """Return a transport that replays the tape called `name`, or records it from the real transport.

        `open_transport` makes the real transport, or is one; it is not called when the tape is replayed.

        Raises:
            TapeMissing: there is no tape, and the mode does not record one.
            ConfigurationError: the tape cannot be read.
            UsageError: the test has used this name before.
        """
        path = self.path(name)
        if path in self._recorders or any(replay.tape_path == path for replay in self._replays):
            raise UsageError(f"this test has already used the tape {path.name}; give each conversation its own name")
        if not self._must_record(path):
            replay = _Replay(path, strict=self._strict)
            self._replays.append(replay)
            return replay
        if self._mode == "rewrite":
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        inside = open_transport() if callable(open_transport) else open_transport
        recorder = RecordingTransport(inside, path.with_name(f".{path.name}.{os.getpid()}.recording"))
        self._recorders[path] = recorder
        return recorder

    def path(self, name: str | None = None) -> Path:
        """Return the path of the tape called `name`, whether it exists or not."""
        return self._folder / f"{_UNSAFE.sub('-', name or self._name).strip('-.') or 'tape'}.ndjson"

    @property
    def is_recording(self) -> bool:
        """True when at least one tape is being recorded."""
        return bool(self._recorders)

    def finish(self, *, passed: bool) -> Sequence[Path]:
        """Move the recorded tapes to their places if the test passed, else delete them. Returns the paths of the kept tapes.

        Raises:
            ExpectationFailed: the test passed, but a tape was not replayed to its end.
            ConfigurationError: a recording failed, or its transport was not closed.
        """
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
        if self._mode in ("all", "rewrite"):
            return True
        if path.exists():
            return self._mode == "new" and not _can_be_replayed(path)
        if self._mode == "none":
            raise TapeMissing(f"there is no tape at {path}; record it with: {self._command}", path=str(path), command=self._command)
        return True


class _Replay(ReplayTransport):
    """A replay with its path, and whether it was connected."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        super().__init__(path, strict=strict)
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
