"""The steps of a `Scenario`: one frozen struct for each thing that a fake claude can do. They reach its process as JSON.

Strings in `Emit.message`, `Text.text`, `ToolUse`, `Request.request` and `WriteFile` may contain placeholders, which the process replaces:
`{{session_id}}`, `{{uuid}}` (a new one each time), `{{user_uuid}}`, `{{user_uuids}}`, `{{prompt}}`, `{{excerpt}}` (the prompt, at
most 200 characters), `{{text}}` (the last text sent), `{{pid}}`, `{{cwd}}`, `{{directory}}` (the private one of the fake), `{{model}}`,
`{{version}}`, `{{timestamp}}`, `{{message_id}}`, `{{tool_use_id}}`, `{{result_index}}`, `{{hook.EVENT}}` (the first callback id the
host registered for the event), and, inside the branches of a `Request`, `{{answer}}` or a path into it such as
`{{answer.response.message}}`. A string that consists of one placeholder takes the type of its value. Unknown placeholders stay.

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


def check_not_negative(step: str, field: str, value: float | None) -> None:
    if value is not None and value < 0:
        raise ConfigurationError(f"{step}.{field} must not be negative, got {value!r}", option=field)


def _known_signal(step: str, name: str) -> None:
    if not name.startswith("SIG") or name.startswith("SIG_") or not hasattr(signal, name):
        raise ConfigurationError(f"{step}: this system has no signal called {name!r}; use a name such as 'SIGTERM'", option="name")


class BaseStep(msgspec.Struct, frozen=True, tag_field="step", forbid_unknown_fields=True):
    """Base of all steps. As JSON, a step is `{"step": "<name>", …}`."""


class _Data(BaseStep, frozen=True):
    data: bytes


class EmitRaw(_Data, frozen=True, tag="emit_raw", kw_only=True):
    """Write exactly these bytes to stdout: half a line, invalid UTF-8, anything.

    They are written `chunk_size` bytes at a time, with `pause` seconds between two writes.
    """

    chunk_size: int | None = None
    pause: float = 0.0

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 1:
            raise ConfigurationError(f"EmitRaw.chunk_size must be at least 1 byte, got {self.chunk_size}", option="chunk_size")
        check_not_negative("EmitRaw", "pause", self.pause)


class Noise(BaseStep, frozen=True, tag="noise"):
    """Write a line to stdout that is not JSON, as older CLIs did (`[SandboxDebug] …`)."""

    text: str = "[SandboxDebug] not a frame"


class BigLine(BaseStep, frozen=True, tag="big_line"):
    """Write one valid assistant frame whose line is exactly `size` bytes long, with its newline."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1024:
            raise ConfigurationError(
                f"BigLine.size must be at least 1024 bytes, which a frame without text takes, got {self.size}", option="size"
            )


class _Size(BaseStep, frozen=True):
    size: int

    def __post_init__(self) -> None:
        check_not_negative(type(self).__name__, "size", self.size)


class Flood(_Size, frozen=True, tag="flood", kw_only=True):
    """Write at least `size` bytes of valid small `stream_event` frames, as fast as the pipe takes them."""


class Stderr(BaseStep, frozen=True, tag="stderr"):
    """Write this text to stderr, without adding a newline."""

    text: str


class StderrFlood(_Size, frozen=True, tag="stderr_flood", kw_only=True):
    """Write `size` bytes of lines to stderr; with `line_size=None`, one line without an end."""

    line_size: int | None = 80


class _Seconds(BaseStep, frozen=True):
    seconds: float

    def __post_init__(self) -> None:
        check_not_negative(type(self).__name__, "seconds", self.seconds)


class Delay(_Seconds, frozen=True, tag="delay"):
    """Wait for `seconds`. The fake still reads its input and obeys interrupts."""


class WaitForFile(BaseStep, frozen=True, tag="wait_for_file"):
    """Wait until the file exists, which a test creates with `FakeClaude.open_gate`. A relative path starts in the fake's directory."""

    path: str


class _InputType(BaseStep, frozen=True):
    type: str


class WaitForInput(_InputType, frozen=True, tag="wait_for_input", kw_only=True):
    """Wait until an input line of this `type` (and `subtype`, for control requests) has come since the start of the turn.

    The fake handles that line as usual.
    """

    subtype: str | None = None


class _Path(BaseStep, frozen=True):
    path: str


class WriteFile(_Path, frozen=True, tag="write_file", kw_only=True):
    """Append `text` to a file, as the CLI does with its transcript. A relative path starts in the fake's directory."""

    text: str = ""


class SignalStep(BaseStep, frozen=True):
    name: str

    def __post_init__(self) -> None:
        _known_signal(type(self).__name__, self.name)


