"""A pool keeps sessions ready: taking one starts nothing, and the next one is started while it is used."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario


async def main() -> None:
    with FakeClaude(Scenario.echo()) as claude:
        options = ct.ClaudeOptions(cli_path=str(claude.path))
        async with ct.SessionPool(options, warm=1, cap=2) as pool:
            await pool.warm_up()  # a service reports that it is ready after this
            for prompt in ("first", "second"):
                async with pool.acquire(timeout=30) as query:
                    turn = await query.send(prompt)
                    print((await turn.result()).result)
            served = pool.snapshot()
            print(served.handed_out, "handed out,", served.retired["used"], "used and ended")
        print(pool.snapshot())
        print("a process for each:", len({call.pid for call in claude.calls() if call.prompts}) == 2)


if __name__ == "__main__":
    anyio.run(main)
