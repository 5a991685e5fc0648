"""Messages that were read and not yet taken: bounded in memory, without ever standing in the way of the control plane."""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, chain, pairwise
from typing import Any, Final, Protocol, Self

import anyio

from claude_transport.client.reports import raised_again
from claude_transport.errors import ClaudeTransportError, MissingResult
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.conversation import Conversation, Settle, TurnState
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, UnknownMessage
from claude_transport.protocol.messages import AssistantMessage, ResultMessage, StreamEvent, UserMessage
from claude_transport.streams.inflow import Wakeup

# --- Where messages wait for their readers: filled in batches, emptied one by one, counted by the memory they take.


Letter = tuple[int, Message]
"""A message and its place in the conversation."""

# What a message takes in memory, in bytes: its line, its Struct, and the objects that were made of the JSON, which are estimated from the
# characters of the line. tests/client/test_memory_accounting.py measures how far that is from the truth, for every kind of message.
_BESIDE: Final = 48
"""Of every message: the header of its bytes, and its place in a list."""
_OBJECT, _ARRAY, _ITEM, _PAIR = 90, 60, 32, 20
"""For each `{`, `[`, `,` and `:`. A dict takes 64 bytes or, with up to five keys, 184; a list 56; a short text or a number 28 to 56."""
_NO_STRUCTURE: Final = bytes(set(range(256)).difference(b"{[,:"))
_NO_STRUCTURE_OR_QUOTE: Final = bytes(set(range(256)).difference(b'{[,:"'))
_SHORT_LINE: Final = 1024
"""Bytes of a line in which characters inside texts are counted, too: telling them apart takes longer than they matter."""
_PER_MISFIT: Final = 60
_FAILURE: Final = 150
"""Of the text that says what was wrong with a line."""
_LINE_ONLY: Final = frozenset({UnknownMessage, DecodeFailure, OversizedMessage})
"""Messages that keep nothing of their line but the line."""

_MOST_PER_BYTE: Final = 48
_MOST_BESIDE: Final = 800
"""No message costs more than this, and the above for each byte of its line; but for short lines whose texts are made of brackets, which
take much less memory than they cost."""

_MOST_IN_RUN: Final = 512
"""Messages in one run: of the run that is being read, the cost of each message is kept."""

_REMEMBERED_BYTES: Final = 1 << 20
"""Of the last whole messages, kept for `MissingResult.messages`, whether or not they are read."""


def cost_of(message: Message) -> int:
    """Estimate the bytes of memory that this message takes. The truth is never more than twice as much.

    For what a CLI says it is at least a third of the estimate, and less only for short lines whose texts are made of brackets.
    """
    raw = message.raw
    size = len(raw)
    cost = _BESIDE + size + sys.getsizeof(message)
    if message.damage is not None:
        cost += _FAILURE + _PER_MISFIT * len(message.damage.misfits)
    if type(message) in _LINE_ONLY:
        return cost + (3 * len(message.type) if type(message) is UnknownMessage else _FAILURE)
    shape = raw.translate(None, _NO_STRUCTURE) if size <= _SHORT_LINE else _outside_of_texts(raw)  # one look at each byte, not four
    cost += _OBJECT * shape.count(b"{") + _ARRAY * shape.count(b"[") + _ITEM * shape.count(b",") + _PAIR * shape.count(b":")
    # a text takes one byte for each character, unless one of them is beyond Latin-1: then it is two or four for each
    is_narrow = raw.isascii() and (b"\\" not in raw or b"\\u" not in raw)
    return cost + (size if is_narrow else 2 * size)


