"""Messages of Codex on their way to their readers, and the bound of what waits for them.

Whose a message is, is decided in `codex.conversation`; the handles that read are in `codex.session`.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Iterable, Sequence
from typing import ClassVar, Final

from claude_transport.codex.messages import AgentMessageDelta, CodexNotification, CommandOutputDelta, TurnCompleted, TurnStarted
from claude_transport.errors import ClaudeTransportError
from claude_transport.exchange.mailbox import Mailbox
from claude_transport.loggers import logger_for
from claude_transport.loops.current import LightEvent, Wakeup

logger: logging.Logger = logger_for(__name__)

_KEPT_BYTES: Final = 2**20
"""Bytes of messages that are kept for the first reader of all messages."""

_BESIDE: Final = 600
_PER_BYTE: Final = 4
"""Bytes of memory for a message: `_BESIDE`, and `_PER_BYTE` for each byte of its line."""


def turn_of(message: CodexNotification) -> str:
    """Return the id of the turn that a message is about; empty when it is about none."""
    return message.turn.id if isinstance(message, TurnStarted | TurnCompleted) else message.turn_id


def _cost_of(message: CodexNotification) -> int:
    return _BESIDE + _PER_BYTE * len(message.raw)


class CodexMailbox(Mailbox[CodexNotification]):
    """Messages of Codex that wait for one reader."""

    partial: ClassVar[tuple[type, ...]] = (AgentMessageDelta, CommandOutputDelta)

    @staticmethod
    def cost_of(message: CodexNotification) -> int:
        """Return the bytes of memory that a message takes."""
        return _cost_of(message)

    @staticmethod
    def most_cost_of(messages: Sequence[CodexNotification]) -> int:
        """Return what these messages cost together."""
        return sum(map(_cost_of, messages))

    def keep_turn(self, turn_id: str) -> None:
        """Forget the messages of other turns."""
        self.keep(lambda message: turn_of(message) == turn_id)


class MessageRouter:
    """Brings messages to their readers, and bounds what waits for them.

    Above `limit` bytes, reading pauses. It goes on when messages are taken. While something waits that only reading can bring, unread
    messages are given up instead.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._boxes: weakref.WeakSet[CodexMailbox] = weakref.WeakSet()
        self._room = Wakeup()
        self._early: CodexMailbox | None = CodexMailbox()
        self._listeners: weakref.WeakSet[CodexMailbox] = weakref.WeakSet()
        self._listens = False
        self._at_most = 0  # bytes that wait, if nothing was taken since they were last counted: counting costs more than a message
        self._needed = 0
        self._end: tuple[ClaudeTransportError | None] | None = None
        self.dropped: int = 0

    def open(self) -> CodexMailbox:
        """Return a new mailbox. Its waiting messages count as long as it is referred to."""
        box = CodexMailbox()
        self._boxes.add(box)
        return box

    def listen(self) -> CodexMailbox:
        """Return a mailbox that gets every message from now on; the first one also gets the last of those before."""
        box, self._early = CodexMailbox() if self._early is None else self._early, None
        self._boxes.add(box)
        self._listeners.add(box)
        self._listens = True
        if self._end is not None:
            box.end(self._end[0])
        return box

    def put(self, message: CodexNotification, turn_boxes: Iterable[CodexMailbox]) -> Awaitable[None] | None:
        """Deliver a message. Returns what has to be awaited before more is read, when too much waits."""
        cost = _cost_of(message)
        for box in turn_boxes:
            box.append(message)
            self._at_most += cost
        for box in self._listeners if self._listens else ():
            box.append(message)
            self._at_most += cost
        if self._early is not None:
            self._early.append(message)
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

    async def next(self, box: CodexMailbox) -> CodexNotification | None:
        """Wait for the next message of a mailbox; None at its end. The end of the conversation ends the wait."""
        while (message := box.take()) is None:
            if box.has_ended:
                return None
            self._room.fire()
            await box.arrival.wait()
        self._room.fire()
        return message

    async def needing(self, flag: LightEvent) -> None:
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
        return sum(box.cost for box in self._boxes)

    def _is_full(self) -> bool:
        if self._at_most > self._limit:
            self._at_most = sum(box.count() for box in self._boxes)
        return self._at_most > self._limit

    def _is_needed(self) -> bool:
        return self._needed > 0 or any(box.arrival.is_awaited for box in self._boxes)

    def _shed(self) -> None:
        boxes = list(self._boxes)
        if not self.dropped:
            logger.warning("messages of codex are not read: unread ones are given up (CodexSession.dropped_messages counts them)")
        for box in boxes:
            excess = box.count() - self._limit * 3 // 4 // len(boxes)
            self.dropped += box.shed(excess)[0] if excess > 0 else 0

    async def _wait_for_room(self) -> None:
        while self._is_full() and self._end is None:
            if self._is_needed():
                self._shed()
            else:
                await self._room.wait()
