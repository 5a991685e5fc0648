"""Messages of Codex on their way to their readers, and the bound of what waits for them.

Whose a message is, is decided in `codex.conversation`; the handles that read are in `codex.session`.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import Final

from claude_transport.codex.messages import AgentMessageDelta, CodexNotification, CommandOutputDelta, TurnCompleted, TurnStarted
from claude_transport.errors import ClaudeTransportError
from claude_transport.loggers import logger_for
from claude_transport.loops.current import Flag, Wakeup

logger: logging.Logger = logger_for(__name__)

_KEPT_BYTES: Final = 2**20
"""Bytes of messages that are kept for the first reader of all messages."""

_BESIDE: Final = 600
_PER_BYTE: Final = 4
"""What a message takes in memory, in bytes: this much beside its line, and for each byte of it."""


def turn_of(message: CodexNotification) -> str:
    """Return the id of the turn that a message is about; empty when it is about none."""
    return message.turn.id if isinstance(message, TurnStarted | TurnCompleted) else message.turn_id


class Mailbox:
    """Messages that wait for one reader. It ends once, with an error or without."""

    __slots__ = ("__weakref__", "_waiting", "arrival", "error", "has_ended", "size")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, CodexNotification]] = deque()
        self.size: int = 0
        self.arrival: Wakeup = Wakeup()
        self.has_ended: bool = False
        self.error: ClaudeTransportError | None = None

    def put(self, message: CodexNotification, size: int) -> None:
        self._waiting.append((size, message))
        self.size += size
        self.arrival.fire()

    def end(self, error: ClaudeTransportError | None) -> None:
        if not self.has_ended:
            self.has_ended, self.error = True, error
            self.arrival.fire()

    def take(self) -> CodexNotification | None:
        if not self._waiting:
            return None
        size, message = self._waiting.popleft()
        self.size -= size
        return message

    def keep_turn(self, turn_id: str) -> None:
        """Forget the messages of other turns."""
        self._waiting = deque(each for each in self._waiting if turn_of(each[1]) == turn_id)
        self.size = sum(size for size, _ in self._waiting)

    def trim(self, upto: int) -> None:
        """Give up the oldest messages until at most `upto` bytes are left."""
        while self.size > upto:
            self.size -= self._waiting.popleft()[0]

    def shed(self, upto: int) -> int:
        """Give up messages until at most `upto` bytes are left: pieces first, which are repeated whole, then the oldest.

        Returns how many.
        """
        before = len(self._waiting)
        if self.size > upto:
            self._waiting = deque(each for each in self._waiting if not isinstance(each[1], AgentMessageDelta | CommandOutputDelta))
            self.size = sum(size for size, _ in self._waiting)
        self.trim(upto)
        return before - len(self._waiting)


class MessageRouter:
    """Brings messages to their readers, and bounds what waits for them.

    Above `limit` bytes, reading pauses. It goes on when messages are taken. While something waits that only reading can bring, unread
    messages are given up instead.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._boxes: weakref.WeakSet[Mailbox] = weakref.WeakSet()
        self._room = Wakeup()
        self._early: Mailbox | None = Mailbox()
        self._listeners: weakref.WeakSet[Mailbox] = weakref.WeakSet()
        self._listens = False
        self._at_most = 0  # bytes that wait, if nothing was taken since they were last counted: counting costs more than a message
        self._needed = 0
        self._end: tuple[ClaudeTransportError | None] | None = None
        self.dropped: int = 0

    def open(self) -> Mailbox:
        """Return a new mailbox. What waits in it counts while it is held."""
        box = Mailbox()
        self._boxes.add(box)
        return box

    def listen(self) -> Mailbox:
        """Return a mailbox that gets every message from now on; the first one also gets the last of those before."""
        box, self._early = self._early or Mailbox(), None
        self._boxes.add(box)
        self._listeners.add(box)
        self._listens = True
        if self._end is not None:
            box.end(self._end[0])
        return box

    def put(self, message: CodexNotification, turn_boxes: Iterable[Mailbox]) -> Awaitable[None] | None:
        """Deliver a message. Returns what has to be awaited before more is read, when too much waits."""
        size = _BESIDE + _PER_BYTE * len(message.raw)
        for box in turn_boxes:
            box.put(message, size)
            self._at_most += size
        for box in self._listeners if self._listens else ():
            box.put(message, size)
            self._at_most += size
        if self._early is not None:
            self._early.put(message, size)
            self._early.trim(_KEPT_BYTES)
        if not self._is_full():
            return None
        if self._is_needed():
            self._shed()
        return self._wait_for_room()

    def end(self, error: ClaudeTransportError | None) -> None:
        """Note that no message comes any more."""
        self._end = (error,)
        for box in self._listeners:
            box.end(error)
        self._room.fire()

    async def next(self, box: Mailbox) -> CodexNotification | None:
        """Wait for the next message of a mailbox; None at its end. The end of the conversation ends the wait."""
        while (message := box.take()) is None:
            if box.has_ended:
                return None
            self._room.fire()
            await box.arrival.wait()
        self._room.fire()
        return message

    async def needing(self, flag: Flag) -> None:
        """Wait for a flag that only reading can set. Until then reading does not pause. The end of the conversation sets it, too."""
        self._needed += 1
        self._room.fire()
        try:
            await flag.wait()
        finally:
            self._needed -= 1

    @property
    def waiting_bytes(self) -> int:
        """Bytes of memory that the messages take which were not taken yet."""
        return sum(box.size for box in self._boxes)

    def _is_full(self) -> bool:
        if self._at_most > self._limit:
            self._at_most = self.waiting_bytes
        return self._at_most > self._limit

    def _is_needed(self) -> bool:
        return self._needed > 0 or any(box.arrival.is_awaited for box in self._boxes)

    def _shed(self) -> None:
        boxes = list(self._boxes)
        if not self.dropped:
            logger.warning("messages of codex are not read: unread ones are given up (CodexSession.dropped_messages counts them)")
        for box in boxes:
            self.dropped += box.shed(self._limit * 3 // 4 // len(boxes))

    async def _wait_for_room(self) -> None:
        while self._is_full() and self._end is None:
            if self._is_needed():
                self._shed()
            else:
                await self._room.wait()
