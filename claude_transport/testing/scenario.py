"""`Scenario`: what a fake claude does, as frozen data that can be stored in one JSON file.

Owns the ready-made scenarios and the conversion of recordings. Single steps are in `steps`; `fake_claude` plays a scenario.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.testing.checked import Checked, check_not_negative, own_fields
from claude_transport.testing.steps import (
    AnswerRecorded,
    Assistant,
    AwaitInput,
    AwaitSignal,
    EmitRecorded,
    Exit,
    Hang,
    Result,
    ScriptedTurn,
    Stderr,
    Step,
    StepLike,
    Text,
    ToolUse,
    TurnLike,
    respell_steps,
    respell_turn,
)

Turn = ScriptedTurn  # its name until `claude_transport.Turn`, the handle on a prompt, was a public name, too


class Rule(Checked, frozen=True, kw_only=True):
    """Makes a `Scenario` answer every prompt that contains the text `contains`, in upper or lower case, with `turn`.

    `turn` is a `ScriptedTurn`, its steps, or the text of the answer.
    """

    contains: str
    turn: TurnLike

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with a `ScriptedTurn` in place of a text or a list of steps."""
        return {**given, "turn": respell_turn(given["turn"], where="Rule.turn")}


class Answer(Checked, frozen=True, kw_only=True):
    """How the fake CLI answers the host's control requests of one subtype. It is a value of `Scenario(answers=…)`.

    First the steps `before` are played (a real CLI sends an MCP `initialize` there). Then `delay` seconds pass, the answer
    is sent, and the steps `after` are played.

    The keys of `response` replace keys of the fake's usual answer. With `error` (and `error_code`), the answer is an error with this text.
    With `never`, there is no answer, and the steps `after` are not played.
    """

    response: Mapping[str, Any] = msgspec.field(default_factory=dict)
    error: str | None = None
    error_code: str | None = None
    never: bool = False
    delay: float = 0.0
    before: Sequence[StepLike] = ()
    after: Sequence[StepLike] = ()

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with steps in place of messages and raw lines."""
        return respell_steps(given, "before", "after")

    def __post_init__(self) -> None:
        check_not_negative("Answer", "delay", self.delay)


ECHO = ScriptedTurn((Text("{{prompt}}"), Result()))


class Scenario(Checked, frozen=True, kw_only=True):
    """Says everything that a `FakeClaude` does: which turn answers which prompt, how it answers control requests, and how it ends.

    Args:
        rules: the first rule whose text is in a user message answers it.
        replies: otherwise the next of these turns answers it.
        otherwise: answers when no rule fits and all replies are used. None repeats the prompt, and fails a strict fake: no turn was written
            for that prompt. `Scenario.echo()` repeats every prompt on purpose.
        startup: steps to play before the fake reads its stdin; one that waits for input begins to read.
        at_eof: steps to play after the end of input and of the last turn, such as a late transcript flush or a `Hang`.
        answers: the answer for a control request, by its subtype, instead of the usual one.
        script: one list of steps that replaces all of the above.
        exit_code: the exit code; None exits with 1 after an error result and with 0 otherwise, as the CLI does.
        chunk_size: the most bytes of one write to stdout; None for no limit.
        merge_queued: whether all messages that wait at the end of a turn become one turn.
        model: the model in the fake's answers.
        version: the CLI version in the fake's answers.
        seed: the start of the sequence of ids. The same seed gives the same ids.

    A turn is a `ScriptedTurn`, its steps, or the text of the answer.

    Raises:
        ConfigurationError: names the field that does not exist, is given without its name, or has a wrong value.
    """

    replies: Sequence[TurnLike] = ()
    rules: Sequence[Rule] = ()
    otherwise: TurnLike | None = None
    startup: Sequence[StepLike] = ()
    answers: Mapping[str, Answer] = msgspec.field(default_factory=dict)
    at_eof: Sequence[StepLike] = ()
    script: Sequence[StepLike] | None = None
    exit_code: int | None = None
    chunk_size: int | None = None
    merge_queued: bool = True
    model: str = "claude-opus-5-5"
    version: str = "2.1.329"
    seed: int = 0

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with turns in place of texts and lists of steps, and steps in place of messages and raw lines."""
        given = respell_steps(given, "startup", "at_eof", "script")
        if isinstance(given.get("replies"), (list, tuple)):
            turns = tuple(respell_turn(turn, where=f"Scenario.replies[{place}]") for place, turn in enumerate(given["replies"]))
            given["replies"] = turns
        if given.get("otherwise") is not None:
            given["otherwise"] = respell_turn(given["otherwise"], where="Scenario.otherwise")
        return given

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 1:
            raise ConfigurationError(f"Scenario.chunk_size must be at least 1 byte, got {self.chunk_size}", option="chunk_size")

    @classmethod
    def echo(cls, **changes: Any) -> Scenario:
        """Return a scenario that answers every prompt with the text of the prompt. `changes` are further fields of the scenario."""
        return cls(**{"otherwise": ECHO, **changes})

    @classmethod
    def text(cls, text: str, *, chunks: Sequence[str] | None = None, **changes: Any) -> Scenario:
        """Return a scenario that answers every prompt with `text`. `changes` are further fields of the scenario.

        `chunks` are the pieces in which the text is streamed when the host has asked for partial messages.
        """
        return cls(**own_fields("Scenario.text", changes, otherwise=ScriptedTurn((Text(text, chunks=chunks), Result()))))

    @classmethod
    def turns(cls, turns: Sequence[TurnLike], *, init: bool = True, **changes: Any) -> Scenario:
        """Return a scenario that answers each user message with the next item of `turns`, and repeats the prompt when all are used.

        An item is a `ScriptedTurn`, its steps, or the text of the answer. A message in place of a step (`assistant("…")`, `result("…")`) is
        sent with the ids of this session, bytes in place of a step are a raw line. `init=False` leaves `system/init` out of turns that are
        made of steps or texts. `changes` are further fields of the scenario.
        """
        if not isinstance(turns, (list, tuple)):
            raise ConfigurationError(f"Scenario.turns takes a list of turns, not {type(turns).__name__}", option="turns")
        replies = tuple(respell_turn(turn, where=f"Scenario.turns[{place}]", init=init) for place, turn in enumerate(turns))
        return cls(**own_fields("Scenario.turns", changes, replies=replies))

    @classmethod
    def crash(cls, *, exit_code: int = 1, stderr: str = "", after: Sequence[StepLike] = (), **changes: Any) -> Scenario:
        """Return a scenario that answers the handshake, and ends with `exit_code` in the middle of its first turn.

        Before that it plays the steps `after` and writes `stderr`. `changes` are further fields of the scenario.
        """
        said = (Stderr(f"{stderr}\n"),) if stderr else ()
        turn = ScriptedTurn((*after, *said, Exit(exit_code)))
        return cls(**own_fields("Scenario.crash", changes, otherwise=turn))

    @classmethod
    def simulated(cls, *, pace: float = 0.03) -> Scenario:
        """Return the scenario of `claude-transport ask --offline`. Its answers are labelled as simulated, and done in less than 1.5 s.

        The same prompt gets the same answer. The prompt "use a tool" makes it ask for permission to run `echo hello`;
        "simulate an error" makes it fail with a rate limit. `pace` is the time before each word, in seconds.
        """
        return cls(
            otherwise=ScriptedTurn((_simulated(GREETING, pace=pace), FREE)),
            rules=(Rule(contains="use a tool", turn=_simulated_tool(pace)), Rule(contains="simulate an error", turn=SIMULATED_ERROR)),
        )

    @classmethod
    def from_recording(cls, path: str | Path) -> Scenario:
        """Return a scenario that replays a recorded session, as fast as the host allows.

        The file has an object `{"t", "dir": "in"|"out"|"err"|"note", "line"}` on each line. The fake sends each recorded output line after
        the inputs before it have come. The request ids of the host replace the recorded ones; all other bytes stay. Requests that are not
        in the recording get the usual answers. Raises `ConfigurationError` for a file that is not a recording.
        """
        steps, exit_code = read_recorded_steps(path)
        return cls(script=tuple(steps), exit_code=exit_code)

    def to_json(self) -> bytes:
        """Return the scenario as indented JSON, which `from_json()` reads."""
        return msgspec.json.format(msgspec.json.encode(self))

    @classmethod
    def from_json(cls, data: bytes | str) -> Scenario:
        """Return the scenario that `to_json()` has written as `data`. Raises `ConfigurationError`, which says where the text is wrong."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigurationError(f"not a scenario: {error}", option="scenario") from error


GREETING = (
    "[simulated] Hello! I am the stand-in that answers when there is no network and no key. You said: “{{excerpt}}” "
    "A real Claude would have something to say about that; I only show you how its words arrive."
)
FREE = Result(input_tokens=0, output_tokens=0, cost_usd=0.0)
SIMULATED_ERROR = ScriptedTurn(
    (
        Assistant(
            [{"type": "text", "text": "API Error: Request rejected (429) · [simulated] you asked for an error"}],
            model="<synthetic>",
            extra={"error": "rate_limit", "is_api_error_message": True, "api_error_status": 429},
        ),
        Result(is_error=True, terminal_reason="api_error", api_error_status=429, input_tokens=0, output_tokens=0, cost_usd=0.0),
    )
)


def _simulated(text: str, *, pace: float, at_most: float = 1.2) -> Text:
    return Text(text, by_word=True, pace=pace, at_most=at_most)


def _simulated_tool(pace: float) -> ScriptedTurn:
    return ScriptedTurn(
        (
            _simulated("[simulated] You asked for a tool, so I would like to run `echo hello`.", pace=pace, at_most=0.5),
            ToolUse("Bash", input={"command": "echo hello", "description": "Say hello"}, output="hello", description="Say hello"),
            _simulated("[simulated] That was a tool call and its answer. Nothing was really run.", pace=pace, at_most=0.5),
            FREE,
        )
    )


# these answers are too large to be recorded completely, so the fake makes them itself
ANSWERED_BY_THE_FAKE = frozenset({"initialize", "get_context_usage"})
_ID = re.compile(r'"request_id": ?"([^"]*)"')
_SIGNAL = re.compile(r"^driver sends (SIG[A-Z]+)$")
_EXIT = re.compile(r"^exit code (-?\d+)$")


def read_recorded_steps(path: str | Path) -> tuple[list[Step], int | None]:
    """Read a recording, and return its steps and its exit code.

    A recording is NDJSON of `{"t", "dir": "in"|"out"|"err"|"note", "line", "trimmed_from_chars"?}`. Trimmed lines are replaced: the
    answers to `initialize` and `get_context_usage` with those of the fake, any other frame with the smallest one of its type. Raises
    `ConfigurationError` for any other file.
    """
    subtypes: dict[str, str | None] = {}
    steps: list[Step] = []
    exit_code: int | None = None
    ended = False
    for row in _read_rows(Path(path)):
        line, kind = row["line"], row["dir"]
        if kind == "in":
            step = _awaited(line)
            if step is not None:
                steps.append(step)
            if step is not None and step.request_id is not None:
                subtypes[step.request_id] = step.subtype
        elif kind == "out":
            steps.append(_emitted(line, trimmed="trimmed_from_chars" in row, subtypes=subtypes))
        elif kind == "err":
            steps.append(Stderr(f"{line}\n"))
        elif (found := _EXIT.match(line)) is not None:
            exit_code = int(found[1])
        elif line == "out EOF":
            ended = True
        elif not ended:  # after the end of the process, the actions of the driver have no effect
            steps.extend(_noted(line))
    if exit_code is not None and exit_code < 0:
        return [*steps, Hang()], None  # the recorded process was killed, so this one waits for its kill
    return steps, exit_code


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path.name} is not a readable recording: {error}", option="path") from error
    if not rows or not all(isinstance(row, dict) and isinstance(row.get("line"), str) and "dir" in row for row in rows):
        raise ConfigurationError(f"{path.name} is not a recording: every line needs 'dir' and 'line'", option="path")
    return rows


def _awaited(line: str) -> AwaitInput | None:
    """Return the input to wait for, or None for input that the CLI ignores."""
    if not line.strip():
        return None
    try:
        frame = json.loads(line)
    except ValueError:
        return AwaitInput(type="malformed")
    if not isinstance(frame, dict):
        return None
    request = frame.get("request")
    if frame.get("type") == "control_request" and isinstance(request, dict):
        return AwaitInput(type="control_request", subtype=request.get("subtype"), request_id=frame.get("request_id"))
    return AwaitInput(type=str(frame.get("type")))


def _emitted(line: str, *, trimmed: bool, subtypes: dict[str, str | None]) -> Step:
    if not trimmed:
        return EmitRecorded(line)
    found = _ID.search(line)
    if line.startswith('{"type":"control_response"') and found is not None:
        if subtypes.get(found[1]) in ANSWERED_BY_THE_FAKE:
            return AnswerRecorded(found[1])
        return EmitRecorded(
            json.dumps({"type": "control_response", "response": {"subtype": "success", "request_id": found[1], "response": {}}})
        )
    return EmitRecorded(json.dumps(_smallest(line)))


def _smallest(line: str) -> dict[str, Any]:
    """Return the smallest frame of a trimmed line's type. A line that does not begin with `type` is a result
    (docs/reference/protocol.md#key-order)."""
    kind = re.match(r'\{"type": ?"(\w+)"', line)
    if kind is None:
        return {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "",
            "num_turns": 1,
            "duration_ms": 0,
            "duration_api_ms": 0,
        }
    if kind[1] == "assistant":
        message = {"id": "msg_trimmed", "type": "message", "role": "assistant", "content": [{"type": "text", "text": ""}]}
        return {"type": "assistant", "message": message, "parent_tool_use_id": None}
    if kind[1] == "transcript_mirror":
        return {"type": "transcript_mirror", "filePath": "", "entries": []}
    subtype = re.match(r'\{"type": ?"\w+", ?"subtype": ?"(\w+)"', line)
    return {"type": kind[1], **({"subtype": subtype[1]} if subtype else {})}


def _noted(line: str) -> list[Step]:
    if line == "stdin closed by driver":
        return [AwaitInput(type="eof")]
    found = _SIGNAL.match(line)
    if found is None:
        return []
    return [Hang() if found[1] == "SIGKILL" else AwaitSignal(found[1])]
