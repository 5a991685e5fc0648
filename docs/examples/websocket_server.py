"""A WebSocket server whose owner sees every request first: who has the token gets a claude, everybody else an answer of HTTP."""

from __future__ import annotations

import hmac

import anyio
from anyio.abc import ByteStream, SocketAttribute

import claude_transport as ct
from claude_transport.streams.websocket import HandshakeRequest, HTTPAnswer, accept_websocket
from claude_transport.testing import FakeClaude, Scenario

TOKEN = "open-sesame"


def admit(request: HandshakeRequest) -> HTTPAnswer | None:
    if request.path == "/healthz":
        return HTTPAnswer(status=200, text="well\n")
    if not hmac.compare_digest(request.bearer_token or "", TOKEN):
        return HTTPAnswer(status=401, text="who are you?", headers={"WWW-Authenticate": "Bearer"})
    return None  # be connected


async def serve(wire: ByteStream, command: list[str]) -> None:
    stream = await accept_websocket(wire, admit=admit)
    if stream is None:
        return  # it was answered by plain HTTP
    async with stream, ct.SubprocessTransport(command=command) as claude, anyio.create_task_group() as tasks:

        async def to_claude() -> None:
            async for chunk in stream:
                await claude.write(chunk)  # this client sends whole lines
            await claude.end_input()

        tasks.start_soon(to_claude)
        async for lines in claude.read_lines():
            await stream.send(b"".join(line + b"\n" for line in lines))
        await stream.send_eof()


async def main() -> None:
    with FakeClaude(Scenario.simulated(pace=0)) as fake:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, lambda wire: serve(wire, fake.command))
            url = f"ws://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/claude"

            async with ct.Query(ct.NetworkTransport(url, token=TOKEN, resume=False)) as query:
                turn = await query.send("Hello")
                print((await turn.result()).result)

            try:
                async with ct.NetworkTransport(url, token="please", resume=False):
                    print("never printed")
            except ct.AuthenticationError as error:
                print(error.code, "-", str(error).partition("refused ")[2])

            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