class IgnoreSignal(SignalStep, frozen=True, tag="ignore_signal"):
    """Ignore the signal (`"SIGTERM"`, `"SIGINT"`) from now on; only record it in the journal."""


class AwaitSignal(SignalStep, frozen=True, tag="await_signal"):
    """Wait for the signal, which has no other effect. In a `script` it may come before this step."""


class ForkGrandchild(_Seconds, frozen=True, tag="fork_grandchild", kw_only=True):
    """Start a process that sleeps for `seconds`, like the shell of a tool, and record its process id in the journal.

    With `holds_stdout` it keeps stdout and stderr open; with `own_session` it leaves the process group of the fake.
    """

    holds_stdout: bool = False
    own_session: bool = False


class CloseStdout(BaseStep, frozen=True, tag="close_stdout"):
    """Close stdout and go on running."""


class StopReading(BaseStep, frozen=True, tag="stop_reading"):
    """Stop reading stdin, so that the pipe fills up. The fake does not notice the end of input any more."""


class Hang(BaseStep, frozen=True, tag="hang"):
    """Do nothing and answer nothing until a signal ends the process."""


class Exit(BaseStep, frozen=True, tag="exit"):
    """End the process now, with this exit code."""

    code: int = 0


class DieBySignal(SignalStep, frozen=True, tag="die_by_signal"):
    """Die of this signal, so that the host sees a signal instead of an exit code."""


class _Message(BaseStep, frozen=True):
    message: Mapping[str, Any]


class Emit(_Message, frozen=True, tag="emit", kw_only=True):
    """Send one frame with its placeholders replaced. `complete` adds `session_id` and `uuid`, as in every real conversation frame."""

    complete: bool = True


class Init(BaseStep, frozen=True, tag="init"):
    """Send the `system/init` frame. A `ScriptedTurn` sends it by itself, unless it has `init=False`."""


class _Text(BaseStep, frozen=True):
    text: str


class Text(_Text, frozen=True, tag="text", kw_only=True):
    """Send an API message of one text block. With `--include-partial-messages` in argv it is streamed first, as in recording 03.

    `chunks` are the pieces of the text (default: 8 characters each, or words with `by_word`). `pace` seconds pass before each piece, but at
    most `at_most` seconds in all. An interrupt between two pieces ends the message with the text so far. With `gate`, the last piece
    waits for that file (`FakeClaude.open_gate`).
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
    """Send one API message with these content blocks, each in its own `assistant` frame. Every frame gets the keys of `extra`."""

    model: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)


class _Tool(BaseStep, frozen=True):
    name: str


class ToolUse(_Tool, frozen=True, tag="tool_use", kw_only=True):
    """Play a tool call from request to result, as in recordings 04a (allowed), 04b (denied), 04c (denied, interrupted), 04h (refused).

    With `ask=None` the fake acts as the CLI with its argv: tools in `--allowedTools` run; for others it asks the host if
    `--permission-prompt-tool` was given, and refuses them if not. `True` always asks, `False` never. No tool really runs: `output` is the
    result.
    """

    input: Mapping[str, Any] = msgspec.field(default_factory=dict)
    output: str = ""
    is_error: bool = False
    ask: bool | None = None
    description: str = ""


class Result(BaseStep, frozen=True, tag="result", kw_only=True):
    """Send the frame that ends a turn. `text` defaults to the last text. `cost_usd` is the cost of this turn; the frame has the sum."""

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
    """Add the waiting user messages to the running turn, as the CLI does while a tool runs (recording 10f)."""


class _Request(BaseStep, frozen=True):
    request: Mapping[str, Any]


class Request(_Request, frozen=True, tag="request", kw_only=True):
    """Send a control request to the host (`can_use_tool`, `hook_callback`, `mcp_message`, …), and play steps by its answer.

    `on_deny` is played after a success whose `behavior` is `deny`. `on_error` is played after an error, the end of input, or a timeout
    (the fake then withdraws the request with `control_cancel_request`). `on_success` is played after any other answer. `wait=False`
    does not wait for the answer.
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
    """Play these steps when the signal comes, then end the process (exit code `128 + signal`, unless a step sets another)."""

    steps: Sequence[Step] = ()


class AwaitInput(BaseStep, frozen=True, tag="await_input", kw_only=True):
    """In a replay: wait for an input line like this one, or for the end of input (type `eof`).

    `request_id` is the recorded id of a control request; the id of the host replaces it in the answer.
    """

    type: str
    subtype: str | None = None
    request_id: str | None = None


class EmitRecorded(BaseStep, frozen=True, tag="emit_recorded"):
    """In a replay: send a recorded line, with the request ids of the host."""

    line: str


class AnswerRecorded(BaseStep, frozen=True, tag="answer_recorded"):
    """In a replay: send the fake's own answer to the request with this recorded id, because the recorded answer is not complete."""

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
