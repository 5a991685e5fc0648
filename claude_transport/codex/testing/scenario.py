"""`CodexScenario`: what a fake codex does, as frozen data that can be stored in one JSON file.

The steps of Codex are here: `Say`, `Think`, `RunCommand`, `ChangeFiles`, `CallTool`, `Retry`, `Fail`, `Notify`, `Ask`. The steps of
`steps` that speak no protocol work, too: `Noise`, `EmitRaw`, `Stderr`, `StderrFlood`, `Delay`, `WaitForFile`, `WriteFile`, `IgnoreSignal`,
`OnSignal`, `ForkGrandchild`, `CloseStdout`, `StopReading`, `Hang`, `Exit`, `DieBySignal`. In texts, `{{prompt}}` is the prompt, and
`{{cwd}}` the working directory. `fake_codex` plays a scenario.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.testing import steps
from claude_transport.testing.checked import Checked, check_not_negative, own_fields
from claude_transport.testing.steps import BaseStep


class _TextStep(BaseStep, frozen=True):
    text: str


class Say(_TextStep, frozen=True, tag="say", kw_only=True):
    """Say `text`: an `agentMessage` item with its deltas.

    `chunks` are the deltas (default: words). `pace` seconds pass before each. With `gate`, the last delta waits for that file
    (`FakeCodex.open_gate`). With `cut`, the item gets no `item/completed`, as when the stream of the model ends early. `id` names the item;
    a `Say` after a cut one has the same id, as from a real Codex.
    """

    chunks: Sequence[str] | None = None
    pace: float = 0.0
    gate: str | None = None
    cut: bool = False
    id: str | None = None

    def __post_init__(self) -> None:
        check_not_negative("Say", "pace", self.pace)
        if self.chunks is not None and "".join(self.chunks) != self.text:
            raise ConfigurationError("Say.chunks must add up to the text", option="chunks")


class Think(_TextStep, frozen=True, tag="think"):
    """Send a `reasoning` item with this summary."""


class _Command(BaseStep, frozen=True):
    command: str


class RunCommand(_Command, frozen=True, tag="run_command", kw_only=True):
    """Play a shell command: a `commandExecution` item. Nothing really runs; `output` and `exit_code` are its result.

    With `ask=None` the host is asked when the thread's `approvalPolicy` is `untrusted`. `True` always asks, `False` never. A decision that
    does not exist, or an error, fails the item. With `gate`, the command runs until that file exists.
    """

    output: str = ""
    exit_code: int = 0
    ask: bool | None = None
    gate: str | None = None


class _Changes(BaseStep, frozen=True):
    changes: Mapping[str, str]


class ChangeFiles(_Changes, frozen=True, tag="change_files", kw_only=True):
    """Play a patch that adds files: a `fileChange` item. `changes` are texts by path; no file is written. `ask` is that of `RunCommand`."""

    ask: bool | None = None


class _ToolStep(BaseStep, frozen=True):
    tool: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)


class CallTool(_ToolStep, frozen=True, tag="call_tool", kw_only=True):
    """Call a tool of the host: a `dynamicToolCall` item, and the request `item/tool/call`."""


class _Info(BaseStep, frozen=True):
    info: str | Mapping[str, Any]


class Retry(_Info, frozen=True, tag="retry", kw_only=True):
    """Say that the model is asked again: an `error` notification with `willRetry`. `info` is its `codexErrorInfo`."""

    message: str = "Reconnecting... 1/1"
    details: str | None = "stream disconnected before completion: stream closed before response.completed"


class Fail(_Info, frozen=True, tag="fail", kw_only=True):
    """Fail the turn: an `error` notification, and `turn/completed` with the status `failed`. `info` is its `codexErrorInfo`."""

    message: str = "The turn failed."


class _Method(BaseStep, frozen=True):
    method: str
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Notify(_Method, frozen=True, tag="notify", kw_only=True):
    """Send any notification. `threadId` and `turnId` are added to `params` where they are missing, unless `bare`."""

    bare: bool = False


class Ask(_Method, frozen=True, tag="ask", kw_only=True):
    """Send any request to the host, and wait for its answer. `threadId` and `turnId` are added to `params` where they are missing."""


class AwaitRecorded(BaseStep, frozen=True, tag="await_recorded", kw_only=True):
    """In a replay: wait for an input line like the recorded one, or for the end of input (None)."""

    line: str | None


class EmitRecorded(_TextStep, frozen=True, tag="emit_recorded"):
    """In a replay: send a recorded line, with the request ids of the host."""


CodexStep = (
    Say
    | Think
    | RunCommand
    | ChangeFiles
    | CallTool
    | Retry
    | Fail
    | Notify
    | Ask
    | AwaitRecorded
    | EmitRecorded
    | steps.Noise
    | steps.EmitRaw
    | steps.Stderr
    | steps.StderrFlood
    | steps.Delay
    | steps.WaitForFile
    | steps.WriteFile
    | steps.IgnoreSignal
    | steps.OnSignal
    | steps.ForkGrandchild
    | steps.CloseStdout
    | steps.StopReading
    | steps.Hang
    | steps.Exit
    | steps.DieBySignal
)


if TYPE_CHECKING:  # what may be written; the fields hold the narrower type
    StepLike: TypeAlias = BaseStep | bytes  # the base, as in `steps`
    TurnLike: TypeAlias = Sequence[StepLike] | str
else:
    StepLike = CodexStep
    TurnLike = Sequence[CodexStep]


class CodexRule(Checked, frozen=True, kw_only=True):
    """Tells a fake Codex how to answer each prompt that contains the text `contains`, in upper or lower case. A part of `CodexScenario`.

    `steps` are what the fake does then, one after the other. A plain text in their place is the answer.
    """

    contains: str
    steps: TurnLike

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with steps in place of a text and of raw lines."""
        return {**given, "steps": _respell_turn(given["steps"], where="CodexRule.steps")}


