"""One run of the fake, from the scenario file to the exit code: requests of the host, turns of its threads, or a replayed recording."""

from __future__ import annotations

import json
import os
import signal

from . import frames
from .turns import SHARED, FakeTurnEnded, PlayedCodexTurn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from claude_transport.testing.fake_claude_process.play import DEEDS
    from claude_transport.testing.fake_claude_process.stage import EPOCH, POLL_SECONDS, Signalled, Stage, encode
    from claude_transport.testing.fake_claude_process.stdio import open_scenario
else:
    from fake_claude_process.play import DEEDS
    from fake_claude_process.stage import EPOCH, POLL_SECONDS, Signalled, Stage, encode
    from fake_claude_process.stdio import open_scenario

HANDLED = ("SIGTERM", "SIGINT", "SIGHUP")
REFUSED = -32600  # the code of nearly every error


class RpcRefused(Exception):
    """Answer a request with an error."""

    def __init__(self, message: str, *, code: int = REFUSED, **data: Any) -> None:
        super().__init__(message)
        self.error: dict[str, Any] = {"code": code, **({"data": data} if data else {}), "message": message}


class CodexStage(Stage):
    """The stage of `FakeClaude`, with the signals and the placeholders of Codex."""

    program = "fake codex"
    prompt: str = ""

    def _look_up(self, name: str) -> Any:
        return self.prompt if name == "prompt" else super()._look_up(name)

    def catch(self, number: int, _frame: Any = None) -> None:
        """Handle a signal, unless the scenario has steps for it: SIGTERM ends with code 0, others kill, as with the real program."""
        if number in self.on_signal:
            super().catch(number, _frame)
            return
        self.journal.record("signal", number=int(number))
        if number == signal.SIGTERM:
            self.exit(0)
        self.journal.record("dies", signal=int(number))
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def play_scenario(directory: str, argv: list[str]) -> None:
    """Play the scenario in `directory`, then end the process."""
    scenario, journal = open_scenario(directory, argv, fake="fake codex", opened_as="FakeCodex")
    Server(CodexStage(directory, argv, scenario, journal)).run()


