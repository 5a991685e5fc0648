"""Messages that were read and not yet taken: `MessageStorage` keeps them, `Turn` and `AllMessages` give them to the program.

Memory is bounded by what the messages take, as `cost_of` estimates it. Answers and questions of the CLI do not pass here, so a program
that reads no messages does not hold them up. How the messages are read is in `query`; whose they are, in `protocol.conversation`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, Self

from claude_transport.client.connection import Connection
from claude_transport.errors import ClaudeTransportError, MissingResult
from claude_transport.exchange.failures import raised_again
from claude_transport.exchange.mailbox import MOST_IN_RUN, Mailbox
from claude_transport.loggers import logger_for
from claude_transport.loops.current import HostLoop, LightEvent, Wakeup
from claude_transport.protocol.blocks import TextBlock, ToolResultBlock
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.conversation import Conversation, Settle, TurnState
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, UnknownMessage
from claude_transport.protocol.messages import AssistantMessage, ResultMessage, StreamEvent, UserMessage

logger: logging.Logger = logger_for(__name__)

Letter = tuple[int, Message]
"""A message and its place in the conversation."""

# What a message takes in memory, in bytes: its line, its Struct, and the objects made of the JSON. These are estimated from the characters
# of the line. tests/client/test_memory_accounting.py measures the error, for every kind of message.
_BESIDE: Final = 48
"""Bytes for every message: the header of its line, and its place in a list."""
_OBJECT, _ARRAY, _ITEM, _PAIR = 90, 60, 32, 20
"""Bytes for each `{`, `[`, `,` and `:`. A dict takes 64 or, with up to five keys, 184; a list 56; a short text or a number 28 to 56."""
_NO_STRUCTURE: Final = bytes(set(range(256)).difference(b"{[,:"))
_NO_STRUCTURE_OR_QUOTE: Final = bytes(set(range(256)).difference(b'{[,:"'))
_SHORT_LINE: Final = 1024
"""Bytes of a line in which characters inside texts are counted, too: telling them apart takes longer than they matter."""
_PER_MISFIT: Final = 60
_FAILURE: Final = 150
"""Bytes of the text that says what was wrong with a line."""
_LINE_ONLY: Final = frozenset({UnknownMessage, DecodeFailure, OversizedMessage})
"""Messages that keep nothing but their line."""

_MOST_PER_BYTE: Final = 48
_MOST_BESIDE: Final = 800
"""The most that a message costs: `_MOST_BESIDE`, and `_MOST_PER_BYTE` for each byte of its line."""
_MOST_PER_LETTER: Final = 3
"""The most that a byte of a long text costs: once in the line, twice in the text."""
_LONG_LINE: Final = 64 * 2**10
"""Bytes of a line above which the lengths of its texts are counted, too."""

_REMEMBERED_BYTES: Final = 1 << 20
"""Bytes of the last whole messages that are kept for `MissingResult.messages`, whether or not they are read."""

_SPOKEN: Final = frozenset({AssistantMessage, UserMessage})
"""Whole messages, which `MissingResult.messages` holds."""


def cost_of(message: Message) -> int:
    """Estimate the bytes of memory that this message takes. It never takes more than twice as much.

    What a CLI says takes at least a third of the estimate. Only short lines whose texts are made of brackets take less.
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
    # a text takes one byte for each character; two or four when one of them is beyond Latin-1
    is_narrow = raw.isascii() and (b"\\" not in raw or b"\\u" not in raw)
    return cost + (size if is_narrow else 2 * size)


