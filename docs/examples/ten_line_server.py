"""A server of ten lines: it starts a claude for each connection, and copies bytes in both directions. `socat` can do the same."""

from __future__ import annotations

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream, SocketAttribute

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

CLAUDE = ["claude", "--print", "--verbose", "--input-format=stream-json", "--output-format=stream-json"]


async def serve(connection: ByteStream, command: list[str]) -> None:
    async with connection, await anyio.open_process(command, stderr=None) as claude, anyio.create_task_group() as tasks:
        assert claude.stdin is not None
        assert claude.stdout is not None
        tasks.start_soon(copy, connection, claude.stdin)
        await copy(claude.stdout, connection)


async def copy(source: ByteReceiveStream, target: ByteSendStream) -> None:
    async for chunk in source:
        await target.send(chunk)
    await (target.send_eof() if isinstance(target, ByteStream) else target.aclose())  # the end of input is the end of input, there too


async def main() -> None:
    with FakeClaude(Scenario.simulated(pace=0)) as fake:  # CLAUDE, where there is one
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, lambda connection: serve(connection, fake.command))
            port = listener.extra(SocketAttribute.local_port)

            transport = ct.NetworkTransport(f"tcp://127.0.0.1:{port}", resume=False)
            async with ct.Query(transport) as query:
                turn = await query.send("Hello")
                print((await turn.result()).result)
            print(transport.info.kind, transport.info.address == f"tcp://127.0.0.1:{port}")

            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
