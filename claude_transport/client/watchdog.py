"""`Watch`: the watchdog at work beside one conversation: it waits, looks, and says when the turn stands still."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import anyio
import msgspec

from claude_transport.background import clock_here
from claude_transport.client.connection import Connection
from claude_transport.client.reports import check_number
from claude_transport.client.storage import Storage
from claude_transport.errors import ConfigurationError, ConnectionLost
from claude_transport.protocol.blocks import ToolResultBlock, ToolUseBlock
from claude_transport.protocol.control import ControlResponse
from claude_transport.protocol.conversation import Conversation, Deliver, TurnState
from claude_transport.protocol.envelope import DecodeFailure, Message
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

# --- `Watchdog`: when a turn that says nothing is called stalled, and what is done about it.


Clock = Literal["no_bytes", "no_progress"]


class Watchdog(msgspec.Struct, frozen=True, kw_only=True):
    """After how many seconds a turn that stands still is called stalled, and what happens then.

    Args:
        no_bytes: seconds without any byte; None for no such limit. Without `include_partial_messages` a CLI says nothing while the
            model writes a whole block, which may take more than ten minutes: hence 900.
        no_progress: seconds without progress, while signs of life may go on coming; None for no such limit.
        action: "event" puts a `StallEvent` among the messages, and nothing else. "kill" also ends the conversation: the turn and all
            pending requests fail with `ConnectionLost`, code `transport.stalled`.

    Raises `ConfigurationError` for other values.
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
"""Speaks up after a quarter of an hour without a byte, or half an hour without progress; ends nothing."""


class StallEvent(Message, frozen=True, kw_only=True):
    """The turn stands still: nothing of the kind that `clock` counts has come for `seconds`. Made by `Query`'s watchdog, never on the wire.

    `clock` is "no_bytes" or "no_progress"; `last` the type of the last message that came, or an empty string; `killed` is True when the
    conversation is ended for it. There is one for each stall: the next comes only after the clock has been set back by something.
    """

    clock: Clock = "no_bytes"
    seconds: float = 0.0
    last: str = ""
    killed: bool = False

    @property
    def type(self) -> str:
        """Always `stall_event`, which is never on the wire."""
        return "stall_event"

    def to_dict(self) -> dict[str, Any]:
        """A description for logs."""
        return {"type": self.type, "clock": self.clock, "seconds": self.seconds, "last": self.last, "killed": self.killed}


# --- `Vigil`: what a watchdog decides, without a clock and without a loop: it is told what was seen and when, and what time it is.


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


logger: logging.Logger = logging.getLogger(__name__)


class Watch:
    """Keeps the clocks of a `watchdog`, or none. What it is told costs a time stamp for each batch, and no wake-up."""

    def __init__(self, watchdog: Watchdog | None, conversation: Conversation, connection: Connection, storage: Storage) -> None:
        if watchdog is not None and not isinstance(watchdog, Watchdog):
            raise ConfigurationError(f"watchdog is a Watchdog or None, not {watchdog!r}", option="watchdog")
        self._vigil = None if watchdog is None else Vigil(watchdog)
        self._conversation = conversation
        self._connection = connection
        self._storage = storage
        self._clock: Callable[[], float] | None = None  # that of the loop it is used in

    def saw(self, messages: Sequence[Message], kinds: AbstractSet[object]) -> None:
        """A batch was read; `kinds` are the types of its messages."""
        if self._vigil is not None:
            clock = self._clock or self._find_clock()
            self._vigil.saw(messages, kinds, at=clock())

    def _find_clock(self) -> Callable[[], float]:
        self._clock = clock_here()
        return self._clock

    def restart(self) -> None:
        """Something begins that nothing could have come for before."""
        if self._vigil is not None:
            self._vigil.restart(at=anyio.current_time())

    async def next_stall(self) -> StallEvent:
        """Wait for the next stall, for ever if there is no watchdog."""
        vigil, stall = self._vigil, None
        while vigil is None:
            await anyio.sleep_forever()
        while stall is None:
            await anyio.sleep_until(vigil.next_look(at=anyio.current_time()))
            bytes_read = self._connection.info.bytes_read
            stall = vigil.look(at=anyio.current_time(), bytes_read=bytes_read, suspended=self._is_suspended())
        logger.warning("the turn stands still: %s for %.0f s", stall.clock.replace("_", " "), stall.seconds)
        return stall

    def delivery_of(self, stall: StallEvent) -> Deliver:
        """The event for the turn that runs; for the prompt that waits longest, when none does."""
        waiting = self._conversation.open_turns
        running = tuple(uuid for uuid in waiting if self._conversation.state_of(uuid) is TurnState.STARTED)
        return Deliver([stall], running or waiting[:1])

    def error_for(self, stall: StallEvent) -> ConnectionLost:
        """Why a conversation that is ended for a stall has ended."""
        what = "no byte" if stall.clock == "no_bytes" else "no progress"
        return ConnectionLost(f"the watchdog ended it: {what} for {stall.seconds:.0f} s", code="transport.stalled")

    def _is_suspended(self) -> bool:
        return not self._conversation.is_running or bool(self._conversation.open_questions) or self._storage.is_full
