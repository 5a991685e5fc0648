"""Where messages wait for their readers: bounded in bytes, without ever standing in the way of the control plane."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator
from typing import Self

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.conversation import Settle
from claude_transport.protocol.messages import Message
from claude_transport.query.mailbox import Mailbox
from claude_transport.query.turns import Turn

__all__ = ["AllMessages", "Storage"]

logger = logging.getLogger(__name__)


class Storage:
    """Messages that were read and not yet taken, for each turn and for the reader of everything.

    A message that belongs to a turn waits in that turn's mailbox; one that belongs to none waits in the inbox. Somebody who
    asks for all messages gets what nobody has taken yet, and from then on everything.

    Over `max_buffered_bytes`, reading pauses. But while somebody waits for a result or for the answer to a request, which
    only reading can bring, it goes on, and unread messages are given up instead: partial ones first, then the oldest.
    """

    def __init__(self, *, max_buffered_bytes: int) -> None:
        self._max_buffered_bytes = max_buffered_bytes
        self._turns: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
        self._inbox = Mailbox()
        self._subscribers = 0
        self._sequence = 0
        self._needs = 0
        self._room = anyio.Event()
        self._change = anyio.Event()
        self.dropped_messages = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of messages that nobody has taken yet."""
        return self._inbox.size_bytes + sum(turn.mailbox.size_bytes for turn in self._turns.values())

    def add_turn(self, turn: Turn) -> None:
        """Keep messages of this turn for as long as somebody holds its handle."""
        self._turns[turn.uuid] = turn

    def put(self, messages: list[Message], turns: tuple[str, ...]) -> None:
        """Store a run of messages that belong to the same turns."""
        letters = list(enumerate(messages, self._sequence))
        self._sequence += len(letters)
        size = sum([len(message.raw) for message in messages])
        claimed = False
        for uuid in turns:
            turn = self._turns.get(uuid)
            if turn is not None:
                turn.deliver(letters, size)
                claimed = True
        if self._subscribers or not claimed:
            self._inbox.put(letters, size)
        self._change.set()

    def settle(self, settled: Settle, error: ClaudeTransportError | None) -> None:
        """A turn has reached its end."""
        turn = self._turns.get(settled.uuid)
        if turn is not None:
            turn.settle(settled.state, settled.result, error)

    def end(self, error: ClaudeTransportError | None) -> None:
        """No message will come any more."""
        self._inbox.end(error)
        self._change.set()
        self.look_again()

    async def change(self) -> None:
        """Wait for the next message, or for the end."""
        self._change = anyio.Event()
        await self._change.wait()

    # ---------------------------------------------------------------------------------------------------------- all messages

    def subscribe(self) -> Mailbox:
        """The inbox, which from now on gets everything; what waits in the turns is copied into it, in its place."""
        self._subscribers += 1
        if self._subscribers == 1:
            waiting = dict(self._inbox.peek())
            for turn in self._turns.values():
                waiting.update(turn.mailbox.peek())
            old, self._inbox = self._inbox, Mailbox()
            self._inbox.put(sorted(waiting.items()), sum(len(message.raw) for message in waiting.values()))
            if old.has_ended:
                self._inbox.end(old.error)
        return self._inbox

    def unsubscribe(self) -> None:
        """Nobody reads everything any more."""
        self._subscribers -= 1
        self.look_again()

    # ---------------------------------------------------------------------------------------------------------- backpressure

    async def make_room(self, *, closing: anyio.Event) -> None:
        """Return when reading may go on."""
        while (excess := self.buffered_bytes - self._max_buffered_bytes) > 0:
            if self._needs or closing.is_set():
                self._shed(excess)
                return
            self._room = anyio.Event()
            await self._room.wait()

    def look_again(self) -> None:
        """Something was taken, or something is needed: perhaps reading may go on."""
        self._room.set()

    @contextlib.contextmanager
    def needing_input(self) -> Iterator[None]:
        """While this is held, somebody waits for what only reading can bring."""
        self._needs += 1
        self.look_again()
        try:
            yield
        finally:
            self._needs -= 1

    def _shed(self, excess: int) -> None:
        for mailbox in (self._inbox, *(turn.mailbox for turn in self._turns.values())):
            if excess > 0:
                count, size = mailbox.shed(excess)
                excess -= size
                self.dropped_messages += count
        logger.warning("the consumer does not read: unread messages were given up, %d so far", self.dropped_messages)


class AllMessages:
    """An iteration over every message. Dropping it ends it; what it has not taken stays where the next one finds it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._inbox = storage.subscribe()
        self._finish = weakref.finalize(self, storage.unsubscribe)
        self._finish.atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            message = self._inbox.take()
            if message is not None:
                self._storage.look_again()
                return message
            if self._inbox.has_ended:
                if self._inbox.error is not None:
                    raise self._inbox.error
                raise StopAsyncIteration
            await self._inbox.arrival()
