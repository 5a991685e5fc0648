"""One run of the fake, from the scenario file to the exit code: a session of turns, or the replay of a recording."""

from __future__ import annotations

import json
import signal

from .control import answer_request
from .hooks import HookVerdict, call_hooks, inform, tell_notes
from .mcp import await_servers, connect_servers, text_of_result
from .play import DEEDS, end_turn, play, say_init
from .speech import PLAIN_RESULT, end_aborted_turn, say_result
from .stage import PlayedTurn, Signalled, Stage, StopBlocked, TurnAborted, TurnStopped, encode, excerpt
from .stdio import open_scenario

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ECHO: dict[str, Any] = {  # what `scenario.ECHO` plays, when no turn was written for a prompt
    "step": "text",
    "text": "{{prompt}}",
    "chunks": None,
    "by_word": False,
    "pace": 0.0,
    "at_most": None,
    "gate": None,
}
HANDLED = ("SIGTERM", "SIGINT", "SIGHUP")
VERSION_FLAGS = ("-v", "--version")


def play_scenario(directory: str, argv: list[str]) -> None:
    """Play the scenario in `directory`, then end the process."""
    asks_version = bool(argv) and argv[0] in VERSION_FLAGS
    scenario, journal = open_scenario(directory, argv, fake="fake claude", opened_as="FakeClaude", counts=not asks_version)
    session = FakeSession(Stage(directory, argv, scenario, journal))
    if asks_version:
        session.say_version()
    else:
        session.run()


