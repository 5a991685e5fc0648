"""One prompt, one answer, in a script without an event loop. A fake `claude` stands in for the real one."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.completion import complete_sync
from claude_transport.testing import FakeClaude, Scenario


async def inside_a_loop() -> None:
    try:
        complete_sync("What is a transport?")
    except ct.UsageError as error:
        print(error.code)


def main() -> None:
    with FakeClaude(Scenario.text("A layer between.")) as fake:
        options = ct.ClaudeOptions(cli_path=fake.path)  # a real script has its claude on the PATH
        answer = complete_sync("What is a transport?", options=options)
        print(answer.text)

    anyio.run(inside_a_loop)


if __name__ == "__main__":
    main()