def _outside_of_texts(raw: bytes) -> bytes:
    """The `{`, `[`, `,` and `:` of a line that do not stand inside a text, such as a file of JSON that a tool has read."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # then every quote begins or ends a text
    return b"".join(raw.translate(None, _NO_STRUCTURE_OR_QUOTE).split(b'"')[::2])


def cost_at_most(messages: Sequence[Message]) -> int:
    """The most that `cost_of` can say of these, all together: a small part of the work."""
    return _MOST_BESIDE * len(messages) + _MOST_PER_BYTE * sum([len(message.raw) for message in messages])


class _Run:
    """Messages that follow each other in the conversation, and the place of the first; and what each of them costs, once it was asked."""

    __slots__ = ("_costs", "first", "messages")

    def __init__(self, first: int, messages: list[Message], costs: list[int] | None = None) -> None:
        self.first = first
        self.messages = messages
        self._costs = costs

    @property
    def costs(self) -> list[int]:
        """What each message costs."""
        if self._costs is None:
            self._costs = list(map(cost_of, self.messages))
        return self._costs


class Mailbox:
    """A queue of messages with one wake-up per batch. It ends once, with an error or without.

    It is kept in runs, and not as a queue of letters: what is done for every message costs as much as decoding a small one. For the same
    reason, what messages cost is worked out when it is asked for, of those that are still there, and kept.
    """

    def __init__(self, *, taken_upto: int = -1) -> None:
        self.ready: list[Message] = []
        """The next messages, the first one last: `ready.pop()` takes it, and `refill()` gets more. Always the same list."""
        self._ready_costs: list[int] | None = None  # of the first of that list, of the first two, …; if they are known
        self._ready_upto = taken_upto  # the place of the last of them
        self._ready_after = taken_upto  # the place before the first of them
        self._taken_before = taken_upto  # the last that was taken before them: there may be a gap
        self._counted: deque[_Run] = deque()  # what comes after them, and what it costs …
        self._counted_cost = 0
        self._uncounted: deque[_Run] = deque()  # … and what comes after that
        self._arrival = Wakeup()
        self._ended = False
        self._error: ClaudeTransportError | None = None

    def __len__(self) -> int:
        return len(self.ready) + sum(len(run.messages) for run in self._runs())

    @property
    def cost(self) -> int:
        """Bytes of memory that the messages here take, as `cost_of` estimates it. May be asked from any thread."""
        uncounted = sum([sum(run.costs) for run in list(self._uncounted)])
        return self._counted_cost + uncounted + sum(map(cost_of, list(self.ready)))

    def count(self) -> int:
        """The same as `cost`, for the thread of the event loop only: what was counted is not counted again."""
        while self._uncounted:
            run = self._uncounted.popleft()
            self._counted.append(run)
            self._counted_cost += sum(run.costs)
        if not self.ready:
            return self._counted_cost
        if self._ready_costs is None:
            self._ready_costs = list(accumulate(map(cost_of, self.ready)))
        return self._counted_cost + self._ready_costs[len(self.ready) - 1]

    @property
    def cost_at_most(self) -> int:
        """The most that `cost` can be, without working out what each message costs that was not counted yet."""
        uncounted = sum([cost_at_most(run.messages) for run in self._uncounted])
        return self._counted_cost + uncounted + cost_at_most(self.ready)

    @property
    def taken_upto(self) -> int:
        """The place of the last message that was taken, however far from it the next one is: what lies between may wait elsewhere."""
        place = self._ready_upto - len(self.ready)
        return self._taken_before if place == self._ready_after else place

    @property
    def has_ended(self) -> bool:
        """True once nothing more can come."""
        return self._ended

    @property
    def error(self) -> ClaudeTransportError | None:
        """What it ended with."""
        return self._error

    def put(self, first: int, messages: list[Message]) -> None:
        """Add a run of messages, of which the first is at the place `first`; wakes the reader that waits."""
        if len(messages) <= _MOST_IN_RUN:
            self._add(first, messages)
        else:
            for start in range(0, len(messages), _MOST_IN_RUN):
                self._add(first + start, messages[start : start + _MOST_IN_RUN])
        self._arrival.fire()

    def put_letters(self, letters: Iterable[Letter]) -> None:
        """Add messages that do not have to follow each other in the conversation, in order."""
        run: list[Message] = []
        first = 0
        for place, message in letters:
            if run and place != first + len(run):
                self._add(first, run)
                run = []
            if not run:
                first = place
            run.append(message)
        if run:
            self.put(first, run)

    def end(self, error: ClaudeTransportError | None = None) -> None:
        """Nothing more will come; what is there can still be taken."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._arrival.fire()

    def take(self) -> Message | None:
        """The next message, or None when there is none at the moment."""
        return self.ready.pop() if self.ready or self.refill() else None

    def refill(self) -> bool:
        """Have the next run ready, when nothing is ready any more: whether there is one."""
        if self._counted:
            run = self._counted.popleft()
            self._counted_cost -= sum(run.costs)
        elif self._uncounted:
            run = self._uncounted.popleft()
        else:
            return False
        self._make_ready(run.first, run.messages)
        return True

    def peek(self) -> tuple[Letter, ...]:
        """What is there, without taking it."""
        letters = list(enumerate(reversed(self.ready), self._ready_upto - len(self.ready) + 1))
        for run in self._runs():
            letters += enumerate(run.messages, run.first)
        return tuple(letters)

    def is_dry(self) -> bool:
        """True while a reader would have to wait."""
        return not (self.ready or self._counted or self._uncounted or self._ended)

    @property
    def is_awaited(self) -> bool:
        """True while a reader does wait."""
        return self._arrival.is_awaited

    def arrival(self) -> Coroutine[Any, Any, None]:
        """Wait for the next message, or for the end, after having seen that there is none of them yet."""
        return self._arrival.wait()  # not awaited here: that would cost a frame for each message that comes alone

    def shed(self, cost: int) -> tuple[int, int]:
        """Make room for `cost` bytes: partial messages go first, since they are repeated whole, then the oldest.

        Returns how many messages were given up, and what they cost.
        """
        before, cost_before, taken_upto = len(self), self.count(), self.taken_upto
        kept = deque(priced for priced in self._priced() if type(priced[0][1]) is not StreamEvent)
        left = sum([cost for _, cost in kept])
        target = max(cost_before - cost, 0)
        while kept and left > target:
            left -= kept.popleft()[1]
        self.ready.clear()
        self._counted.clear()
        self._uncounted.clear()
        self._ready_upto = self._ready_after = self._taken_before = taken_upto
        self._counted_cost = 0
        self._ready_costs = None
        for (place, message), each in kept:
            last = self._counted[-1] if self._counted else None
            if last is None or len(last.messages) == _MOST_IN_RUN or place != last.first + len(last.messages):
                self._counted.append(_Run(place, [message], [each]))
            else:
                last.messages.append(message)
                last.costs.append(each)
        self._counted_cost = left
        return before - len(kept), cost_before - left

    def _runs(self) -> Iterator[_Run]:
        yield from self._counted
        yield from self._uncounted

    def _priced(self) -> Iterator[tuple[Letter, int]]:
        """What is there, with what each message costs, when all of it was counted."""
        costs = self._ready_costs or []
        ready = [after - before for before, after in pairwise((0, *costs[: len(self.ready)]))]
        known = chain(reversed(ready), *(run.costs for run in self._counted))
        return zip(self.peek(), known, strict=True)

    def _add(self, first: int, messages: list[Message]) -> None:
        if self.ready or self._counted or self._uncounted:
            self._uncounted.append(_Run(first, messages))
        else:
            self._make_ready(first, messages)

    def _make_ready(self, first: int, messages: list[Message]) -> None:
        self._taken_before = self.taken_upto
        self._ready_costs = None
        self.ready.extend(reversed(messages))
        self._ready_after = first - 1
        self._ready_upto = first + len(messages) - 1