class FakeSession:
    """Read input lines, play turns, and handle signals."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.uuids: set[str] = set()
        self.turns: int = 0
        stage.handle = self.handle
        for name in HANDLED:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), stage.catch)

    def run(self) -> None:
        stage = self.stage
        try:
            self._play()
            stage.exit(self._exit_code())
        except Signalled as signalled:
            self._end_by_signal(signalled.number)
        except Exception as error:
            stage.note_broken(f"{type(error).__name__}: {error}", place=stage.reached)
            raise

    def say_version(self) -> None:
        """Play the start of the scenario, then say the version and end."""
        stage = self.stage
        try:
            self._start()
        except Signalled as signalled:
            self._end_by_signal(signalled.number)
        stage.output.write(f"{stage.scenario['version']} (Claude Code)\n".encode())
        stage.exit(0)

    def _start(self) -> None:
        stage = self.stage
        stage.input.held = True
        stage.path.append("startup")
        play(stage, stage.scenario["startup"])
        stage.path.pop()
        stage.input.held = False

    def _play(self) -> None:
        stage = self.stage
        self._start()
        if stage.scenario["script"] is not None:
            ClaudeReplay(stage).run(stage.scenario["script"])
            return
        written = len(stage.scenario["replies"])
        while not stage.ending:
            if stage.queue:
                self._play_turn(self._next_messages())
            elif stage.input.ended:
                break
            else:
                played = written - len(stage.scenario["replies"])
                stage.path[:] = [f"{played} of {written} turns played"]
                stage.at("a prompt, or the end of the input")
                stage.wait(None, lambda: bool(stage.queue) or stage.input.ended or stage.ending)
        if not stage.ending:
            stage.path.append("at_eof")
            play(stage, stage.scenario["at_eof"])

    def _exit_code(self) -> int:
        wanted = self.stage.scenario["exit_code"]
        # 1 if the last result was an error, docs/reference/protocol.md#exit-codes
        return int(wanted) if wanted is not None else int(self.stage.failed)

    def _end_by_signal(self, number: int) -> None:
        stage = self.stage
        steps = stage.on_signal.get(number)
        if steps is not None:
            stage.on_signal[number] = None  # a second one does not start them again
            play(stage, steps)
            stage.exit(128 + number)
        end_aborted_turn(stage, TurnAborted("interrupt"))
        stage.exit(0)  # SIGINT aborts the turn and ends well (recordings 20b, 20d)

    def _next_messages(self) -> list[dict[str, Any]]:
        """Take all waiting messages as one turn, or the first of them."""
        queue = self.stage.queue
        count = len(queue) if self.stage.scenario["merge_queued"] else 1
        messages, queue[:] = queue[:count], queue[count:]
        return messages

    def _play_turn(self, messages: list[dict[str, Any]]) -> None:
        stage = self.stage
        turn = stage.turn = PlayedTurn(messages)
        stage.answer = None
        self.turns += 1
        stage.path[:] = [f"turn {self.turns}"]
        for uuid in turn.uuids:
            stage.lifecycle(uuid, "started")
        stage.change_state("running")
        try:
            self._begin_turn(turn, messages)
        except TurnAborted as aborted:
            stage.cut("an interrupt" if aborted.by != "now" else "a more urgent prompt")
            end_aborted_turn(stage, aborted)
        except TurnStopped as stopped:
            say_result(stage, {**PLAIN_RESULT, "text": "", **stopped.ending})
        if turn.finished and stage.session_state == "running" and not stage.has_agents:
            stage.change_state("idle")  # a shell has ended, and the scenario has no turn for that
        stage.turn = None

    def _begin_turn(self, turn: PlayedTurn, messages: list[dict[str, Any]]) -> None:
        stage = self.stage
        connect_servers(stage, list(stage.servers), None)  # those that are not yet: a host need not send `initialize`
        await_servers(stage)
        turn.prompt_id = stage.uuid() if stage.hooks else ""
        verdict = call_hooks(stage, "UserPromptSubmit", None, {"prompt": turn.prompt}) if not stage.input.ended else HookVerdict()
        is_held = verdict.stops or bool(verdict.blocks)
        scripted = None if is_held else self._choose(turn.prompt)
        if scripted is None or scripted["init"]:
            say_init(stage)
        if "--replay-user-messages" in stage.argv:
            self._replay(messages)
        tell_notes(stage, verdict, "UserPromptSubmit")
        if scripted is None:
            hold_prompt(stage, turn.prompt, verdict)
            return
        while True:
            try:
                play(stage, scripted["steps"])
                if scripted["result"] and not turn.has_result:
                    end_turn(stage, PLAIN_RESULT)
                return
            except StopBlocked as blocked:
                scripted = self._choose(blocked.feedback)

    def _choose(self, prompt: str) -> dict[str, Any]:
        stage, scenario = self.stage, self.stage.scenario
        for rule in scenario["rules"]:
            if rule["contains"].lower() in prompt.lower():
                return dict(rule["turn"])
        if scenario["replies"]:
            stage.journal.record("turn")
            return dict(scenario["replies"].pop(0))
        if scenario["otherwise"] is None:
            stage.require("no further prompt: no turn was written for it", f"the prompt {excerpt(prompt)!r}")
            return {"init": True, "result": True, "steps": [ECHO]}
        return dict(scenario["otherwise"])

    def _replay(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            identity = {"uuid": message["uuid"]} if isinstance(message.get("uuid"), str) else {}
            frame = {"type": "user", "message": message["message"], "parent_tool_use_id": None, "isReplay": True}
            self.stage.emit({**frame, **identity, "timestamp": self.stage.timestamp()})

    def handle(self, line: bytes) -> None:
        """Handle one line of stdin as the CLI does (docs/reference/protocol.md#lines-to-the-cli)."""
        if not line.strip():
            return
        self.stage.journal.record_input(line)
        frame = self.parse(line)
        if frame is None:
            return
        kind = frame.get("type")
        request = frame.get("request")
        if self.stage.turn is not None:
            self.stage.turn.inputs.append((str(kind), request.get("subtype") if isinstance(request, dict) else None))
        if kind == "user":
            self._receive_user(frame)
        elif kind == "control_request":
            answer_request(self.stage, frame)
        elif kind == "control_response":
            self._receive_answer(frame.get("response"))

    def _receive_answer(self, response: Any) -> None:
        if not isinstance(response, dict):
            return
        stage, request_id = self.stage, str(response.get("request_id"))
        if request_id in stage.pending:
            error = error_in(response)
            if error is not None and request_id not in stage.may_be_refused:
                asked = stage.pending[request_id].get("subtype")
                stage.require(f"an answer to {asked} that is no error", f"the error {error!r}")
            stage.answers[request_id] = response
        elif request_id in stage.listeners:
            if response.get("subtype") == "error":
                stage.require("an answer to mcp_message that is no error", f"the error {response.get('error')!r}")
            stage.listeners.pop(request_id)(response)

    def parse(self, line: bytes) -> dict[str, Any] | None:
        """Decode a line. Returns None for JSON that is not an object (ignored); invalid JSON is fatal."""
        text = line.decode("utf-8", "replace").strip()
        try:
            frame = json.loads(text)
        except ValueError:
            kind = text.partition('"type":')[2].lstrip().partition('"')[2].partition('"')[0] or "unknown"
            self.stage.fail(f"Error parsing streaming input line (type={kind}, {len(text)} chars): SyntaxError")
        return frame if isinstance(frame, dict) else None

    def _receive_user(self, frame: dict[str, Any]) -> None:
        stage = self.stage
        message = frame.get("message")
        role = message.get("role", "undefined") if isinstance(message, dict) else "undefined"
        if role != "user":
            stage.fail(f"Error: Expected message role 'user', got '{role}'")  # recordings 18h, 18i
        uuid = frame.get("uuid")
        if isinstance(uuid, str):
            if uuid in self.uuids:
                return  # a repeated uuid is dropped silently, docs/reference/protocol.md#repeated-uuids
            self.uuids.add(uuid)
            stage.lifecycle(uuid, "queued")
        stage.queue.append(frame)
        if frame.get("priority") == "now" and stage.turn is not None and not stage.turn.finished:
            raise TurnAborted("now")  # recording 10c


def hold_prompt(stage: Stage, prompt: str, verdict: HookVerdict) -> None:
    """End the turn of a prompt that a hook does not let pass."""
    reason = verdict.blocks[0] if verdict.blocks else verdict.stop_reason
    if verdict.blocks:
        text = f"UserPromptSubmit operation blocked by hook:\n{reason}\n\nOriginal prompt: {prompt}"
    else:
        text = f"Operation stopped by hook: {reason}" if reason else "Operation stopped by hook"
    outcome: dict[str, Any] = {"kind": "blocked_by_hook" if verdict.blocks else "stopped_by_hook", "prompt_kept": not verdict.blocks}
    outcome |= {"reason": reason} if reason else {}
    inform(stage, text, level="warning", prevent_continuation=True, prompt_submit_outcome=outcome)
    free = {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0, "num_turns": 0}
    say_result(stage, {**PLAIN_RESULT, **free, "text": text, "terminal_reason": None, "stop_reason": None})


def error_in(response: dict[str, Any]) -> str | None:
    """Return the error in an answer of the host, also one inside an MCP response, or of a tool; None when there is none."""
    if response.get("subtype") == "error":
        return str(response.get("error"))
    payload = response.get("response")
    answer = payload.get("mcp_response") if isinstance(payload, dict) else None
    if not isinstance(answer, dict):
        return None
    if (error := answer.get("error")) is not None:
        return str(error.get("message", error) if isinstance(error, dict) else error)
    result = answer.get("result")
    return text_of_result(result) if isinstance(result, dict) and result.get("isError") else None


class ClaudeReplay:
    """Play a recording: send the recorded lines after the inputs that came before them, with the request ids of this host."""

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
            if step["step"] == "await_signal":  # the host may send it before the step that waits for it
                signal.signal(getattr(signal, step["name"]), stage.note_signal)
        for number, step in enumerate(script, 1):
            stage.path[:] = [f"step {number} of {len(script)}"]
            if step["step"] == "await_input":
                stage.at(f"{step['type']} {step['subtype'] or ''}".rstrip())
                if not self.await_input(step):
                    stage.require(f"{step['type']} {step['subtype'] or ''}".rstrip(), "the end of the input")
                    return  # the input ended before the recording did
            elif step["step"] == "emit_recorded":
                self.emit(step["line"])
            elif step["step"] == "answer_recorded":
                answer_request(stage, self.requests[step["request_id"]])
            else:
                stage.wait(0)
                DEEDS[step["step"]](stage, step)

        stage.journal.record("done")

    def await_input(self, step: dict[str, Any]) -> bool:
        """Wait for an input like the recorded one. Returns False when the input ended first."""
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
            answer_request(self.stage, frame)  # not in the recording: answer as usual

    def take(self, step: dict[str, Any]) -> bool:
        """Return True when an input like the recorded one has come, and remove it from the waiting ones."""
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
