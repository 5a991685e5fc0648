"""`TokenCounts` and `ModelCounts`: numbers of tokens, and what they cost. Metrics, the inspector and agents count in them."""

from __future__ import annotations

from typing import Self

import msgspec

from claude_transport.protocol.envelope import ModelUsage, Usage

_MOST_TOKENS = 10**15
"""The most tokens of one kind that one report counts: no exporter can write the sum of two numbers of 4,300 digits."""


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of tokens of a turn, a session or a model, by the kinds that the API has different prices for.

    No token is in two of them: `input_tokens` does not include those that were written to the cache or read from it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def plus(self, other: Self) -> Self:
        """Return a new `TokenCounts` with the sum of both for each kind."""
        return type(self)(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class ModelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that one model has used, and their cost in US dollars."""

    tokens: TokenCounts = TokenCounts()
    cost_usd: float = 0.0

    def plus(self, other: Self) -> Self:
        """Return a new `ModelCounts` with the sum of both."""
        return type(self)(tokens=self.tokens.plus(other.tokens), cost_usd=self.cost_usd + other.cost_usd)


def token_counts(usage: Usage | ModelUsage) -> TokenCounts:
    """Return the counts of a usage, each limited to between 0 and `_MOST_TOKENS`."""
    return TokenCounts(**{name: min(max(0, getattr(usage, name)), _MOST_TOKENS) for name in TokenCounts.__struct_fields__})
