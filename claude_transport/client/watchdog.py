"""`Watchdog`: when a turn that says nothing is called stalled, and what is done then. `StallDetector` decides, without a clock or a loop.

`Query` tells the detector what it reads, and waits for the moments at which to look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import msgspec

from claude_transport.errors import ConfigurationError, ConnectionLost
from claude_transport.exchange.arguments import check_number
from claude_transport.protocol.blocks import ToolResultBlock, ToolUseBlock
from claude_transport.protocol.control import ControlResponse
from claude_transport.protocol.envelope import DecodeFailure, Message, UnknownMessage
from claude_transport.protocol.messages import (
    AssistantMessage,
    BackgroundTasksChanged,
    ControlRequestProgress,
    HookProgress,
    KeepAlive,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    TaskProgress,
    TaskUpdated,
    ToolProgress,
    TranscriptMirror,
    UserMessage,
)

Clock = Literal["no_bytes", "no_progress"]


class Watchdog(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for a turn that makes no progress, and what happens when one is exceeded. Pass it to `Query` as `watchdog`.

    Args:
        no_bytes: seconds without any byte from the CLI; None for no such limit. Without `include_partial_messages` a CLI sends nothing
            while the model writes a whole block. That may take more than ten minutes, hence 900.
        no_progress: seconds without progress, although signs of life (timers, pings) may come; None for no such limit.
        action: "event" puts a `StallEvent` among the messages, and does nothing else. "kill" also ends the conversation: the turn and
            all pending requests fail with `ConnectionLost`, code `transport.stalled`.

    No stall is reported while a tool of the main conversation runs, while the CLI waits for an answer of this program, or while reading
    pauses. Raises `ConfigurationError` for other values.
    """

    no_bytes: float | None = 900.0
    no_progress: float | None = 1800.0
    action: Literal["event", "kill"] = "event"

    def __post_init__(self) -> None:
        for name in ("no_bytes", "no_progress"):
            if (limit := getattr(self, name)) is not None:
                check_number(name, limit, positive=True)
        if self.action not in ("event", "kill"):
            raise ConfigurationError(f'action is "event" or "kill", not {self.action!r}', option="action")


DEFAULT_WATCHDOG = Watchdog()
"""Tells of a stall after 15 minutes without a byte, or 30 without progress; ends nothing."""


class StallEvent(Message, frozen=True, kw_only=True):
    """A message that says: the running turn has stalled. The watchdog of `Query` makes it; it is never on the wire.

    `clock` says what has not come for `seconds`: "no_bytes" (nothing at all) or "no_progress" (nothing but signs of life). `last` is the
    type of the last message, or an empty string. `killed` is True when the watchdog also ends the conversation.

    A clock that has reported is silent until what it misses has come: any bytes, or progress. It also begins again when a turn begins, a
    question of the CLI is answered, or a pause of reading is over. A "no_bytes" may follow a "no_progress" directly.
    """

    clock: Clock = "no_bytes"
    seconds: float = 0.0
    last: str = ""
    killed: bool = False

    @property
    def type(self) -> str:
        """Always `stall_event`, a type that the CLI never sends."""
        return "stall_event"

    def to_dict(self) -> dict[str, Any]:
        """Return `type`, `clock`, `seconds`, `last` and `killed` as a dict, for logs."""
        return {"type": self.type, "clock": self.clock, "seconds": self.seconds, "last": self.last, "killed": self.killed}

    def as_error(self) -> ConnectionLost:
        """Return this stall as the error with which the conversation ends when `Watchdog.action` is "kill"."""
        what = "no byte" if self.clock == "no_bytes" else "no progress"
        return ConnectionLost(f"the watchdog ended it: {what} for {self.seconds:.0f} s", code="transport.stalled")


MAX_TOOLS = 10_000
"""Number of running tools that are remembered. When there are more, the oldest is forgotten."""

MAX_TOOL_ID_CHARS = 300
"""Characters that are kept of the id of each."""

_LOOKS = 4
"""Looks for each limit at least: a long line that trickles in is noticed between two of them, although it is no message yet."""

NO_PROGRESS: Mapping[type[Message], str] = {
    KeepAlive: "sent by a timer: it shows that the pipe works, and nothing else",
    ToolProgress: "sent by a timer for as long as a tool runs, every 30 s [17c]",
    TaskProgress: "a background agent goes on, whatever the turn does [15c]",
    TaskUpdated: "likewise",
    BackgroundTasksChanged: "likewise",
    HookProgress: "sent by a timer while a hook's program runs",
    ControlRequestProgress: "about a request of the host",
    ControlResponse: "an answer to the host: a program that polls must not hide a stall",
    RateLimitEvent: "about the account",
    TranscriptMirror: "a copy of what was said before",
    DecodeFailure: "not a message: a program that only logs makes no progress",
}
"""Messages that are no progress, by type, and why. Two more are none: the `ping` events of the API, and what a subagent says, because its
tool call is open while it belongs to the turn. Everything else is progress. An `api_retry` is: each is a new attempt, and their number is
limited. A type that is not known is, because a newer CLI is more likely to say something new."""

