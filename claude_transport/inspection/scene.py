"""`Scene`: collects the events of a tape while `timeline.py` and `speech.py` read it.

Here are its parts, too: `Event` (one thing that happened), `EventStore` (the events, in bounded memory), `CallBook` (calls matched to their
answers), `TurnBook` (turns), and the words in which texts and figures are shown. The figures that come of it all are in `summary.py`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from claude_transport.errors import UsageError
from claude_transport.inspection.summary import CallStats, Problem, TurnSummary
from claude_transport.protocol.blocks import ContentBlock, TextBlock
from claude_transport.protocol.conversation import Conversation, Settle, TurnState
from claude_transport.protocol.envelope import Message, to_wire
from claude_transport.protocol.messages import InitMessage, ResultMessage
from claude_transport.wrappers.metrics import TokenLedger, token_counts
from claude_transport.wrappers.metrics_snapshot import TokenCounts

Lane: TypeAlias = Literal["user", "assistant", "tools", "control", "session"]
"""The row in which an event is shown: user, model, tools and tasks, control protocol, or session (the CLI and the recording)."""

LANES: tuple[Lane, ...] = ("user", "assistant", "tools", "control", "session")

Level: TypeAlias = Literal["minor", "normal", "warning", "error"]
"""`minor` events are details that are hidden at first."""


class Section(msgspec.Struct, frozen=True):
    """A named text of an `Event`, such as the input of a tool call.

    `label` is its name. `text` is the text, of which only the beginning may be kept. `chars` is its length on the tape, in characters.
    """

    label: str
    text: str
    chars: int

    @property
    def is_cut(self) -> bool:
        """True when `text` is only the beginning of the text on the tape."""
        return self.chars > len(self.text)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened on a tape, as a timeline shows it: a prompt, a text of the model, a tool call, a control request, ….

    * `id`: number of the event. `record`: the number of the tape's record that began it, from 1. `t`: seconds after the start of the tape.
    * `lane`: the row of the timeline: `user`, `assistant`, `tools`, `control` or `session` (reports of the CLI, its process, and the
      recording).
    * `kind`: what happened, in one or two words. `title`, `gist`: a heading, and one line about the content. `level`: `minor` (a detail),
      `normal`, `warning` or `error`. `sections`: its texts.
    * `status`: `ok`, `error`, `denied`, `cancelled`, `open`, the code of a result, …, or empty.
    * `seconds`: how long it took; None for a moment and for what never ended (then `status` is `open`).
    * `waited`: for an answer of the model, seconds from the prompt or tool result to its beginning. `pieces`: in how many pieces it was
      streamed.
    * `turn`: number of the turn from 1; None outside of turns.
    * `nested`: it belongs to a subagent. `agent`: the description with which the subagent was started. `parent`: the `id` of the call that
      started it. Both may be missing on the tape.
    * `tokens`, `cost_usd`: what an answer or a turn used.
    """

    id: int
    record: int
    t: float
    lane: Lane
    kind: str
    title: str
    gist: str = ""
    level: Level = "normal"
    status: str = ""
    seconds: float | None = None
    waited: float | None = None
    turn: int | None = None
    nested: bool = False
    agent: str = ""
    parent: int | None = None
    tokens: TokenCounts | None = None
    cost_usd: float | None = None
    pieces: int | None = None
    sections: tuple[Section, ...] = ()


GIST_CHARS: Final = 160
"""Characters of the text on the line of an event."""

_TELLING: Final = ("command", "file_path", "notebook_path", "pattern", "path", "url", "query", "skill", "description", "prompt")
"""Fields of a tool input that describe a call, the best first."""

_MAX_PRETTY_CHARS: Final = 200_000
"""Characters of JSON that is indented. Longer JSON is shown on one line."""


def gist_of(text: str) -> str:
    """Return the beginning of `text` on one line, at most `GIST_CHARS` characters."""
    flat = " ".join(text[: GIST_CHARS * 4].split())
    flat = flat if flat.isascii() else flat.encode("utf-8", "replace").decode()
    return flat if len(flat) <= GIST_CHARS and len(text) <= GIST_CHARS * 4 else flat[: GIST_CHARS - 1] + "…"


