"""A call that fails: what it raises, what is tried again, what there was of it, and the other path in place of a broken one."""

from __future__ import annotations

import random

import anyio

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies


async def no_time(seconds: float) -> None:
    """Waits without time passing; leave `sleep=` out, and time passes."""
    print(f"  again in {seconds:.1f} s")


async def main() -> None:
    patience = ct.RetryPolicy(rate_limit=2, backoff=ct.backoff.Backoff(random=random.Random(7)))
    async with FakeMessagesAPI() as api:
        options = ct.ClaudeOptions(cli_path="/nowhere/claude", env=api.environment())

        api.replace([replies.error(429, times=1), replies.error(429, headers={"retry-after": "5"}, times=1), "After all."])
        answer = await ct.complete("Hello", transport="api", options=options, retry=patience, sleep=no_time)
        print(f"{answer.text} ({answer.attempts} attempts)")

        api.replace(replies.max_tokens("It goes on and on and"))
        try:
            await ct.complete("Hello", transport="api", options=options, max_tokens=8)
        except ct.ClaudeTransportError as error:
            there = ct.completion.partial_completion(error)
            print(f"{type(error).__name__} {error.code}: {error}")
            if there is not None and there.usage is not None:
                print(f"  it cost {there.usage.output_tokens} tokens, and no text of it counts: {there.text!r}")

        api.replace("From the API.")
        try:
            await ct.complete("Hello", transport="cli", options=options)
        except ct.CLINotFoundError as error:
            print(f"{type(error).__name__} {error.code}")
        answer = await ct.complete("Hello", transport="cli", options=options, fallback=True)
        print(f"{answer.text} ({answer.warnings[0]})")


if __name__ == "__main__":
    anyio.run(main)
