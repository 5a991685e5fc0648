"""`CodexPrompts`: what `PromptWatch` is for Claude, for Codex: which prompts a message belongs to, and which it settles.

Metrics and tracing use either, by the dialect of the first line. `codex.watch` follows the turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from claude_transport.agents.readers import PromptFollower, WrittenPrompt
from claude_transport.codex.messages import CodexMessage, decode_message
from claude_transport.codex.watch import (
    CodexWatch,
    PromptRefused,
    RunningTurn,
    SentPrompt,
    TurnEnded,
    WatchEvent,
)
from claude_transport.protocol.conversation import Settle, TurnState
from claude_transport.protocol.messages import UserContent, UserMessage

_MARKS: Final = (b'"turn/start"', b'"turn/steer"')


class CodexPrompts(PromptFollower):
    """Follows one connection to `codex app-server`. The uuid of a prompt is `prompt-` and its number."""

    def __init__(self) -> None:
        super().__init__()
        self._watch = CodexWatch()
        self._names: dict[SentPrompt, str] = {}
        self._count = 0

    @property
    def session_id(self) -> str | None:
        """The thread of the last message."""
        return self._watch.last_thread

    def turn(self, turn_id: str) -> RunningTurn | None:
        """Return the running turn with this id, or None."""
        return self._watch.turn(turn_id)

    def sent(self, raw: bytes) -> list[WrittenPrompt]:
        found: list[WrittenPrompt] = []
        for line in raw.split(b"\n") if any(mark in raw for mark in _MARKS) else ():
            sent = self._watch.said(decode_message(line)) if any(mark in line for mark in _MARKS) else None
            if sent is not None:
                self._count += 1
                self._names[sent] = f"prompt-{self._count}"
                found.append(WrittenPrompt(self._names[sent], UserMessage(message=UserContent(content=sent.text))))
        return found

    def unsent(self, prompt: WrittenPrompt) -> None:
        for sent in [sent for sent, name in self._names.items() if name == prompt.uuid]:
            self._watch.unsaid(sent)
            del self._names[sent]

    def received(self, message: CodexMessage) -> list[WatchEvent]:
        """Return what `message` means for the prompts and turns."""
        return self._watch.heard(message)

    def names_of(self, turn: RunningTurn) -> list[str]:
        """Return the uuids of the prompts of a turn, the one that began it first."""
        return [self._names[prompt] for prompt in turn.prompts if prompt in self._names]

    def settled_by(self, event: WatchEvent) -> list[Settle]:
        """Return the prompts that an event settles: all prompts of a turn that is over, and one that was refused."""
        if isinstance(event, PromptRefused):
            return [Settle(name, TurnState.DROPPED, None) for name in self._forget([event.prompt])]
        if not isinstance(event, TurnEnded):
            return []
        names = self._forget(event.turn.prompts)
        return [Settle(name, TurnState.FOLDED if rank else TurnState.DONE, event.result) for rank, name in enumerate(names)]

    def ended(self) -> tuple[Settle, ...]:
        """Return the prompts that are lost, because nothing more will come."""
        turns, prompts = self._watch.ended()
        lost = self._forget([prompt for turn in turns for prompt in turn.prompts] + prompts)
        return tuple(Settle(name, TurnState.LOST, None) for name in lost)

    def _forget(self, prompts: Sequence[SentPrompt]) -> list[str]:
        return [name for prompt in prompts if (name := self._names.pop(prompt, None)) is not None]


_DELTA: Final = b'{"method":"item/agentMessage/delta",'
_AFTER_DELTA: Final = _DELTA[:-1] + b"-"


def without_codex_deltas(lines: Sequence[bytes]) -> list[bytes]:
    """Return the lines without those that certainly are a piece of a message, in order."""
    return [line for line in lines if not _DELTA < line < _AFTER_DELTA]