def json_text(value: Any) -> str:
    """Return `value` as indented JSON."""
    try:
        encoded = msgspec.json.encode(to_wire(value))
        return (msgspec.json.format(encoded, indent=2) if len(encoded) <= _MAX_PRETTY_CHARS else encoded).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):  # a lone surrogate, or nested deeper than msgspec goes
        pass
    try:
        return json.dumps(to_wire(value), indent=2, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"({type(value).__name__} that cannot be shown)"


def gist_of_input(tool_input: Mapping[str, Any]) -> str:
    """Return one line about a tool call: its most descriptive field, or the whole input."""
    for name in _TELLING:
        value = tool_input.get(name)
        if isinstance(value, str) and value.strip():
            return gist_of(value)
    return gist_of(json_text(tool_input)) if tool_input else ""


def text_of_content(content: str | Sequence[ContentBlock] | None) -> str:
    """Return the text of a message or of a tool's answer. Images and other data become a note in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_text_of_block(block) for block in content)


def _text_of_block(block: ContentBlock) -> str:
    if isinstance(block, TextBlock):
        return block.text
    wire = block.to_dict()
    source = wire.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    if isinstance(data, str) and isinstance(source, dict):
        return f"[{wire.get('type')}: {source.get('media_type', 'data')}, {len(data):,} characters of base64]"
    return json_text(wire)


DEFAULT_MAX_EVENTS = 40_000
"""Events kept: half from the beginning of the tape, half from its end."""

DEFAULT_MAX_TEXT_CHARS = 8_000_000
"""Characters of text kept in all: a browser can search them without a noticeable pause."""

_FIRST_LIMIT = 32_768
_LAST_LIMIT = 128
"""Characters of one section: the first limit, and the last. It is halved while all texts together are too long."""


class EventStore:
    """The events of a tape of any length, in bounded memory. Long texts are cut; of very many events the middle is left out.

    Args:
        max_events: events to keep.
        max_text_chars: characters of text to keep in all.
    """

    def __init__(self, *, max_events: int = DEFAULT_MAX_EVENTS, max_text_chars: int = DEFAULT_MAX_TEXT_CHARS) -> None:
        self._head = max(1, max_events // 2)
        self._tail_size = max(1, max_events - self._head)
        self._max_chars = max_text_chars
        self._events: dict[int, Event] = {}
        self._tail: deque[int] = deque()
        self._chars = 0
        self.limit: int = _FIRST_LIMIT
        """Characters that a section may have at this moment."""
        self.count: int = 0
        """The number of events that were ever added."""
        self.on_change: Callable[[int], object] | None = None
        """Called with the id of each event that is added or changed."""

    def section(self, label: str, text: str) -> Section:
        """Make a section for the next event, cut to `limit`. Characters that UTF-8 cannot encode become `?`."""
        cut = text[: self.limit]
        return Section(label, cut if cut.isascii() else cut.encode("utf-8", "replace").decode(), len(text))

    def add(self, **fields: Any) -> int:
        """Add an event with these fields, and return its id."""
        self.count += 1
        event = Event(id=self.count, **_tidy(fields))
        self._events[event.id] = event
        self._chars += _chars(event)
        if self.count > self._head:
            self._tail.append(event.id)
            if len(self._tail) > self._tail_size:
                self._chars -= _chars(self._events.pop(self._tail.popleft()))
        self._tighten()
        if self.on_change is not None:
            self.on_change(event.id)
        return event.id

    def get(self, event_id: int) -> Event | None:
        """Return an event, or None when it was left out."""
        return self._events.get(event_id)

    def change(self, event_id: int, **fields: Any) -> None:
        """Change fields of an event, if it was kept."""
        event = self._events.get(event_id)
        if event is not None:
            changed = msgspec.structs.replace(event, **_tidy(fields))
            self._chars += _chars(changed) - _chars(event)
            self._events[event_id] = changed
            self._tighten()
            if self.on_change is not None:
                self.on_change(event_id)

    def extend(self, event_id: int, *sections: Section) -> None:
        """Add sections to an event, if it was kept."""
        event = self._events.get(event_id)
        if event is not None:
            self.change(event_id, sections=(*event.sections, *sections))

    def events(self) -> tuple[Event, ...]:
        """Return the events that were kept, in the order of their times."""
        return tuple(sorted(self._events.values(), key=lambda event: (event.t, event.id)))

    def _tighten(self) -> None:
        while self._chars > self._max_chars and self.limit > _LAST_LIMIT:
            self.limit //= 2
            for event_id, event in self._events.items():
                if any(len(section.text) > self.limit for section in event.sections):
                    cut = tuple(Section(section.label, section.text[: self.limit], section.chars) for section in event.sections)
                    self._events[event_id] = msgspec.structs.replace(event, sections=cut)
            self._chars = sum(map(_chars, self._events.values()))


def _tidy(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with every text on one line, bounded and valid in UTF-8. A peer chooses even the names of tools."""
    return {name: gist_of(value) if isinstance(value, str) else value for name, value in fields.items()}


def _chars(event: Event) -> int:
    return len(event.gist) + sum(len(section.text) for section in event.sections)


_SECOND = 1.0
_MINUTE = 60.0
_HOUR = 3600.0


def seconds_text(seconds: float) -> str:
    """Write a duration: `340 ms`, `2.4 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < _SECOND:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 or seconds <= 0 else f"{seconds * 1000:.1f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        whole = int(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = int(seconds // _MINUTE)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def bytes_text(size: int) -> str:
    """Write a size: `812 B`, `3.4 kB`, `52.1 MB`."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def count_text(number: int) -> str:
    """Write a whole number with commas between the thousands."""
    return f"{number:,}"


def dollars_text(cost: float) -> str:
    """Write a cost: `$1.25`, `$0.0038`, `$0`."""
    if cost <= 0:
        return "$0"
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}" if cost >= 0.0001 else f"${cost:.6f}"


