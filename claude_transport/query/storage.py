"""Messages that were read and not yet taken: bounded in memory, without ever standing in the way of the control plane."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Self

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.conversation import Settle
from claude_transport.protocol.messages import Message
from claude_transport.query.endings import raised_again
from claude_transport.query.mailbox import Mailbox, cost_at_most
from claude_transport.query.turns import Turn
from claude_transport.streams.wakeup import Wakeup

__all__ = ["AllMessages", "Storage"]

logger: logging.Logger = logging.getLogger(__name__)


class Storage:
    """Messages that were read and not yet taken, for each turn and for the reader of everything.

    A message that belongs to a turn waits in that turn's mailbox; one that belongs to none, or whose turn nobody holds any
    more, waits in the inbox. Somebody who asks for all messages gets what nobody has taken yet, and from then on everything.

    Over `max_buffered_bytes`, reading pauses. But while somebody waits for what only reading can bring (a message, a result,
    the answer to a request), it goes on, and unread messages are given up instead: partial ones first, then the oldest.
    """

    def __init__(self, *, max_buffered_bytes: int) -> None:
        self._max_buffered_bytes = max_buffered_bytes
        self._turns: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
        self._inbox = Mailbox()
        self._subscribers = 0
        self._sequence = 0
        self._cost_at_most = 0  # of what is stored, if nothing was taken since it was last counted
        self._needs: list[Callable[[], bool]] = []
        self._room = Wakeup()
        self.is_full: bool = False
        """True while reading has to wait for somebody who reads (a plain attribute: it is looked at for every message)."""
        self._change = Wakeup()
        self.dropped_messages: int = 0
        self.check_reader: Callable[[], None] = _anybody
        """Called before somebody reads or waits; raises for those who may not."""
        self.call_in_loop: Callable[[Callable[[], object]], object] = _at_once
        """How a finaliser, which runs in whichever thread it pleases, says that something was dropped."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that the messages take which were not taken yet (see `cost_of`)."""
        return self._inbox.cost + sum(turn.mailbox.cost for turn in self._turns.values())

    def add_turn(self, turn: Turn) -> None:
        """Keep messages of this turn for as long as somebody holds its handle."""
        self._turns[turn.uuid] = turn
        # with the handle goes what it has not read, and then there may be room
        weakref.finalize(turn, self.call_in_loop, self.look_again).atexit = False

    def put(self, messages: list[Message], turns: tuple[str, ...]) -> None:
        """Store a run of messages that belong to the same turns."""
        first = self._sequence
        self._sequence += len(messages)
        cost = cost_at_most(messages)
        claimed = False
        for uuid in turns:
            turn = self._turns.get(uuid)
            if turn is not None:
                turn.deliver(first, messages)
                claimed = True
                self._cost_at_most += cost
        if self._subscribers or not claimed:
            self._inbox.put(first, messages)
            self._cost_at_most += cost
        self._change.fire()

    def settle(self, settled: Settle, error: ClaudeTransportError | None) -> None:
        """A turn has reached its end."""
        turn = self._turns.get(settled.uuid)
        if turn is not None:
            turn.settle(settled.state, settled.result, error)
        self._change.fire()

    def end(self, error: ClaudeTransportError | None) -> None:
        """No message will come any more."""
        self._inbox.end(error)
        self.note_change()
        self.look_again()

    def note_change(self) -> None:
        """Something has happened that brings no message, and that somebody may be waiting for."""
        self._change.fire()

    async def change(self) -> None:
        """Wait for the next message, or for the end, or for what `note_change()` is told of."""
        if self._inbox.has_ended:
            return
        with self.needing_input(self._inbox.is_dry):
            await self._change.wait()

    # ---------------------------------------------------------------------------------------------------------- all messages

    def subscribe(self) -> Mailbox:
        """The inbox, which from now on gets everything; what waits in the turns is copied into it, in its place."""
        self.check_reader()
        self._subscribers += 1
        if self._subscribers == 1:
            old = self._inbox
            waiting = dict(old.peek())
            for turn in self._turns.values():
                # what an earlier reader of everything has taken may still wait for the reader of its turn
                waiting.update(letter for letter in turn.mailbox.peek() if letter[0] > old.taken_upto)
            self._inbox = Mailbox(taken_upto=old.taken_upto)
            self._inbox.put_letters(sorted(waiting.items()))
            self._cost_at_most = self._count()
            if old.has_ended:
                self._inbox.end(old.error)
        return self._inbox

    def unsubscribe(self) -> None:
        """Nobody reads everything any more."""
        self._subscribers -= 1
        self.look_again()

    # ---------------------------------------------------------------------------------------------------------- backpressure

    @property
    def is_overfull(self) -> bool:
        """True when there may be more stored than should be."""
        return self._cost_at_most > self._max_buffered_bytes

    async def make_room(self, *, closing: anyio.Event) -> bool:
        """Return when reading may go on: whether it had to wait."""
        waited = False
        if self._cost_at_most <= self._max_buffered_bytes:
            return waited  # nearly always: to count what is stored takes longer than to store a small message
        self._cost_at_most = self._inbox.cost_at_most + sum(turn.mailbox.cost_at_most for turn in self._turns.values())
        if self._cost_at_most <= self._max_buffered_bytes // 2:
            return waited  # most of what came was taken meanwhile
        while (excess := self._count() - self._max_buffered_bytes) > 0:
            if closing.is_set() or self._is_needed():
                # some more than necessary, so that the next batch does not have to look through everything again
                self._shed(excess + self._max_buffered_bytes // 4)
                break
            self.is_full = waited = True
            await self._room.wait()
        self.is_full = False
        self._cost_at_most = self._count()
        return waited

    def _count(self) -> int:
        """The same as `buffered_bytes`, where what was counted is not counted again."""
        return self._inbox.count() + sum(turn.mailbox.count() for turn in self._turns.values())

    def look_again(self) -> None:
        """Something was taken, or something is needed: perhaps reading may go on."""
        if self.is_full:
            self._room.fire()

    def begin_to_wait(self) -> None:
        """Somebody is about to wait for a message, for which reading may have to go on. Raises for those who may not wait."""
        self.check_reader()
        if self.is_full:
            self._room.fire()

    @contextlib.contextmanager
    def needing_input(self, is_needed: Callable[[], bool]) -> Iterator[None]:
        """While this is held and `is_needed()`, somebody waits for what only reading can bring."""
        self.check_reader()
        self._needs.append(is_needed)
        self.look_again()
        try:
            yield
        finally:
            self._needs.remove(is_needed)

    def _is_needed(self) -> bool:
        if self._inbox.is_awaited or any(is_needed() for is_needed in self._needs):
            return True
        return any(turn.mailbox.is_awaited for turn in self._turns.values())

    def _shed(self, cost: int) -> None:
        if not self.dropped_messages:
            logger.warning("the consumer does not read: unread messages are given up (Query.dropped_messages counts them)")
        for mailbox in (self._inbox, *(turn.mailbox for turn in self._turns.values())):
            if cost > 0:
                count, given_up = mailbox.shed(cost)
                cost -= given_up
                self.dropped_messages += count


def _anybody() -> None:
    """No reader is refused."""


def _at_once(func: Callable[[], object]) -> None:
    """In whichever thread this is."""
    func()


class AllMessages:
    """An iteration over every message. Dropping it ends it; what it has not taken stays where the next one finds it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._inbox = storage.subscribe()
        self._ready = self._inbox.ready
        self._finish = weakref.finalize(self, storage.call_in_loop, storage.unsubscribe)
        self._finish.atexit = False

    @property
    def has_ended(self) -> bool:
        """True once nothing more can come, although there may still be something to take."""
        return self._inbox.has_ended

    def take(self) -> Message | None:
        """The next message, or None when there is none at the moment."""
        message = self._inbox.take()
        if message is not None:
            self._storage.look_again()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        inbox, storage = self._inbox, self._storage
        while not (self._ready or inbox.refill()):
            if inbox.has_ended:
                if inbox.error is not None:
                    raise raised_again(inbox.error)
                raise StopAsyncIteration
            storage.begin_to_wait()
            await inbox.arrival()
        if storage.is_full:
            storage.look_again()
        return self._ready.pop()
