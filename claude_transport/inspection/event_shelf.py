"""`EventShelf`: the events of a tape of any length, in bounded memory: texts are cut, and of very many events the middle is left out."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from claude_transport.inspection.event import Event, Section
from claude_transport.inspection.wording import gist

__all__ = ["DEFAULT_MAX_EVENTS", "DEFAULT_MAX_TEXT_CHARS", "EventShelf"]

DEFAULT_MAX_EVENTS = 40_000
"""Events kept: half of them from the beginning, half from the end, where people look first."""

DEFAULT_MAX_TEXT_CHARS = 8_000_000
"""Characters of text kept in all; what a browser searches without a pause that is felt."""

_FIRST_LIMIT = 32_768
_LAST_LIMIT = 128
"""Characters of one section: the limit at first, which is halved when the whole becomes too much, and the least that says anything."""


class EventShelf:
    """Takes events in the order in which they begin; those that are there can still be changed, as long as they are."""

    def __init__(self, *, max_events: int = DEFAULT_MAX_EVENTS, max_text_chars: int = DEFAULT_MAX_TEXT_CHARS) -> None:
        self._head = max(1, max_events // 2)
        self._tail_size = max(1, max_events - self._head)
        self._max_chars = max_text_chars
        self._events: dict[int, Event] = {}
        self._tail: deque[int] = deque()
        self._chars = 0
        self.limit: int = _FIRST_LIMIT
        """Characters that a section may have now."""
        self.count: int = 0
        """All events that were ever added."""

    def section(self, label: str, text: str) -> Section:
        """A section of the event that is added next, cut to what is allowed now; what UTF-8 cannot say becomes `?`."""
        cut = text[: self.limit]
        return Section(label, cut if cut.isascii() else cut.encode("utf-8", "replace").decode(), len(text))

    def add(self, **fields: Any) -> int:
        """Put an event there: its id."""
        self.count += 1
        event = Event(id=self.count, **_tidy(fields))
        self._events[event.id] = event
        self._chars += _chars(event)
        if self.count > self._head:
            self._tail.append(event.id)
            if len(self._tail) > self._tail_size:
                self._chars -= _chars(self._events.pop(self._tail.popleft()))
        self._tighten()
        return event.id

    def get(self, event_id: int) -> Event | None:
        """An event; None when it had to go."""
        return self._events.get(event_id)

    def change(self, event_id: int, **fields: Any) -> None:
        """Change fields of an event, if it is still there."""
        event = self._events.get(event_id)
        if event is not None:
            changed = msgspec.structs.replace(event, **_tidy(fields))
            self._chars += _chars(changed) - _chars(event)
            self._events[event_id] = changed
            self._tighten()

    def extend(self, event_id: int, *sections: Section) -> None:
        """Add sections to an event."""
        event = self._events.get(event_id)
        if event is not None:
            self.change(event_id, sections=(*event.sections, *sections))

    def events(self) -> tuple[Event, ...]:
        """Those that are there, in the order of their times."""
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
    """The fields with every text on one line, of bounded length, and sayable in UTF-8: also a name is what a peer makes it."""
    return {name: gist(value) if isinstance(value, str) else value for name, value in fields.items()}


def _chars(event: Event) -> int:
    return len(event.gist) + sum(len(section.text) for section in event.sections)