def plural(number: int, noun: str) -> str:
    """Write a number with its noun: `1 turn`, `2 turns`."""
    return f"{count_text(number)} {noun}{'' if number == 1 else 's'}"


Caller: TypeAlias = str
"""Who asked: `model`, `host`, or the program of the agent."""
_STATISTICS = {"error": "errors", "denied": "denied", "cancelled": "cancelled"}

_MAX_NAMES = 500
"""Names counted separately. More names count as `other`, so that a hostile tape cannot fill the memory."""


class OpenCall(NamedTuple):
    """A call without an answer: the id of its event, its name, and the time at which it began."""

    event: int
    name: str
    t: float


class CallBook:
    """Matches calls of one side to their answers by id, and counts them by name.

    An id may be used twice: then the older call is answered first. It may be missing.
    """

    def __init__(self, asked_by: Caller) -> None:
        self._asked_by: Caller = asked_by
        self._open: dict[str | None, deque[OpenCall]] = {}
        self._stats: dict[str, CallStats] = {}

    def began(self, call_id: str | None, *, name: str, event: int, t: float) -> None:
        """Note a call: its id, name and event, and its time in seconds."""
        name = gist_of(name)
        if name not in self._stats and len(self._stats) >= _MAX_NAMES:
            name = "other"
        stats = self._stats.get(name) or CallStats(name=name, asked_by=self._asked_by)
        self._stats[name] = msgspec.structs.replace(stats, calls=stats.calls + 1, open=stats.open + 1)
        self._open.setdefault(call_id, deque()).append(OpenCall(event, name, t))

    def find(self, call_id: str | None) -> OpenCall | None:
        """Return the open call with this id, or None."""
        waiting = self._open.get(call_id)
        return waiting[0] if waiting else None

    def ended(self, call_id: str | None, *, t: float, status: str) -> OpenCall | None:
        """Close the open call with this id and return it, or None when there is none. `status` is counted."""
        waiting = self._open.get(call_id)
        if not waiting:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._open[call_id]
        stats = self._stats[call.name]
        took = max(0.0, t - call.t)
        counted = {_STATISTICS[status]: getattr(stats, _STATISTICS[status]) + 1} if status in _STATISTICS else {}
        self._stats[call.name] = msgspec.structs.replace(
            stats, open=stats.open - 1, seconds=stats.seconds + took, longest=max(stats.longest, took), **counted
        )
        return call

    def still_open(self) -> Iterator[OpenCall]:
        """Yield the open calls; of each id the oldest first."""
        for waiting in self._open.values():
            yield from waiting

    def stats(self) -> tuple[CallStats, ...]:
        """Return the counts by name, the most used first."""
        return tuple(sorted(self._stats.values(), key=lambda stats: (-stats.calls, stats.name)))