class RecentMessages:
    """The last messages, for an error that says what was heard last: at most `at_most` of them, and not much more than 1 MiB.

    Results are kept as they are, since what a conversation knows of them is not in their line; of all others the line is kept.
    """

    def __init__(self, *, at_most: int | None = None) -> None:
        self._kept: deque[bytes | Message] = deque()
        self._at_most = at_most
        self._cost = 0

    def add(self, messages: Iterable[Message]) -> None:
        """Remember these, and forget the oldest when they are too many or too much."""
        kept, cost = self._kept, self._cost
        for message in messages:
            if message.__class__ is ResultMessage:
                kept.append(message)
                cost += cost_of(message)
            else:
                kept.append(raw := message.raw)
                cost += len(raw) + _BESIDE
            while cost > _REMEMBERED_BYTES or (self._at_most is not None and len(kept) > self._at_most):
                oldest = kept.popleft()
                cost -= len(oldest) + _BESIDE if isinstance(oldest, bytes) else cost_of(oldest)
        self._cost = cost

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._cost = 0

    def messages(self) -> tuple[Message, ...]:
        """The messages, oldest first."""
        return tuple(decode_message(kept) if isinstance(kept, bytes) else kept for kept in self._kept)


# --- `Turn`: what became of one prompt.


_SPOKEN = frozenset({AssistantMessage, UserMessage})


