"""Where messages wait for their readers: filled in batches, emptied one by one, counted by the memory they take."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final

from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.messages import DecodeFailure, Message, OversizedMessage, ResultMessage, StreamEvent, UnknownMessage
from claude_transport.streams.wakeup import Wakeup

__all__ = ["Letter", "Mailbox", "RecentMessages", "cost_at_most", "cost_of"]

Letter = tuple[int, Message]
"""A message and its place in the conversation."""

# What a message takes in memory, in bytes: its line, its Struct, and the objects that were made of the JSON, which are estimated from the
# characters of the line. tests/query/test_memory_accounting.py measures how far that is from the truth, for every kind of message.
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
