"""`LiveTimeline`: reads the lines of a session while it runs, and tells a page what has changed since it last asked.

The lanes of `timeline.py` read the lines, so a live page shows what `inspect` shows of the tape. `gateway` sends the changes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from claude_transport.inspection.page import live_changes
from claude_transport.inspection.scene import EventStore
from claude_transport.inspection.timeline import Reading
from claude_transport.protocol.observation import ObservedLine
from claude_transport.protocol.tape import TapeHeader

MAX_LIVE_EVENTS = 8_000
"""Events of a live page: half from the beginning, half from the end."""

MAX_LIVE_CHARS = 4_000_000
"""Characters of text of a live page, about."""


class LiveTimeline:
    """The timeline of a running session, in bounded memory. Each reading of lines makes a new `revision`.

    Args:
        cli_version: the version of the agent, if it is known.
        created_at: when the session began, in UTC.
        scrubbed: whether the lines are redacted.
    """

    def __init__(self, *, cli_version: str | None = None, created_at: dt.datetime | None = None, scrubbed: bool = True) -> None:
        self._header = TapeHeader(cli_version=cli_version, created_at=created_at, scrubbed=scrubbed)
        self._shelf = EventStore(max_events=MAX_LIVE_EVENTS, max_text_chars=MAX_LIVE_CHARS)
        self._shelf.on_change = self._note
        self._reading = Reading(self._shelf)
        self._changed: dict[int, int] = {}  # the revision of each event, the oldest change first
        self.ended: bool = False
        """True after `end()`."""
        self.revision: int = 0
        """Grows with each change; 0 before the first."""

    def read(self, lines: Iterable[ObservedLine]) -> None:
        """Read lines that follow those that were read."""
        self.revision += 1
        for line in lines:
            self._reading.read(line.position, line.record)

    def end(self) -> None:
        """Close what is open: the session has ended. Later calls do nothing."""
        if not self.ended:
            self.ended = True
            self.revision += 1
            self._reading.close()

    def changes(self, since: int) -> bytes:
        """Return what has changed behind revision `since`, as one line of JSON for the script of the page.

        It has all figures, and the events that were added or changed. For `since=0` these are all events.
        """
        ids: list[int] = []
        for event_id, revision in reversed(self._changed.items()):
            if revision <= since:
                break
            ids.append(event_id)
        events = [event for event_id in reversed(ids) if (event := self._shelf.get(event_id)) is not None]
        summary = self._reading.summary(self._header)
        return live_changes(summary, events, count=self._shelf.count, revision=self.revision, ended=self.ended)

    def _note(self, event_id: int) -> None:
        self._changed.pop(event_id, None)
        self._changed[event_id] = self.revision
        if len(self._changed) > 2 * MAX_LIVE_EVENTS:  # events that were left out of the shelf
            self._changed = {each: revision for each, revision in self._changed.items() if self._shelf.get(each) is not None}
