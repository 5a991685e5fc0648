"""A gateway, a client of it, and a cable between them that is cut in the middle of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream, SocketAttribute

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps

TOKEN = "a-token-made-by-secrets.token_urlsafe"


class Cable:
    """Carries connections to a port of this machine, until they are cut."""

    def __init__(self, port: int) -> None:
        self.port, self.url, self.connections, self.live = port, "", 0, anyio.CancelScope()

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            listener = await stack.enter_async_context(await anyio.create_tcp_listener(local_host="127.0.0.1"))
            self.url = f"tcp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(listener.serve, self.carry)
            yield
            tasks.cancel_scope.cancel()

    async def carry(self, client: ByteStream) -> None:
        self.connections += 1
        with anyio.CancelScope() as self.live:
            async with client, await anyio.connect_tcp("127.0.0.1", self.port) as server, anyio.create_task_group() as tasks:
                tasks.start_soon(self.pour, client, server)
                tasks.start_soon(self.pour, server, client)

    async def pour(self, source: ByteStream, target: ByteStream) -> None:
        with suppress(anyio.BrokenResourceError):  # one side is gone
            async for data in source:
                await target.send(data)
            await target.send_eof()

    def cut(self) -> None:
        self.live.cancel()


async def main() -> None:
    answer = [steps.Text("I begin."), steps.WaitForFile("cut"), steps.Text("I was not interrupted."), steps.Result()]
    with FakeClaude(Scenario.turns([answer, "And here I still am."])) as fake:
        options = ct.ClaudeOptions(cli_path=fake.path)
        async with ct.Gateway(options, listen=["tcp://127.0.0.1:0"], tokens={"alice": TOKEN}) as gateway:
            cable = Cable(urlsplit(gateway.urls[0]).port or 0)
            async with cable.laid(), ct.Query(ct.NetworkTransport(cable.url, token=TOKEN)) as query:
                async for message in await query.send("Tell me a story."):
                    if isinstance(message, ct.AssistantMessage):
                        print(message.text)
                        cable.cut()
                        fake.open_gate("cut")
                print((await (await query.send("Are you there?")).result()).result)
                print("sessions:", len(gateway.sessions), "- more than one connection:", cable.connections > 1)


if __name__ == "__main__":
    anyio.run(main)
