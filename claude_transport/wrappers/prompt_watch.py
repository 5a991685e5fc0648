"""Which prompt a message belongs to, for a wrapper that sees prompts and messages go by and takes part in nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from claude_transport.errors import UsageError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.conversation import Conversation, Deliver, Settle, TurnState
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import ResultMessage, UserMessage

# --- The pieces of an answer that is still being said: most of what a streaming session reads, and the least telling. Told apart unread.


# Every `content_block_delta` of the CLI begins with exactly these bytes [03], up to which nothing in it varies. A line that begins so is
# one, whatever follows; one that is written differently is merely looked at more closely. Two comparisons cost half of `startswith`
# (21 against 40 ns a line), and mean the same: whatever sorts between these two begins with the first.
_FIRST = b'{"type":"stream_event","event":{"type":"content_block_delta",'
_AFTER_LAST = _FIRST[:-1] + b"-"


def without_deltas(lines: Sequence[bytes]) -> list[bytes]:
    """The lines that may say more than a piece of an answer, in order: all but those that are surely a `content_block_delta`."""
    return [line for line in lines if not _FIRST < line < _AFTER_LAST]


def size_of(lines: Sequence[bytes]) -> int:
    """How many bytes the lines had on the wire, each with its newline; the true size of a line of which only the head was kept."""
    try:
        size = len(b"".join(lines)) + len(lines)  # copying 64 KiB is twice as fast as asking each line for its length
    except MemoryError:
        size = sum(map(len, lines)) + len(lines)
    if set(map(type, lines)) != {bytes}:
        size += sum(line.size - len(line) for line in lines if isinstance(line, OversizedLine))
    return size


_NAMELESS = "nameless-"


class Prompt(msgspec.Struct, frozen=True):
    """A user message on its way to the peer. Its `uuid` is one of our own when it has none."""

    uuid: str
    message: UserMessage


class Verdict(msgspec.Struct, frozen=True):
    """What a message means: the prompts it belongs to, the first of which leads, and the prompts that it brings to their end."""

    owners: tuple[str, ...] = ()
    settled: tuple[Settle, ...] = ()


class PromptWatch:
    """Follows one connection with the state machine of the conversation, so that a wrapper thinks what a `Query` would think."""

    def __init__(self) -> None:
        self._conversation = Conversation()
        self._nameless = 0
        self._in_flight: list[tuple[str | bytes, list[Prompt]]] = []

    @property
    def session_id(self) -> str | None:
        """The session that the last message was of."""
        return self._conversation.session_id

    def writing(self, data: str | bytes) -> list[Prompt]:
        """The prompts in `data`, which is about to be written; one that was sent before is left out, as it is by the CLI."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if b"user" not in raw:
            return []
        prompts: list[Prompt] = []
        for line in raw.split(b"\n"):
            message = decode_message(line) if b"user" in line else None
            if not isinstance(message, UserMessage):
                continue
            self._nameless += message.uuid is None
            prompt = Prompt(message.uuid or f"{_NAMELESS}{self._nameless}", message)
            try:
                self._conversation.send(prompt.uuid, priority=message.priority, is_command=message.text.startswith("/"))
            except UsageError:
                continue
            prompts.append(prompt)
        if prompts:
            self._in_flight.append((data, prompts))
        return prompts

    def written(self, data: str | bytes) -> list[Prompt]:
        """The prompts that are out, now that `data` has been written."""
        for index, (other, prompts) in enumerate(self._in_flight):
            if other is data:
                del self._in_flight[index]
                return prompts
        return []

    def not_written(self, data: str | bytes) -> list[Prompt]:
        """The prompts that are forgotten, now that writing `data` has failed."""
        prompts = self.written(data)
        for prompt in prompts:
            self._conversation.withdraw(prompt.uuid)
        return prompts

    def received(self, message: Message) -> Verdict:
        """What `message` means."""
        if isinstance(message, ControlRequest | ControlResponse | ControlCancelRequest):
            return Verdict()  # questions and answers are somebody else's
        verdict = _verdict(self._conversation.received((message,)))
        if isinstance(message, ResultMessage) and not verdict.settled and not message.is_unsolicited:
            # a peer that names prompts cannot name one without a name [07a]: this answers the one that waits longest
            for uuid in self._conversation.open_turns:
                if uuid.startswith(_NAMELESS):
                    self._conversation.withdraw(uuid)
                    return Verdict((uuid,), (Settle(uuid, TurnState.DONE, message),))
        return verdict

    def ended(self) -> tuple[Settle, ...]:
        """Nothing more will come: the prompts that are lost."""
        return _verdict(self._conversation.ended()).settled


def _verdict(actions: Sequence[object]) -> Verdict:
    owners: tuple[str, ...] = ()
    settled: list[Settle] = []
    for action in actions:
        if isinstance(action, Deliver):
            owners = action.turns
        elif isinstance(action, Settle):
            settled.append(action)
    return Verdict(owners, tuple(settled))
