"""The line at the end of an answer: who answered, how long it took, and what it took."""

from __future__ import annotations

from claude_transport.app.terminal import Look, one_line
from claude_transport.protocol.messages import ResultMessage

__all__ = ["summarize"]


def summarize(result: ResultMessage, *, model: str, seconds: float, look: Look) -> str:
    """Model, duration, tokens and cost in one line; what is not known is left out. `seconds` is from the start of the program's run."""
    usage = result.usage
    parts = [
        one_line(model, width=80),
        f"{seconds:.1f} s",
        f"{usage.total_input_tokens:,} tokens in, {usage.output_tokens:,} out",
        _dollars(float(result.total_cost_usd)),
    ]
    return f" {look.symbol('dot')} ".join(part for part in parts if part)


def _dollars(cost: float) -> str:
    if cost <= 0:
        return "no cost"
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"