class Server:
    """Reads lines, answers requests, and plays the turns of all threads in turn."""

    def __init__(self, stage: CodexStage) -> None:
        self.stage = stage
        self.home: str = os.environ.get("CODEX_HOME") or f"{os.environ.get('HOME', '')}/.codex"
        self.initialized: bool = False
        self.threads: dict[str, dict[str, Any]] = {}
        self.approvals: dict[str, Any] = {}
        self.turns: list[PlayedCodexTurn] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.allowed: set[tuple[str, str]] = set()
        self.totals: dict[str, dict[str, int]] = {}
        self._asked = 0
        self._ticks = 0
        stage.handle = self.handle
        for name in HANDLED:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), stage.catch)

    def run(self) -> NoReturn:
        """Play until the end of input, and exit."""
        stage, scenario = self.stage, self.stage.scenario
        try:
            stage.input.held = True
            self._play(scenario["startup"])
            stage.input.held = False
            if scenario["script"] is not None:
                CodexReplay(stage).run(scenario["script"])
            else:
                while not stage.input.ended:
                    moved = self._advance()
                    polled = POLL_SECONDS if self.turns else None
                    stage.wait(0 if moved else None, self._has_something, polled)
                self._play(scenario["at_eof"])  # a running turn is dropped
        except Signalled as signalled:
            steps, stage.on_signal[signalled.number] = stage.on_signal[signalled.number], None  # a second one does not start them again
            self._play(steps or [])
            stage.exit(128 + signalled.number)
        stage.exit(int(scenario["exit_code"]))

    def _play(self, steps: list[dict[str, Any]]) -> None:
        """Play steps outside of a turn."""
        for step in steps:
            if step["step"] in SHARED or step["step"] in ("delay", "wait_for_file"):
                DEEDS[step["step"]](self.stage, step)
            elif step["step"] == "notify":
                self.notify(step["method"], step["params"])

    def _has_something(self) -> bool:
        return self.stage.input.ended or any(turn.ready() for turn in self.turns)

    def _advance(self) -> bool:
        """Let every turn that is ready go on to where it waits next. Returns whether any did."""
        moved = False
        for turn in list(self.turns):
            if turn not in self.turns or not turn.ready():
                continue
            moved = True
            try:
                turn.ready = next(turn.steps) or _at_once
            except StopIteration:
                self._end(turn, "completed")
            except FakeTurnEnded as ended:
                if ended.status == "interrupted":
                    turn.count_usage()
                self._end(turn, ended.status, ended.error)
        return moved

    def _end(self, turn: PlayedCodexTurn, status: str, error: dict[str, Any] | None = None) -> None:
        self.turns.remove(turn)
        turn.withdraw()
        if status != "failed":
            turn.change_status(type="idle")
        items = [turn.items[-1]] if turn.said is not None and status == "completed" else []
        now = self.now()
        fields = {"status": status, "error": error, "startedAt": turn.began, "completedAt": now, "durationMs": 1}
        whole = frames.turn(turn.id, **fields, items=turn.items, itemsView="full")
        turn.thread["turns"].append(whole)
        turn.thread["preview"] = turn.thread["preview"] or turn.prompt
        self._keep(turn.thread)
        view = {"items": items, "itemsView": "summary"} if items else {}
        self.notify("turn/completed", {"threadId": turn.thread["id"], "turn": frames.turn(turn.id, **fields, **view)})

    # What is said.

    def now(self) -> int:
        return EPOCH + self._ticks // 1000

    def milliseconds(self) -> int:
        self._ticks += 1
        return EPOCH * 1000 + self._ticks

    def send(self, message: dict[str, Any]) -> None:
        self.stage.output.write(encode(message))
        self.stage.raise_signal()

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send({"method": method, "params": params, "emittedAtMs": self.milliseconds()})

    def ask(self, method: str, params: dict[str, Any]) -> int:
        number = self._asked
        self._asked += 1
        self.send({"method": method, "id": number, "params": params})
        return number

    def choose(self, prompt: str) -> list[dict[str, Any]]:
        """Return the steps that answer this prompt."""
        self.stage.prompt = prompt
        scenario = self.stage.scenario
        for rule in scenario["rules"]:
            if rule["contains"].lower() in prompt.lower():
                return list(rule["steps"])
        return list(scenario["replies"].pop(0) if scenario["replies"] else scenario["otherwise"])

    # What is heard.

    def handle(self, line: bytes) -> None:
        """Handle one line of the host."""
        self.stage.journal.record_input(line)
        try:
            message = json.loads(line)
        except ValueError:
            self.stage.errors.write(b"ERROR codex_app_server: Failed to deserialize JSONRPCMessage\n")
            return
        if not isinstance(message, dict):
            return  # a batch is answered with nothing
        if "method" in message and "id" in message:
            self._answer(message)
        elif "method" not in message and message.get("id") in {number for turn in self.turns for number in turn.asked}:
            self.answers[message["id"]] = message

    def _answer(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params")
        scripted = self.stage.scenario["answers"].get(method)
        if scripted is not None:
            if not scripted["never"]:
                given = {"error": scripted["error"]} if scripted["error"] else {"result": self.stage.fill(scripted["result"])}
                self.send({**given, "id": message["id"]} if scripted["error"] else {"id": message["id"], **given})
            return
        try:
            answer, *afterwards = self._result(method, params if isinstance(params, dict) else {})
        except RpcRefused as refused:
            self.send({"error": refused.error, "id": message["id"]})
            return
        self.send({"id": message["id"], "result": answer})
        for act in afterwards:
            act()

    def _result(self, method: str, params: dict[str, Any]) -> tuple[Any, ...]:
        """Return the result of a request, and what happens after it was sent."""
        if method == "initialize":
            return self._initialize(params)
        if not self.initialized:
            raise RpcRefused("Not initialized")
        known: dict[str, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
            "thread/start": self._start_thread,
            "thread/resume": self._resume,
            "thread/fork": self._fork,
            "thread/read": lambda params: (
                {"thread": self._found(params), "readState": _read_state(self._found(params), self.stage.uuid())},
            ),
            "thread/list": self._list,
            "turn/start": self._start_turn,
            "turn/steer": self._steer,
            "turn/interrupt": self._interrupt,
            "model/list": lambda _: ({"data": [{"id": self.stage.model, "model": self.stage.model}], "nextCursor": None},),
            "account/read": lambda _: ({"account": {"type": "apiKey"}, "requiresOpenaiAuth": False},),
        }
        if method not in known:
            raise RpcRefused(f"Invalid request: unknown variant `{method}`, expected one of " + ", ".join(f"`{name}`" for name in known))
        return known[method](params)

    def _initialize(self, params: dict[str, Any]) -> tuple[Any, ...]:
        if self.initialized:
            raise RpcRefused("Already initialized")
        client = params.get("clientInfo")
        if not isinstance(client, dict) or not isinstance(client.get("name"), str):
            raise RpcRefused("Invalid request: missing field `clientInfo`")
        self.initialized = True
        version = self.stage.scenario["version"]
        agent = f"{client['name']}/{version} (Fake 1.0.0; x86_64) dumb ({client['name']}; {client.get('version', '')})"
        result = {"userAgent": agent, "codexHome": self.home, "platformFamily": "unix", "platformOs": "linux"}
        status = {"status": "disabled", "serverName": "host", "installationId": self.stage.uuid(), "environmentId": None}
        return result, lambda: self.notify("remoteControl/status/changed", status)

    def _start_thread(self, params: dict[str, Any]) -> tuple[Any, ...]:
        self._check_text(params, "cwd")
        cwd = params.get("cwd") or os.getcwd()  # noqa: PTH109 - pathlib costs 5 ms
        model = params.get("model") or self.stage.model
        version = self.stage.scenario["version"]
        made = frames.thread(self.stage.uuid(), cwd=cwd, model=model, version=version, home=self.home, now=self.now())
        self.threads[made["id"]] = made
        self._keep(made)
        return self._opened(made, params), lambda: self.notify("thread/started", {"thread": made})

    def _opened(self, made: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        approval = self.approvals[made["id"]] = params.get("approvalPolicy") or "on-request"
        return frames.opened(made, approval=approval, sandbox=params.get("sandbox") or "read-only")

    def _resume(self, params: dict[str, Any]) -> tuple[Any, ...]:
        made = self._load(params)
        self.threads[made["id"]] = made
        return (frames.resumed(self._opened(made, params)),)

    def _fork(self, params: dict[str, Any]) -> tuple[Any, ...]:
        old = self._load(params)
        new_id = self.stage.uuid()
        made = {**old, "id": new_id, "sessionId": new_id, "forkedFromId": old["id"], "turns": list(old["turns"])}
        self.threads[new_id] = made
        self._keep(made)
        return self._opened(made, params), lambda: self.notify("thread/started", {"thread": {**made, "turns": []}})

    def _list(self, _params: dict[str, Any]) -> tuple[Any, ...]:
        listed = [{**made, "turns": []} for made in self.threads.values()]
        states = {name: _read_state(made, self.stage.uuid()) for name, made in self.threads.items()}
        return ({"data": listed, "readStates": states, "nextCursor": None, "backwardsCursor": None},)

    def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return a thread of this run, or of an earlier one."""
        self._check_text(params, "threadId")
        name = str(params.get("threadId"))
        if name in self.threads:
            return self.threads[name]
        path = f"{self.stage.directory}/thread-{name}.json"
        if "/" in name or not os.path.exists(path):  # noqa: PTH110 - pathlib costs 5 ms
            raise RpcRefused(f"no rollout found for thread id {name}")
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms
            return dict(json.load(file))

    def _keep(self, made: dict[str, Any]) -> None:
        """Save a thread, so that another run can resume it."""
        path = f"{self.stage.directory}/thread-{made['id']}.json"
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms
            json.dump({**made, "status": {"type": "idle"}}, file)

    def _found(self, params: dict[str, Any]) -> dict[str, Any]:
        self._check_text(params, "threadId")
        made = self.threads.get(str(params.get("threadId")))
        if made is None:
            raise RpcRefused(f"thread not found: {params.get('threadId')}")
        return made

    def _check_text(self, params: dict[str, Any], name: str) -> None:
        value = params.get(name)
        if value is not None and not isinstance(value, str):
            raise RpcRefused(f"Invalid request: invalid type: integer `{value}`, expected a string")

    def _running(self, made: dict[str, Any]) -> PlayedCodexTurn | None:
        return next((turn for turn in self.turns if turn.thread is made), None)

    def _content(self, params: dict[str, Any]) -> list[Any]:
        content = params.get("input")
        if not isinstance(content, list):
            raise RpcRefused("Invalid request: missing field `input`")
        size = sum(len(part["text"]) for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
        if size > frames.MAX_PROMPT:
            raise RpcRefused(
                f"Input exceeds the maximum length of {frames.MAX_PROMPT} characters.",
                code=-32602,
                input_error_code="input_too_large",
                max_chars=frames.MAX_PROMPT,
                actual_chars=size,
            )
        return content

    def _start_turn(self, params: dict[str, Any]) -> tuple[Any, ...]:
        made, content = self._found(params), self._content(params)
        running = self._running(made)
        if running is not None:  # the prompt joins the turn that runs
            return {"turn": frames.turn(running.id)}, lambda: self._join(running, content)
        if params.get("approvalPolicy"):
            self.approvals[made["id"]] = params["approvalPolicy"]
        turn = PlayedCodexTurn(self, made, self.stage.uuid())

        def begin() -> None:
            self.turns.append(turn)
            turn.change_status(type="active", activeFlags=[])
            started = frames.turn(turn.id, startedAt=turn.began)
            self.notify("turn/started", {"threadId": made["id"], "turn": started})
            turn.start(content)

        return {"turn": frames.turn(turn.id)}, begin

    def _join(self, turn: PlayedCodexTurn, content: list[Any]) -> None:
        if turn in self.turns:
            turn.withdraw()
            turn.start(content)

    def _steer(self, params: dict[str, Any]) -> tuple[Any, ...]:
        made, content = self._found(params), self._content(params)
        running = self._running(made)
        if running is None:
            raise RpcRefused("no active turn to steer")
        if params.get("expectedTurnId") != running.id:
            raise RpcRefused(f"expected active turn id `{params.get('expectedTurnId')}` but found `{running.id}`")
        return {"turnId": running.id}, lambda: self._join(running, content)

    def _interrupt(self, params: dict[str, Any]) -> tuple[Any, ...]:
        running = self._running(self._found(params))
        if running is None or params.get("turnId") != running.id:
            raise RpcRefused("no active turn to interrupt")
        return {}, lambda: self._end(running, "interrupted")


def _read_state(made: dict[str, Any], revision: str) -> dict[str, Any]:
    unread = {"type": "turn", "turnId": made["turns"][0]["id"]} if made["turns"] else None
    return {"firstUnread": unread, "revision": revision}


def _at_once() -> bool:
    return True


class CodexReplay:
    """Send the recorded lines, each after the inputs before it have come. The host's ids replace the recorded ones."""

    def __init__(self, stage: CodexStage) -> None:
        self.stage = stage
        self._heard: list[dict[str, Any] | None] = []
        self._ids: dict[str, Any] = {}
        stage.handle = self._hear

    def run(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            if step["step"] == "await_recorded":
                self._await(step["line"])
            elif step["step"] == "emit_recorded":
                self.stage.output.write(self._with_ids(step["text"]).encode() + b"\n")
            else:
                DEEDS[step["step"]](self.stage, step)

    def _hear(self, line: bytes) -> None:
        self.stage.journal.record_input(line)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        self._heard.append(message if isinstance(message, dict) else None)

    def _await(self, line: str | None) -> None:
        """Wait for the next input; a recorded request tells which id of the host stands for which recorded one."""
        stage = self.stage
        if line is None:
            stage.wait(None, lambda: stage.input.ended)
            return
        stage.wait(None, lambda: bool(self._heard) or stage.input.ended)
        if not self._heard:
            stage.exit(0)
        got = self._heard.pop(0)
        try:
            recorded = json.loads(line)
        except ValueError:
            return
        if isinstance(recorded, dict) and "method" in recorded and "id" in recorded and got is not None:
            self._ids[json.dumps(recorded["id"])] = got.get("id")

    def _with_ids(self, line: str) -> str:
        try:
            message = json.loads(line)
        except ValueError:
            return line
        if not isinstance(message, dict) or "method" in message or "id" not in message:
            return line
        number = json.dumps(message["id"])
        if self._ids.get(number, message["id"]) == message["id"]:
            return line  # exactly as it was recorded
        return json.dumps({**message, "id": self._ids[number]}, ensure_ascii=False, separators=(",", ":"))
