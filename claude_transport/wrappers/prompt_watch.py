"""`PromptWatch`: finds out which prompt a message belongs to, for metrics and tracing, which only see prompts and messages pass.

Also `without_deltas` and `size_of`, which look at batches of lines without decoding them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from claude_transport.errors import UsageError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.conversation import Conversation, Deliver, Settle
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import UserMessage

_NAMELESS = "nameless-"


class Prompt(msgspec.Struct, frozen=True):
    """A user message on its way to the peer. A message without a uuid gets a made-up one."""

    uuid: str
    message: UserMessage


class Verdict(msgspec.Struct, frozen=True):
    """The meaning of a message: the prompts it belongs to, the leading one first, and the prompts that it ends."""

    owners: tuple[str, ...] = ()
    settled: tuple[Settle, ...] = ()


class PromptFollower(ABC):
    """Follows the prompts of one connection: which are being written, and which are lost at its end. Each agent has one."""

    def __init__(self) -> None:
        self._in_flight: list[tuple[str | bytes, list[Prompt]]] = []

    @property
    @abstractmethod
    def session_id(self) -> str | None:
        """The session, or the thread, of the last message."""

    def writing(self, data: str | bytes) -> list[Prompt]:
        """Return the prompts in `data`, which is about to be written."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if prompts := self._send(raw):
            self._in_flight.append((data, prompts))
        return prompts

    def written(self, data: str | bytes) -> list[Prompt]:
        """Return the prompts in `data`, which has been written."""
        for index, (other, prompts) in enumerate(self._in_flight):
            if other is data:
                del self._in_flight[index]
                return prompts
        return []

    def not_written(self, data: str | bytes) -> list[Prompt]:
        """Forget and return the prompts in `data`, whose write has failed."""
        prompts = self.written(data)
        for prompt in prompts:
            self._withdraw(prompt)
        return prompts

    @abstractmethod
    def ended(self) -> tuple[Settle, ...]:
        """Return the prompts that are lost, because nothing more will come."""

    @abstractmethod
    def _send(self, raw: bytes) -> list[Prompt]:
        """Register the prompts in `raw`, and return them."""

    @abstractmethod
    def _withdraw(self, prompt: Prompt) -> None:
        """Forget a prompt whose write has failed."""


class PromptWatch(PromptFollower):
    """Follows one connection with the state machine of the conversation, so that it decides as a `Query` does."""

    def __init__(self) -> None:
        super().__init__()
        self._conversation = Conversation()
        self._nameless = 0

    @property
    def session_id(self) -> str | None:
        """The session id of the last message."""
        return self._conversation.session_id

    def _send(self, raw: bytes) -> list[Prompt]:
        """Register prompts. One that was sent before is left out, as the CLI does."""
        prompts: list[Prompt] = []
        for line in raw.split(b"\n") if b"user" in raw else ():
            message = decode_message(line) if b"user" in line else None
            if not isinstance(message, UserMessage):
                continue
            self._nameless += not message.uuid
            prompt = Prompt(message.uuid or f"{_NAMELESS}{self._nameless}", message)
            is_command, is_named = message.text.startswith("/"), bool(message.uuid)
            try:
                self._conversation.send(prompt.uuid, priority=message.priority, is_command=is_command, is_named=is_named)
            except UsageError:
                continue
            prompts.append(prompt)
        return prompts

    def _withdraw(self, prompt: Prompt) -> None:
        self._conversation.withdraw(prompt.uuid)

    def received(self, message: Message) -> Verdict:
        """Return what `message` means for the prompts."""
        if isinstance(message, ControlRequest | ControlResponse | ControlCancelRequest):
            return Verdict()  # control messages belong to no prompt
        return _verdict(self._conversation.received((message,)))

    def ended(self) -> tuple[Settle, ...]:
        """Return the prompts that are lost, because nothing more will come."""
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


# Every `content_block_delta` of the CLI begins with exactly these bytes [03]. They are most lines of a streaming session, and say least. A
# delta that is written differently is only decoded in vain. Two comparisons cost half of `startswith` (21 against 40 ns per line) and
# mean the same: every line that sorts between these two begins with the first.
_FIRST = b'{"type":"stream_event","event":{"type":"content_block_delta",'
_AFTER_LAST = _FIRST + b"\xff"  # no byte of UTF-8


def without_deltas(lines: Sequence[bytes]) -> list[bytes]:
    """Return the lines without those that certainly are a `content_block_delta`, in order."""
    return [line for line in lines if not _FIRST < line < _AFTER_LAST]


def size_of(lines: Sequence[bytes]) -> int:
    """Return the bytes that the lines had on the wire, each with its newline. A cut oversized line counts with its true size."""
    try:
        size = len(b"".join(lines)) + len(lines)  # copying 64 KiB is twice as fast as adding up lengths
    except MemoryError:
        size = sum(map(len, lines)) + len(lines)
    if set(map(type, lines)) != {bytes}:
        size += sum(line.size - len(line) for line in lines if isinstance(line, OversizedLine))
    return size
