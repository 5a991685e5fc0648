"""Plain mode is lines of JSON and nothing else: the bare socket module is a client, and so is `nc`."""

from __future__ import annotations

import json
import socket

import anyio
from anyio.abc import SocketAttribute, SocketStream


def converse(port: int) -> None:
    """What `nc 127.0.0.1 PORT` would do with these two lines typed into it."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("r") as answers:
        for line in (
            {"type": "authenticate", "token": "open sesame"},
            {"type": "user", "message": {"role": "user", "content": "Hello"}},
        ):
            connection.sendall(json.dumps(line).encode() + b"\n")
        connection.shutdown(socket.SHUT_WR)  # nothing more to say; the answer still comes
        for line in answers:
            print(json.loads(line)["result"])


async def serve(connection: SocketStream) -> None:
    """The server, rehearsed: it wants the token first, and repeats what it is told."""
    lines = b"".join([chunk async for chunk in connection]).splitlines()
    hello, prompt = map(json.loads, lines)
    said = prompt["message"]["content"] if hello == {"type": "authenticate", "token": "open sesame"} else "nothing to a stranger"
    await connection.send(json.dumps({"type": "result", "result": f"You said: {said}"}).encode() + b"\n")
    await connection.aclose()


async def main() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        await anyio.to_thread.run_sync(converse, listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