_TYPES: dict[type[Message], str] = {}
"""The `type` on the wire of each class that was seen, but of `UnknownMessage`, which has many."""

_TOOL_NEWS: frozenset[type[Message]] = frozenset({AssistantMessage, UserMessage, ResultMessage})


class StallDetector:
    """Decides when a conversation has stalled, from what it is told. Times are seconds of any clock."""

    def __init__(self, watchdog: Watchdog) -> None:
        if not isinstance(watchdog, Watchdog):
            raise ConfigurationError(f"watchdog is a Watchdog or None, not {watchdog!r}", option="watchdog")
        self._kills = watchdog.action == "kill"
        self._limits: dict[Clock, float] = {
            "no_bytes": math.inf if watchdog.no_bytes is None else watchdog.no_bytes,
            "no_progress": math.inf if watchdog.no_progress is None else watchdog.no_progress,
        }
        self._bytes_at = 0.0
        self._progress_at = 0.0
        self._told: dict[Clock, None] = {}  # dicts, because an empty set takes three times as much
        self._tools: dict[str, None] = {}
        self._last = ""  # the type only: a message may hold megabytes
        self._bytes_read = 0
        self._lines_came = False

    def saw(self, messages: Sequence[Message], kinds: AbstractSet[object] | None = None, *, at: float) -> None:
        """Note a batch of messages that was read. `kinds` are their types, where the caller knows them."""
        self._lines_came = True
        self._bytes_at = at
        for message in reversed(messages):  # of a large batch, the last message is progress nearly always
            if isinstance(message, StreamEvent):
                if message.parent_tool_use_id is not None or message.event.get("type") == "ping":
                    continue
            elif message.__class__ in NO_PROGRESS or getattr(message, "parent_tool_use_id", None) is not None:
                continue
            self._progress_at = at
            if self._told:
                self._told.pop("no_progress", None)
            break
        if self._told:
            self._told.pop("no_bytes", None)
        if messages:
            last = messages[-1]
            kind = last.__class__
            self._last = last.type if kind is UnknownMessage else _TYPES.get(kind) or _TYPES.setdefault(kind, last.type)
        if not _TOOL_NEWS.isdisjoint(map(type, messages) if kinds is None else kinds):
            self._follow_tools(messages)

    def restart(self, *, at: float) -> None:
        """Start both clocks anew: before now nothing could have come. A turn begins, a question is answered, or a pause is over."""
        self._bytes_at = self._progress_at = at
        self._told.clear()

    def look(self, *, at: float, bytes_read: int = 0, suspended: bool) -> StallEvent | None:
        """Return the stall that is due, or None.

        `suspended` is True when nothing runs, or the CLI waits for the host. `bytes_read` counts all bytes so far, where it is known.
        """
        if bytes_read != self._bytes_read and not self._lines_came:
            self._bytes_at = at  # a line that is not complete yet
            self._told.pop("no_bytes", None)
        self._bytes_read, self._lines_came = bytes_read, False
        # without a single byte there was no progress either, which needs no event of its own
        if suspended or self._tools or "no_bytes" in self._told:
            return None
        since: dict[Clock, float] = {"no_bytes": self._bytes_at, "no_progress": self._progress_at}
        for clock in self._limits:
            if clock not in self._told and (seconds := at - since[clock]) >= self._limits[clock]:
                self._told[clock] = None
                return StallEvent(clock=clock, seconds=seconds, last=self._last, killed=self._kills)
        return None

    def next_look(self, *, at: float) -> float:
        """Return when to look again. No stall is due before, whatever happens until then."""
        due = [self._bytes_at + self._limits["no_bytes"], self._progress_at + self._limits["no_progress"]]
        return min([moment for moment in due if moment > at] + [at + min(self._limits.values()) / _LOOKS])

    def _follow_tools(self, messages: Sequence[Message]) -> None:
        """Note which tools of the main thread are running: while one runs, nothing has stalled."""
        for message in messages:
            if isinstance(message, ResultMessage):
                self._tools.clear()
            elif isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
                for block in message.message.content:  # not `tool_uses`: making it costs more, for every message
                    if isinstance(block, ToolUseBlock):
                        self._tools[block.id[:MAX_TOOL_ID_CHARS]] = None
                        if len(self._tools) > MAX_TOOLS:
                            del self._tools[next(iter(self._tools))]
            elif isinstance(message, UserMessage) and not isinstance(message.message.content, str):
                for block in message.message.content:
                    if isinstance(block, ToolResultBlock):
                        self._tools.pop(block.tool_use_id[:MAX_TOOL_ID_CHARS], None)
