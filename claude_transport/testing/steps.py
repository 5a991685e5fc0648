"""The steps of a `Scenario`, and `ScriptedTurn`, a list of them. Each is a frozen struct, and reaches the fake's process as JSON.

Strings in `Emit.message`, `Text.text`, `Assistant`, `ToolUse`, `Result`, `Request.request` and `WriteFile` may contain placeholders:

* `{{prompt}}`, `{{excerpt}}` (at most 200 characters of it), `{{text}}` (the last text sent), `{{user_uuid}}`, `{{user_uuids}}`
* `{{session_id}}`, `{{message_id}}`, `{{tool_use_id}}`, `{{result_index}}`, `{{uuid}}` (a new one each time), `{{timestamp}}`
* `{{model}}`, `{{version}}`, `{{pid}}`, `{{cwd}}`, `{{directory}}` (the private one of the fake)
* `{{hook.EVENT}}` (the first callback id the host registered for the event), `{{open}}` (two opening braces)
* `{{answer}}`, inside the branches of a `Request`

A path looks into a value, by keys and by the indexes of lists, which begin at 0: `{{answer.response.content.0.text}}`,
`{{user_uuids.0}}`. A string that consists of one placeholder takes the type of its value.

An unknown placeholder is a `ConfigurationError` in the line that writes it. When a path leads nowhere, or a text becomes something else,
the process ends with exit code 70, and its standard error names the step: `fake claude: turn 1 > step 2 of 3 (Text): …`.

`Step` is the type of any step.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.testing.checked import Checked, check_not_negative
from claude_transport.testing.wire import result, terminal_reason

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
    "ScriptedTurn",
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


def _known_signal(step: str, name: str) -> None:
    if not name.startswith("SIG") or name.startswith("SIG_") or not hasattr(signal, name):
        raise ConfigurationError(f"{step}: this system has no signal called {name!r}; use a name such as 'SIGTERM'", option="name")


class BaseStep(Checked, frozen=True, tag_field="step", forbid_unknown_fields=True):
    """Base of all steps. As JSON, a step is `{"step": "<name>", …}`."""

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with steps in place of messages and raw lines."""
        return respell_steps(given, "steps", "on_success", "on_deny", "on_error")


class _Data(BaseStep, frozen=True):
    data: RawBytes

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with a text as its UTF-8 bytes."""
        data = given.get("data")
        return {**given, "data": data.encode("utf-8", "surrogatepass")} if isinstance(data, str) else given


class EmitRaw(_Data, frozen=True, tag="emit_raw", kw_only=True):
    """Write exactly these bytes to stdout: half a line, invalid UTF-8, anything. A text is written as UTF-8.

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

    filled: ClassVar[tuple[str, ...]] = ("path",)

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

    filled: ClassVar[tuple[str, ...]] = ("path", "text")

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

    filled: ClassVar[tuple[str, ...]] = ("message",)

    complete: bool = True


class Init(BaseStep, frozen=True, tag="init"):
    """Send the `system/init` frame. A `ScriptedTurn` sends it by itself, unless it has `init=False`."""


class _Text(BaseStep, frozen=True):
    text: str


