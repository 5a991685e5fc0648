"""One prompt, one answer, on both paths: a fake `claude` and a fake Messages API stand in for the real ones."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, FakeMessagesAPI, Scenario, replies


async def main() -> None:
    usage = replies.Usage(input_tokens=12, output_tokens=7)
    async with FakeMessagesAPI(replies.text("A layer between.", usage=usage, times=None)) as api:
        with FakeClaude(Scenario.text("A layer between.")) as fake:
            # where a real program has its login, its key and its PATH, this one has fakes of them
            options = ct.ClaudeOptions(cli_path=fake.path, env=api.environment())
            for path in ("cli", "api"):
                answer = await ct.complete("What is a transport?", transport=path, model="opus", options=options)
                print(f"{answer.transport}: {answer.text} ({answer.usage.output_tokens} tokens, ${answer.cost_usd:.6f})")
                print(f"  {answer.raw_message.content}")

            chosen = await ct.complete("What is a transport?", options=options, declared={"transport": "api"})
            print(f"{chosen.transport}: {chosen.resolution.reason}, and {chosen.billing_source} pays")

            async with ct.stream("What is a transport?", transport="api", options=options) as pieces:
                async for piece in pieces:
                    print(piece, end="", flush=True)
            print(f" [{pieces.completion.stop_reason}]")


if __name__ == "__main__":
    anyio.run(main)
