"""`CodexLanes`: reads the messages of Codex and its host into a scene: prompts, items, questions, turns and errors.

`timeline.py` hands it the messages of a tape whose lines are those of Codex. `codex.watch` finds out which prompt began which turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from claude_transport.agents.readers import TapeReader
from claude_transport.agents.scene import CallBook, Level, Scene, Section, TapeFigures, TurnSummary, gist_of, gist_of_input, json_text
from claude_transport.codex.errors import error_of
from claude_transport.codex.items import (
    AgentMessageItem,
    AnyItem,
    ContextCompactionItem,
    PlanItem,
    ReasoningItem,
    UserMessageItem,
)
from claude_transport.codex.messages import (
    AgentMessageDelta,
    ApprovalRequest,
    CodexAnswer,
    CodexMessage,
    CodexNotification,
    CodexRequest,
    CommandApproval,
    ConfigWarning,
    DeprecationNotice,
    ErrorNotification,
    ExecEvent,
    FileChangeApproval,
    ItemCompleted,
    ItemStarted,
    ModelRerouted,
    RequestResolved,
    ThreadStarted,
    ToolCallRequest,
    TurnCompleted,
    UnknownNotification,
    UnknownRequest,
    WarningNotification,
    decode_message,
)
from claude_transport.codex.tool_calls import ToolCall, tool_call_of
from claude_transport.codex.watch import (
    PROMPTS,
    APIAnswered,
    CodexTurnEnd,
    CodexWatch,
    ModelSpoke,
    PromptJoined,
    PromptRefused,
    RunningTurn,
    SentPrompt,
    TurnBegan,
    TurnEnded,
    key_of,
    text_of_input,
)
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage
from claude_transport.protocol.token_counts import TokenCounts, token_counts
from claude_transport.wrappers.metrics import TokenLedger

_KEPT_CHARS: Final = 65_536
"""Characters kept of a message that is being written. Most arrive whole later, and then these are not needed."""

_MOST_OPEN: Final = 4096
"""Items that are remembered while they are open."""

_DECISIONS: Final[Mapping[str, str]] = {"accept": "allowed", "acceptForSession": "allowed", "decline": "denied", "cancel": "denied"}

_MINOR: Final = frozenset(
    {
        *("thread/status/changed", "thread/tokenUsage/updated", "account/rateLimits/updated", "remoteControl/status/changed"),
        *("turn/started", "turn/diff/updated", "turn/plan/updated", "thread/goal/cleared", "thread/readState/changed", "initialized"),
    }
)


class _Turn(msgspec.Struct):
    """A turn on the tape."""

    number: int
    began: float
    prompt: str = ""
    prompts: int = 0
    first_output: float | None = None
    tool_calls: int = 0
    tool_errors: int = 0


class _Open(msgspec.Struct):
    """An item that has begun: the event of a call, or the pieces of a text."""

    began: float
    kind: str
    event: int | None = None
    pieces: int = 0
    chars: int = 0
    texts: list[str] = []


class CodexLanes(TapeReader):
    """Reads the messages of a tape of Codex into `scene`. Several turns may run at once, one in each thread."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._watch = CodexWatch()
        self._turns: dict[str, _Turn] = {}
        self._asked: dict[SentPrompt, tuple[int, float]] = {}  # the event of a prompt, and its time
        self._open: dict[tuple[str, str], _Open] = {}
        self._threads: dict[str, None] = {}
        self._summaries: dict[int, TurnSummary] = {}
        self._count = 0
        self._tools = CallBook("model")
        self._host = CallBook("host")
        self._codex = CallBook("codex")
        self._ledger = TokenLedger()
        self._retries = 0

    def figures(self) -> TapeFigures:
        """Return the figures of what was read so far, with the threads as sessions."""
        return TapeFigures(
            session_ids=tuple(self._threads),
            turns=tuple(self._summaries[number] for number in sorted(self._summaries)),
            tools=self._tools.stats(),
            requests=(*self._host.stats(), *self._codex.stats()),
            models=self._ledger.models,
            cost_usd=self._ledger.cost_usd,
            api_messages=self._ledger.api_messages,
            retries=self._retries,
        )

    # The host.

    def said(self, line: bytes) -> CodexMessage:
        """Read a line of the host."""
        message = decode_message(line)
        if not isinstance(message, DecodeFailure | OversizedMessage):
            self._from_host(message)
        return message

    def _from_host(self, message: CodexMessage) -> None:
        if isinstance(message, CodexAnswer):
            self._answered(message, self._codex, by="the host")
        elif isinstance(message, UnknownRequest) and message.wire_method in PROMPTS:
            self._prompt(message)
        elif isinstance(message, CodexRequest):
            self._request(message)
        else:
            self._report(message, title=f"From the host: {message.type or 'a message without a method'}")

    def _prompt(self, message: UnknownRequest) -> None:
        scene, text = self._scene, text_of_input(message.params)
        title = "Prompt" if message.wire_method == "turn/start" else "Prompt into the running turn"
        event = scene.add("user", "prompt", title, gist=text or "(empty)", status="open", sections=scene.text("text", text))
        rest = {name: value for name, value in _fields(message.params).items() if name not in ("input", "threadId")}
        if rest:
            scene.shelf.extend(event, *scene.text("options", json_text(rest)))
        self._host.began(key_of(message.id), name=message.wire_method, event=event, t=scene.t)
        sent = self._watch.said(message)
        if sent is not None and len(self._asked) < _MOST_OPEN:
            self._asked[sent] = event, scene.t

    def _request(self, message: CodexRequest) -> None:
        scene, params = self._scene, _fields(message.to_dict().get("params"))
        event = scene.add(
            "control",
            "request",
            message.type,
            gist=gist_of_input(params),
            status="open",
            turn=self._number(message.turn_id),
            sections=scene.text("request", json_text(params)),
        )
        self._host.began(key_of(message.id), name=message.type, event=event, t=scene.t)

    # Codex.

    def heard(self, line: bytes, kept: tuple[Section, ...] = ()) -> CodexMessage:
        """Read a line of Codex."""
        message, before = decode_message(line), self._scene.shelf.count
        if not isinstance(message, DecodeFailure | OversizedMessage):
            self._read(message, kept)
            if self._scene.shelf.count > before and not isinstance(message, CodexAnswer):
                self._scene.shelf.extend(self._scene.shelf.count, *kept)
        return message

    def _read(self, message: CodexMessage, kept: tuple[Section, ...]) -> None:
        events = self._watch.heard(message) if not isinstance(message, ExecEvent) else []
        match message:
            case CodexAnswer():
                self._answered(message, self._host, by="codex", kept=kept)
            case CodexRequest():
                self._question(message)
            case RequestResolved():
                self._resolved(message)
            case ItemStarted() | ItemCompleted():
                self._item(message)
            case AgentMessageDelta():
                self._piece(message)
            case ErrorNotification():
                self._error(message)
            case TurnCompleted():
                pass  # what it means is among the events
            case ExecEvent():
                self._exec(message)
            case _:
                self._notification(message)
        for event in events:
            self._follow(event, message)

    def _follow(self, event: object, message: CodexMessage) -> None:
        match event:
            case TurnBegan() | PromptJoined():
                self._turn_began(event.turn)
            case ModelSpoke():
                turn = self._turns.get(event.turn.id)
                if turn is not None:
                    turn.first_output = self._scene.t
            case APIAnswered():
                self._ledger.message(f"{event.turn.id}/{event.turn.requests}", event.usage, is_subagent=False)
            case PromptRefused():
                asked = self._asked.pop(event.prompt, None)
                if asked is not None:
                    self._scene.shelf.change(asked[0], status="dropped")
            case TurnEnded():
                self._turn_ended(event.turn, event.result, message)
            case _:
                pass

    def _answered(self, message: CodexAnswer, book: CallBook, *, by: str, kept: tuple[Section, ...] = ()) -> None:
        scene = self._scene
        status = "error" if message.error is not None else _status_of(message.result)
        call = book.ended(key_of(message.id), t=scene.t, status=status)
        shown = kept or scene.text("answer", json_text(message.to_dict().get("error" if message.error is not None else "result")))
        reason = message.error.message if message.error is not None else ""
        if call is None:
            level: Level = "warning" if status == "error" else "minor"
            scene.add("control", "answer", f"Answer of {by} to nothing that is open", gist=reason, level=level, sections=shown)
            return
        event = scene.shelf.get(call.event)
        if event is not None and event.kind == "prompt" and status != "error":
            scene.shelf.extend(call.event, *shown)  # its state comes with the end of its turn
        else:
            scene.close(call, status, shown)
        if status == "error":
            scene.worsen(call.event, "warning", f"{call.name} failed: {gist_of(reason or 'no reason given')}")

    def _question(self, message: CodexRequest) -> None:
        scene, params = self._scene, _fields(message.to_dict().get("params"))
        event = scene.add(
            "control",
            "question",
            _title_of(message),
            gist=_gist_of_question(message) or gist_of_input(params),
            status="open",
            turn=self._number(message.turn_id),
            sections=scene.text("request", json_text(params)),
        )
        self._codex.began(key_of(message.id), name=message.type, event=event, t=scene.t)

    def _resolved(self, message: RequestResolved) -> None:
        """Close a question that an interrupt has made moot. One that was answered is closed already."""
        call = self._codex.ended(key_of(message.request_id), t=self._scene.t, status="cancelled")
        if call is not None:
            self._scene.close(call, "cancelled", ())

    def _item(self, message: ItemStarted | ItemCompleted) -> None:
        place, is_over = (message.turn_id, message.item.id), isinstance(message, ItemCompleted)
        call = tool_call_of(message.item, is_over=is_over)
        if call is not None:
            self._call(place, call, is_over=is_over)
        elif not is_over:
            again = self._open.get(place)
            if again is not None and again.chars:
                self._unfinished(place, title="Text, begun again", level="minor")
            if len(self._open) < _MOST_OPEN:
                self._open[place] = _Open(self._scene.t, message.item.type)
        else:
            self._said(place, message.item)

    def _said(self, place: tuple[str, str], item: AnyItem) -> None:
        """Read a whole item that calls nothing."""
        scene, opened = self._scene, self._open.pop(place, None)
        fields: dict[str, Any] = {"turn": self._number(place[0])}
        if opened is not None:
            fields |= {"t": opened.began, "seconds": max(0.0, scene.t - opened.began), "pieces": opened.pieces or None}
        match item:
            case AgentMessageItem():
                scene.add("assistant", "text", "Text", gist=item.text or "(empty)", sections=scene.text("text", item.text), **fields)
            case ReasoningItem():
                thought = "\n".join((*item.summary, *item.content))
                scene.add("assistant", "thinking", "Thinking", gist=thought, sections=scene.text("text", thought), **fields)
            case PlanItem():
                scene.add("assistant", "plan", "Plan", gist=item.text, sections=scene.text("text", item.text), **fields)
            case UserMessageItem():
                text = item.text
                scene.add("user", "echo", "Echo of a prompt", gist=text, level="minor", sections=scene.text("text", text), **fields)
            case ContextCompactionItem():
                scene.add("session", item.type, "The conversation was shortened", **fields)
            case _:
                text = json_text(item.to_dict())
                scene.add(
                    "assistant", "item", item.type or "An item without a type", gist=text, sections=scene.text("item", text), **fields
                )

    def _call(self, place: tuple[str, str], call: ToolCall, *, is_over: bool) -> None:
        scene, call_id, turn = self._scene, "/".join(place), self._turns.get(place[0])
        if self._tools.find(call_id) is None:
            event = scene.add(
                "tools",
                "tool",
                call.name,
                gist=gist_of_input(call.input),
                status="open",
                turn=self._number(place[0]),
                sections=scene.text("input", json_text(call.input)),
            )
            self._tools.began(call_id, name=call.name, event=event, t=scene.t)
            if turn is not None:
                turn.tool_calls += 1
        if not is_over:
            return
        ended = self._tools.ended(call_id, t=scene.t, status=call.status)
        if ended is None:
            return
        failed = call.status in ("error", "denied")
        if turn is not None:
            turn.tool_errors += failed
        output = call.output if isinstance(call.output, str) else "" if call.output is None else json_text(call.output)
        scene.close(ended, call.status, scene.text("result", output))
        if failed:
            what = "was declined" if call.status == "denied" else "failed"
            scene.worsen(ended.event, "warning", f"{call.name} {what}: {gist_of(output)}".removesuffix(": "))

    def _piece(self, message: AgentMessageDelta) -> None:
        opened = self._open.get((message.turn_id, message.item_id))
        if opened is not None:
            opened.pieces += 1
            if opened.chars < _KEPT_CHARS:
                opened.texts.append(message.delta)
            opened.chars += len(message.delta)

    def _unfinished(self, place: tuple[str, str], *, title: str, level: Level) -> None:
        """Add an event for a text that never arrived whole."""
        opened = self._open.pop(place)
        text = "".join(opened.texts)
        self._scene.add(
            "assistant",
            "text",
            title,
            gist=text,
            level=level,
            status="aborted",
            t=opened.began,
            seconds=max(0.0, self._scene.t - opened.began),
            pieces=opened.pieces,
            turn=self._number(place[0]),
            sections=self._scene.text("text", text),
        )

    def _error(self, message: ErrorNotification) -> None:
        scene, told = self._scene, json_text(message.to_dict())
        code = error_of(message.error).code
        title, level = ("API retry", "warning") if message.will_retry else ("API error", "error")
        self._retries += message.will_retry
        scene.add(
            "session",
            "error",
            title,
            gist=f"{code}: {message.error.message}",
            level=level,  # type: ignore[arg-type]
            status=code,
            turn=self._number(message.turn_id),
            sections=scene.text("message", told),
        )

    def _notification(self, message: CodexMessage) -> None:
        """Read a report of Codex that begins and ends nothing."""
        if isinstance(message, ThreadStarted) and message.thread.id:
            self._threads[gist_of(message.thread.id)] = None
        title, gist, level = _told(message)
        self._report(message, title=title, gist=gist, level=level)

    def _report(self, message: Message, *, title: str, gist: str = "", level: Level | None = None) -> None:
        if level is None:
            level = "minor" if message.type in _MINOR else "normal"
        turn = self._number(message.turn_id) if isinstance(message, CodexNotification) else None
        sections = self._scene.text("message", json_text(message.to_dict()))
        self._scene.add("session", message.type or "message", title, gist=gist, level=level, turn=turn, sections=sections)

    # Turns.

    def _number(self, turn_id: str) -> int | None:
        turn = self._turns.get(turn_id)
        return None if turn is None else turn.number

    def _turn_began(self, turn: RunningTurn) -> None:
        known = self._turns.get(turn.id)
        if known is None:
            self._count += 1
            known = self._turns[turn.id] = _Turn(self._count, self._scene.t)
            if turn.thread_id:
                self._threads[gist_of(turn.thread_id)] = None
        for prompt in turn.prompts[known.prompts :]:
            event, t = self._asked.get(prompt, (None, self._scene.t))
            if not known.prompts:
                known.prompt, known.began = gist_of(prompt.text), min(known.began, t)
            known.prompts += 1
            if event is not None:
                self._scene.shelf.change(event, turn=known.number)

    def _turn_ended(self, turn: RunningTurn, result: CodexTurnEnd, message: CodexMessage) -> None:
        scene = self._scene
        if turn.id not in self._turns:
            self._turn_began(turn)
        for place in [place for place in self._open if place[0] == turn.id]:
            if self._open[place].chars:
                self._unfinished(place, title="Text, unfinished", level="warning")
            else:
                del self._open[place]
        self._ledger.result(result, answers=[f"{turn.id}/{number}" for number in range(1, turn.requests + 1)])
        known, outcome = self._turns[turn.id], result.outcome
        told = message.turn.error if isinstance(message, TurnCompleted) else None
        said = told.message if told is not None else ""
        for rank, prompt in enumerate(turn.prompts):
            event, _ = self._asked.pop(prompt, (None, 0.0))
            if event is not None:
                scene.shelf.change(event, status="folded" if rank else "done")
        tokens = token_counts(result.usage)
        scene.add(
            "session",
            "result",
            "Turn completed" if outcome.ok else "Turn ended",
            gist=turn.text if outcome.ok else f"{outcome.text} {said}".strip(),
            level="normal" if outcome.ok else "warning" if outcome.code == "result.interrupted" else "error",
            status=outcome.code,
            turn=known.number,
            tokens=tokens,
            sections=scene.text("message", json_text(message.to_dict())),
        )
        self._add(turn, known, outcome=outcome.code, detail="" if outcome.ok else f"{outcome.text} {gist_of(said)}".strip(), tokens=tokens)
        del self._turns[turn.id]

    def _add(self, turn: RunningTurn, known: _Turn, *, outcome: str, detail: str, tokens: TokenCounts) -> None:
        self._summaries[known.number] = TurnSummary(
            number=known.number,
            t=known.began,
            seconds=max(0.0, self._scene.t - known.began),
            prompts=known.prompts,
            prompt=known.prompt,
            outcome=outcome,
            detail=detail,
            first_output=None if known.first_output is None else max(0.0, known.first_output - known.began),
            api_messages=turn.requests,
            tool_calls=known.tool_calls,
            tool_errors=known.tool_errors,
            tokens=tokens,
        )

    def ended(self) -> None:
        """Note the end of the tape: what is open has no end on it."""
        scene = self._scene
        for place in list(self._open):
            if self._open[place].chars:
                self._unfinished(place, title="Text, unfinished", level="warning")
        turns, prompts = self._watch.ended()
        lost: Iterable[SentPrompt] = (*(prompt for turn in turns for prompt in turn.prompts), *prompts)
        for prompt in lost:
            event, _ = self._asked.pop(prompt, (None, 0.0))
            if event is not None:
                scene.worsen(event, "error", "a prompt has no result", status="lost")
        for turn in turns:
            known = self._turns.get(turn.id)
            if known is not None:
                tokens = token_counts(turn.usage)
                self._add(turn, known, outcome="result.missing", detail="the tape ends before its turn is completed", tokens=tokens)
        for book in (self._host, self._codex):
            for call in book.still_open():
                scene.worsen(call.event, "warning", f"{call.name} has no answer")
        for call in self._tools.still_open():
            scene.worsen(call.event, "warning", f"{call.name} has no result")

    # `codex exec --json`.

    def _exec(self, message: ExecEvent) -> None:
        """Read a line of `codex exec --json`, which has one turn, and no requests."""
        scene = self._scene
        if message.thread_id:
            self._threads[gist_of(message.thread_id)] = None
        failure = message.error.message if message.error is not None else message.message or ""
        level: Level = "error" if message.event == "turn.failed" else "warning" if message.event == "error" else "normal"
        gist = failure or (message.item.text or message.item.command or message.item.message or "" if message.item is not None else "")
        self._report(message, title=message.event, gist=gist, level=level)
        if message.event == "turn.started":
            self._count += 1
            self._turns[""] = _Turn(self._count, scene.t)
        elif message.event in ("turn.completed", "turn.failed") and (known := self._turns.pop("", None)) is not None:
            error = error_of(failure) if message.event == "turn.failed" else None
            turn = RunningTurn(id="", thread_id="")
            code, detail = ("ok", "") if error is None else (error.code, gist_of(failure))
            self._add(turn, known, outcome=code, detail=detail, tokens=TokenCounts())


