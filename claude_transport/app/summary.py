"""The line at the end of an answer: who answered, how long it took, and what it took."""

from __future__ import annotations

from claude_transport.app.terminal import Look, one_line
from claude_transport.protocol.envelope import as_float
from claude_transport.protocol.messages import ResultMessage
from claude_transport.wrappers.metrics import token_counts
from claude_transport.wrappers.metrics_snapshot import TokenCounts


def summarize(result: ResultMessage, *, model: str, seconds: float, look: Look, tokens: TokenCounts | None = None) -> str:
    """Model, duration, tokens and cost in one line; what is not known is left out. `seconds` is from the start of the program's run.

    `tokens` are those of all turns; without them, those of the result count.
    """
    used = token_counts(result.usage) if tokens is None else tokens
    read = used.input_tokens + used.cache_creation_input_tokens + used.cache_read_input_tokens
    parts = [
        one_line(model, width=80),
        f"{seconds:.1f} s",
        f"{read:,} tokens in, {used.output_tokens:,} out",
        _dollars(as_float(result.total_cost_usd)),
    ]
    return f" {look.symbol('dot')} ".join(part for part in parts if part)


def _dollars(cost: float) -> str:
    if cost <= 0:
        return "no cost"
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"
