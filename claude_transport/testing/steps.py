"""What a fake claude can do, one frozen Struct per deed; a `Scenario` is made of these and travels to the child process as JSON.

Strings inside `Emit.message`, `Text.text`, `ToolUse`, `Request.request` and `WriteFile` may hold placeholders that the child fills:
`{{session_id}}`, `{{uuid}}` (a new one each time), `{{user_uuid}}`, `{{user_uuids}}`, `{{prompt}}`, `{{excerpt}}` (the prompt, at
most 200 characters), `{{text}}` (the last text said), `{{pid}}`, `{{cwd}}`, `{{directory}}` (the fake's private one), `{{model}}`,
`{{version}}`, `{{timestamp}}`, `{{message_id}}`, `{{tool_use_id}}`, `{{result_index}}`, `{{hook.EVENT}}` (the first callback id the
host registered for the event), and, inside the branches of a `Request`, `{{answer}}` or a path into it such as
`{{answer.response.message}}`. A string that is one placeholder becomes its value with its type. Unknown placeholders stay as they are.

`Step` is the type of any step.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from claude_transport.errors import ConfigurationError

__all__ = [
    "AnswerRecorded",
    "Assistant",
    "AwaitInput",
    "AwaitSignal",
    "BaseStep",
    "BigLine",
    "CloseStdout",
    "Delay",
    "DieBySignal",
    "Emit",
    "EmitRaw",
    "EmitRecorded",
    "Exit",
    "Flood",
    "FoldQueued",
    "ForkGrandchild",
    "Hang",
    "IgnoreSignal",
    "Init",
    "Noise",
    "OnSignal",
    "Request",
    "Result",
    "Stderr",
    "StderrFlood",
    "Step",
    "StopReading",
    "Text",
    "ToolUse",
    "WaitForFile",
    "WaitForInput",
    "WriteFile",
]


# --- Steps that go wrong or take time: raw bytes, noise, floods, delays, files, signals, processes and their ends.


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


# ------------------------------------------------------------------------------------------------ what is said


class _Message(BaseStep, frozen=True):
    message: Mapping[str, Any]


class Emit(_Message, frozen=True, tag="emit", kw_only=True):
    """One frame, placeholders filled; `complete` adds the `session_id` and `uuid` that every real conversation frame carries."""

    complete: bool = True


class Init(BaseStep, frozen=True, tag="init"):
    """The `system/init` frame; a `Turn` sends it by itself unless told not to."""


class _Text(BaseStep, frozen=True):
    text: str


class Text(_Text, frozen=True, tag="text", kw_only=True):
    """An API message of one text block. With `--include-partial-messages` in argv it streams first, as in recording 03.

    `chunks` says how the text is cut (default: 8 characters each, or words with `by_word`); `pace` seconds pass before each chunk,
    in all at most `at_most` seconds. An interrupt between two chunks aborts the message with what was said so far. The last chunk waits
    for the file `gate`, if one is named (`FakeClaude.open_gate`).
    """

    chunks: Sequence[str] | None = None
    by_word: bool = False
    pace: float = 0.0
    at_most: float | None = None
    gate: str | None = None

    def __post_init__(self) -> None:
        check_not_negative("Text", "pace", self.pace)
        check_not_negative("Text", "at_most", self.at_most)
        if self.chunks is not None and "".join(self.chunks) != self.text:
            raise ConfigurationError("Text.chunks must add up to the text", option="chunks")


class _Content(BaseStep, frozen=True):
    content: Sequence[Mapping[str, Any]]


class Assistant(_Content, frozen=True, tag="assistant", kw_only=True):
    """One API message with these content blocks, one whole `assistant` frame each; `extra` keys are laid over every frame (`error`, …)."""

    model: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)


class _Tool(BaseStep, frozen=True):
    name: str


class ToolUse(_Tool, frozen=True, tag="tool_use", kw_only=True):
    """A tool call from request to result, as in recordings 04a (allowed), 04b (denied), 04c (denied and interrupted), 04h (no prompt tool).

    `ask=None` does what the real CLI would with its argv: tools in `--allowedTools` run, others are asked for when
    `--permission-prompt-tool` was given and refused when not. `True` always asks, `False` never. Nothing is really run: `output` is
    the result.
    """

    input: Mapping[str, Any] = msgspec.field(default_factory=dict)
    output: str = ""
    is_error: bool = False
    ask: bool | None = None
    description: str = ""


class Result(BaseStep, frozen=True, tag="result", kw_only=True):
    """The frame that ends a turn. `text` defaults to the last text said; `cost_usd` is this turn's, the frame's total the process's."""

    text: str | None = None
    subtype: str = "success"
    is_error: bool = False
    terminal_reason: str | None = "completed"
    stop_reason: str | None = "end_turn"
    api_error_status: int | None = None
    errors: Sequence[str] = ()
    input_tokens: int = 12
    output_tokens: int = 7
    cost_usd: float = 0.000188
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)


