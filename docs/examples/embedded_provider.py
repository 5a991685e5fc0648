"""A program that has several providers of answers, one of which is Claude: checked before work begins, never retried twice, typed."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies


class ProviderError(Exception):
    """What the host knows of a failure: a word for programs, and whether to come back later."""

    def __init__(self, error: ct.ClaudeTransportError) -> None:
        super().__init__(str(error))
        self.kind = error.category
        self.come_back = error.retryable


class ClaudeProvider:
    """The host's own shape of a provider, in terms of `complete`. `declared` is what the project's configuration says."""

    def __init__(self, options: ct.ClaudeOptions, *, declared: dict[str, str]) -> None:
        self.options = options
        self.declared = declared

    def check(self) -> str:
        """Which way an answer would take, before anything is spent; raises for what cannot work."""
        report = ct.preflight(declared=self.declared, env={}, options=self.options).raise_for_problem()
        return f"{report.cell.kind}, paid by the {report.payer}"

    async def ask(self, question: str, *, subject: str) -> str:
        """The answer; `subject` stands beside every log line and error of this call."""
        try:
            answer = await ct.complete(
                question,
                declared=self.declared,
                options=self.options,
                subject=subject,
                timeout=60,
                retry=ct.RetryPolicy.none(),  # the host tries again by its own rules: two ladders multiply
            )
        except ct.ClaudeTransportError as error:
            raise ProviderError(error) from error
        return answer.text


async def main() -> None:
    async with FakeMessagesAPI(["Forty-two.", replies.error(529)]) as api:
        provider = ClaudeProvider(ct.ClaudeOptions(env=api.environment()), declared={"transport": "api"})
        print(provider.check())
        print(await provider.ask("How many?", subject="question 1"))
        try:
            await provider.ask("How many?", subject="question 2")
        except ProviderError as failure:
            print(f"{failure.kind}, come back: {failure.come_back}")


if __name__ == "__main__":
    anyio.run(main)