class _ScenePrompt(NamedTuple):
    event: int
    t: float
    text: str


class SettledPrompt(NamedTuple):
    """A prompt with its final state: the id of its event, the state, and the number of its turn or None."""

    event: int
    state: TurnState
    turn: int | None


class TurnBook:
    """Finds out which prompts share which turn and what each turn used. The state machine of `protocol/conversation.py` decides."""

    def __init__(self) -> None:
        self.ledger: TokenLedger = TokenLedger()
        self.turns: list[TurnSummary] = []
        self._conversation = Conversation()
        self._prompts: dict[str, _ScenePrompt] = {}
        self._last_result: float | None = None
        self._open_turn()

    def _open_turn(self) -> None:
        self._began: float | None = None
        self._first_output: float | None = None
        self._tool_calls = self._tool_errors = 0
        self._api_messages_before = self.ledger.api_messages
        self._cost_before = self.ledger.cost_usd

    @property
    def current(self) -> int | None:
        """The number of the running turn, from 1; None between turns."""
        return len(self.turns) + 1 if self._conversation.is_running else None

    def expect_structure(self) -> None:
        """Treat results without structured output as failures, because the host asked for a JSON schema."""
        self._conversation.expect(structured_output=True)

    def prompted(self, uuid: str | None, *, text: str, event: int, t: float, priority: str | None) -> bool:
        """Note a prompt. Return False for a repeated uuid: the CLI drops it (docs/reference/protocol.md#repeated-uuids)."""
        is_named, uuid = uuid is not None, uuid or f"unnamed-{event}"
        try:
            self._conversation.send(uuid, priority=priority, is_command=text.startswith("/"), is_named=is_named)
        except UsageError:
            return False
        self._prompts[uuid] = _ScenePrompt(event, t, text)
        return True

    def heard(self, message: Message, t: float) -> list[SettledPrompt]:
        """Note a message of the CLI at time `t`. Return the prompts that it settles."""
        in_progress = self.ledger.in_progress
        settled = [action for action in self._conversation.received([message]) if isinstance(action, Settle)]
        if isinstance(message, InitMessage) and self._began is None and self._conversation.is_running:
            self._began = t
        if isinstance(message, ResultMessage) and message.prompt_uuids is not None:
            self._end_turn(message, message.prompt_uuids, t, in_progress)
        return self._settled(settled)

    def spoke(self, t: float) -> None:
        """Note output of the model at time `t`."""
        if self._first_output is None:
            self._first_output = t
            self._began = t if self._began is None else self._began

    def used_tool(self) -> None:
        """Note the call of a tool."""
        self._tool_calls += 1

    def tool_failed(self) -> None:
        """Note the failed call of a tool."""
        self._tool_errors += 1

    def ended(self, t: float) -> list[SettledPrompt]:
        """Note the end of the tape at time `t`. Prompts without a result form a last turn. Return the prompts that this settles."""
        running = self._conversation.is_running
        open_prompts = [self._prompts[uuid] for uuid in self._conversation.open_turns if uuid in self._prompts]
        settled = [action for action in self._conversation.ended() if isinstance(action, Settle)]
        if running:
            self._add(open_prompts, t, outcome="result.missing", detail="the tape ends before its result", tokens=self.ledger.in_progress)
        return self._settled(settled)

    def _end_turn(self, result: ResultMessage, uuids: Iterable[str], t: float, in_progress: TokenCounts) -> None:
        self.ledger.result(result)
        outcome = result.outcome
        said = " ".join(result.errors) or result.result or ""
        prompts = [self._prompts[uuid] for uuid in uuids if uuid in self._prompts]
        self._add(
            prompts,
            t,
            outcome=outcome.code,
            detail="" if outcome.ok else f"{outcome.text} {gist_of(said)}".strip(),
            tokens=tokens_of_turn(result, in_progress=in_progress),
        )
        self._last_result = t
        self._open_turn()

    def _add(self, prompts: list[_ScenePrompt], t: float, *, outcome: str, detail: str, tokens: TokenCounts) -> None:
        asked = min((prompt.t for prompt in prompts), default=self._began if self._began is not None else t)
        began = asked if self._last_result is None else max(asked, self._last_result)
        self.turns.append(
            TurnSummary(
                number=len(self.turns) + 1,
                t=began,
                seconds=max(0.0, t - began),
                prompts=len(prompts),
                prompt=gist_of(prompts[0].text) if prompts else "",
                outcome=outcome,
                detail=detail,
                first_output=None if self._first_output is None else max(0.0, self._first_output - began),
                api_messages=self.ledger.api_messages - self._api_messages_before,
                tool_calls=self._tool_calls,
                tool_errors=self._tool_errors,
                tokens=tokens,
                cost_usd=max(0.0, self.ledger.cost_usd - self._cost_before),
            )
        )

    def _settled(self, actions: Iterable[Settle]) -> list[SettledPrompt]:
        settled: list[SettledPrompt] = []
        for action in actions:
            prompt = self._prompts.pop(action.uuid, None)
            if prompt is not None:
                turn = len(self.turns) if action.state is not TurnState.DROPPED else None
                settled.append(SettledPrompt(prompt.event, action.state, turn or None))
        return settled


