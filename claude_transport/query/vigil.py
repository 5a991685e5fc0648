"""`Vigil`: what a watchdog decides, without a clock and without a loop: it is told what was seen and when, and what time it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from claude_transport.protocol.control import ControlResponse
from claude_transport.protocol.messages import (
    AssistantMessage,
    BackgroundTasksChanged,
    ControlRequestProgress,
    DecodeFailure,
    HookProgress,
    KeepAlive,
    Message,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    TaskProgress,
    TaskUpdated,
    ToolProgress,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMirror,
    UserMessage,
)
from claude_transport.query.watchdog import Clock, StallEvent, Watchdog

__all__ = ["NO_PROGRESS", "Vigil"]

_LOOKS = 4
"""Looks per limit at least: a long line that trickles in is noticed between two of them, although it is no message yet."""

NO_PROGRESS: Mapping[type[Message], str] = {
    KeepAlive: "sent by a timer: it says that the pipe is alive, and nothing else",
    ToolProgress: "sent by a timer for as long as a tool runs, every 30 s [17c]",
    TaskProgress: "a background agent goes on, whatever the turn does [15c]",
    TaskUpdated: "likewise",
    BackgroundTasksChanged: "likewise",
    HookProgress: "sent by a timer while a hook's program runs",
    ControlRequestProgress: "about a request of the host",
    ControlResponse: "an answer to the host: one that polls must not hide a stall",
    RateLimitEvent: "about the account",
    TranscriptMirror: "a copy of what was said before",
    DecodeFailure: "not a message: a program that only logs makes no progress",
}
"""What is read and yet no progress, by type, and why. Besides: the API's own `ping` events, and what a subagent says, whose tool call
is open while it belongs to the turn. Everything else is progress, an `api_retry` too (each is a new attempt, and their number is
limited), and so is a type that is not known: a newer CLI is more likely to say something new than to find new ways of saying nothing."""


class Vigil:
    """One conversation under a `watchdog`: told what was seen and when, it says when a stall is due. Times are seconds of any clock."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._kills = watchdog.action == "kill"
        self._limits: dict[Clock, float] = {
            "no_bytes": math.inf if watchdog.no_bytes is None else watchdog.no_bytes,
            "no_progress": math.inf if watchdog.no_progress is None else watchdog.no_progress,
        }
        self._since: dict[Clock, float] = {"no_bytes": 0.0, "no_progress": 0.0}
        self._told: set[Clock] = set()
        self._tools: set[str] = set()
        self._last: Message | None = None
        self._bytes_read = 0
        self._lines_came = False

    @property
    def open_tools(self) -> frozenset[str]:
        """Ids of the tool uses of the main thread that have no result yet."""
        return frozenset(self._tools)

    def saw(self, messages: Sequence[Message], kinds: AbstractSet[object] | None = None, *, at: float) -> None:
        """A batch was read; `kinds` are the types of its messages, from somebody who knows them already."""
        self._lines_came = True
        self._set_back("no_bytes", at)
        if not messages:
            return
        self._last = messages[-1]
        if _is_progress(messages[-1]) or any(map(_is_progress, messages)):
            self._set_back("no_progress", at)
        if not _TOOL_NEWS.isdisjoint(map(type, messages) if kinds is None else kinds):
            self._follow_tools(messages)

    def restart(self, *, at: float) -> None:
        """Something begins that nothing could have come for before: a turn, the CLI's work after an answer, reading after a pause."""
        self._set_back("no_bytes", at)
        self._set_back("no_progress", at)

    def look(self, *, at: float, bytes_read: int = 0, suspended: bool) -> StallEvent | None:
        """The stall that is due, if one is. `suspended`: nothing runs, or it waits for the host. `bytes_read`: so far, where known."""
        if bytes_read != self._bytes_read and not self._lines_came:
            self._set_back("no_bytes", at)  # a line that is not complete yet
        self._bytes_read, self._lines_came = bytes_read, False
        # without a single byte there was no progress either, which needs no event of its own
        if suspended or self._tools or "no_bytes" in self._told:
            return None
        for clock in self._limits:
            if clock not in self._told and (seconds := at - self._since[clock]) >= self._limits[clock]:
                self._told.add(clock)
                return StallEvent(clock=clock, seconds=seconds, last=self._last.type if self._last else "", killed=self._kills)
        return None

    def next_look(self, *, at: float) -> float:
        """When to look again: no stall is due before, whatever happens until then."""
        due = [self._since[clock] + limit for clock, limit in self._limits.items()]
        return min([moment for moment in due if moment > at] + [at + min(self._limits.values()) / _LOOKS])

    def _set_back(self, clock: Clock, at: float) -> None:
        self._since[clock] = at
        self._told.discard(clock)

    def _follow_tools(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, ResultMessage):
                self._tools.clear()
            elif isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
                for block in message.message.content:  # not `tool_uses`: this is done for every message, and making it costs more
                    if isinstance(block, ToolUseBlock):
                        self._tools.add(block.id)
            elif isinstance(message, UserMessage) and not isinstance(message.message.content, str):
                self._tools.difference_update(block.tool_use_id for block in message.message.content if isinstance(block, ToolResultBlock))


_TOOL_NEWS: frozenset[type[Message]] = frozenset({AssistantMessage, UserMessage, ResultMessage})


def _is_progress(message: Message) -> bool:
    if type(message) in NO_PROGRESS or getattr(message, "parent_tool_use_id", None) is not None:
        return False
    return type(message) is not StreamEvent or message.event.get("type") != "ping"