class FoldQueued(BaseStep, frozen=True, tag="fold_queued"):
    """Takes the user messages waiting in the queue into the running turn, as the CLI does while a tool runs (recording 10f)."""


# ------------------------------------------------------------------------------------------------ what is asked of the host


class _Request(BaseStep, frozen=True):
    request: Mapping[str, Any]


class Request(_Request, frozen=True, tag="request", kw_only=True):
    """A control request to the host (`can_use_tool`, `hook_callback`, `mcp_message`, …); its answer decides what is played next.

    `on_deny` follows a success whose `behavior` is `deny`, `on_error` an error, a timeout (the request is then withdrawn with
    `control_cancel_request`) or the end of input, `on_success` everything else. `wait=False` goes on at once.
    """

    on_success: Sequence[Step] = ()
    on_deny: Sequence[Step] = ()
    on_error: Sequence[Step] = ()
    wait: bool = True
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.request.get("subtype"), str):
            raise ConfigurationError("Request.request needs a 'subtype', such as 'can_use_tool'", option="request")
        check_not_negative("Request", "timeout", self.timeout)

    @classmethod
    def can_use_tool(cls, tool_name: str, *, input: Mapping[str, Any], **branches: Any) -> Request:  # noqa: A002 - the wire's word
        """A permission question (recording 04a)."""
        body = {
            "subtype": "can_use_tool",
            "tool_name": tool_name,
            "display_name": tool_name,
            "input": input,
            "permission_suggestions": [],
            "tool_use_id": "{{tool_use_id}}",
        }
        return cls(body, **branches)

    @classmethod
    def hook_callback(
        cls, event: str, *, callback_id: str | None = None, payload: Mapping[str, Any] | None = None, **branches: Any
    ) -> Request:
        """A hook call (recording 05a). Without `callback_id` it calls what the host registered first for `event`, if anything."""
        common = {
            "session_id": "{{session_id}}",
            "transcript_path": "{{directory}}/transcript.jsonl",
            "cwd": "{{cwd}}",
            "prompt_id": "{{uuid}}",
            "permission_mode": "default",
            "effort": {"level": "medium"},
            "hook_event_name": event,
        }
        body = {
            "subtype": "hook_callback",
            "callback_id": callback_id if callback_id is not None else f"{{{{hook.{event}}}}}",
            "input": {**common, **(payload or {})},
            "tool_use_id": "{{tool_use_id}}",
        }
        return cls(body, **branches)

    @classmethod
    def mcp_message(cls, server_name: str, *, message: Mapping[str, Any], **branches: Any) -> Request:
        """A JSON-RPC message for an in-process MCP server (recording 06a)."""
        return cls({"subtype": "mcp_message", "server_name": server_name, "message": {"jsonrpc": "2.0", **message}}, **branches)


class OnSignal(SignalStep, frozen=True, tag="on_signal", kw_only=True):
    """From now on the signal plays these steps and then ends the process (exit `128 + signal` unless a step says otherwise)."""

    steps: Sequence[Step] = ()


# ------------------------------------------------------------------------------------------------------ replayed recordings


class AwaitInput(BaseStep, frozen=True, tag="await_input", kw_only=True):
    """In a replay: until an input line like this one has come, or the end of input with type `eof`.

    `request_id` is the recorded id of a control request, which the host's own replaces in the answer.
    """

    type: str
    subtype: str | None = None
    request_id: str | None = None


class EmitRecorded(BaseStep, frozen=True, tag="emit_recorded"):
    """In a replay: a recorded line, the recorded request ids in it replaced by the host's."""

    line: str


class AnswerRecorded(BaseStep, frozen=True, tag="answer_recorded"):
    """In a replay: the fake's own answer to the request recorded under this id, where the recording kept only its beginning."""

    request_id: str


Step = (
    Emit
    | EmitRaw
    | Noise
    | BigLine
    | Flood
    | Init
    | Text
    | Assistant
    | ToolUse
    | Result
    | FoldQueued
    | Request
    | Stderr
    | StderrFlood
    | Delay
    | WaitForFile
    | WaitForInput
    | WriteFile
    | IgnoreSignal
    | OnSignal
    | AwaitSignal
    | ForkGrandchild
    | CloseStdout
    | StopReading
    | Hang
    | Exit
    | DieBySignal
    | AwaitInput
    | EmitRecorded
    | AnswerRecorded
)
