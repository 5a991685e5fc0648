"""`Turn`: what became of one prompt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, Self

import anyio

from claude_transport.errors import ClaudeTransportError, MissingResult
from claude_transport.protocol.conversation import Conversation, TurnState
from claude_transport.protocol.messages import AssistantMessage, Message, ResultMessage, UserMessage
from claude_transport.query.endings import raised_again
from claude_transport.query.mailbox import Mailbox, RecentMessages

__all__ = ["Turn"]

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
        self._state = TurnState.queued
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
                if self._state is TurnState.lost:
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
        if self._state is TurnState.dropped:
            return MissingResult("the message was cancelled before Claude worked on it", messages=recent, code="result.cancelled")
        return MissingResult("the conversation ended before this turn had a result", messages=recent)
