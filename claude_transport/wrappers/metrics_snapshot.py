"""`MetricsSnapshot`: what was counted in one session, or in many: plain data, to be compared, summed and sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

__all__ = ["MetricsSnapshot", "ModelCounts", "Timing", "TokenCounts"]


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, by what they cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def plus(self, other: Self) -> Self:
        """The sum of both."""
        return type(self)(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class ModelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one model used and cost (US dollars)."""

    tokens: TokenCounts = TokenCounts()
    cost_usd: float = 0.0

    def plus(self, other: Self) -> Self:
        """The sum of both."""
        return type(self)(tokens=self.tokens.plus(other.tokens), cost_usd=self.cost_usd + other.cost_usd)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took that happened `count` times, in seconds: `total`, the `longest`, and the `last` of them."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    last: float | None = None

    @property
    def mean(self) -> float | None:
        """Seconds on average; None when it never happened."""
        return self.total / self.count if self.count else None

    def plus(self, other: Self) -> Self:
        """Both together; `other` is the later one."""
        return type(self)(
            count=self.count + other.count,
            total=self.total + other.total,
            longest=max(self.longest, other.longest),
            last=self.last if other.last is None else other.last,
        )


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted until now. Everything only grows, except `tokens_in_progress` and the `last` of a `Timing`.

    Bytes and lines are those that passed the wrapper, each line with its newline. Types are the wire's; lines that hold no message
    are `unreadable_lines`. `prompts` are user messages that were written; `results` counts outcomes by code (`ok`, `result.overloaded`).

    `tokens` is the sum of `result.usage`: the main conversation, turn by turn; nothing for an interrupted turn [07a], and no subagents.
    `models` and `cost_usd` count everything that was paid for since this connection began, subagents and interrupted turns too [15a, 10c],
    but not what a resumed session had used before [16b]. `tokens_in_progress` is what running turns have used so far, each API message
    once (`api_messages` counts those, subagents' too); its output is known only with `include_partial_messages`, and too low without.

    `connect` is how long connecting took; `first_message` and `result` how long after a prompt the model began to speak and was done.
    """

    sessions: int = 1
    bytes_read: int = 0
    bytes_written: int = 0
    lines_read: int = 0
    lines_written: int = 0
    messages_read: Mapping[str, int] = {}
    messages_written: Mapping[str, int] = {}
    unreadable_lines: int = 0
    prompts: int = 0
    results: Mapping[str, int] = {}
    api_messages: int = 0
    tokens: TokenCounts = TokenCounts()
    tokens_in_progress: TokenCounts = TokenCounts()
    models: Mapping[str, ModelCounts] = {}
    cost_usd: float = 0.0
    connect: Timing = Timing()
    first_message: Timing = Timing()
    result: Timing = Timing()

    def plus(self, other: Self) -> Self:
        """Both sessions together."""
        names = self.__struct_fields__
        return type(self)(**{name: _sum(getattr(self, name), getattr(other, name)) for name in names})

    @classmethod
    def total(cls, snapshots: Iterable[MetricsSnapshot]) -> MetricsSnapshot:
        """All of them together; of no sessions, all zero."""
        sum_ = MetricsSnapshot(sessions=0)
        for snapshot in snapshots:
            sum_ = sum_.plus(snapshot)
        return sum_


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {key: _sum(one[key], other[key]) if key in one and key in other else {**one, **other}[key] for key in {**one, **other}}
    return one.plus(other) if isinstance(one, TokenCounts | ModelCounts | Timing) else one + other
