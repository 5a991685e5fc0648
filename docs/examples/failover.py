"""Two places where Claude may run: the first does not answer, and the session goes on elsewhere when the second one is lost."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.wrappers import FailoverTransport


async def main() -> None:
    with FakeClaude(Scenario.turns(["Hello!", [steps.Exit(code=3)]])) as claude:
        options = ct.ClaudeOptions(cli_path=claude.path)

        def far(session_id: str | None) -> ct.Transport:
            return ct.NetworkTransport("tcp://127.0.0.1:9", options=ct.ClaudeOptions(resume=session_id))

        def here(session_id: str | None) -> ct.Transport:
            return ct.SubprocessTransport(options.replace(resume=session_id))

        transport = FailoverTransport([far, here])
        async with ct.Query(transport) as query:
            print((await (await query.send("Hi")).result()).result, "from", transport.info.kind)
            try:
                await (await query.send("Are you there?")).result()
            except ct.ProcessError as error:
                print("exit code:", error.exit_code)

        lost = query.resume_point
        async with ct.Query(await transport.reconnect(session_id=lost.session_id if lost else None)) as query:
            print((await (await query.send("Hi again")).result()).result)


if __name__ == "__main__":
    anyio.run(main)
