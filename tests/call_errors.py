"""The failures of docs/reference/protocol.md#api-failures as scripts of a fake API, and the error of both paths for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import claude_transport as ct
from claude_transport.testing import replies

WORDS = "as scripted"


class Waits:
    """A `sleep` for `complete()` that takes no time, and remembers for how long it was asked."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def follow(self, ladder: Sequence[float]) -> bool:
        """Whether the waits were these, each give or take a quarter."""
        pairs = list(zip(self.seconds, ladder, strict=False))
        return len(self.seconds) == len(ladder) and all(0.75 * middle <= waited <= 1.25 * middle for waited, middle in pairs)


@dataclass(frozen=True)
class Row:
    """One failure: what the API does, the error it becomes, and the seconds before each further attempt (give or take a quarter)."""

    name: str
    script: Any
    error: type[ct.ClaudeTransportError]
    code: str
    category: str
    ladder: tuple[float, ...] = ()

    def check(self, error: ct.ClaudeTransportError, *, transport: str) -> None:
        """`error` is the one of this row, told by this path, with what there was of the call."""
        assert type(error) is self.error
        assert (error.code, error.category) == (self.code, self.category)
        assert error.retryable is bool(self.ladder)
        assert str(error).endswith(f"(transport={transport}, category={self.category})")
        there = ct.completion.partial_completion(error)
        assert there is not None
        assert (there.transport, there.attempts, there.category) == (transport, 1 + len(self.ladder), self.category)


# "empty content" is not here: it is no failure on either path (tests/e2e/test_complete.py)
ROWS = (
    Row("429", replies.error(429, message=WORDS), ct.RateLimited, "result.rate_limited", "rate_limit", (1, 2, 4)),
    Row("529", replies.error(529, message=WORDS), ct.Overloaded, "result.overloaded", "rate_limit", (1, 2, 4)),
    Row("401", replies.error(401, message=WORDS), ct.AuthFailed, "exec.cli.auth_failed", "auth"),
    Row("403", replies.error(403, message=WORDS), ct.AuthFailed, "exec.cli.auth_failed", "auth"),
    Row("402", replies.error(402), ct.errors.BillingFailed, "result.billing", "auth"),
    Row(
        "400-credit",
        replies.error(400, message="Your credit balance is too low to access the Anthropic API."),
        ct.errors.BillingFailed,
        "result.billing",
        "auth",
    ),
    Row("404", replies.error(404, message=WORDS), ct.errors.ModelNotFound, "result.model_not_found", "api"),
    Row("400", replies.error(400, message=WORDS), ct.errors.APIFailed, "result.invalid_request", "api"),
    Row(
        "400-too-long",
        replies.error(400, message="prompt is too long: 250000 tokens > 200000 maximum"),
        ct.errors.PromptTooLong,
        "result.prompt_too_long",
        "api",
    ),
    Row("413", replies.error(413, message=WORDS), ct.errors.PromptTooLong, "result.prompt_too_long", "api"),
    Row("500", replies.error(500, message=WORDS), ct.errors.APIFailed, "result.server_error", "api", (1,)),
    Row("mid-stream", replies.sse_error("api_error", message=WORDS), ct.errors.APIFailed, "result.server_error", "api", (1,)),
    Row(
        "mid-stream-529", replies.sse_error("overloaded_error", message=WORDS), ct.Overloaded, "result.overloaded", "rate_limit", (1, 2, 4)
    ),
    Row("max-tokens", replies.max_tokens(), ct.errors.APIFailed, "result.max_output_tokens", "api"),
    Row("refusal", replies.refusal(), ct.errors.Refused, "result.refusal", "api"),
)