def _outside_of_texts(raw: bytes) -> bytes:
    """Return the `{`, `[`, `,` and `:` of a line that are not part of a text, such as a JSON file that a tool has read."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # then every quote begins or ends a text
    return b"".join(raw.translate(None, _NO_STRUCTURE_OR_QUOTE).split(b'"')[::2])


def cost_at_most(messages: Sequence[Message]) -> int:
    """Return the most that `cost_of` can say of these messages together, with a small part of the work."""
    sizes = [len(message.raw) for message in messages]
    most = _MOST_BESIDE * len(sizes) + _MOST_PER_BYTE * sum(sizes)
    if most > _MOST_PER_BYTE * _LONG_LINE:
        # `cost_of` looks at each byte several times: for a line of a megabyte that takes three times as long as decoding it
        long = [message for message, size in zip(messages, sizes, strict=True) if size > _LONG_LINE]
        most -= (_MOST_PER_BYTE - _MOST_PER_LETTER) * sum(map(_letters_of, long))
    return most


def _letters_of(message: Message) -> int:
    """Return how many letters there are, at least, in the texts of a message. No objects are made of these bytes of its line."""
    if not isinstance(message, UserMessage | AssistantMessage) or message.damage is not None:
        return 0
    letters = _letters_in(message.message.content)
    if isinstance(message, UserMessage):  # the CLI repeats the result of a tool there
        result = message.tool_use_result
        letters += sum(map(_letters_in, result.values() if isinstance(result, dict) else [result]))
    return letters


def _letters_in(content: object) -> int:
    match content:
        case str():
            return len(content)
        case TextBlock(text=text):
            return len(text)
        case ToolResultBlock(content=inner):
            return _letters_in(inner)
        case tuple():
            return sum(map(_letters_in, content))
        case _:
            return 0


class ClaudeMailbox(Mailbox[Message]):
    """Messages of a conversation with Claude that wait for one reader."""

    partial: ClassVar[tuple[type, ...]] = (StreamEvent,)

    @staticmethod
    def cost_of(message: Message) -> int:
        """Return the bytes of memory that a message takes."""
        return cost_of(message)

    @staticmethod
    def most_cost_of(messages: Sequence[Message]) -> int:
        """Return the most that these messages can cost together, with less work."""
        return cost_at_most(messages)

    def put(self, first: int, messages: list[Message]) -> None:
        """Add messages that follow each other, the first of them at the place `first`. Wakes the reader."""
        if self.ready or self.runs or len(messages) > MOST_IN_RUN:
            for start in range(0, len(messages), MOST_IN_RUN):
                self._add(first + start, messages[start : start + MOST_IN_RUN])
        else:  # as `_fill()`, without its call
            self._taken_before, self._ready_costs = self._ready_upto, None
            self.ready.extend(reversed(messages))
            self._ready_after, self._ready_upto = first - 1, first + len(messages) - 1
        self.arrival.fire()

    def put_letters(self, letters: Iterable[Letter]) -> None:
        """Add messages, in order, that need not follow each other in the conversation."""
        run: list[Message] = []
        first = 0
        for place, message in letters:
            if run and place != first + len(run):
                self.put(first, run)
                run = []
            if not run:
                first = place
            run.append(message)
        if run:
            self.put(first, run)


class RecentMessages:
    """The last messages, for an error that tells them: at most `at_most` of them, and not much more than 1 MiB.

    Results are kept as they are, because their line does not hold what the conversation knows of them. Of others the line is kept.
    """

    def __init__(self, *, at_most: int | None = None) -> None:
        self._kept: deque[bytes | Message] = deque()
        self._at_most = at_most
        self._cost = 0

    def add(self, messages: Sequence[Message]) -> None:
        """Keep `messages`, and drop the oldest ones when there are too many or they are too large."""
        lines = [message.raw for message in messages if message.__class__ is not ResultMessage]
        kept, cost = self._kept, self._cost + sum(map(len, lines)) + _BESIDE * len(lines)
        if len(lines) == len(messages):
            kept.extend(lines)
        else:
            kept.extend(message if message.__class__ is ResultMessage else message.raw for message in messages)
            cost += sum(cost_of(message) for message in messages if message.__class__ is ResultMessage)
        while cost > _REMEMBERED_BYTES or (self._at_most is not None and len(kept) > self._at_most):
            oldest = kept.popleft()
            cost -= len(oldest) + _BESIDE if isinstance(oldest, bytes) else cost_of(oldest)
        self._cost = cost

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._cost = 0

    def messages(self) -> tuple[Message, ...]:
        """Return the messages, oldest first."""
        return tuple(decode_message(kept) if isinstance(kept, bytes) else kept for kept in self._kept)


class Turn:
    """A handle on one prompt, which `Query.send()` returns: iterate it for the messages of its turn, await `result()` for how the turn
    ended.

    The iteration ends after the result. The CLI may add ("fold") a prompt to a turn that is already running. The prompt then shares the
    messages of that turn from there on, and its result. When the prompt was cancelled, the iteration ends and `result()` raises. When the
    conversation ended first, both raise. Neither waits for something that cannot come.
    """

    def __init__(self, uuid: str, conversation: Conversation, storage: MessageStorage, *, loop: HostLoop | None) -> None:
        self._uuid = uuid
        self._conversation = conversation
        self._storage = storage
        self._loop = loop
        self._state = TurnState.QUEUED
        self._result: ResultMessage | None = None
        self._error: ClaudeTransportError | None = None
        self._settled = LightEvent()
        self.recent: RecentMessages = RecentMessages()
        """The last whole messages, for `MissingResult.messages`; filled by the storage."""
        self.mailbox: ClaudeMailbox = ClaudeMailbox()
        """The messages that wait for the reader of this turn; filled by the storage."""
        self._ready = self.mailbox.ready

    @property
    def uuid(self) -> str:
        """The uuid with which the prompt was sent: your own, or the one that `send()` made up."""
        return self._uuid

    @property
    def state(self) -> TurnState:
        """What has become of the prompt: queued, started, or finally done, folded, dropped or lost (see `TurnState`)."""
        return self._conversation.state_of(self._uuid) or self._state

    def is_open(self) -> bool:
        """Return True while the prompt has no final state yet: it waits or runs. False once it has a result, was cancelled, or the
        conversation has ended.
        """
        return not self._settled.is_set()

    def __repr__(self) -> str:
        return f"<Turn {self._uuid} {self.state.value}>"

    async def result(self) -> ResultMessage:
        """Wait for the result of the turn that this prompt had, or was folded into. Its messages need not be read for that. A result that
        reports a failure is returned, not raised: see `ResultMessage.raise_for_error()`.

        Raises:
            MissingResult: there will be none, because the prompt was cancelled or the conversation ended. `messages` holds
                the last messages of the turn.
            ProcessError, ConnectionLost: there will be none, because the peer failed.
        """
        if self.is_open():
            with self._storage.needing_input(self.is_open):
                await self._settled.wait()
        if self._result is None:
            raise self._failure()
        return self._result

    def __aiter__(self) -> Self:
        self._storage.check_reader()
        return self

    async def __anext__(self) -> Message:
        if self._ready and not self._storage.is_full:  # nearly always: each step here costs as much as storing the message
            return self._ready.pop()
        mailbox, storage = self.mailbox, self._storage
        while not mailbox.ready:
            if mailbox.runs:
                mailbox.refill()
            elif mailbox.has_ended:
                if self._state is TurnState.LOST:
                    raise self._failure()
                raise StopAsyncIteration
            else:
                if self._loop is None or not self._loop.is_current:
                    storage.check_reader()
                if storage.is_full:
                    storage.look_again()
                await mailbox.arrival.wait()
        message = mailbox.ready.pop()
        if storage.is_full:
            storage.look_again()
        return message

    def settle(self, state: TurnState, result: ResultMessage | None, error: ClaudeTransportError | None = None) -> None:
        """Set the final state, and wake those who wait for `result()`. The storage of the `Query` calls it; programs do not."""
        self._state = state
        self._result = result
        self._error = error
        if result is not None:
            self.recent.clear()  # they are kept for `MissingResult` alone: a handle that is kept must not keep the messages
        self.mailbox.end()
        self._settled.set()

    def _failure(self) -> BaseException:
        if self._error is not None:
            return raised_again(self._error)
        recent = self.recent.messages()
        if self._state is TurnState.DROPPED:
            return MissingResult("the message was cancelled before Claude worked on it", messages=recent, code="result.cancelled")
        return MissingResult(
            "the conversation ended before this turn had a result. "
            "The turn may have changed something: check that before you send the prompt again.",
            messages=recent,
        )


class MessageStorage:
    """Messages that were read and not yet taken, for each turn and for the reader of all messages.

    A message of a turn waits in the mailbox of that turn while its handle is held. Every other message waits in the inbox. A reader of
    all messages gets what was not taken yet, and from then on everything.

    Above `max_buffered_bytes`, reading pauses. It goes on while something waits that only reading can bring: a message, a result, the
    answer to a request. Then unread messages are given up instead: partial ones first, then the oldest.

    Args:
        connection: says in which event loop messages may be read.
        max_buffered_bytes: bytes of memory for the messages, as `cost_of` estimates them.
    """

    def __init__(self, connection: Connection, *, max_buffered_bytes: int) -> None:
        self._connection = connection
        self._max_buffered_bytes = max_buffered_bytes
        self._turns: weakref.WeakValueDictionary[str, Turn] | dict[str, Turn] = {}  # made with the first turn
        self._inbox = ClaudeMailbox()
        self._subscribers = 0
        self._sequence = 0
        self._cost_at_most = 0  # of what is stored, if nothing was taken since it was last counted
        self._needs: list[Callable[[], bool]] = []
        self._room = Wakeup()
        self._change = Wakeup()
        self.is_full: bool = False
        """True while reading waits for messages to be taken (a plain attribute: a reader looks at it for every message)."""
        self.dropped_messages: int = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that the messages take which were not taken yet (see `cost_of`)."""
        turns = self._turns
        refs = [] if isinstance(turns, dict) else turns.valuerefs()  # a copy: this may be read in any thread
        return self._inbox.cost + sum(turn.mailbox.cost for ref in refs if (turn := ref()) is not None)

    def open_turn(self, uuid: str, conversation: Conversation) -> Turn:
        """Return a handle on the prompt `uuid`. Its messages are kept for as long as the handle is held."""
        if not self._turns:
            self._turns = weakref.WeakValueDictionary()
        turn = self._turns[uuid] = Turn(uuid, conversation, self, loop=self._connection.loop)
        # with the handle goes what it has not read, and then there may be room
        weakref.finalize(turn, self._connection.call, self.look_again).atexit = False
        return turn

    def put(self, messages: list[Message], turns: tuple[str, ...], *, lines: Iterable[bytes] | None = None) -> bool:
        """Store messages that follow each other and belong to the same turns. Return True when there may be too much stored.

        `lines` are those that the messages were made of, if the caller has them at hand.
        """
        first = self._sequence
        self._sequence += len(messages)
        if lines is None:
            lines = [message.raw for message in messages]
        cost = _MOST_BESIDE * len(messages) + _MOST_PER_BYTE * sum(map(len, lines))  # as `cost_at_most()`, without a call
        claimed = False
        for uuid in turns:
            turn = self._turns.get(uuid)
            if turn is not None:
                turn.mailbox.put(first, messages)
                if not _SPOKEN.isdisjoint(map(type, messages)):
                    turn.recent.add([message for message in messages if message.__class__ in _SPOKEN])
                claimed = True
                self._cost_at_most += cost
        if self._subscribers or not claimed:
            self._inbox.put(first, messages)
            self._cost_at_most += cost
        if self._change.waiting:
            self._change.fire()
        return self._cost_at_most > self._max_buffered_bytes

    def settle(self, settled: Settle, error: ClaudeTransportError | None) -> None:
        """Note that a turn has reached its end."""
        turn = self._turns.get(settled.uuid)
        if turn is not None:
            turn.settle(settled.state, settled.result, error)
        self._change.fire()

    def end(self, error: ClaudeTransportError | None) -> None:
        """Note that no message will come any more."""
        self._inbox.end(error)
        self.note_change()
        self.look_again()

    def note_change(self) -> None:
        """Wake `change()`: something has happened that brings no message."""
        self._change.fire()

    async def change(self) -> None:
        """Wait for the next message, for the end, or for `note_change()`."""
        if self._inbox.has_ended:
            return
        with self.needing_input(self._inbox.is_dry):
            await self._change.wait()

    # All messages

    def subscribe(self) -> ClaudeMailbox:
        """Return the inbox, which gets everything from now on. What waits in the turns is copied into it, in its place."""
        self.check_reader()
        self._subscribers += 1
        if self._subscribers == 1:
            old = self._inbox
            waiting = dict(old.peek())
            for turn in self._turns.values():
                # what an earlier reader of all messages has taken may still wait for the reader of its turn
                waiting.update(letter for letter in turn.mailbox.peek() if letter[0] > old.taken_upto)
            self._inbox = ClaudeMailbox(taken_upto=old.taken_upto)
            self._inbox.put_letters(sorted(waiting.items()))
            self._cost_at_most = self._count()
            if old.has_ended:
                self._inbox.end(old.error)
        return self._inbox

    def unsubscribe(self) -> None:
        """Note that a reader of all messages has gone."""
        self._subscribers -= 1
        self.look_again()

    def check_reader(self) -> None:
        """Raise `UsageError` in another event loop than that of the conversation."""
        self._connection.check_loop()

    # Backpressure

    async def make_room(self, *, closing: LightEvent) -> bool:
        """Wait until reading may go on. Return True when it had to wait."""
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
        """Return the same as `buffered_bytes`. What was counted is not counted again."""
        return self._inbox.count() + sum(turn.mailbox.count() for turn in self._turns.values())

    def look_again(self) -> None:
        """Let reading look whether it may go on: something was taken, or is needed."""
        if self.is_full:
            self._room.fire()

    @contextlib.contextmanager
    def needing_input(self, is_needed: Callable[[], bool]) -> Iterator[None]:
        """Keep reading going for the length of the block, while `is_needed()` returns True."""
        self.check_reader()
        self._needs.append(is_needed)
        self.look_again()
        try:
            yield
        finally:
            self._needs.remove(is_needed)

    def _is_needed(self) -> bool:
        if self._connection.requests.awaits_answer or self._inbox.arrival.is_awaited or any(is_needed() for is_needed in self._needs):
            return True
        return any(turn.mailbox.arrival.is_awaited for turn in self._turns.values())

    def _shed(self, cost: int) -> None:
        if not self.dropped_messages:
            logger.warning("messages are not read: unread ones are given up (Query.dropped_messages counts them)")
        for mailbox in (self._inbox, *(turn.mailbox for turn in self._turns.values())):
            if cost > 0:
                count, given_up = mailbox.shed(cost)
                cost -= given_up
                self.dropped_messages += count


