"""`TurnBook`: which prompts share which turn, and what each turn took; decided by the conversation's own state machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from claude_transport.errors import UsageError
from claude_transport.inspection.summary import TurnSummary
from claude_transport.inspection.wording import gist
from claude_transport.protocol.actions import Settle
from claude_transport.protocol.conversation import Conversation
from claude_transport.protocol.messages import InitMessage, Message, ResultMessage
from claude_transport.protocol.turn_states import TurnState
from claude_transport.wrappers.metrics_snapshot import TokenCounts
from claude_transport.wrappers.token_ledger import TokenLedger, token_counts

__all__ = ["SettledPrompt", "TurnBook", "tokens_of_turn"]


class _Prompt(NamedTuple):
    event: int
    t: float
    text: str


class SettledPrompt(NamedTuple):
    """A prompt that has reached its end: the event that shows it, its state, and the number of its turn, if it had one."""

    event: int
    state: TurnState
    turn: int | None


class TurnBook:
    """Hears everything that was said, in order, and knows the turns."""

    def __init__(self) -> None:
        self.ledger: TokenLedger = TokenLedger()
        self.turns: list[TurnSummary] = []
        self._conversation = Conversation()
        self._prompts: dict[str, _Prompt] = {}
        self._unnamed: dict[str, None] = {}  # those of the prompts that have no uuid on the tape
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
        """The number of the turn that is running, or asked for."""
        return len(self.turns) + 1 if self._conversation.is_running else None

    def expect_structure(self) -> None:
        """A JSON schema was asked for: a success without structured output is none."""
        self._conversation.expect(structured_output=True)

    # ------------------------------------------------------------------------------------------------------------- stimuli

    def prompted(self, uuid: str | None, *, text: str, event: int, t: float, priority: str | None) -> bool:
        """Note that a prompt was sent. False for a repeated uuid: the CLI drops it (docs/reference/protocol.md#repeated-uuids)."""
        if uuid is None:
            uuid = f"unnamed-{event}"
            self._unnamed[uuid] = None
        try:
            self._conversation.send(uuid, priority=priority, is_command=text.startswith("/"))
        except UsageError:
            return False
        self._prompts[uuid] = _Prompt(event, t, text)
        return True

    def heard(self, message: Message, t: float) -> list[SettledPrompt]:
        """A line of the CLI: the prompts that are settled by it. A result is given what is known only by having listened."""
        in_progress = self.ledger.in_progress
        settled = [action for action in self._conversation.received([message]) if isinstance(action, Settle)]
        if isinstance(message, InitMessage) and self._began is None and self._conversation.is_running:
            self._began = t
        if isinstance(message, ResultMessage) and message.prompt_uuids is not None:
            claimed = self._claim(message, t)
            self._end_turn(message, (*message.prompt_uuids, *claimed), t, in_progress)
            settled += [Settle(uuid, TurnState.folded if rank else TurnState.done, message) for rank, uuid in enumerate(claimed)]
        return self._settled(settled)

    def spoke(self, t: float) -> None:
        """The model says something, in pieces or as a whole."""
        if self._first_output is None:
            self._first_output = t
            self._began = t if self._began is None else self._began

    def used_tool(self) -> None:
        """A tool was called."""
        self._tool_calls += 1

    def tool_failed(self) -> None:
        """A tool's answer is an error."""
        self._tool_errors += 1

    def ended(self, t: float) -> list[SettledPrompt]:
        """The tape is over: prompts without a result have a last turn of their own."""
        running = self._conversation.is_running
        open_prompts = [self._prompts[uuid] for uuid in self._conversation.open_turns if uuid in self._prompts]
        settled = [action for action in self._conversation.ended() if isinstance(action, Settle)]
        if running:
            self._add(open_prompts, t, outcome="result.missing", detail="the tape ends before its result", tokens=self.ledger.in_progress)
        return self._settled(settled)

    # ------------------------------------------------------------------------------------------------------------- details

    def _claim(self, result: ResultMessage, t: float) -> tuple[str, ...]:
        """Prompts without a uuid that this nameless result must be of: a CLI that names the others cannot name them [07a]."""
        if result.prompt_uuids or result.is_unsolicited:
            return ()
        began = t if self._began is None else self._began
        claimed = tuple(uuid for uuid in self._unnamed if uuid in self._prompts and self._prompts[uuid].t <= began)
        for uuid in claimed:
            self._conversation.withdraw(uuid)
        return claimed

    def _end_turn(self, result: ResultMessage, uuids: Iterable[str], t: float, in_progress: TokenCounts) -> None:
        self.ledger.result(result)
        outcome = result.outcome
        said = " ".join(result.errors) or result.result or ""
        prompts = [self._prompts[uuid] for uuid in uuids if uuid in self._prompts]
        self._add(
            prompts,
            t,
            outcome=outcome.code,
            detail="" if outcome.ok else f"{outcome.text} {gist(said)}".strip(),
            tokens=tokens_of_turn(result, in_progress=in_progress),
        )
        self._last_result = t
        self._open_turn()

    def _add(self, prompts: list[_Prompt], t: float, *, outcome: str, detail: str, tokens: TokenCounts) -> None:
        asked = min((prompt.t for prompt in prompts), default=self._began if self._began is not None else t)
        began = asked if self._last_result is None else max(asked, self._last_result)
        self.turns.append(
            TurnSummary(
                number=len(self.turns) + 1,
                t=began,
                seconds=max(0.0, t - began),
                prompts=len(prompts),
                prompt=gist(prompts[0].text) if prompts else "",
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
            self._unnamed.pop(action.uuid, None)
            if prompt is not None:
                turn = len(self.turns) if action.state is not TurnState.dropped else None
                settled.append(SettledPrompt(prompt.event, action.state, turn or None))
        return settled


def tokens_of_turn(result: ResultMessage, *, in_progress: TokenCounts) -> TokenCounts:
    """What a turn has used: what its result reports, or else what its API messages did (`TokenLedger.in_progress` before the result)."""
    reported = token_counts(result.usage)
    return in_progress if reported == TokenCounts() else reported
