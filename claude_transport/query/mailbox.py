"""Where messages wait for their readers: filled in batches, emptied one by one, counted in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.messages import Message, StreamEvent

__all__ = ["Letter", "Mailbox"]

Letter = tuple[int, Message]
"""A message and its place in the conversation."""


class Mailbox:
    """A queue of messages with one wake-up per batch. It ends once, with an error or without."""

    def __init__(self, *, taken_upto: int = -1) -> None:
        self._letters: deque[Letter] = deque()
        self._arrival = anyio.Event()
        self._ended = False
        self._error: ClaudeTransportError | None = None
        self.size_bytes: int = 0
        self.taken_upto: int = taken_upto
        """The place of the last message that was taken."""

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def has_ended(self) -> bool:
        """True once nothing more can come."""
        return self._ended

    @property
    def error(self) -> ClaudeTransportError | None:
        """What it ended with."""
        return self._error

    def put(self, letters: Iterable[Letter], size_bytes: int) -> None:
        """Add messages that take `size_bytes` on the wire, and wake whoever waits."""
        self._letters.extend(letters)
        self.size_bytes += size_bytes
        self._arrival.set()

    def end(self, error: ClaudeTransportError | None = None) -> None:
        """Nothing more will come; what is there can still be taken."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._arrival.set()

    def take(self) -> Message | None:
        """The next message, or None when there is none at the moment."""
        if not self._letters:
            return None
        self.taken_upto, message = self._letters.popleft()
        self.size_bytes -= len(message.raw)
        return message

    def peek(self) -> tuple[Letter, ...]:
        """What is there, without taking it."""
        return tuple(self._letters)

    def is_waiting(self) -> bool:
        """True while a reader would have to wait."""
        return not self._letters and not self._ended

    async def arrival(self) -> None:
        """Wait until there is a message, or the end."""
        while self.is_waiting():
            if self._arrival.is_set():
                self._arrival = anyio.Event()
            await self._arrival.wait()

    def shed(self, size_bytes: int) -> tuple[int, int]:
        """Make room for `size_bytes`: partial messages go first, since they are repeated whole, then the oldest.

        Returns how many messages and how many bytes were given up.
        """
        before, bytes_before = len(self._letters), self.size_bytes
        kept = deque(letter for letter in self._letters if type(letter[1]) is not StreamEvent)
        size = sum(len(message.raw) for _, message in kept)
        target = max(bytes_before - size_bytes, 0)
        while kept and size > target:
            size -= len(kept.popleft()[1].raw)
        self._letters, self.size_bytes = kept, size
        return before - len(kept), bytes_before - size