def _fields(params: Any) -> dict[str, Any]:
    return params if isinstance(params, dict) else {} if params is None else {"params": params}


def _status_of(result: Any) -> str:
    """Return the status of a question with this answer: `allowed` or `denied` for a decision, else `ok`."""
    if not isinstance(result, dict):
        return "ok"
    decision = result.get("decision")
    if isinstance(decision, str):
        return _DECISIONS.get(decision, "error")
    return "error" if result.get("success") is False else "ok"


def _title_of(message: CodexRequest) -> str:
    match message:
        case CommandApproval():
            return "May it run a command?"
        case FileChangeApproval():
            return "May it change files?"
        case ApprovalRequest():
            return "Approval"
        case ToolCallRequest():
            return f"Tool of the host: {message.tool}"
        case _:
            return message.type or "A request without a method"


def _gist_of_question(message: CodexRequest) -> str | None:
    match message:
        case CommandApproval():
            return message.command
        case FileChangeApproval():
            return message.reason or message.item_id
        case ToolCallRequest():
            return gist_of_input(_fields(message.arguments))
        case _:
            return None


def _told(message: CodexMessage) -> tuple[str, str, Level | None]:
    """Return the title, the one-line text and the level of a report; None is the usual level of its method."""
    match message:
        case ConfigWarning() | DeprecationNotice():
            return "Configuration" if isinstance(message, ConfigWarning) else "Deprecated", message.summary, "normal"
        case WarningNotification():
            return "Warning", message.message, "warning"
        case ModelRerouted():
            return "Another model takes over", f"{message.from_model} → {message.to_model}", "warning"
        case ThreadStarted():
            return "Thread", f"{message.thread.id} in {message.thread.cwd or 'no directory'}", None
        case UnknownNotification():
            return message.wire_method or "A message without a method", gist_of_input(_fields(message.params)), None
        case CodexNotification():
            params = _fields(message.to_dict().get("params"))
            told = {name: value for name, value in params.items() if name not in ("threadId", "turnId")}
            return message.type, gist_of_input(told), None
        case _:
            return "A message of an unknown kind", message.type, None
