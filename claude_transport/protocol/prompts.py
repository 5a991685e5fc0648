"""Which prompt a turn, a message and a result belong to.

Results cannot be counted against prompts: waiting prompts are merged into one turn, a prompt sent while a tool runs is folded into the
running turn (docs/reference/protocol.md#queued-prompts), and a finished background task starts a turn without a prompt
(docs/reference/protocol.md#turns-without-a-prompt). A CLI that knows the uuids of prompts says what became of each
(`command_lifecycle`, `user_message_uuids`). For a CLI that does not, this module follows the rules by which the CLI takes its queue. For a
peer that does not say that it is a CLI, only the order of sending counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from claude_transport.errors import UsageError
from claude_transport.protocol.actions import Settle
from claude_transport.protocol.messages import CommandLifecycle, InitMessage, ResultMessage
from claude_transport.protocol.turn_states import TURN_TRANSITIONS, TurnEvent, TurnState

__all__ = ["Prompts"]

_SEEN_LIMIT = 100_000
"""Prompt uuids that are remembered, to refuse a repeated one: the CLI would drop it (docs/reference/protocol.md#repeated-uuids)."""

_PRIORITIES: Final = {"now": 0, "next": 1, "later": 2}
"""In this order the CLI takes them from its queue, those of one priority in the order of sending (2.1.329, real)."""


class _Prompt:
    """A prompt without an end."""

    __slots__ = ("has_waited", "is_command", "priority", "state")

    def __init__(self, *, priority: int, is_command: bool) -> None:
        self.state = TurnState.queued
        self.priority = priority
        self.is_command = is_command
        self.has_waited = False  # a result came while it was in the queue


class Prompts:
    """The prompts of one conversation, the turn that is running, and who is in it."""

    def __init__(self) -> None:
        self._open: dict[str, _Prompt] = {}  # in the order of sending
        self._seen: dict[str, None] = {}
        self._in_turn = False  # a turn is running, perhaps one that nobody asked for
        self._is_unasked = False  # it began while nobody waited for one
        self._folding: tuple[str, ...] = ()  # what the CLI takes into the turn when it goes on after a tool
        self._are_named = False  # this CLI says which prompt a frame belongs to
        self._is_cli = False  # the peer says that it is a CLI, which takes its queue as CLIs do
        self._last_result: ResultMessage | None = None
        self.current: tuple[str, ...] = ()
        """Those that the running turn is about; none when it is nobody's, or when no turn runs."""
        self.is_steady: bool = False
        """True while a turn runs and `spoke()` would change nothing (plain attributes both: they are read for every message)."""

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def open(self) -> tuple[str, ...]:
        """Those that have neither a result nor another end, in the order of sending."""
        return tuple(self._open)

    @property
    def is_running(self) -> bool:
        """True while one is open, or a turn runs that nobody asked for."""
        return bool(self._open) or self._in_turn

    @property
    def last_result(self) -> ResultMessage | None:
        """The result that came last."""
        return self._last_result

    def state_of(self, uuid: str) -> TurnState | None:
        """Where an open prompt is; None when it has reached its end, or was never sent."""
        prompt = self._open.get(uuid)
        return None if prompt is None else prompt.state

    # ---------------------------------------------------------------------------------------------------------------- ours

    def add(self, uuid: str, *, priority: str | None, is_command: bool) -> None:
        """Register one before it is written. A uuid used before is refused: the CLI would drop it silently."""
        if uuid in self._seen:
            raise UsageError(f"a message with the uuid {uuid} was sent before; the CLI drops repeated uuids without an answer")
        self._seen[uuid] = None
        if len(self._seen) > _SEEN_LIMIT:
            del self._seen[next(iter(self._seen))]
        self._open[uuid] = _Prompt(priority=_PRIORITIES.get(priority or "next", 1), is_command=is_command)

    def withdraw(self, uuid: str) -> None:
        """Forget one that was never written."""
        self._open.pop(uuid, None)
        self._seen.pop(uuid, None)
        self.current = tuple(other for other in self.current if other != uuid)

    # -------------------------------------------------------------------------------------------------------------- theirs

    def began(self, message: InitMessage) -> None:
        """A turn begins, or says again that it has begun."""
        self._are_named = self._are_named or bool(message.user_message_uuids)
        self._is_cli = self._is_cli or bool(message.claude_code_version)
        named = self._known(message.user_message_uuids)
        if named:
            self._begin(named)
        elif not self._in_turn:
            # Nobody waits, or the CLI would have said for whom it is: a background task woke the session. A peer that is no CLI may
            # well introduce itself before it is asked anything.
            unasked = self._are_named or (self._is_cli and not self._open)
            self._begin(() if unasked else self._next() if self._open else (), in_turn=unasked or bool(self._open))

    def spoke(self) -> tuple[str, ...]:
        """The main thread says something: whose it is. Without names, a turn that begins with it takes the next of the queue."""
        if self._folding:
            self._begin((*self.current, *self._known(self._folding)))
        elif not self._in_turn and not self._are_named and self._open:
            self._begin(self._next())
        return self.current

    def worked(self) -> None:
        """A tool of the running turn has ended. Unnamed prompts that were sent before are folded into the turn if it goes on (10h);
        if it was interrupted it does not, and they stay in the queue."""
        if self._in_turn and self._is_cli and not self._are_named:
            waiting = [uuid for uuid, prompt in self._open.items() if prompt.priority < _PRIORITIES["later"] and not prompt.is_command]
            self._folding = tuple(uuid for uuid in waiting if uuid not in self.current)
            self.is_steady = not self._folding

    def noted(self, message: CommandLifecycle) -> tuple[tuple[str, ...], list[Settle]]:
        """The CLI says what became of a prompt: whose message that is, and what is settled by it."""
        self._are_named = True
        uuid = message.command_uuid
        if uuid not in self._open:
            return (), []
        if message.state == "started":
            self._begin((*self.current, uuid) if self._in_turn else (uuid,))
        elif message.state == "cancelled":
            return (uuid,), self._step((uuid,), TurnEvent.cancelled)
        elif message.state == "completed" and not (self._in_turn and uuid in self.current) and self._last_result is not None:
            # it was worked on, and no result of a turn that still runs will name it: the last one is the one it shares
            return (uuid,), self._step((uuid,), TurnEvent.joined, self._last_result)
        return (uuid,), []

    def answered(self, message: ResultMessage) -> tuple[tuple[str, ...], list[Settle]]:
        """The turn is over: the prompts that this is the result of, the one it answers first, and what is settled by it."""
        answered = self._answered_by(message)
        mistaken = self.current if not answered else ()
        self._last_result = message
        self._rest()
        settled = self._step(answered[:1], TurnEvent.led, message) + self._step(answered[1:], TurnEvent.joined, message)
        self._step(self._known(mistaken), TurnEvent.returned)
        for prompt in self._open.values():
            prompt.has_waited = True
        return answered, settled

    def is_repeated(self, message: ResultMessage) -> bool:
        """Whether this result was said before: it must not count for the next prompt."""
        return message.uuid is not None and self._last_result is not None and message.uuid == self._last_result.uuid

    def ended(self) -> list[Settle]:
        """Nothing more will come: every open prompt is lost."""
        self._rest()
        return self._step(tuple(self._open), TurnEvent.ended)

    # ---------------------------------------------------------------------------------------------------------------- turns

    def _answered_by(self, message: ResultMessage) -> tuple[str, ...]:
        uuids = message.user_message_uuids or ((message.user_message_uuid,) if message.user_message_uuid else ())
        if uuids:
            self._are_named = True
            return tuple(dict.fromkeys((*self._known(uuids), *self.current)))
        if self._are_named and self._in_turn:
            return self.current  # empty: a turn that nobody asked for
        if message.is_unsolicited:
            return self.current if self._is_unasked else ()  # what is in it was folded into it, or only seemed to be its beginning
        if self._is_cli and self._in_turn:
            return self.current
        return self.current or (self._next() if self._open else ())

    def _next(self) -> tuple[str, ...]:
        """Of a queue without names, those that the turn that begins now takes: the next, and what the CLI merges with it (10j)."""
        if not self._is_cli:
            return (next(iter(self._open)),)
        queue = sorted(self._open, key=lambda uuid: self._open[uuid].priority)  # stable: those of one priority stay in order
        first = self._open[queue[0]]
        taken = [queue[0]]
        # When a turn ends, all that wait are taken at once, but not a slash command, nor a later one with others (2.1.329, real).
        # Those sent since then found no turn running: the first of them began one (10b).
        if first.has_waited and not first.is_command:
            for uuid in queue[1:]:
                prompt = self._open[uuid]
                if prompt.is_command or prompt.priority != first.priority or not prompt.has_waited:
                    break
                taken.append(uuid)
        return tuple(taken)

    def _known(self, uuids: Iterable[str] | None) -> tuple[str, ...]:
        return tuple(uuid for uuid in uuids or () if uuid in self._open)

    def _begin(self, uuids: tuple[str, ...], *, in_turn: bool = True) -> None:
        if not self._in_turn:
            self._is_unasked = not uuids
        self._in_turn = self.is_steady = in_turn
        self._folding = ()
        self.current = tuple(dict.fromkeys(uuids))
        self._step(self.current, TurnEvent.taken)

    def _rest(self) -> None:
        """No turn is running."""
        self._in_turn = self.is_steady = False
        self._folding = ()
        self.current = ()

    def _step(self, uuids: Iterable[str], event: TurnEvent, result: ResultMessage | None = None) -> list[Settle]:
        settled: list[Settle] = []
        for uuid in tuple(dict.fromkeys(uuids)):
            prompt = self._open[uuid]
            prompt.state = TURN_TRANSITIONS[prompt.state, event]
            if prompt.state in (TurnState.queued, TurnState.started):
                continue
            del self._open[uuid]
            self.current = tuple(other for other in self.current if other != uuid)
            settled.append(Settle(uuid, prompt.state, result))
        return settled
