"""What a fake claude can do, one frozen Struct per deed; a `Scenario` is made of these and travels to the child process as JSON.

Strings inside `Emit.message`, `Text.text`, `ToolUse`, `Request.request` and `WriteFile` may hold placeholders that the child fills:
`{{session_id}}`, `{{uuid}}` (a new one each time), `{{user_uuid}}`, `{{user_uuids}}`, `{{prompt}}`, `{{excerpt}}` (the prompt, at
most 200 characters), `{{text}}` (the last text said), `{{pid}}`, `{{cwd}}`, `{{directory}}` (the fake's private one), `{{model}}`,
`{{version}}`, `{{timestamp}}`, `{{message_id}}`, `{{tool_use_id}}`, `{{result_index}}`, `{{hook.EVENT}}` (the first callback id the
host registered for the event), and, inside the branches of a `Request`, `{{answer}}` or a path into it such as
`{{answer.response.message}}`. A string that is one placeholder becomes its value with its type. Unknown placeholders stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.testing.incidents import (
    AwaitSignal,
    BaseStep,
    BigLine,
    CloseStdout,
    Delay,
    DieBySignal,
    EmitRaw,
    Exit,
    Flood,
    ForkGrandchild,
    Hang,
    IgnoreSignal,
    Noise,
    SignalStep,
    Stderr,
    StderrFlood,
    StopReading,
    WaitForFile,
    WaitForInput,
    WriteFile,
    check_not_negative,
)

__all__ = [
    "AnswerRecorded",
    "Assistant",
    "AwaitInput",
    "AwaitSignal",
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
