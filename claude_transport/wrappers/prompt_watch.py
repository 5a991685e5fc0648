"""`PromptWatch`: finds out which prompt a message belongs to, for metrics and tracing, which only see prompts and messages pass.

Also `without_deltas` and `size_of`, which look at batches of lines without decoding them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from claude_transport.agents.readers import PromptFollower, WrittenPrompt
from claude_transport.errors import UsageError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.conversation import Conversation, Deliver, Settle
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import UserMessage

_NAMELESS = "nameless-"


class Verdict(msgspec.Struct, frozen=True):
    """The meaning of a message: the prompts it belongs to, the leading one first, and the prompts that it ends."""

    owners: tuple[str, ...] = ()
    settled: tuple[Settle, ...] = ()


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

    def sent(self, raw: bytes) -> list[WrittenPrompt]:
        """Register prompts. One that was sent before is left out, as the CLI does."""
        prompts: list[WrittenPrompt] = []
        for line in raw.split(b"\n") if b"user" in raw else ():
            message = decode_message(line) if b"user" in line else None
            if not isinstance(message, UserMessage):
                continue
            self._nameless += not message.uuid
            prompt = WrittenPrompt(message.uuid or f"{_NAMELESS}{self._nameless}", message)
            is_command, is_named = message.text.startswith("/"), bool(message.uuid)
            try:
                self._conversation.send(prompt.uuid, priority=message.priority, is_command=is_command, is_named=is_named)
            except UsageError:
                continue
            prompts.append(prompt)
        return prompts

    def unsent(self, prompt: WrittenPrompt) -> None:
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
