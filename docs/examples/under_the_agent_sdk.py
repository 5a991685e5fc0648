"""The official client over a transport of this library, with the official errors. The simulated Claude stands in for the real one."""

from __future__ import annotations

import anyio
import claude_agent_sdk as sdk

import claude_transport as ct
from claude_transport.interop.agent_sdk import adapt
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps


async def main() -> None:
    fails = ScriptedTurn((steps.Text("I begin."), steps.Result(subtype="error_during_execution", is_error=True, errors=["it broke"])))
    with FakeClaude(Scenario(replies=[fails])) as fake:
        metered = ct.MetricsTransport(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path)))
        try:
            async for message in sdk.query(prompt="Hello", transport=adapt(metered)):
                print(type(message).__name__)
        except sdk.ResultError as error:
            print(error.subtype, error.exit_code)
        print(dict(metered.metrics.snapshot().results))


if __name__ == "__main__":
    anyio.run(main)
