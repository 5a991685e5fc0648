"""`TapeShelf`: the tapes of one test: replayed, or recorded, as the mode says."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.protocol.tape import Tape
from claude_transport.transport import Transport, TransportLike
from claude_transport.transports.replay import ReplayTransport
from claude_transport.wrappers.recording import RecordingTransport

MODES: dict[str, str] = {
    "none": "replay only; a missing tape fails the test",
    "once": "record what has no tape yet, replay the rest",
    "new": "as once, and record tapes anew that cannot be replayed: torn, unreadable, of a newer format",
    "all": "record everything anew; the old tape stays when the test fails",
    "rewrite": "as all, and throw the old tape away first",
}
"""What `--claude-record` can be, and what it does."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Opener = Callable[[], TransportLike] | TransportLike


class TapeMissing(ConfigurationError):
    """There is no tape to replay at `path`; the message has the command that records it."""

    code = "testing.tape_missing"

    def __init__(self, message: str = "", *, path: str = "", command: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.path = path
        self.command = command


class TapeShelf:
    """Call it with what opens the real transport, for a transport that replays the tape called `name`, or records it.

    Args:
        folder: where the tapes are.
        name: what the tape of this test is called, when the call does not say.
        mode: one of `MODES`.
        command: what a person runs to record the missing tapes.
    """

    def __init__(self, folder: Path, *, name: str, mode: str = "none", command: str = "") -> None:
        if mode not in MODES:
            raise ConfigurationError(f"{mode!r} is none of the recording modes {', '.join(MODES)}", option="mode")
        self._folder = folder
        self._name = name
        self._mode = mode
        self._command = command
        self._recorders: dict[Path, RecordingTransport] = {}
        self._replays: list[_Replay] = []

    def __call__(self, open_transport: Opener, *, name: str | None = None) -> Transport:
        """`open_transport` makes the real transport, or is it; when the tape is replayed it is not even called.

        Raises:
            TapeMissing: there is no tape, and the mode does not record one.
            ConfigurationError: the tape cannot be read.
            UsageError: the name was used before in this test.
        """
        path = self.path(name)
        if path in self._recorders or any(replay.tape_path == path for replay in self._replays):
            raise UsageError(f"this test has a tape {path.name} already: give its conversations different names")
        if not self._must_record(path):
            replay = _Replay(path)
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
        """Where the tape called `name` is, or would be."""
        return self._folder / f"{_UNSAFE.sub('-', name or self._name).strip('-.') or 'tape'}.ndjson"

    @property
    def is_recording(self) -> bool:
        """True when something was recorded rather than replayed."""
        return bool(self._recorders)

    def finish(self, *, passed: bool) -> Sequence[Path]:
        """Put what was recorded in its place, if the test passed; else throw it away. The paths of the tapes that were kept.

        Raises:
            ExpectationFailed: the test passed, but a tape was not played to its end.
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
                raise ConfigurationError(f"the tape {path} is not complete: its transport was not closed by the test", option="path")
            if recorder.path.exists():
                Tape.read(recorder.path).redact().write(path)
                recorder.path.unlink()
                kept.append(path)
        if passed:
            for replay in self._replays:
                if replay.was_connected:
                    replay.assert_played()
        return kept

    def _must_record(self, path: Path) -> bool:
        if self._mode in ("all", "rewrite"):
            return True
        if path.exists():
            return self._mode == "new" and not _can_be_replayed(path)
        if self._mode == "none":
            raise TapeMissing(f"there is no tape at {path}; record it with: {self._command}", path=str(path), command=self._command)
        return True


class _Replay(ReplayTransport):
    """A replay that knows its file, and whether anybody used it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tape_path = path
        self.was_connected = False

    async def connect(self) -> None:
        self.was_connected = True
        await super().connect()


def _can_be_replayed(path: Path) -> bool:
    try:
        return not Tape.read(path).is_torn
    except ConfigurationError:
        return False
