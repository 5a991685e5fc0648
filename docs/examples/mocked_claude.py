"""Testing code that talks to Claude: hand it a mock, then look at what came back and at what was sent."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import result


async def summarise(text: str, *, transport: ct.Transport) -> str:
    """The code under test: it takes its transport from outside."""
    async with ct.Query(transport) as query:
        turn = await query.send(f"Summarise in one sentence: {text}")
        answer = await turn.result()
        answer.raise_for_error()
        return answer.result or ""


async def main() -> None:
    good = ct.MockTransport([result("All is well.")])
    print(await summarise("a long report", transport=good))
    prompts = [message["message"]["content"] for message in good.written if message["type"] == "user"]
    print(prompts)

    limited = ct.MockTransport([result("Rate limited", is_error=True, api_error_status=429)])
    try:
        await summarise("a long report", transport=limited)
    except ct.RateLimited as error:
        print(error.code, "- worth another try:", error.retryable)


if __name__ == "__main__":
    anyio.run(main)
