"""Steps that go wrong or take time: raw bytes, noise, floods, delays, files, signals, processes and their ends."""

from __future__ import annotations

import signal

import msgspec

from claude_transport.errors import ConfigurationError

__all__ = [
    "AwaitSignal",
    "BaseStep",
    "BigLine",
    "CloseStdout",
    "Delay",
    "DieBySignal",
    "EmitRaw",
    "Exit",
    "Flood",
    "ForkGrandchild",
    "Hang",
    "IgnoreSignal",
    "Noise",
    "SignalStep",
    "Stderr",
    "StderrFlood",
    "StopReading",
    "WaitForFile",
    "WaitForInput",
    "WriteFile",
    "check_not_negative",
]


def check_not_negative(step: str, field: str, value: float | None) -> None:
    if value is not None and value < 0:
        raise ConfigurationError(f"{step}.{field} must not be negative, got {value!r}", option=field)


def _known_signal(step: str, name: str) -> None:
    if not name.startswith("SIG") or name.startswith("SIG_") or not hasattr(signal, name):
        raise ConfigurationError(f"{step}: this system has no signal called {name!r}; use a name such as 'SIGTERM'", option="name")


class BaseStep(msgspec.Struct, frozen=True, tag_field="step", forbid_unknown_fields=True):
    """What all steps share: their wire form, `{"step": "<name>", …}`."""


# ----------------------------------------------------------------------------------------------------------- bytes on stdout


class _Data(BaseStep, frozen=True):
    data: bytes


class EmitRaw(_Data, frozen=True, tag="emit_raw", kw_only=True):
    """Exactly these bytes: half a line, invalid UTF-8, anything. Written `chunk_size` bytes at a time with `pause` seconds between."""

    chunk_size: int | None = None
    pause: float = 0.0

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 1:
            raise ConfigurationError(f"EmitRaw.chunk_size must be at least 1 byte, got {self.chunk_size}", option="chunk_size")
        check_not_negative("EmitRaw", "pause", self.pause)


class Noise(BaseStep, frozen=True, tag="noise"):
    """A line on stdout that is no JSON, as older CLIs printed `[SandboxDebug] …`."""

    text: str = "[SandboxDebug] not a frame"


class BigLine(BaseStep, frozen=True, tag="big_line"):
    """One valid assistant frame whose line is exactly `size` bytes, newline included."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1024:
            raise ConfigurationError(f"BigLine.size must be at least 1024 bytes (a frame has a skeleton), got {self.size}", option="size")


class _Size(BaseStep, frozen=True):
    size: int

    def __post_init__(self) -> None:
        check_not_negative(type(self).__name__, "size", self.size)


class Flood(_Size, frozen=True, tag="flood", kw_only=True):
    """At least `size` bytes of valid small `stream_event` frames, as fast as the pipe takes them."""


# --------------------------------------------------------------------------------------------------- stderr, files and time


class Stderr(BaseStep, frozen=True, tag="stderr"):
    """This text on stderr, as it is (no newline is added)."""

    text: str


class StderrFlood(_Size, frozen=True, tag="stderr_flood", kw_only=True):
    """`size` bytes of lines on stderr; one endless line with `line_size=None`."""

    line_size: int | None = 80


class _Seconds(BaseStep, frozen=True):
    seconds: float

    def __post_init__(self) -> None:
        check_not_negative(type(self).__name__, "seconds", self.seconds)


class Delay(_Seconds, frozen=True, tag="delay"):
    """These seconds pass; input is still read and interrupts are still obeyed."""


class WaitForFile(BaseStep, frozen=True, tag="wait_for_file"):
    """Until the file exists: a gate that a test opens. A relative path lies in the fake's directory (`FakeClaude.open_gate`)."""

    path: str


class _InputType(BaseStep, frozen=True):
    type: str


class WaitForInput(_InputType, frozen=True, tag="wait_for_input", kw_only=True):
    """Until an input line of this `type` (and, for control requests, `subtype`) has come since the turn began; it is handled as usual."""

    subtype: str | None = None


class _Path(BaseStep, frozen=True):
    path: str


class WriteFile(_Path, frozen=True, tag="write_file", kw_only=True):
    """Appends `text` to a file, as a CLI flushes its transcript; a relative path lies in the fake's directory."""

    text: str = ""


# --------------------------------------------------------------------------------------------- signals, processes, the end


class SignalStep(BaseStep, frozen=True):
    name: str

    def __post_init__(self) -> None:
        _known_signal(type(self).__name__, self.name)


class IgnoreSignal(SignalStep, frozen=True, tag="ignore_signal"):
    """From now on the signal (`"SIGTERM"`, `"SIGINT"`) is noted in the journal and nothing else."""


class AwaitSignal(SignalStep, frozen=True, tag="await_signal"):
    """Until the signal has come, which then has no other effect. In a `script` it may come before its step."""


class ForkGrandchild(_Seconds, frozen=True, tag="fork_grandchild", kw_only=True):
    """Starts a process that sleeps for `seconds`, as a tool's shell does; its pid goes to the journal.

    `holds_stdout` lets it keep stdout and stderr open; `own_session` takes it out of the fake's process group.
    """

    holds_stdout: bool = False
    own_session: bool = False


class CloseStdout(BaseStep, frozen=True, tag="close_stdout"):
    """Closes stdout and lives on."""


class StopReading(BaseStep, frozen=True, tag="stop_reading"):
    """Reads no more stdin, so that a writer meets a full pipe; the end of input is no longer noticed either."""


class Hang(BaseStep, frozen=True, tag="hang"):
    """Does nothing for ever and answers nobody: only a signal ends it."""


class Exit(BaseStep, frozen=True, tag="exit"):
    """Ends the process now with this exit code."""

    code: int = 0


class DieBySignal(SignalStep, frozen=True, tag="die_by_signal"):
    """Dies of this signal, so that the host sees a death by signal and no exit code."""