def tokens_of_turn(result: ResultMessage, *, in_progress: TokenCounts) -> TokenCounts:
    """Return the tokens of a turn: those in its result, or else those of its API messages.

    Args:
        result: the result of the turn.
        in_progress: `TokenLedger.in_progress` before the result.
    """
    reported = token_counts(result.usage)
    return in_progress if reported == TokenCounts() else reported


_MAX_PROBLEMS = 100
"""Problems listed; all are counted."""


class Scene:
    """Adds events at the current time, record and turn. Events of level warning or error become problems of the tape."""

    def __init__(self, shelf: EventStore) -> None:
        self.shelf: EventStore = shelf
        self.turns: TurnBook = TurnBook()
        self.t: float = 0.0
        self.record: int = 0
        self.problems: list[Problem] = []
        self.problem_count: int = 0
        self.error_count: int = 0

    def add(
        self,
        lane: Lane,
        kind: str,
        title: str,
        *,
        gist: str = "",
        level: Level = "normal",
        t: float | None = None,
        sections: Iterable[Section] = (),
        **more: Any,
    ) -> int:
        """Add an event at `t` (by default now) and return its id. `more` are further fields of `Event`."""
        event = self.shelf.add(
            record=self.record,
            t=self.t if t is None else t,
            lane=lane,
            kind=kind,
            title=title,
            gist=gist,
            level=level,
            turn=more.pop("turn", self.turns.current),
            sections=tuple(sections),
            **more,
        )
        if level in ("warning", "error"):
            self.blame(level, f"{title}: {gist}" if gist else title, event=event)
        return event

    def text(self, label: str, text: str) -> tuple[Section, ...]:
        """Return the sections for a text: one, or none for an empty text."""
        return (self.shelf.section(label, text),) if text else ()

    def blame(self, level: Level, text: str, *, event: int | None) -> None:
        """Note a problem of the tape. `event` is the id of the event that tells more."""
        self.problem_count += 1
        self.error_count += level == "error"
        if len(self.problems) < _MAX_PROBLEMS:
            serious: Literal["warning", "error"] = "error" if level == "error" else "warning"
            self.problems.append(Problem(self.t, serious, gist_of(text), event))

    def worsen(self, event: int, level: Level, text: str, **fields: Any) -> None:
        """Make a problem with this level and text of an event. One that has a worse level already keeps it."""
        before = self.shelf.get(event)
        is_error = level == "error" or (before is not None and before.level == "error")
        self.shelf.change(event, level="error" if is_error else level, **fields)
        self.blame(level, text, event=event)

    def close(self, call: OpenCall, status: str, sections: Iterable[Section]) -> None:
        """Write the end of a call into its event: its duration, its status, and the sections of its answer."""
        self.shelf.change(call.event, seconds=max(0.0, self.t - call.t), status=status)
        self.shelf.extend(call.event, *sections)

    def settle(self, prompts: Iterable[SettledPrompt]) -> None:
        """Write the final state of prompts into their events."""
        for prompt in prompts:
            if prompt.state is TurnState.DROPPED:
                self.worsen(prompt.event, "warning", "a prompt was cancelled before it ran", status="dropped", turn=None)
            elif prompt.state is TurnState.LOST:
                self.worsen(prompt.event, "error", "a prompt has no result", status="lost", turn=prompt.turn)
            else:
                self.shelf.change(prompt.event, status=prompt.state.value, turn=prompt.turn)
