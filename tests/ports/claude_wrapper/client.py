"""`ClaudeClient` of claude-wrapper over claude_transport: the same methods and exceptions, without a subprocess of its own."""

import shutil
from collections.abc import AsyncIterator
from typing import Any

import claude_transport as ct

from .exceptions import ClaudeAuthError, ClaudeExecutionError, ClaudeNotFoundError, ClaudeTimeoutError, ClaudeWrapperError


class ClaudeClient:
    """Asks the Claude CLI."""

    def __init__(self, claude_path: str = "claude", timeout: float = 120.0, retry_attempts: int = 3) -> None:
        self.claude_path = claude_path
        self.timeout = timeout
        self.retry_attempts = retry_attempts

    async def check_auth(self) -> bool:
        """Return True when the CLI is installed and logged in."""
        try:
            report = ct.preflight("cli", options=self._options)
        except ct.ClaudeTransportError as exc:
            raise self._translated(exc) from exc
        if report.problem:
            raise ClaudeAuthError(report.problem)
        return True

    async def chat(self, message: str) -> str:
        """Return the answer to a message."""
        try:
            answer = await ct.complete(message, transport="cli", options=self._options, timeout=self.timeout, retry=self._retry)
        except ct.ClaudeTransportError as exc:
            raise self._translated(exc) from exc
        return answer.text.strip()

    async def stream_chat(self, message: str) -> AsyncIterator[str]:
        """Yield the answer to a message as the model writes it."""
        try:
            async with ct.stream(message, transport="cli", options=self._options, timeout=self.timeout, retry=self._retry) as deltas:
                async for delta in deltas:
                    yield delta
        except ct.ClaudeTransportError as exc:
            raise self._translated(exc) from exc

    async def complete(
        self,
        prompt: str,
        _max_tokens: int | None = None,
        _temperature: float | None = None,
        _stop_sequences: list[str] | None = None,
    ) -> str:
        """Return the answer to a prompt. The CLI has no equivalent of the other parameters."""
        return await self.chat(prompt)

    async def count_tokens(self, text: str) -> dict[str, Any]:
        """Return an estimate: four characters are a token."""
        return {"tokens": len(text) // 4, "characters": len(text), "note": "This is an approximation"}

    @property
    def _options(self) -> ct.ClaudeOptions:
        found = shutil.which(self.claude_path)
        if found is None:
            raise ClaudeNotFoundError(self.claude_path)
        return ct.ClaudeOptions(cli_path=found)

    @property
    def _retry(self) -> ct.RetryPolicy:
        more = self.retry_attempts - 1
        return ct.RetryPolicy(rate_limit=more, overloaded=more, api=more, transport=more, connection=more)

    def _translated(self, error: ct.ClaudeTransportError) -> ClaudeWrapperError:
        if isinstance(error, ct.AuthFailed | ct.AuthenticationError):
            return ClaudeAuthError(str(error))
        if error.category == "timeout":
            return ClaudeTimeoutError(f"Claude command timed out after {self.timeout}s")
        return ClaudeExecutionError(f"Claude command failed: {error}")
