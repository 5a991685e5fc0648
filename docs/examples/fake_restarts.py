"""A program whose CLI crashes, and that goes on with the session in another one."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario


async def ask(fake: FakeClaude, prompt: str, *, resume: str | None = None) -> None:
    options = ct.ClaudeOptions(cli_path=fake.path, resume=resume)
    async with ct.Query(ct.SubprocessTransport(options)) as query:
        print("said:", (await (await query.send(prompt)).result()).result)


async def main() -> None:
    session = "11111111-1111-4111-8111-111111111111"
    with FakeClaude([Scenario.crash(exit_code=3, stderr="out of memory"), Scenario.text("Here again.")]) as fake:
        try:
            await ask(fake, "Go")
        except ct.ProcessError as error:
            print("crashed:", error.exit_code, error.stderr_tail)
        await ask(fake, "Go on", resume=session)
        print([call.option("--resume") == session for call in fake.calls()])


if __name__ == "__main__":
    anyio.run(main)
