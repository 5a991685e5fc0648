"""`Mailbox`: messages that wait for their reader, and what they take in memory. Each client has one.

What a message costs, and what is done when too much waits, differs: each client has a subclass that says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise
from typing import ClassVar, Final, Generic, TypeVar

from claude_transport.errors import ClaudeTransportError
from claude_transport.loops.current import Wakeup

T = TypeVar("T")

MOST_IN_RUN: Final = 512
"""Messages in one run. Of the run that is being read, the cost of each message is kept."""


class Run(Generic[T]):
    """Messages that follow each other, the place of the first, and the cost of each once it was asked for."""

    __slots__ = ("_cost_of", "_costs", "first", "messages")

    def __init__(self, first: int, messages: list[T], cost_of: Callable[[T], int], costs: list[int] | None = None) -> None:
        self.first: int = first
        self.messages: list[T] = messages
        self._cost_of = cost_of
        self._costs = costs

    @property
    def costs(self) -> list[int]:
        """The cost of each message."""
        if self._costs is None:
            self._costs = list(map(self._cost_of, self.messages))
        return self._costs

    def append(self, message: T, cost: int) -> None:
        """Add a message whose cost is known."""
        self.costs.append(cost)
        self.messages.append(message)


class Mailbox(ABC, Generic[T]):
    """A queue of messages that wakes its reader once for each batch. It ends once, with an error or without.

    Each message has a place, which is its number. Places grow, and may have gaps.

    Messages are kept in runs: work for every single message costs as much as decoding a small one. For the same reason, the cost of a
    message is worked out only when it is asked for, of those that are still here, and kept.
    """

    partial: ClassVar[tuple[type, ...]] = ()
    """Classes of messages that hold a part of a later message. When memory is short, they are given up first."""

    def __init__(self, *, taken_upto: int = -1) -> None:
        self.ready: list[T] = []
        """The next messages, the first one last: `ready.pop()` takes it, and `refill()` gets more. Always the same list."""
        self.runs: deque[Run[T]] | tuple[()] = ()
        """The runs of messages that follow `ready`."""
        self.arrival: Wakeup = Wakeup()
        """Fires when messages come, and at the end."""
        self.has_ended: bool = False
        """True once nothing more can come (a plain attribute, as the others: a reader looks at it for each message)."""
        self.error: ClaudeTransportError | None = None
        """The error with which the mailbox ended, if there was one."""
        self._ready_costs: list[int] | None = None  # of the first of `ready`, of the first two, …; when they are known
        self._ready_upto = taken_upto  # the place of the last message of `ready`
        self._ready_after = taken_upto  # the place before the first of them
        self._taken_before = taken_upto  # the last that was taken before them: there may be a gap
        self._counted = 0  # the first runs, whose cost was counted …
        self._counted_cost = 0  # … and is this

    @staticmethod
    @abstractmethod
    def cost_of(message: T) -> int:
        """Return the bytes of memory that a message takes."""

    @staticmethod
    @abstractmethod
    def most_cost_of(messages: Sequence[T]) -> int:
        """Return the most that these messages can cost together, with less work."""

    def __len__(self) -> int:
        return len(self.ready) + sum(len(run.messages) for run in self.runs)

    @property
    def cost(self) -> int:
        """Bytes of memory that the messages here take. May be read from any thread."""
        return sum([sum(run.costs) for run in list(self.runs)]) + sum(map(self.cost_of, list(self.ready)))

    def count(self) -> int:
        """Return the same as `cost`, in the thread of the event loop only. What was counted is not counted again."""
        for run in islice(self.runs, self._counted, None):
            self._counted_cost += sum(run.costs)
        self._counted = len(self.runs)
        if not self.ready:
            return self._counted_cost
        if self._ready_costs is None:
            self._ready_costs = list(accumulate(map(self.cost_of, self.ready)))
        return self._counted_cost + self._ready_costs[len(self.ready) - 1]

    @property
    def cost_at_most(self) -> int:
        """The most that `cost` can be, without working out the cost of messages that were not counted yet."""
        uncounted = sum([self.most_cost_of(run.messages) for run in islice(self.runs, self._counted, None)])
        return self._counted_cost + uncounted + self.most_cost_of(self.ready)

    @property
    def taken_upto(self) -> int:
        """The place of the last message that was taken. The next one may be far from it: what lies between may wait elsewhere."""
        place = self._ready_upto - len(self.ready)
        return self._taken_before if place == self._ready_after else place

    def append(self, message: T) -> None:
        """Add the message that follows the last one. Wakes the reader."""
        runs = self.runs
        if not runs:
            if not self.ready:
                self._fill(self._ready_upto + 1, [message])
            else:
                self._add(self._ready_upto + 1, [message])
        elif len(runs[-1].messages) == MOST_IN_RUN:
            self._add(runs[-1].first + MOST_IN_RUN, [message])
        else:
            cost = self.cost_of(message)
            runs[-1].append(message, cost)
            if self._counted == len(runs):
                self._counted_cost += cost
        self.arrival.fire()

    def _fill(self, first: int, messages: list[T]) -> None:
        """Make these messages the ready ones. There are none."""
        self._taken_before, self._ready_costs = self._ready_upto, None
        self.ready.extend(reversed(messages))
        self._ready_after, self._ready_upto = first - 1, first + len(messages) - 1

    def _add(self, first: int, messages: list[T]) -> None:
        """Add a run behind the others."""
        if not self.runs:
            self.runs = deque()  # made when there is something to keep: most mailboxes never hold a run
        self.runs.append(Run(first, messages, self.cost_of))

    def end(self, error: ClaudeTransportError | None = None) -> None:
        """Note that nothing more will come. What is here can still be taken."""
        if not self.has_ended:
            self.has_ended = True
            self.error = error
            self.arrival.fire()

    def take(self) -> T | None:
        """Return the next message, or None when there is none at the moment."""
        return self.ready.pop() if self.ready or self.refill() else None

    def refill(self) -> bool:
        """Move the next run to `ready`, which is empty. Return False when there is none."""
        if not self.runs:
            return False
        run = self.runs.popleft()
        if self._counted:
            self._counted -= 1
            self._counted_cost -= sum(run.costs)
        self._fill(run.first, run.messages)
        return True

    def peek(self) -> tuple[tuple[int, T], ...]:
        """Return the waiting messages with their places, and leave them in the mailbox."""
        letters = list(enumerate(reversed(self.ready), self._ready_upto - len(self.ready) + 1))
        for run in self.runs:
            letters += enumerate(run.messages, run.first)
        return tuple(letters)

    def is_dry(self) -> bool:
        """Return True while a reader would have to wait."""
        return not (self.ready or self.runs or self.has_ended)

    def trim(self, cost: int) -> None:
        """Take the oldest messages and forget them, until the others cost at most this."""
        while self.count() > cost:
            self.take()

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        """Forget the messages that are not wanted."""
        self._replace([each for each in self._priced() if is_wanted(each[0][1])])

    def shed(self, cost: int) -> tuple[int, int]:
        """Give up messages of `cost` bytes: partial ones first, since they are repeated whole, then the oldest.

        Returns how many messages were given up, and what they cost.
        """
        before, cost_before = len(self), self.count()
        partial = self.partial
        kept = deque(each for each in self._priced() if not isinstance(each[0][1], partial))
        left = sum([cost for _, cost in kept])
        target = max(cost_before - cost, 0)
        while kept and left > target:
            left -= kept.popleft()[1]
        self._replace(kept)
        return before - len(kept), cost_before - left

    def _priced(self) -> Iterator[tuple[tuple[int, T], int]]:
        """Yield what `peek()` returns, each with its cost."""
        self.count()
        costs = self._ready_costs or []
        ready = [after - before for before, after in pairwise((0, *costs[: len(self.ready)]))]
        return zip(self.peek(), chain(reversed(ready), *(run.costs for run in self.runs)), strict=True)

    def _replace(self, kept: Iterable[tuple[tuple[int, T], int]]) -> None:
        """Keep these messages in place of all others. What is left out does not count as taken."""
        runs: deque[Run[T]] = deque()
        total = 0
        for (place, message), cost in kept:
            last = runs[-1] if runs else None
            if last is None or len(last.messages) == MOST_IN_RUN or place != last.first + len(last.messages):
                runs.append(Run(place, [message], self.cost_of, [cost]))
            else:
                last.append(message, cost)
            total += cost
        taken_upto = self.taken_upto
        self.ready.clear()
        self.runs = runs
        self._ready_upto = self._ready_after = self._taken_before = taken_upto
        self._ready_costs = None
        self._counted, self._counted_cost = len(runs), total
