"""`Scene`: collects the events of a tape for the inspector. The readers of its lines, one for each agent, write into it.

Here are its parts, too: `Event` (one thing that happened), `EventStore` (the events, in bounded memory), `CallBook` (calls matched to their
answers), and the figures that a `TapeReader` returns.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from claude_transport.protocol.envelope import to_wire
from claude_transport.protocol.token_counts import ModelCounts, TokenCounts

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


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a tape, from its prompt to its result. Times are seconds.

    * `number`: from 1. `t`: its beginning, after the start of the tape: the time of its prompt, or of the result before it when the prompt
      was waiting already. `seconds`: its duration.
    * `prompts`: how many prompts share the turn: several were merged, none when a background task woke the session. `prompt`: the beginning
      of the first one.
    * `outcome`: `ok`, the code of the failure (`result.overloaded`), or `result.missing` when the tape ends first. `detail`: more about a
      failure.
    * `first_output`: seconds from the beginning to the first words of the model; None when it said nothing in this turn.
    * `api_messages`: answers of the API. `tool_calls`, `tool_errors`: calls of tools, and those that failed.
    * `tokens`: as the result says, or those of the API messages where it says none (an interrupted turn).
    * `cost_usd`: paid since the result before.
    """

    number: int
    t: float
    seconds: float
    prompts: int
    prompt: str = ""
    outcome: str = "ok"
    detail: str = ""
    first_output: float | None = None
    api_messages: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tokens: TokenCounts = TokenCounts()
    cost_usd: float = 0.0


class CallStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts on a tape: all calls of one tool, or all control requests of one subtype from one side.

    * `name`: the tool, the subtype, or the method of a request. `asked_by`: `model` for a tool; for a request, the side that sent
      it: `host`, or the program of the agent, such as `claude`.
    * `calls`: all of them. `errors`: failed. `denied`: not allowed. `cancelled`: withdrawn by the side that asked. `open`: without an
      answer on the tape.
    * `seconds`: the sum of the durations of those that ended. `longest`: the longest of them.
    """

    name: str
    asked_by: str
    calls: int = 0
    errors: int = 0
    denied: int = 0
    cancelled: int = 0
    open: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class Problem(msgspec.Struct, frozen=True):
    """A fault on a tape, or a possible one. `t` is its time in seconds after the start of the tape, `text` says what is wrong.

    `level` is `error` or `warning`. `event` is the id of the `Event` that tells more; None for a fault of the tape itself.
    """

    t: float
    level: Literal["warning", "error"]
    text: str
    event: int | None = None


class TapeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a tape that only a reader of its lines can tell. What an agent does not say stays empty, or 0.

    * `session_ids`: the sessions on the tape, or the threads of an agent that has them. `turns`: in the order in which they began.
    * `tools`: the calls of the model. `requests`: those of both sides.
    * `models`, `cost_usd`: all usage, by model, and all costs in US dollars. `api_messages`: answers of the API. `retries`: requests to the
      API that were repeated.
    """

    session_ids: Sequence[str] = ()
    turns: Sequence[TurnSummary] = ()
    tools: Sequence[CallStats] = ()
    requests: Sequence[CallStats] = ()
    models: Mapping[str, ModelCounts] = {}
    cost_usd: float = 0.0
    api_messages: int = 0
    retries: int = 0


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


_MAX_PROBLEMS = 100
"""Problems listed; all are counted."""


class Scene:
    """Adds events at the current time, record and turn. Events of level warning or error become problems of the tape."""

    def __init__(self, shelf: EventStore) -> None:
        self.shelf: EventStore = shelf
        self.t: float = 0.0
        self.record: int = 0
        self.problems: list[Problem] = []
        self.problem_count: int = 0
        self.error_count: int = 0

    @property
    def turn(self) -> int | None:
        """The number of the turn that runs now, from 1. Events get it that do not name another one. None where several may run."""
        return None

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
            turn=more.pop("turn", self.turn),
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