class AllMessages:
    """An iteration over all messages. It ends when it is dropped, and the next iteration gets the messages that it has not taken."""

    def __init__(self, storage: MessageStorage, connection: Connection) -> None:
        self._storage = storage
        self._loop = connection.loop
        self._inbox = storage.subscribe()
        self._ready = self._inbox.ready
        weakref.finalize(self, connection.call, storage.unsubscribe).atexit = False

    @property
    def has_ended(self) -> bool:
        """True once nothing more can come, although there may still be something to take."""
        return self._inbox.has_ended

    def take(self) -> Message | None:
        """Return the next message, or None when there is none at the moment."""
        message = self._inbox.take()
        if message is not None:
            self._storage.look_again()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._ready and not self._storage.is_full:  # nearly always: each step here costs as much as storing the message
            return self._ready.pop()
        inbox, storage = self._inbox, self._storage
        while not inbox.ready:
            if inbox.runs:
                inbox.refill()
            elif inbox.has_ended:
                if inbox.error is not None:
                    raise raised_again(inbox.error)
                raise StopAsyncIteration
            else:
                if self._loop is None or not self._loop.is_current:
                    storage.check_reader()
                if storage.is_full:
                    storage.look_again()
                await inbox.arrival.wait()
        if storage.is_full:
            storage.look_again()
        return inbox.ready.pop()
