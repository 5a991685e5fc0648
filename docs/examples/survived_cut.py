"""Cuts a connection in the middle of a conversation. No line is lost or repeated."""

from __future__ import annotations

import anyio

from claude_transport import ConnectionLost, StreamTransport
from claude_transport.link.carrier import LinkConnectable
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.testing.conformance.socket_peer import LinkPeer


async def main() -> None:
    network = MemoryConnectable()  # SocketConnectable, TLSConnectable or WebSocketConnectable, for a real one
    link = LinkConnectable(network, token="not-in-the-address")
    async with LinkPeer().listening(network.accept) as far_claude, StreamTransport(link) as transport:
        messages = transport.read_messages()

        await transport.write('{"type":"keep_alive"}')
        await far_claude.send(b'{"type":"system","n":1}\n')
        print(await anext(messages))

        far_claude.cut()
        await far_claude.send(b'{"type":"system","n":2}\n')  # while there is no connection
        print(await anext(messages))
        print("connections:", len(far_claude.hellos))

        await far_claude.stop_reading()
        await transport.write('{"type":"keep_alive"}')
        await far_claude.finish()  # an exit code of 0, and yet
        try:
            await anext(messages)
        except ConnectionLost as exc:
            print(exc)


if __name__ == "__main__":
    anyio.run(main)
