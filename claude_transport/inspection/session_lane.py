"""`SessionLane`: what the CLI says about itself, what its process prints, and what the recorder noted."""

from __future__ import annotations

from typing import Any, Final

from claude_transport.inspection.call_book import CallBook
from claude_transport.inspection.event import Level
from claude_transport.inspection.scene import Scene
from claude_transport.inspection.wording import gist as gist_of
from claude_transport.inspection.wording import json_text
from claude_transport.protocol.envelope import as_float
from claude_transport.protocol.jsontext import JSONTextError, parse_json
from claude_transport.protocol.messages import (
    APIRetryMessage,
    CommandLifecycle,
    CompactBoundary,
    ControlRequestProgress,
    ConversationReset,
    DecodeFailure,
    HookResponse,
    HookStarted,
    Informational,
    InitMessage,
    Message,
    ModelFallback,
    ModelRefusalNoFallback,
    OversizedMessage,
    RateLimitEvent,
    ResultMessage,
    StatusMessage,
    SystemMessage,
    UnknownMessage,
)
from claude_transport.protocol.tape import CLOSED, INPUT_ENDED, OUTPUT_ENDED, read_exit_note

__all__ = ["SessionLane"]

_MINOR: Final = frozenset(
    {
        *("keep_alive", "tool_progress", "transcript_mirror", "command_lifecycle", "status", "session_state_changed", "thinking_tokens"),
        *("task_progress", "task_updated", "background_tasks_changed", "control_request_progress", "commands_changed", "hook_progress"),
        *("session_title_changed", "update_environment_variables"),
    }
)
_ENVELOPE: Final = frozenset({"type", "subtype", "uuid", "session_id"})
_WORDS: Final = {INPUT_ENDED: "The host ended its input", OUTPUT_ENDED: "The output ended", CLOSED: "The host closed the transport"}
_MAX_STDERR_LINES: Final = 200
"""Lines of standard error that are one event, when nothing else happens between them."""


