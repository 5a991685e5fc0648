"""`TurnBook`: which prompts of Claude share which turn, and what each turn used. `TurnScene` is a scene with such a book."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from claude_transport.agents.scene import EventStore, Scene, TurnSummary, gist_of
from claude_transport.errors import UsageError
from claude_transport.protocol.conversation import Conversation, Settle, TurnState
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import InitMessage, ResultMessage
from claude_transport.protocol.token_counts import TokenCounts, token_counts
from claude_transport.wrappers.metrics import TokenLedger


class _ScenePrompt(NamedTuple):
    event: int
    t: float
    text: str


class SettledPrompt(NamedTuple):
    """A prompt with its final state: the id of its event, the state, and the number of its turn or None."""

    event: int
    state: TurnState
    turn: int | None


class TurnBook:
    """Finds out which prompts share which turn and what each turn used. The state machine of `protocol/conversation.py` decides."""

    def __init__(self) -> None:
        self.ledger: TokenLedger = TokenLedger()
        self.turns: list[TurnSummary] = []
        self._conversation = Conversation()
        self._prompts: dict[str, _ScenePrompt] = {}
        self._last_result: float | None = None
        self._open_turn()

    def _open_turn(self) -> None:
        self._began: float | None = None
        self._first_output: float | None = None
        self._tool_calls = self._tool_errors = 0
        self._api_messages_before = self.ledger.api_messages
        self._cost_before = self.ledger.cost_usd

    @property
    def current(self) -> int | None:
        """The number of the running turn, from 1; None between turns."""
        return len(self.turns) + 1 if self._conversation.is_running else None

    def expect_structure(self) -> None:
        """Treat results without structured output as failures, because the host asked for a JSON schema."""
        self._conversation.expect(structured_output=True)

    def prompted(self, uuid: str | None, *, text: str, event: int, t: float, priority: str | None) -> bool:
        """Note a prompt. Return False for a repeated uuid: the CLI drops it (docs/reference/protocol.md#repeated-uuids)."""
        is_named, uuid = uuid is not None, uuid or f"unnamed-{event}"
        try:
            self._conversation.send(uuid, priority=priority, is_command=text.startswith("/"), is_named=is_named)
        except UsageError:
            return False
        self._prompts[uuid] = _ScenePrompt(event, t, text)
        return True

    def heard(self, message: Message, t: float) -> list[SettledPrompt]:
        """Note a message of the CLI at time `t`. Return the prompts that it settles."""
        in_progress = self.ledger.in_progress
        settled = [action for action in self._conversation.received([message]) if isinstance(action, Settle)]
        if isinstance(message, InitMessage) and self._began is None and self._conversation.is_running:
            self._began = t
        if isinstance(message, ResultMessage) and message.prompt_uuids is not None:
            self._end_turn(message, message.prompt_uuids, t, in_progress)
        return self._settled(settled)

    def spoke(self, t: float) -> None:
        """Note output of the model at time `t`."""
        if self._first_output is None:
            self._first_output = t
            self._began = t if self._began is None else self._began

    def used_tool(self) -> None:
        """Note the call of a tool."""
        self._tool_calls += 1

    def tool_failed(self) -> None:
        """Note the failed call of a tool."""
        self._tool_errors += 1

    def ended(self, t: float) -> list[SettledPrompt]:
        """Note the end of the tape at time `t`. Prompts without a result form a last turn. Return the prompts that this settles."""
        running = self._conversation.is_running
        open_prompts = [self._prompts[uuid] for uuid in self._conversation.open_turns if uuid in self._prompts]
        settled = [action for action in self._conversation.ended() if isinstance(action, Settle)]
        if running:
            self._add(open_prompts, t, outcome="result.missing", detail="the tape ends before its result", tokens=self.ledger.in_progress)
        return self._settled(settled)

    def _end_turn(self, result: ResultMessage, uuids: Iterable[str], t: float, in_progress: TokenCounts) -> None:
        self.ledger.result(result)
        outcome = result.outcome
        said = " ".join(result.errors) or result.result or ""
        prompts = [self._prompts[uuid] for uuid in uuids if uuid in self._prompts]
        self._add(
            prompts,
            t,
            outcome=outcome.code,
            detail="" if outcome.ok else f"{outcome.text} {gist_of(said)}".strip(),
            tokens=tokens_of_turn(result, in_progress=in_progress),
        )
        self._last_result = t
        self._open_turn()

    def _add(self, prompts: list[_ScenePrompt], t: float, *, outcome: str, detail: str, tokens: TokenCounts) -> None:
        asked = min((prompt.t for prompt in prompts), default=self._began if self._began is not None else t)
        began = asked if self._last_result is None else max(asked, self._last_result)
        self.turns.append(
            TurnSummary(
                number=len(self.turns) + 1,
                t=began,
                seconds=max(0.0, t - began),
                prompts=len(prompts),
                prompt=gist_of(prompts[0].text) if prompts else "",
                outcome=outcome,
                detail=detail,
                first_output=None if self._first_output is None else max(0.0, self._first_output - began),
                api_messages=self.ledger.api_messages - self._api_messages_before,
                tool_calls=self._tool_calls,
                tool_errors=self._tool_errors,
                tokens=tokens,
                cost_usd=max(0.0, self.ledger.cost_usd - self._cost_before),
            )
        )

    def _settled(self, actions: Iterable[Settle]) -> list[SettledPrompt]:
        settled: list[SettledPrompt] = []
        for action in actions:
            prompt = self._prompts.pop(action.uuid, None)
            if prompt is not None:
                turn = len(self.turns) if action.state is not TurnState.DROPPED else None
                settled.append(SettledPrompt(prompt.event, action.state, turn or None))
        return settled


def tokens_of_turn(result: ResultMessage, *, in_progress: TokenCounts) -> TokenCounts:
    """Return the tokens of a turn: those in its result, or else those of its API messages.

    Args:
        result: the result of the turn.
        in_progress: `TokenLedger.in_progress` before the result.
    """
    reported = token_counts(result.usage)
    return in_progress if reported == TokenCounts() else reported


class TurnScene(Scene):
    """The scene of a tape of Claude, where one turn runs at a time."""

    def __init__(self, shelf: EventStore) -> None:
        super().__init__(shelf)
        self.turns: TurnBook = TurnBook()

    @property
    def turn(self) -> int | None:
        """The number of the running turn, from 1; None between turns."""
        return self.turns.current

    def settle(self, prompts: Iterable[SettledPrompt]) -> None:
        """Write the final state of prompts into their events."""
        for prompt in prompts:
            if prompt.state is TurnState.DROPPED:
                self.worsen(prompt.event, "warning", "a prompt was cancelled before it ran", status="dropped", turn=None)
            elif prompt.state is TurnState.LOST:
                self.worsen(prompt.event, "error", "a prompt has no result", status="lost", turn=prompt.turn)
            else:
                self.shelf.change(prompt.event, status=prompt.state.value, turn=prompt.turn)
