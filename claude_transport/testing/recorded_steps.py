"""The steps that replay a recorded session: its output lines, each after the inputs that came before it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from claude_transport.errors import ConfigurationError
from claude_transport.testing.steps import AnswerRecorded, AwaitInput, AwaitSignal, EmitRecorded, Hang, Stderr, Step

__all__ = ["read_recorded_steps"]

# answers too large to be recorded whole, and made by the fake itself
ANSWERED_BY_THE_FAKE = frozenset({"initialize", "get_context_usage"})
_ID = re.compile(r'"request_id": ?"([^"]*)"')
_SIGNAL = re.compile(r"^driver sends (SIG[A-Z]+)$")
_EXIT = re.compile(r"^exit code (-?\d+)$")


def read_recorded_steps(path: str | Path) -> tuple[list[Step], int | None]:
    """The steps and the exit code of a recording: NDJSON of `{"t", "dir": "in"|"out"|"err"|"note", "line", "trimmed_from_chars"?}`.

    A line that was trimmed is replaced: the answers to `initialize` and `get_context_usage` by the fake's own, any other frame by the
    smallest one of its type. Raises `ConfigurationError` for a file that is not such a recording.
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
        elif not ended:  # what the driver did to a process that was over already changed nothing
            steps.extend(_noted(line))
    if exit_code is not None and exit_code < 0:
        return [*steps, Hang()], None  # the recorded process was killed: this one waits for the same
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
    """What to wait for; None for input that the CLI ignores (recordings 18d, 18f), because nothing came of it."""
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
    """The smallest frame of a trimmed line's type; one without a `type` at its beginning is a result
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
