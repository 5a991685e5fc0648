"""What was used and what it cost: each API message once, however many lines repeat it, and each result once."""

from __future__ import annotations

import math
from collections.abc import Mapping

from claude_transport.protocol.messages import ModelUsage, ResultMessage, Usage
from claude_transport.wrappers.metrics_snapshot import ModelCounts, TokenCounts
from claude_transport.wrappers.model_labels import OTHER_MODEL, model_label

__all__ = ["TokenLedger", "token_counts"]

_REMEMBERED = 4096
"""API messages remembered so that another block of the same one is not counted again; their blocks come close together."""

_MOST_TOKENS = 10**15
"""Tokens of one kind in one report, at most: the sum of two numbers of 4,300 digits can be read by nothing and written by nothing."""

_MAX_MODELS = 100
"""Models told apart; a peer that makes up more of them does not grow the memory, or the pages of a dashboard."""


class TokenLedger:
    """Fed with the usage of every API message and with every result, in order.

    An API message of N blocks arrives as N lines with the same id and the same usage, whose output is what was known when it began [04a].
    The events of a stream say the final one [03]. A result settles the turn: its `usage` is what the turn's own messages used; its
    `model_usage_since_last_result` what everything used meanwhile.
    """

    def __init__(self) -> None:
        self._settled = TokenCounts()
        self._open: dict[str, TokenCounts] = {}
        self._seen: dict[str, None] = {}
        self._models: dict[str, ModelCounts] = {}
        self._cumulative: dict[str, ModelCounts] = {}
        self._cumulative_cost = 0.0
        self._cost = 0.0
        self.api_messages: int = 0

    @property
    def settled(self) -> TokenCounts:
        """The sum of the usage of all results."""
        return self._settled

    @property
    def in_progress(self) -> TokenCounts:
        """What API messages of the main conversation have used since the last result."""
        total = TokenCounts()
        for counts in tuple(self._open.values()):
            total = total.plus(counts)
        return total

    @property
    def models(self) -> dict[str, ModelCounts]:
        """Everything that was used, by model."""
        return dict(self._models)

    @property
    def cost_usd(self) -> float:
        """Everything that was paid, in US dollars."""
        return self._cost

    def message(self, message_id: str, usage: Usage | None, *, is_subagent: bool = False) -> None:
        """An API message, or another piece of it; what its pieces say differently grows, so the most counts."""
        if not message_id:
            return
        if message_id not in self._seen:
            self.api_messages += 1
            self._seen[message_id] = None
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        if usage is None or is_subagent:
            return
        known = self._open.get(message_id, TokenCounts())
        names = TokenCounts.__struct_fields__
        counts = token_counts(usage)
        self._open[message_id] = TokenCounts(**{name: max(getattr(known, name), getattr(counts, name)) for name in names})

    def result(self, result: ResultMessage) -> None:
        """A turn is over."""
        self._settled = self._settled.plus(token_counts(result.usage))
        self._open.clear()
        before, cost_before = self._cumulative, self._cumulative_cost
        self._cumulative = {model: _counts(used) for model, used in result.model_usage.items()}
        self._cumulative_cost = _dollars(result.total_cost_usd)
        since = result.model_usage_since_last_result
        if since is not None:
            used = {model: _counts(counts) for model, counts in since.items()}
            self._cost += sum(counts.cost_usd for counts in used.values())
        else:
            used = {model: _growth(before.get(model), counts) for model, counts in self._cumulative.items()}
            # less than before: a new conversation began in the same process, and counts from zero [18za]
            self._cost += self._cumulative_cost - (cost_before if self._cumulative_cost >= cost_before else 0.0)
        for model, counts in used.items():
            label = model_label(model)
            if label not in self._models and len(self._models) >= _MAX_MODELS:
                label = OTHER_MODEL
            self._models[label] = self._models.get(label, ModelCounts()).plus(counts)


def token_counts(usage: Usage | ModelUsage) -> TokenCounts:
    """The counts of a usage; what is below zero counts as 0, and what no model has ever used as the most that is counted."""
    return TokenCounts(**{name: min(max(0, getattr(usage, name)), _MOST_TOKENS) for name in TokenCounts.__struct_fields__})


def _dollars(amount: float) -> float:
    """`amount`, or 0 for what is none: one NaN would make every sum after it one, too."""
    try:
        return float(amount) if 0 <= amount < math.inf else 0.0
    except OverflowError:  # a whole number beyond every float
        return 0.0


def _counts(usage: ModelUsage) -> ModelCounts:
    return ModelCounts(tokens=token_counts(usage), cost_usd=_dollars(usage.cost_usd))


def _growth(before: ModelCounts | None, now: ModelCounts) -> ModelCounts:
    if before is None:
        return now
    names = TokenCounts.__struct_fields__
    grown: Mapping[str, int] = {name: getattr(now.tokens, name) - getattr(before.tokens, name) for name in names}
    if min(grown.values()) < 0:
        return now
    return ModelCounts(tokens=TokenCounts(**grown), cost_usd=max(0.0, now.cost_usd - before.cost_usd))
