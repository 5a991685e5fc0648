"""A process that dies, and the next transport of the same session: made by the same factory, with the same counts."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.transports import options_to_resume


async def main() -> None:
    with FakeClaude(Scenario.turns(["Hello!", [steps.Exit(code=3)]])) as claude:
        options = ct.ClaudeOptions(cli_path=claude.path, session_id="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")
        metrics = ct.wrappers.Metrics()

        def make() -> ct.Transport:
            return ct.MetricsTransport(ct.SubprocessTransport(options_to_resume(options)), metrics=metrics)

        transport = ct.RetryingTransport(make(), make_transport=make)
        async with ct.Query(transport) as query:
            print((await (await query.send("Hi")).result()).result)
            try:
                await (await query.send("Are you there?")).result()
            except ct.ProcessError as error:
                print("exit code:", error.exit_code)

        async with ct.Query(await transport.reconnect()) as query:
            print((await (await query.send("Hi again")).result()).result)
        print("prompts in all:", metrics.snapshot().prompts)


if __name__ == "__main__":
    anyio.run(main)