class Text(_Text, frozen=True, tag="text", kw_only=True):
    """Send an API message of one text block. With `--include-partial-messages` in argv it is streamed first.

    `chunks` are the pieces of the text (default: 8 characters each, or words with `by_word`). `pace` seconds pass before each piece, but at
    most `at_most` seconds in all. An interrupt between two pieces ends the message with the text so far. With `gate`, the last piece
    waits for that file (`FakeClaude.open_gate`).
    """

    filled: ClassVar[tuple[str, ...]] = ("text", "gate")

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
    content: Content

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with a text as one content block."""
        content = given.get("content")
        return {**given, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else given


class Assistant(_Content, frozen=True, tag="assistant", kw_only=True):
    """Send one API message with these content blocks, each in its own `assistant` frame. Every frame gets the keys of `extra`.

    A text is one block. With `--include-partial-messages` in argv the blocks are streamed first, except those of the model `<synthetic>`,
    by which the CLI marks its own messages about errors.
    """

    filled: ClassVar[tuple[str, ...]] = ("content", "extra")

    model: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)


class _Tool(BaseStep, frozen=True):
    name: str
    input: Mapping[str, Any] = msgspec.field(default_factory=dict)


class ToolUse(_Tool, frozen=True, tag="tool_use", kw_only=True):
    """Play a tool call from request to result, as the CLI plays one that is allowed, denied, denied and interrupted, or refused.

    The hooks that the host has registered are called as the CLI calls them, and what they answer has its effect. Then the rules decide.
    With `ask=None` they are those of the argv, the settings and the mode: tools in `--allowedTools` run; for others the fake asks the host
    if `--permission-prompt-tool` was given, and refuses them if not. With `ask=True` no rule allows the tool, with `ask=False` one does.
    A strict fake wants a host that can be asked then, and the MCP server of the tool, unless `output` or `is_error` says what comes.

    A tool of an in-process MCP server of the host (`mcp__server__tool`) is really called, over the control channel, and `output` is not
    used. A strict fake wants it to succeed, or to fail with `is_error`. No other tool really runs: `output` is the result, or, with
    `is_error`, the error. The tool `Agent` is a subagent: it plays `steps`, and its result is its last text. With
    `--include-partial-messages` in argv the call is streamed first.
    """

    filled: ClassVar[tuple[str, ...]] = ("input", "output")

    output: str = ""
    is_error: bool = False
    ask: bool | None = None
    description: str = ""
    steps: Sequence[StepLike] = ()


class _EndingStep(BaseStep, frozen=True):
    text: str | None = None

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with what follows from the others, as in `claude_transport.testing.result()`."""
        subtype, said = given.get("subtype", "success"), given.get("text")
        succeeds = subtype == "success"
        is_error = given.get("is_error", not succeeds)
        follows = {"is_error": is_error, "terminal_reason": terminal_reason(subtype, is_error=is_error)}
        if not succeeds and said:
            follows["errors"] = (said,)
        return {**follows, **given}


class Result(_EndingStep, frozen=True, tag="result", kw_only=True):
    """Send the frame that ends a turn. `text` defaults to the last text. `cost_usd` is the cost of this turn; the frame has the sum.

    With a `subtype` other than `success`, `is_error` is True unless it is given, and `text` is the error. A turn without a `Result` ends
    with one (see `ScriptedTurn`). The session is idle after it, unless the last `background_tasks_changed` that was sent lists an agent.
    When such a message lists fewer tasks later, the session runs again until the next `Result`.
    """

    filled: ClassVar[tuple[str, ...]] = ("text", "extra")

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
    """Add the waiting user messages to the running turn, as the CLI does while a tool runs."""


class _Request(BaseStep, frozen=True):
    request: Mapping[str, Any]


class Request(_Request, frozen=True, tag="request", kw_only=True):
    """Send a control request to the host (`can_use_tool`, `hook_callback`, `mcp_message`, …), and play steps by its answer.

    `on_deny` is played after a success whose `behavior` is `deny`. `on_error` is played after an error, the end of input, or a timeout
    (the fake then withdraws the request with `control_cancel_request`). `on_success` is played after any other answer. `wait=False`
    does not wait for the answer.
    """

    filled: ClassVar[tuple[str, ...]] = ("request",)

    on_success: Sequence[StepLike] = ()
    on_deny: Sequence[StepLike] = ()
    on_error: Sequence[StepLike] = ()
    wait: bool = True
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.request.get("subtype"), str):
            raise ConfigurationError("Request.request needs a 'subtype', such as 'can_use_tool'", option="request")
        check_not_negative("Request", "timeout", self.timeout)

    @classmethod
    def can_use_tool(
        cls,
        tool_name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the wire's word
        **branches: Any,
    ) -> Request:
        """A permission question."""
        body = {
            "subtype": "can_use_tool",
            "tool_name": tool_name,
            "display_name": tool_name,
            "input": {} if input is None else input,
            "permission_suggestions": [],
            "tool_use_id": "{{tool_use_id}}",
        }
        return cls(body, **branches)

    @classmethod
    def hook_callback(
        cls, event: str, *, callback_id: str | None = None, payload: Mapping[str, Any] | None = None, **branches: Any
    ) -> Request:
        """A hook call. Without `callback_id` it calls what the host registered first for `event`, if anything."""
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
        """A JSON-RPC message for an in-process MCP server."""
        return cls({"subtype": "mcp_message", "server_name": server_name, "message": {"jsonrpc": "2.0", **message}}, **branches)


