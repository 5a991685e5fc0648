"""Token counts and costs."""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.envelope import Number, Part

__all__ = ["ModelUsage", "Usage"]


class Usage(Part, frozen=True, kw_only=True):
    """Tokens of a message or turn. Whatever is missing, null or not a number counts as 0 and never raises."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_details: dict[str, Any] | None = None
    cache_creation: dict[str, Any] | None = None
    server_tool_use: dict[str, Any] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None
    iterations: tuple[Any, ...] | None = None
    speed: str | None = None
    fallback_credit: Any = None

    @property
    def total_input_tokens(self) -> int:
        """Everything the model read: fresh, written to the cache, and read from it."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


class ModelUsage(Part, rename="camel", frozen=True, kw_only=True):
    """What one model used and cost, cumulative over the process (and over the session, when resumed)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation_ephemeral_5m_input_tokens: int | None = field(name="cacheCreationEphemeral5mInputTokens", default=None)
    cache_creation_ephemeral_1h_input_tokens: int | None = field(name="cacheCreationEphemeral1hInputTokens", default=None)
    thinking_tokens: int | None = None
    web_search_requests: int = 0
    cost_usd: Number = field(name="costUSD", default=0)
    cost_basis: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    canonical_model: str | None = None
    provider: str | None = None