class _Reading(Protocol):
    """What a turn needs of the storage it is kept in."""

    def needing_input(self, is_needed: Callable[[], bool]) -> AbstractContextManager[None]: ...

    is_full: bool

    def begin_to_wait(self) -> None: ...
    def look_again(self) -> None: ...
    def check_reader(self) -> None: ...


class Turn:
    """A handle on one prompt: iterate it for the messages of its turn, await `result()` for how it ended.

    The iteration ends after the result. A prompt that the CLI folded into a turn that was already running shares that
    turn's messages from there on, and its result. Neither the iteration nor `result()` waits for something that cannot
    come: when the prompt was cancelled, or the conversation ended first, both say so.
    """

    def __init__(self, uuid: str, *, conversation: Conversation, reading: _Reading) -> None:
        self._uuid = uuid
        self._conversation = conversation
        self._reading = reading
        self._state = TurnState.QUEUED
        self._result: ResultMessage | None = None
        self._error: ClaudeTransportError | None = None
        self._settled = anyio.Event()
        self._recent = RecentMessages()  # whole ones, for `MissingResult.messages`
        self.mailbox: Mailbox = Mailbox()

    @property
    def uuid(self) -> str:
        """The uuid the prompt was sent with."""
        return self._uuid

    @property
    def state(self) -> TurnState:
        """queued, started, done, folded, dropped or lost."""
        return self._conversation.state_of(self._uuid) or self._state

    def is_open(self) -> bool:
        """True until the prompt has reached its end, with a result or without."""
        return not self._settled.is_set()

    def __repr__(self) -> str:
        return f"<Turn {self._uuid} {self.state.value}>"

    async def result(self) -> ResultMessage:
        """The result of the turn this prompt had, or was folded into, whether or not its messages are read.

        Raises:
            MissingResult: there will be none, because the prompt was cancelled or the conversation ended; `messages` holds
                the last messages of the turn.
            ProcessError, ConnectionLost: there will be none, because the peer failed.
        """
        if self.is_open():
            with self._reading.needing_input(self.is_open):
                await self._settled.wait()
        if self._result is None:
            raise self._failure()
        return self._result

    def __aiter__(self) -> Self:
        self._reading.check_reader()
        return self

    async def __anext__(self) -> Message:
        mailbox = self.mailbox
        while not (mailbox.ready or mailbox.refill()):
            if mailbox.has_ended:
                if self._state is TurnState.LOST:
                    raise self._failure()
                raise StopAsyncIteration
            self._reading.begin_to_wait()
            await mailbox.arrival()
        message = mailbox.ready.pop()
        if self._reading.is_full:
            self._reading.look_again()
        return message

    def deliver(self, first: int, messages: list[Message]) -> None:
        """Add messages of this turn (called by the storage)."""
        self.mailbox.put(first, messages)
        if spoken := [message for message in messages if message.__class__ in _SPOKEN]:
            self._recent.add(spoken)

    def settle(self, state: TurnState, result: ResultMessage | None, error: ClaudeTransportError | None = None) -> None:
        """The prompt has reached its end (called by the storage)."""
        self._state = state
        self._result = result
        self._error = error
        if result is not None:
            self._recent.clear()  # kept for `MissingResult` alone: a handle that somebody keeps must not keep the messages
        self.mailbox.end()
        self._settled.set()

    def _failure(self) -> BaseException:
        if self._error is not None:
            return raised_again(self._error)
        recent = self._recent.messages()
        if self._state is TurnState.DROPPED:
            return MissingResult("the message was cancelled before Claude worked on it", messages=recent, code="result.cancelled")
        return MissingResult("the conversation ended before this turn had a result", messages=recent)


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