class OnSignal(SignalStep, frozen=True, tag="on_signal", kw_only=True):
    """Play these steps when the signal comes, then end the process (exit code `128 + signal`, unless a step sets another)."""

    steps: Sequence[StepLike] = ()


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

if TYPE_CHECKING:  # what may be written; the fields hold the narrower type
    # the base, because mypy takes it for the type of a variable with different steps; the fields still refuse those of another agent
    StepLike: TypeAlias = BaseStep | Mapping[str, Any] | bytes
    TurnLike: TypeAlias = "ScriptedTurn | Sequence[StepLike] | str"
    Content: TypeAlias = Sequence[Mapping[str, Any]] | str
    RawBytes: TypeAlias = bytes | str
else:
    StepLike = Step
    Content = Sequence[Mapping[str, Any]]
    RawBytes = bytes


class _Steps(Checked, frozen=True):
    steps: Sequence[StepLike] = ()

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with steps in place of messages and raw lines."""
        return respell_steps(given, "steps")


class ScriptedTurn(_Steps, frozen=True, kw_only=True):
    """How the fake CLI answers one user message, or several merged ones: it plays `steps` in order.

    A step may also be a message of `claude_transport.testing` (`assistant("…")`), which is sent with the ids of the fake's session, or
    bytes, which are one raw line.

    Before the steps the fake sends the message `system/init`, as the CLI does in every turn; with `init=False` it does not. After them it
    sends a `Result()`, unless a step has sent one; with `result=False` it does not, and the turn never ends.
    """

    init: bool = True
    result: bool = True


if not TYPE_CHECKING:
    TurnLike = ScriptedTurn


def respell_steps(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields with a step in place of each message and raw line in the lists of these names."""
    lists = {name: given[name] for name in names if isinstance(given.get(name), (list, tuple))}
    return {**given, **{name: tuple(_respell_step(step) for step in steps) for name, steps in lists.items()}}


def respell_turn(turn: Any, *, where: str, init: bool = True) -> ScriptedTurn:
    """Return the turn that a text, a list of steps, or a `ScriptedTurn` stands for; `where` names its place in errors."""
    if isinstance(turn, ScriptedTurn):
        return turn
    if isinstance(turn, str):
        return ScriptedTurn((Text(turn),), init=init)
    if isinstance(turn, (list, tuple)):
        return ScriptedTurn(tuple(turn), init=init)
    raise ConfigurationError(f"{where}: {type(turn).__name__} is not a ScriptedTurn, a list of steps, or a text", option=where)


_OF_THE_SESSION = frozenset({"session_id", "uuid"})
_FIELDS_OF_RESULT = ("subtype", "is_error", "terminal_reason", "stop_reason", "api_error_status", "errors")


def _respell_step(step: Any) -> Any:
    """Return the step that sends a message or a raw line; anything else is returned as it is.

    A message gets the ids of the fake, and a question waits for its answer. A result also ends the turn, so it is a step of its own. What
    `result()` has filled in is left to the fake, which counts costs and turns.
    """
    if isinstance(step, (bytes, bytearray)):
        return EmitRaw(bytes(step) if step.endswith(b"\n") else bytes(step) + b"\n")
    if not isinstance(step, Mapping):
        return step
    if step.get("type") == "control_request" and isinstance(step.get("request"), Mapping):
        return Request(step["request"])
    if step.get("type") != "result":
        return Emit({key: value for key, value in step.items() if key not in _OF_THE_SESSION})
    fields = {"terminal_reason": None, **{name: step[name] for name in _FIELDS_OF_RESULT if name in step}}
    filled_in = result(subtype=step.get("subtype", "success"))
    known = {*_OF_THE_SESSION, *_FIELDS_OF_RESULT, "type", "result"}
    extra = {key: value for key, value in step.items() if key not in known and value != filled_in.get(key)}
    return Result(text=step.get("result"), extra=extra, **fields)
