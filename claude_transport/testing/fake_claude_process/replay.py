"""Plays a recording: the recorded lines go out when the inputs that caused them have come in."""

from __future__ import annotations

import json
import signal

from .control import answer_request
from .play import DEEDS
from .stage import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .stage import Stage


class Replay:
    """The inputs that came and were not yet called for, and the host's ids for the recorded ones."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.requests: dict[str, dict[str, Any]] = {}
        self.arrived: list[dict[str, Any]] = []
        self.expected: list[tuple[str, str | None]] = []
        stage.handle = self.handle

    def run(self, script: list[dict[str, Any]]) -> None:
        stage = self.stage
        self.expected = [key_of(step) for step in script if step["step"] == "await_input"]
        for step in script:
            if step["step"] == "await_signal":  # a host may send it before the step that waits for it has begun
                signal.signal(getattr(signal, step["name"]), stage.note_signal)
        for step in script:
            if step["step"] == "await_input":
                if not self.await_input(step):
                    return  # the input is over before the recording: nothing more would have happened
            elif step["step"] == "emit_recorded":
                self.emit(step["line"])
            elif step["step"] == "answer_recorded":
                answer_request(stage, self.requests[step["request_id"]])
            else:
                stage.wait(0)
                DEEDS[step["step"]](stage, step)

    def await_input(self, step: dict[str, Any]) -> bool:
        """False when the input ended first."""
        taken: list[bool] = []

        def over() -> bool:
            if step["type"] != "eof" and self.take(step):
                taken.append(True)
            return bool(taken) or self.stage.input.ended

        self.stage.wait(None, over)
        return bool(taken) or step["type"] == "eof"

    def handle(self, line: bytes) -> None:
        if not line.strip():
            return
        self.stage.journal.record_input(line)
        try:
            frame = json.loads(line)
        except ValueError:
            frame = {"type": "malformed"}
        if not isinstance(frame, dict):
            return
        if key_of_frame(frame) in self.expected:
            self.arrived.append(frame)
        elif frame.get("type") == "control_request":
            answer_request(self.stage, frame)  # the recording's host never asked this: the usual answer

    def take(self, step: dict[str, Any]) -> bool:
        """Whether an input like the recorded one has come; it is used up."""
        for frame in self.arrived:
            if key_of_frame(frame) == key_of(step):
                self.arrived.remove(frame)
                self.expected.remove(key_of(step))
                if step["request_id"] is not None:
                    self.requests[step["request_id"]] = frame
                return True
        return False

    def emit(self, line: str) -> None:
        frame = json.loads(line)
        response = frame.get("response")
        if frame.get("type") == "control_response" and isinstance(response, dict) and response.get("request_id") in self.requests:
            response["request_id"] = self.requests[response["request_id"]].get("request_id")
        self.stage.output.write(encode(frame))
        self.stage.raise_signal()


def key_of(step: dict[str, Any]) -> tuple[str, str | None]:
    return step["type"], step["subtype"]


def key_of_frame(frame: dict[str, Any]) -> tuple[str, str | None]:
    request = frame.get("request")
    return str(frame.get("type")), request.get("subtype") if isinstance(request, dict) else None
