"""`CodexReader`: what the lines of Codex mean for metrics. `Metrics` loads it when the first line tells that they are those of Codex."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from claude_transport.agents.readers import LineMeaning, MetricsReader
from claude_transport.codex.messages import decode_message
from claude_transport.codex.prompts import CodexPrompts, without_codex_deltas
from claude_transport.codex.watch import APIAnswered, ModelSpoke, TurnEnded
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage

_FOLLOWED: Final = frozenset(
    {"turn/started", "turn/completed", "thread/tokenUsage/updated", "thread/closed", "item/started", "item/completed", "answer", "error"}
)
"""Methods that decide about a prompt, and answers. Messages of other methods are counted and not decoded."""


class CodexReader(MetricsReader):
    """Reads the lines of one connection to Codex."""

    delta_kind: str = "item/agentMessage/delta"
    """What a piece of a message is counted as."""

    def __init__(self) -> None:
        self._prompts = CodexPrompts()

    @property
    def prompts(self) -> CodexPrompts:
        """What follows the prompts of all threads."""
        return self._prompts

    def telling(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines without pieces of messages."""
        return without_codex_deltas(lines)

    def kind_of(self, line: bytes) -> str | None:
        """Return what a line is counted as: its method, `answer` or `error`. None for a line without a message."""
        try:
            if line.__class__ is not bytes:
                raise ValueError("only the head of a line")
            return _decode_head(line).kind
        except _REFUSED:
            message = decode_message(line)
            return None if isinstance(message, DecodeFailure | OversizedMessage) else message.type

    def read(self, line: bytes, kind: str) -> Iterator[LineMeaning]:
        """Yield what a line of this kind means."""
        if kind not in _FOLLOWED:
            return
        prompts = self._prompts
        for event in prompts.received(decode_message(line)):
            settled = prompts.settled_by(event)
            if isinstance(event, ModelSpoke):
                yield LineMeaning(spoke=next(iter(prompts.names_of(event.turn)), None))
            elif isinstance(event, APIAnswered):
                yield LineMeaning(usage=(_name(event.turn.id, event.turn.requests), event.usage))
            elif isinstance(event, TurnEnded):
                answers = [_name(event.turn.id, number) for number in range(1, event.turn.requests + 1)]
                yield LineMeaning(result=event.result, answers=answers, settled=settled)
            elif settled:
                yield LineMeaning(settled=settled)


def _name(turn: str, number: int) -> str:
    return f"{turn}/{number}"


class _CodexHead(msgspec.Struct, gc=False):
    """The fields of a line that tell what it is. The decoder skips the rest."""

    method: str = ""
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def kind(self) -> str:
        """The method; for an answer `answer`, or `error` when it has an error."""
        if self.method:
            return self.method
        return "error" if isinstance(self.error, msgspec.Raw) else "answer" if isinstance(self.id, msgspec.Raw) else ""


_decode_head: Final = msgspec.json.Decoder(_CodexHead).decode
_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
