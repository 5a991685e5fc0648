"""Where messages wait for their readers: filled in batches, emptied one by one, counted in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.messages import Message, StreamEvent
from claude_transport.streams.wakeup import Wakeup

__all__ = ["Letter", "Mailbox"]

Letter = tuple[int, Message]
"""A message and its place in the conversation."""


_MOST_IN_RUN = 512
"""Messages in one run: of the run that is being read, the size is counted whenever somebody asks."""


class _Run(NamedTuple):
    """Messages that follow each other in the conversation: the place of the first, and their bytes on the wire."""

    first: int
    messages: list[Message]
    size_bytes: int


class Mailbox:
    """A queue of messages with one wake-up per batch. It ends once, with an error or without.

    It is kept in runs, and not as a queue of letters: what is done for every message costs as much as decoding a small one.
    """

    def __init__(self, *, taken_upto: int = -1) -> None:
        self.ready: list[Message] = []
        """The next messages, the first one last: `ready.pop()` takes it, and `refill()` gets more. Always the same list."""
        self._ready_upto = taken_upto  # the place of the last of them
        self._ready_after = taken_upto  # the place before the first of them
        self._taken_before = taken_upto  # the last that was taken before them: there may be a gap
        self._runs: deque[_Run] = deque()  # what comes after them
        self._runs_bytes = 0
        self._arrival = Wakeup()
        self._ended = False
        self._error: ClaudeTransportError | None = None

    def __len__(self) -> int:
        return len(self.ready) + sum(len(run.messages) for run in self._runs)

    @property
    def size_bytes(self) -> int:
        """Bytes on the wire of what is here."""
        return self._runs_bytes + _size(self.ready)

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

    def put(self, first: int, messages: list[Message], size_bytes: int) -> None:
        """Add a run of messages, of which the first is at the place `first`, that take `size_bytes` on the wire; wakes whoever waits."""
        if len(messages) <= _MOST_IN_RUN:
            self._add(first, messages, size_bytes)
        else:
            for start in range(0, len(messages), _MOST_IN_RUN):
                part = messages[start : start + _MOST_IN_RUN]
                self._add(first + start, part, _size(part))
        self._arrival.fire()

    def put_letters(self, letters: Iterable[Letter]) -> None:
        """Add messages that do not have to follow each other in the conversation, in order."""
        run: list[Message] = []
        first = 0
        for place, message in letters:
            if run and place != first + len(run):
                self._add(first, run, _size(run))
                run = []
            if not run:
                first = place
            run.append(message)
        if run:
            self.put(first, run, _size(run))

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
        if not self._runs:
            return False
        run = self._runs.popleft()
        self._runs_bytes -= run.size_bytes
        self._make_ready(run.first, run.messages)
        return True

    def peek(self) -> tuple[Letter, ...]:
        """What is there, without taking it."""
        letters = list(enumerate(reversed(self.ready), self._ready_upto - len(self.ready) + 1))
        for run in self._runs:
            letters += enumerate(run.messages, run.first)
        return tuple(letters)

    def is_dry(self) -> bool:
        """True while a reader would have to wait."""
        return not self.ready and not self._runs and not self._ended

    @property
    def is_awaited(self) -> bool:
        """True while a reader does wait."""
        return self._arrival.is_awaited

    def arrival(self) -> Coroutine[Any, Any, None]:
        """Wait for the next message, or for the end, after having seen that there is none of them yet."""
        return self._arrival.wait()  # not awaited here: that would cost a frame for each message that comes alone

    def shed(self, size_bytes: int) -> tuple[int, int]:
        """Make room for `size_bytes`: partial messages go first, since they are repeated whole, then the oldest.

        Returns how many messages and how many bytes were given up.
        """
        before, bytes_before, taken_upto = len(self), self.size_bytes, self.taken_upto
        kept = deque(letter for letter in self.peek() if type(letter[1]) is not StreamEvent)
        size = sum(len(message.raw) for _, message in kept)
        target = max(bytes_before - size_bytes, 0)
        while kept and size > target:
            size -= len(kept.popleft()[1].raw)
        self.ready.clear()
        self._runs.clear()
        self._ready_upto = self._ready_after = self._taken_before = taken_upto
        self._runs_bytes = 0
        self.put_letters(kept)
        return before - len(kept), bytes_before - size

    def _add(self, first: int, messages: list[Message], size_bytes: int) -> None:
        if self.ready or self._runs:
            self._runs.append(_Run(first, messages, size_bytes))
            self._runs_bytes += size_bytes
        else:
            self._make_ready(first, messages)

    def _make_ready(self, first: int, messages: list[Message]) -> None:
        self._taken_before = self.taken_upto
        self.ready.extend(reversed(messages))
        self._ready_after = first - 1
        self._ready_upto = first + len(messages) - 1


def _size(messages: list[Message]) -> int:
    return sum([len(message.raw) for message in messages])
