"""Facts about models that the API path needs: full name, longest answer, price. And which provider's model a name is.

Each row was measured: what CLI 2.1.329 sent to a loopback API for that name, and what it charged for a thousand tokens of each kind
(`costBasis: "list"`). An end-to-end test repeats the measurement, and fails when a new CLI differs. A model that is not in the table is
asked for by the given name, and its cost is None.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from claude_transport.agents.agent import AgentReason
from claude_transport.agents.registry import LIBRARY_AGENTS, find_agent
from claude_transport.completion.resolution import AgentKind
from claude_transport.errors import ConfigurationError
from claude_transport.protocol.envelope import Usage

DEFAULT_ALIAS: Final = "opus"
"""The model that the CLI takes with an API key when no model is asked for."""

UNKNOWN_MAX_TOKENS: Final = 32_000
"""The most tokens that the CLI asks for from a model that it does not know."""

_OF_CLAUDE: Final = re.compile(r"claude-|claude$|opusplan", re.IGNORECASE)

_MILLION: Final = 1_000_000

_DATE: Final = re.compile(r"-20\d{6}$")
"""The date that the API adds to a name in its answer: `claude-haiku-4-5-20251001` is `claude-haiku-4-5`."""


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens of each kind: input, output, written to the cache (for 5 minutes, for an hour), read from the
    cache.
    """

    input: float
    output: float
    cache_write: float
    cache_write_1h: float
    cache_read: float

    def cost_of(self, usage: Usage) -> float:
        """Return the US dollars for these tokens. Tokens written to the cache count as kept for 5 minutes unless `usage` says otherwise."""
        kept = usage.cache_creation or {}
        hour = _count(kept.get("ephemeral_1h_input_tokens"))
        written = max(usage.cache_creation_input_tokens - hour, 0)
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + written * self.cache_write
            + hour * self.cache_write_1h
            + usage.cache_read_input_tokens * self.cache_read
        ) / _MILLION


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model: its full `name`, the tokens of its longest answer, its list price."""

    name: str
    max_tokens: int
    price: ModelPrice


def _known(name: str, max_tokens: int, *, price: tuple[float, float, float]) -> KnownModel:
    """Make a row; `price` is input, output, and reading from the cache. Writing to it costs 1.25 times the input, or twice for an hour."""
    fresh, output, cached = price
    every = ModelPrice(input=fresh, output=output, cache_write=fresh * 1.25, cache_write_1h=fresh * 2, cache_read=cached)
    return KnownModel(name=name, max_tokens=max_tokens, price=every)


KNOWN_MODELS: Final[dict[str, KnownModel]] = {
    model.name: model
    for model in (
        _known("claude-haiku-5-5", 128_000, price=(0.1, 0.5, 0.01)),
        _known("claude-sonnet-5-5", 128_000, price=(2, 10, 0.1)),
        _known("claude-opus-5-5", 128_000, price=(4, 20, 0.2)),
        _known("claude-fable-5-2", 128_000, price=(8, 40, 0.2)),
        _known("claude-sonnet-5", 64_000, price=(2, 10, 0.2)),
        _known("claude-opus-5", 64_000, price=(5, 25, 0.5)),
        _known("claude-sonnet-4-6", 32_000, price=(3, 15, 0.3)),
        _known("claude-opus-4-6", 64_000, price=(5, 25, 0.5)),
        _known("claude-haiku-4-5", 32_000, price=(1, 5, 0.1)),
        _known("claude-sonnet-4-5", 32_000, price=(3, 15, 0.3)),
        _known("claude-opus-4-5", 32_000, price=(5, 25, 0.5)),
    )
}
"""Models by full name, with the list prices of CLI 2.1.329 (2026-11)."""

ALIASES: Final = {
    "haiku": "claude-haiku-5-5",
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
    "fable": "claude-fable-5-2",
    "best": "claude-opus-5-5",
    "default": "claude-opus-5-5",
}
"""Short names that the CLI takes, and the full name of each."""


def full_name(model: str | None) -> str:
    """Return the name to ask the API for. Aliases mean what they mean for the CLI; None is the CLI's default."""
    return ALIASES.get(model or DEFAULT_ALIAS, model or DEFAULT_ALIAS)


def agent_of(model: str) -> AgentKind | None:
    """Return the agent that this model belongs to, by its name. None for a name that says nothing, as of a model of another provider."""
    if model.partition("[")[0].lower() in ALIASES or _OF_CLAUDE.search(model):
        return "claude-code"
    return next((name for name in LIBRARY_AGENTS if find_agent(name).names_model(model)), None)


def check_model(model: object, agent: AgentReason) -> None:
    """Check that the chosen agent may be asked for this model. Raises `ConfigurationError` for a model of another one.

    A call that has not chosen an agent may name any model: a proxy behind `ANTHROPIC_BASE_URL` gives them names of its own.
    """
    other = agent_of(model) if isinstance(model, str) else None
    if agent.kind not in LIBRARY_AGENTS:
        return  # a plug-in may take models of any name
    if other is None or other == agent.kind or (agent.kind == "claude-code" and agent.layer == "default"):
        return
    theirs, ours = find_agent(other).title, find_agent(agent.kind).title
    raise ConfigurationError(
        f'model: {model!r} is a model of {theirs}, but {agent.reason}. Use agent="{other}", or a model of {ours}', option="model"
    )


def max_tokens_of(model: str) -> int:
    """Return the `max_tokens` to ask for when the caller gave none: the CLI's number."""
    known = KNOWN_MODELS.get(_DATE.sub("", model))
    return UNKNOWN_MAX_TOKENS if known is None else known.max_tokens


def cost_of(model: str, *, usage: Usage) -> float | None:
    """Return US dollars at list price; None for a model without a known price."""
    known = KNOWN_MODELS.get(_DATE.sub("", model))
    return None if known is None else known.price.cost_of(usage)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
