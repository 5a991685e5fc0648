"""Answers about models, and about what they have cost."""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.envelope import Number, Part
from claude_transport.protocol.initialization import ModelInfo

__all__ = ["ModelListing", "ModelSpending", "SessionSpending", "UsageInfo"]


class ModelListing(Answer, frozen=True, kw_only=True):
    """The models that can be chosen. [08a]"""

    models: tuple[ModelInfo, ...] = ()


class ModelSpending(Part, rename="camel", frozen=True, kw_only=True):
    """What one model was used for in this session, in tokens and US dollars. [08a]"""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    web_search_requests: int = 0
    cost_usd: Number = field(name="costUSD", default=0)
    context_window: int | None = None
    max_output_tokens: int | None = None
    thinking_tokens: int | None = None
    canonical_model: str | None = None
    provider: str | None = None
    cost_basis: str | None = None
    """`list` for list prices."""


class SessionSpending(Part, frozen=True, kw_only=True):
    """What this process has used so far; times in milliseconds, `model_usage` by model name. [08a]"""

    total_cost_usd: Number = 0
    total_api_duration_ms: Number = 0
    total_duration_ms: Number = 0
    total_lines_added: int = 0
    total_lines_removed: int = 0
    model_usage: dict[str, ModelSpending] = field(default_factory=dict)


class UsageInfo(Answer, frozen=True, kw_only=True):
    """What was used, and how much of a subscription's limits is left. [08a]

    `rate_limits` and `behaviors` are None with an API key. *Declared*: `rate_limits` holds windows (`five_hour`, `seven_day`, …), each
    with `utilization` and `resets_at`.
    """

    session: SessionSpending = SessionSpending()
    subscription_type: str | None = None
    rate_limits_available: bool = False
    rate_limits: dict[str, Any] | None = None
    behaviors: dict[str, Any] | None = None