class CodexReply(Checked, frozen=True, kw_only=True):
    """How the fake answers the host's requests of one method, in place of its usual answer. It is a value of `CodexScenario(answers=…)`.

    With `error` the answer is this error object; with `never` there is none.
    """

    result: Any = None
    error: Mapping[str, Any] | None = None
    never: bool = False


_ECHO = (Say("{{prompt}}"),)


class CodexScenario(Checked, frozen=True, kw_only=True):
    """Says everything that a `FakeCodex` does: which steps answer which prompt, and how it ends.

    Args:
        rules: the first rule whose text is in a prompt answers it.
        replies: otherwise the next of these turns answers it.
        otherwise: answers when no rule fits and all replies are used. By default it repeats the prompt.
        startup: steps to play before the fake reads its input.
        at_eof: steps to play after the end of input.
        answers: the answer for a request of the host, by its method, instead of the usual one.
        script: one list of steps that replaces all of the above, as `from_recording()` makes it.
        exit_code: the exit code at the end.
        chunk_size: the most bytes of one write to stdout; None for no limit.
        model: the model in the fake's answers.
        version: the version in the fake's answers.
        seed: the start of the sequence of ids.

    A turn is a sequence of steps, or the text of the answer. Bytes in place of a step are a raw line.

    Raises:
        ConfigurationError: names the field that does not exist, is given without its name, or has a wrong value.
    """

    replies: Sequence[TurnLike] = ()
    rules: Sequence[CodexRule] = ()
    otherwise: TurnLike = _ECHO
    startup: Sequence[StepLike] = ()
    at_eof: Sequence[StepLike] = ()
    answers: Mapping[str, CodexReply] = msgspec.field(default_factory=dict)
    script: Sequence[StepLike] | None = None
    exit_code: int = 0
    chunk_size: int | None = None
    model: str = "gpt-5.5"
    version: str = "0.169.0"
    seed: int = 0

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with steps in place of texts and of raw lines."""
        given = steps.respell_steps(given, "startup", "at_eof", "script")
        if isinstance(given.get("replies"), (list, tuple)):
            turns = tuple(_respell_turn(turn, where=f"CodexScenario.replies[{place}]") for place, turn in enumerate(given["replies"]))
            given["replies"] = turns
        if "otherwise" in given:
            given["otherwise"] = _respell_turn(given["otherwise"], where="CodexScenario.otherwise")
        return given

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 1:
            raise ConfigurationError(f"CodexScenario.chunk_size must be at least 1 byte, got {self.chunk_size}", option="chunk_size")

    @classmethod
    def echo(cls, **changes: Any) -> CodexScenario:
        """Return a scenario that answers every prompt with the text of the prompt. `changes` are further fields of the scenario."""
        return cls(**changes)

    @classmethod
    def text(cls, text: str, *, chunks: Sequence[str] | None = None, **changes: Any) -> CodexScenario:
        """Return a scenario that answers every prompt with `text`. `changes` are further fields of the scenario."""
        return cls(**own_fields("CodexScenario.text", changes, otherwise=(Say(text, chunks=chunks),)))

    @classmethod
    def turns(cls, turns: Sequence[TurnLike], **changes: Any) -> CodexScenario:
        """Return a scenario that answers each prompt with the next of `turns`, its steps or a text, and repeats the prompt afterwards."""
        if not isinstance(turns, (list, tuple)):
            raise ConfigurationError(f"CodexScenario.turns takes a list of turns, not {type(turns).__name__}", option="turns")
        replies = tuple(_respell_turn(turn, where=f"CodexScenario.turns[{place}]") for place, turn in enumerate(turns))
        return cls(**own_fields("CodexScenario.turns", changes, replies=replies))

    @classmethod
    def from_recording(cls, path: str | Path) -> CodexScenario:
        """Return a scenario that replays a recorded session of `codex app-server`, as fast as the host allows.

        The file has an object `{"t", "dir": "in"|"out"|"err"|"http"|"note", "line"}` on each line. The fake sends each recorded line after
        the inputs before it have come, with the request ids of the host. Raises `ConfigurationError` for a file that is not a recording.
        """
        script: list[CodexStep] = []
        try:
            rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
            for row in rows:
                script += _recorded_step(str(row["dir"]), str(row["line"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigurationError(f"{Path(path).name} is not a recording: {error}", option="path") from error
        return cls(script=tuple(script))

    def to_json(self) -> bytes:
        """Return the scenario as indented JSON, which `from_json()` reads."""
        return msgspec.json.format(msgspec.json.encode(self))

    @classmethod
    def from_json(cls, data: bytes | str) -> CodexScenario:
        """Return the scenario that `to_json()` has written as `data`. Raises `ConfigurationError`, which says where the text is wrong."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigurationError(f"not a scenario: {error}", option="scenario") from error


def _respell_turn(turn: Any, *, where: str) -> Any:
    """Return the steps that a text or a list stands for; `where` names its place in errors."""
    if isinstance(turn, str):
        return (Say(turn),)
    if isinstance(turn, (list, tuple)):
        return steps.respell_steps({"steps": turn}, "steps")["steps"]
    raise ConfigurationError(f"{where}: {type(turn).__name__} is not a list of steps, or a text", option=where)


def _recorded_step(direction: str, line: str) -> list[CodexStep]:
    if direction == "in":
        return [AwaitRecorded(line=line)]
    if direction == "out":
        return [EmitRecorded(line)]
    if direction == "err":
        return [steps.Stderr(f"{line}\n")]
    if direction == "note" and line.startswith("standard input closed"):
        return [AwaitRecorded(line=None)]
    return []
