"""An opener of a few lines, for a claude that listens on a TCP port and first asks for a password."""

from __future__ import annotations

import json

import anyio
from anyio.abc import ByteStream, ByteStreamConnectable, SocketAttribute, SocketStream

import claude_transport as ct


class PasswordOpener(ByteStreamConnectable):
    """Dials, says the password, and hands over the stream once the other side has agreed."""

    def __init__(self, port: int, password: str) -> None:
        self._port = port
        self._password = password

    async def connect(self) -> ByteStream:
        stream = await anyio.connect_tcp("127.0.0.1", self._port)  # an OSError becomes a CLIConnectionError by itself
        try:
            await stream.send(self._password.encode() + b"\n")
            agreed = await stream.receive(1) == b"+"
        except BaseException:  # a cancellation too: a failed attempt leaves nothing open
            await anyio.aclose_forcefully(stream)
            raise
        if agreed:
            return stream
        await stream.aclose()
        raise ct.AuthenticationError("the other side does not know this password")


async def remote_claude(stream: SocketStream) -> None:
    """The other side, rehearsed: it agrees, answers the handshake, and repeats what it is told."""
    async with stream:
        password, _, rest = (await stream.receive()).partition(b"\n")
        await stream.send(b"+" if password == b"open sesame" else b"-")
        if password != b"open sesame":
            return
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                for answer in answers(json.loads(line)):
                    await stream.send(json.dumps(answer).encode() + b"\n")


def answers(message: dict) -> list[dict]:
    if message["type"] == "control_request":
        return [{"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"], "response": {}}}]
    said = "You said: " + message["message"]["content"]
    return [{"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": said}]


async def main() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, remote_claude)

        async with ct.Query(ct.StreamTransport(PasswordOpener(port, "open sesame"))) as query:
            turn = await query.send("Hello")
            print((await turn.result()).result)

        try:
            async with ct.StreamTransport(PasswordOpener(port, "please")):
                print("never printed")
        except ct.AuthenticationError as error:
            print(error.code, "-", error)

        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
