"""The state of a run that all steps share: pipes, ids, the running turn, placeholders, signals, and the only place that waits."""

from __future__ import annotations

import json
import os
import re
import signal
import time

from .permissions import Rules
from .stdio import SCENARIO_FAILED, Input, Journal, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from .registered import Hook

# frames that carry neither session_id nor uuid, docs/reference/protocol.md#common-fields
BARE = frozenset({"control_request", "control_response", "control_cancel_request", "keep_alive", "transcript_mirror"})
POLL_SECONDS = 0.005  # between two looks at a closed gate
EPOCH = 1_795_132_800  # 2026-11-20T00:00:00Z: the clock starts here and advances with each reading, so that runs are repeatable
MASK = (1 << 64) - 1
STREAM_CLOSED = "AbortError: Tool permission stream closed before response received"  # recording 20k
SCENARIO_BROKEN = 70  # the exit code for a step that cannot be played: EX_SOFTWARE, which neither real program uses
PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*(?:\.[^{}\s]+)*)\}\}")
KINDS: dict[type, str] = {str: "a text", dict: "an object", list: "a list"}


class TurnAborted(Exception):
    """End the running turn. `by` is "interrupt", "now" (an urgent message), "deny" (denied and interrupted) or "end"."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class TurnStopped(Exception):
    """End the running turn because a hook says so (`continue: false`, or `defer`). `ending` are fields of the result."""

    def __init__(self, **ending: Any) -> None:
        super().__init__()
        self.ending = ending


class StopBlocked(Exception):
    """Let the model go on, because a hook for Stop does not let the turn end."""

    def __init__(self, feedback: str) -> None:
        super().__init__(feedback)
        self.feedback = feedback


class Unfillable(Exception):
    """A placeholder has no value."""


class Signalled(BaseException):
    """A signal with steps has come. Raised between two writes, never inside one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class PlayedTurn:
    """The user messages that are being answered, and the answer so far."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.uuids: list[str] = []
        self.prompt: str = "\n".join(text_of(message) for message in messages)
        self.folded: list[str] = []
        self.text = ""
        self.said: dict[str, Any] | None = None  # the text message being streamed: id, text, whether partials were sent
        self.tool: dict[str, Any] | None = None  # the tool call being decided: id, name, input
        self.denials: list[dict[str, Any]] = []
        self.model_calls = 0
        self.user_messages = 0  # tool results, and what hooks tell the model
        self.stop_blocks = 0
        self.prompt_id = ""
        self.inputs: list[tuple[str, str | None]] = []
        self.finished = False
        self.has_result = False  # also one that was sent as a message or a raw line
        self.raw = b""
        self.marked: set[str] = set()
        for message in messages:
            self.adopt(message)

    def adopt(self, message: dict[str, Any]) -> None:
        if isinstance(message.get("uuid"), str):
            self.uuids.append(message["uuid"])

    def marks(self, frame_type: str) -> dict[str, Any]:
        """Return `user_message_uuid(s)` for the first frame of its type in the turn; later frames have none."""
        if not self.uuids or frame_type in self.marked:
            return {}
        self.marked.add(frame_type)
        return {"user_message_uuid": self.uuids[-1], "user_message_uuids": list(self.uuids)}


def text_of(message: dict[str, Any]) -> str:
    content = message.get("message", {}).get("content", "")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict) and block.get("type") == "text")


class Stage:
    """The state that the steps of a scenario read and change."""

    program = "fake claude"

    def __init__(self, directory: str, argv: list[str], scenario: dict[str, Any], journal: Journal) -> None:
        self.directory = directory
        self.argv = argv
        self.scenario = scenario
        self.journal = journal
        self.input: Input = Input(0)
        self.output: Output = Output(1, scenario["chunk_size"])
        self.errors: Output = Output(2, journal=journal)
        self.handle: Callable[[bytes], None] = lambda line: None
        self.turn: PlayedTurn | None = None
        self.answer: Any = None  # to the last Request of this turn, or before it
        self.queue: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.pending: dict[str, dict[str, Any]] = {}
        self.may_be_refused: set[str] = set()  # ids of requests for whose error the scenario has steps
        self.listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self.hooks: dict[str, list[Hook]] = {}
        self.servers: dict[str, Any] = {}  # those of `mcp.HostedServer`
        self.configured: set[str] = set()  # the servers in `--mcp-config`
        self.dynamic: set[str] = set()  # those of the last `mcp_set_servers`
        self.agent: dict[str, Any] | None = None  # the subagent whose steps are played: id, type, parent, description
        self.forwards_subagents = False
        self.path: list[str] = []  # the step that is played, and those that it is inside of
        self.reached: str = "the scenario"  # the last step that was begun, also when an exception has left it
        self.ending = False
        self.on_signal: dict[int, list[dict[str, Any]] | None] = {}
        self.signals: list[int] = []
        self.noted: list[int] = []
        self.session_state: str = "idle"
        self.tasks = 0  # how many work in the background, as the last `background_tasks_changed` of the scenario says
        self.has_agents = False  # there are agents among them
        self.task_was_stopped = False  # the last one that ended was stopped by the host
        self.results = 0
        self.failed = False
        self.totals: list[float] = [0, 0, 0.0]  # input tokens, output tokens, dollars
        self.tool_use_id = self.message_id = ""
        self._clock = 0
        # mixed with the number of the run: two processes of a scenario have different ids, and each has the same ids every time
        self._random: int = (scenario["seed"] * 0x9E3779B97F4A7C15 + journal.start * 0xD1B54A32D192ED03) & MASK
        resumed = "" if "--fork-session" in argv else self.option("--resume")  # a fork has an id of its own
        self.session_id: str = self.option("--session-id") or resumed or self.uuid()
        self.model: str = self.option("--model") or scenario["model"]
        self.mode: str = self.option("--permission-mode") or "default"
        self.partial: bool = "--include-partial-messages" in argv
        self.rules: Rules = Rules(self.options)

    def option(self, name: str) -> str:
        """Return the value of a CLI option in either spelling, or ""."""
        for position, word in enumerate(self.argv):
            if word == name:
                return self.argv[position + 1] if position + 1 < len(self.argv) else ""
            if word.startswith(f"{name}="):
                return word[len(name) + 1 :]
        return ""

    def options(self, name: str) -> list[str]:
        """Return all values of a CLI option that takes several, in either spelling."""
        values: list[str] = []
        taking = False
        for word in self.argv:
            taking = word == name or (taking and not word.startswith("-"))
            if word.startswith(f"{name}="):
                values.append(word[len(name) + 1 :])
            elif taking and word != name:
                values.append(word)
        return values

    def kinship(self) -> dict[str, Any]:
        """Return the fields that say of which tool call a frame is: none, or that of the subagent."""
        if self.agent is None:
            return {"parent_tool_use_id": None}
        about = {"subagent_type": self.agent["type"], "task_description": self.agent["description"]}
        return {"parent_tool_use_id": self.agent["parent"], "agent_id": self.agent["id"], **about}

    def number(self) -> int:
        """Return the next of a fixed sequence of 64-bit numbers (splitmix64)."""
        self._random = (self._random + 0x9E3779B97F4A7C15) & MASK
        mixed = self._random
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)

    def uuid(self) -> str:
        high, low = self.number(), self.number()
        groups = (high >> 32, (high >> 16) & 0xFFFF, 0x4000 | high & 0xFFF, 0x8000 | (low >> 48) & 0x3FFF, low & 0xFFFFFFFFFFFF)
        return "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}".format(*groups)

    def short_id(self, prefix: str) -> str:
        return f"{prefix}_{self.number() & 0xFFFFFFFFFFFF:012x}"

    def timestamp(self) -> str:
        self._clock += 1
        seconds, milliseconds = divmod(self._clock, 1000)
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(EPOCH + seconds)) + f".{milliseconds:03d}Z"

    def emit(self, frame: dict[str, Any]) -> None:
        """Write one frame as one line, with the ids that its type carries."""
        if frame.get("type") not in BARE:
            frame.setdefault("session_id", self.session_id)
            frame.setdefault("uuid", self.uuid())
        self.output.write(encode(frame))
        self.raise_signal()

    def emit_raw(self, data: bytes, **how: Any) -> None:
        """Write bytes as they are, and notice a result among the lines of the turn."""
        if self.turn is not None and not self.turn.has_result:
            *lines, self.turn.raw = (self.turn.raw + data).split(b"\n")
            self.turn.has_result = any(is_result(line) for line in [*lines, self.turn.raw])
        self.output.write(data, **how)

    def lifecycle(self, uuid: Any, state: str) -> None:
        if isinstance(uuid, str):
            self.emit({"type": "command_lifecycle", "command_uuid": uuid, "state": state})

    def change_state(self, state: str) -> None:
        """Set the state of the session; report it when the environment asks for that."""
        self.session_state = state
        host_only = os.environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1"
        if host_only or os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1":
            extra = {"sdk_host_only": True} if host_only else {}
            self.emit({"type": "system", "subtype": "session_state_changed", "state": state, **extra})

    def fill(self, value: Any, *, kind: type | None = None, field: str = "") -> Any:
        """Replace the placeholders. Ends the process when one has no value, or the whole is not of this kind."""
        try:
            filled = fill(value, self._look_up)
        except Unfillable as error:
            self.break_off(str(error))
        if kind is not None and not isinstance(filled, kind):
            self.break_off(f"{field} must be {KINDS[kind]}, and {value} is {_kind_of(filled)}")
        return filled

    def break_off(self, text: str) -> NoReturn:
        """End as a fake whose scenario cannot be played: one line on stderr names the step."""
        self.note_broken(text, place=self.place)
        self.errors.write(f"{self.program}: {self.place}: {text}\n".encode())
        self.exit(SCENARIO_BROKEN)

    def _look_up(self, name: str) -> Any:
        root, *path = name.split(".")
        turn = self.turn
        if root == "hook":
            registered = self.hooks.get(".".join(path))
            return registered[0].callback_id if registered else ""
        if root == "answer":
            if self.answer is None:
                raise Unfillable(f"{{{{{name}}}}} stands only in the branches of a Request")
            return look_into(self.answer, path, name)
        values: dict[str, Callable[[], Any]] = {
            "session_id": lambda: self.session_id,
            "uuid": self.uuid,
            "user_uuid": lambda: turn.uuids[-1] if turn and turn.uuids else "",
            "user_uuids": lambda: list(turn.uuids) if turn else [],
            "prompt": lambda: turn.prompt if turn else "",
            "excerpt": lambda: excerpt(turn.prompt) if turn else "",
            "text": lambda: turn.text if turn else "",
            "pid": os.getpid,
            "cwd": os.getcwd,
            "directory": lambda: self.directory,
            "model": lambda: self.model,
            "version": lambda: self.scenario["version"],
            "timestamp": self.timestamp,
            "message_id": lambda: self.message_id,
            "tool_use_id": lambda: self.tool_use_id,
            "result_index": lambda: self.results,
            "open": lambda: "{{",
        }
        if root not in values:
            raise Unfillable(f"unknown placeholder {{{{{name}}}}}; the placeholders are {', '.join([*values, 'hook.EVENT', 'answer'])}")
        return look_into(values[root](), path, name)

    def locate(self, path: str) -> str:
        return os.path.join(self.directory, self.fill(path, kind=str, field="path"))  # noqa: PTH118 - pathlib costs 5 ms

    def wait(self, seconds: float | None, until: Callable[[], bool] = lambda: False, every: float | None = None) -> bool:
        """Read and handle input until `until()` is true (returns True) or `seconds` have passed (False). None waits for ever."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self.raise_signal()
            while (line := self.input.next_line()) is not None:
                self.handle(line)
                if until():
                    return True
            if until():
                return True
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                if seconds == 0 and not self.input.ended and not self.input.stopped and self.input.receive(0):
                    continue  # a poll takes the bytes that are there
                return False
            self.input.receive(every if left is None else left if every is None else min(left, every))

    def wait_for_file(self, name: str) -> None:
        path = self.locate(name)
        self.wait(None, lambda: os.path.exists(path), POLL_SECONDS)  # noqa: PTH110 - pathlib costs 5 ms

    def note_signal(self, number: int, _frame: Any = None) -> None:
        """Handle a signal that a step waits for."""
        self.journal.record("signal", number=int(number))
        self.noted.append(int(number))

    def raise_signal(self) -> None:
        if self.signals:
            raise Signalled(self.signals.pop(0))

    def catch(self, number: int, _frame: Any = None) -> None:
        """Handle any other signal: end the process at once, unless the scenario has steps for it."""
        self.journal.record("signal", number=int(number))
        if number in self.on_signal and self.on_signal[number] is None:
            return
        if number not in self.on_signal and number != signal.SIGINT:
            self.exit(128 + number)  # from inside a blocked write too: a full pipe must not keep the fake alive
        self.signals.append(int(number))
        if not self.output.writing:
            self.raise_signal()

    def exit(self, code: int) -> NoReturn:
        self.journal.record("exit", code=code)
        os._exit(code)  # nothing is buffered, and a normal exit of the interpreter takes longer than the run

    @property
    def place(self) -> str:
        """The step that is being played, behind the steps that contain it."""
        return " > ".join(self.path) or "the scenario"

    def at(self, waits_for: str = "") -> None:
        """Note for the report of a test where this run stands, and what it waits for."""
        self.reached = self.place
        self.journal.record("at", place=self.place, waits_for=waits_for)

    def cut(self, by: str) -> None:
        """Note that the host has ended the waiting of the current step: a test that hangs is mostly ended like this."""
        self.journal.record("cut", by=by)

    def require(self, expected: str, actual: str) -> None:
        """End a strict run: the host has done what the scenario does not expect. Other runs go on as the CLI would."""
        if not self.journal.strict:
            return
        self.journal.record("failed", place=self.place, expected=expected, actual=actual)
        self.errors.write(f"{self.program}: {self.place}: expected {expected}, got {actual}\n".encode())
        self.exit(SCENARIO_FAILED)

    @property
    def lacks_prompts(self) -> bool:
        """True for a host that cannot be asked for a permission: it has given flags for the CLI, and not the one for that.

        A host that gives no flags at all starts the fake by its `command`, and its flags say nothing.
        """
        return bool(self.option("--input-format")) and not self.option("--permission-prompt-tool")

    def require_prompts(self) -> None:
        """End a strict run whose host cannot be asked for a permission."""
        if self.lacks_prompts:
            flag = "'--permission-prompt-tool stdio'"
            self.require(f"a host that can be asked for a permission, with {flag} as Query(can_use_tool=…) adds it", "no such flag")

    def note_broken(self, text: str, *, place: str) -> None:
        """Note for the report of a test that the step at this place cannot be played."""
        self.journal.record("failed", place=place, expected="a step that can be played", actual=text)

    def fail(self, text: str) -> NoReturn:
        """End as the CLI does on invalid input: a line on stderr, exit code 1, nothing on stdout."""
        self.errors.write(f"{text}\n".encode())
        self.exit(1)


