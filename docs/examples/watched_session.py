"""Two turns of a session, and an observer that comes late and sees both."""

import anyio

import claude_transport as ct
from claude_transport.observing import ObservableTransport, observe
from claude_transport.testing import FakeClaude, Scenario


async def main() -> None:
    with FakeClaude(Scenario.simulated()) as claude:
        transport = ObservableTransport(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=str(claude.path))))
        async with ct.Query(transport) as query:
            await (await query.send("My key is sk-ant-api03-" + "x" * 80)).result()
            watching = observe(transport, session=None)
            await (await query.send("Thank you.")).result()
        async for line in watching:
            message = ct.decode_message(line)
            if isinstance(message, ct.UserMessage) and line.direction == "in":
                print("prompt:", message.text)
            elif isinstance(message, ct.ResultMessage):
                print("result:", message.subtype)


if __name__ == "__main__":
    anyio.run(main)
