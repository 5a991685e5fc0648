"""A server of one resumable session that says back every line it is given. Prints its port; its argument is the address to listen on."""

from __future__ import annotations

import sys

import anyio
from anyio.abc import SocketAttribute

from claude_transport.testing.conformance.socket_peer import LinkPeer


async def main(host: str) -> None:
    peer = LinkPeer(heartbeat=0.3)

    async def echo() -> None:
        try:
            while True:
                await peer.send(await peer.receive_line() + b"\n")
        except anyio.EndOfStream:
            await peer.finish()

    await peer.persist()
    async with await anyio.create_tcp_listener(local_host=host) as listener, anyio.create_task_group() as tasks:
        print(listener.extra(SocketAttribute.local_port), flush=True)
        tasks.start_soon(echo)
        await listener.serve(peer.serve)


anyio.run(main, sys.argv[1])