def is_result(line: bytes) -> bool:
    if b'"result"' not in line:
        return False
    try:
        frame = json.loads(line)
    except ValueError:
        return False
    return isinstance(frame, dict) and frame.get("type") == "result"


def excerpt(text: str, size: int = 200) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def encode(frame: dict[str, Any]) -> bytes:
    # like the CLI: no spaces, astral and accented characters raw, line separators escaped (recording 23e)
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    for character in "\x7f\x85\u2028\u2029":
        if character in text:
            text = text.replace(character, f"\\u{ord(character):04x}")
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8 form; JSON can only escape it
        return (json.dumps(frame, separators=(",", ":")) + "\n").encode()


def fill(value: Any, lookup: Callable[[str], Any]) -> Any:
    """Replace every placeholder `{{name}}` in every string of `value`. A string of one placeholder takes the type of its value."""
    if isinstance(value, str):
        return _fill_text(value, lookup) if "{{" in value else value
    if isinstance(value, dict):
        return {key: fill(item, lookup) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, lookup) for item in value]
    return value


def _fill_text(text: str, lookup: Callable[[str], Any]) -> Any:
    alone = PLACEHOLDER.fullmatch(text)
    if alone is not None:
        return lookup(alone[1])

    def written(found: re.Match[str]) -> str:
        value = lookup(found[1])
        return value if isinstance(value, str) else json.dumps(value)

    return PLACEHOLDER.sub(written, text)


def look_into(value: Any, path: list[str], name: str) -> Any:
    """Return the value at `path` inside nested objects and lists. Raises `Unfillable`, which says what is there instead."""
    seen = name.split(".")[: -len(path) or None]
    for key in path:
        here = "{{" + ".".join(seen) + "}}"
        if isinstance(value, dict):
            if key not in value:
                raise Unfillable(f"{{{{{name}}}}}: {here} has no {key!r}; it has: {', '.join(map(str, value)) or 'nothing'}")
            value = value[key]
        elif isinstance(value, list):
            if not key.isdigit() or int(key) >= len(value):
                raise Unfillable(f"{{{{{name}}}}}: {here} is a list of {len(value)}; {key!r} is not one of its indexes")
            value = value[int(key)]
        else:
            raise Unfillable(f"{{{{{name}}}}}: {here} is {_kind_of(value)}, in which {key!r} cannot be looked up")
        seen.append(key)
    return value


def _kind_of(value: Any) -> str:
    return next((word for kind, word in KINDS.items() if isinstance(value, kind)), json.dumps(value))