class SessionLane:
    """Reads what belongs to no other lane."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._hooks = CallBook("claude")
        self._session_ids: dict[str, None] = {}
        self._last_init = ""
        self._last_failed = False  # the last result was one: the exit code 1 that follows says nothing new
        self._closed = False
        self._stderr: tuple[int, list[str]] | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.retries: int = 0
        self.stderr_lines: int = 0

    @property
    def session_ids(self) -> tuple[str, ...]:
        """Those that were named, in order."""
        return tuple(self._session_ids)

    # ------------------------------------------------------------------------------------------------------- what was said

    def message(self, message: Message) -> None:
        """Anything that no other lane wants."""
        match message:
            case InitMessage():
                self._init(message)
            case ResultMessage():
                self._result(message)
            case HookStarted():
                event = self._add(message, f"Hook {message.hook_name}", status="open")
                self._hooks.began(message.hook_id, name=message.hook_name, event=event, t=self._scene.t)
            case HookResponse():
                self._hook_ended(message)
            case DecodeFailure() | OversizedMessage():
                self._unreadable(message)
            case _:
                title, gist, level = _told(message)
                if isinstance(message, APIRetryMessage):
                    self.retries += 1
                self._add(message, title, gist=gist, level=level)

    def _add(self, message: Message, title: str, *, gist: str = "", level: Level = "normal", **more: Any) -> int:
        wire = message.to_dict()
        kind = str(wire.get("subtype") or wire.get("type") or message.type)
        return self._scene.add(
            "session", kind, title, gist=gist, level=level, sections=self._scene.text("message", json_text(wire)), **more
        )

    def _init(self, message: InitMessage) -> None:
        if message.session_id:
            self._session_ids[gist_of(message.session_id)] = None
        said = f"{message.model}, {message.permission_mode}, {len(message.tools)} tools, session {message.session_id or 'without an id'}"
        level: Level = "minor" if said == self._last_init else "normal"  # it is repeated in every turn [10a]
        self._last_init = said
        self._add(message, "Session", gist=said, level=level)

    def _result(self, message: ResultMessage) -> None:
        """The result; the turn it ends is the last one that is known."""
        turns = self._scene.turns.turns
        repeated = message.prompt_uuids is None  # nobody's: it was said before
        turn = None if repeated or not turns else turns[-1]
        outcome = message.outcome
        self._last_failed = message.is_error is True
        said = message.result or " ".join(message.errors)
        sections = (*self._scene.text("text", said), *self._scene.text("message", json_text(message.to_dict())))
        self._scene.add(
            "session",
            "result",
            "Result",
            gist=said if outcome.ok else f"{outcome.text} {said}",
            level="normal" if outcome.ok else "error",
            status=outcome.code,
            turn=None if turn is None else turn.number,
            tokens=None if turn is None else turn.tokens,
            cost_usd=None if turn is None else turn.cost_usd,
            sections=sections,
        )

    def _hook_ended(self, message: HookResponse) -> None:
        failed = message.exit_code not in (None, 0)
        call = self._hooks.ended(message.hook_id, t=self._scene.t, status="error" if failed else "ok")
        if call is None:
            self._add(message, f"Hook {message.hook_name}", gist=message.output, level="warning" if failed else "normal")
            return
        scene = self._scene
        scene.shelf.change(call.event, seconds=max(0.0, scene.t - call.t), status=message.outcome or ("error" if failed else "ok"))
        scene.shelf.extend(call.event, *scene.text("answer", json_text(message.to_dict())))
        if failed:
            scene.worsen(call.event, "warning", f"hook {call.name} failed with exit code {message.exit_code}")

    def _unreadable(self, message: DecodeFailure | OversizedMessage, *, by: str = "claude") -> None:
        text = message.raw.decode("utf-8", "replace")
        if isinstance(message, OversizedMessage):
            title, why = "A line too long to be read", f"{message.size} bytes"
        else:
            title, why = f"A line of {by} that holds no message", f"{message.kind}: {message.error}"
        level: Level = "minor" if isinstance(message, DecodeFailure) and message.kind == "blank" else "warning"
        self._scene.add("session", "unreadable", title, gist=why, level=level, sections=self._scene.text("line", text))

    # --------------------------------------------------------------------------------------------------- what the host said

    def from_host(self, message: Message) -> None:
        """A line of the host that is neither prompt nor control."""
        if isinstance(message, DecodeFailure | OversizedMessage):
            self._unreadable(message, by="the host")
            return
        level: Level = "minor" if message.type in _MINOR else "normal"
        self._add(message, f"From the host: {message.type or 'a message without a type'}", level=level)

    # -------------------------------------------------------------------------------------------------- what was not a line

    def stderr(self, line: bytes) -> None:
        """A line of standard error; those that follow each other are one event."""
        self.stderr_lines += 1
        text = line.decode("utf-8", "replace")
        if self._stderr is None or len(self._stderr[1]) >= _MAX_STDERR_LINES:
            event = self._scene.add("session", "stderr", "Standard error", gist=text)
            self._stderr = (event, [])
        event, lines = self._stderr
        lines.append(text)
        self._scene.shelf.change(event, sections=self._scene.text("lines", "\n".join(lines)))

    def between(self) -> None:
        """Something else happened: what comes on standard error now is another event."""
        self._stderr = None

    def note(self, line: bytes) -> None:
        """What the recorder noted."""
        ended = read_exit_note(line)
        if ended is not None:
            self._exit(*ended)
            return
        if line == CLOSED:
            self._closed = True
        if line in _WORDS:
            self._scene.add("session", "note", _WORDS[line])
            return
        text = line.decode("utf-8", "replace")
        failure = _failure_of(line)
        if failure is not None:
            where, error = str(failure.get("failure", "")), str(failure.get("error", ""))
            said = f"{error}: {failure.get('message', '')} [{failure.get('code', '')}]"
            self._scene.add("session", "failure", f"{where} failed", gist=said, level="error", sections=self._scene.text("note", text))
            return
        self._scene.add("session", "note", "Note", gist=text, level="minor", sections=self._scene.text("note", text))

    def _exit(self, exit_code: int | None, signal: int | None) -> None:
        self.exit_code, self.signal = exit_code, signal
        how = f"with exit code {exit_code}" if signal is None else f"by signal {signal}"
        expected = exit_code == 0 or (exit_code == 1 and self._last_failed) or (self._closed and signal is not None)
        level: Level = "normal" if expected else "error"
        self._scene.add("session", "exit", f"The process ended {how}", level=level)


def _failure_of(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b'{"failure"'):
        return None
    try:
        value, _ = parse_json(line)
    except JSONTextError:
        return None
    return value if isinstance(value, dict) else None


def _told(message: Message) -> tuple[str, str, Level]:
    """Title, gist and level of what the CLI reports."""
    match message:
        case APIRetryMessage():
            status = message.error_status or message.error or "no answer"
            wait = f"{message.attempt} of {message.max_retries}, in {as_float(message.retry_delay_ms) / 1000:.1f} s"
            return "API retry", f"{status}: {wait}", "warning"
        case ModelFallback():
            return "Another model takes over", f"{message.original_model} → {message.fallback_model}", "warning"
        case ModelRefusalNoFallback():
            return "The model refused", message.content, "warning"
        case CompactBoundary():
            about = message.compact_metadata
            return "The conversation was shortened", f"{about.pre_tokens:,} → {about.post_tokens or 0:,} tokens", "normal"
        case ConversationReset():
            return "A new conversation", message.new_conversation_id, "normal"
        case RateLimitEvent():
            info = message.rate_limit_info
            good = info.status in ("", "allowed")
            return "Rate limit", f"{info.status} {info.rate_limit_type or ''}".strip(), "minor" if good else "warning"
        case Informational():
            level: Level = "warning" if message.level in ("warning", "error") else "normal"
            return "Information", message.content, level
        case StatusMessage():
            return "Status", message.status or message.permission_mode or "", "minor"
        case CommandLifecycle():
            return f"Prompt {message.state}", message.command_uuid, "minor"
        case ControlRequestProgress():
            return "A request is still at work", message.status, "minor"
        case UnknownMessage():
            return "A message of an unknown type", message.wire_type, "normal"
        case _:
            kind = message.subtype if isinstance(message, SystemMessage) else message.type
            rest = {key: value for key, value in message.to_dict().items() if key not in _ENVELOPE}
            return kind.replace("_", " ").capitalize(), json_text(rest) if rest else "", "minor" if kind in _MINOR else "normal"
