"""The package `websockets` as a foreign peer: its own server and its own client, each in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteStream, SocketAttribute
from websocket_peers import receive_all
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response

from claude_transport.errors import AuthenticationError, ConnectionLost
from claude_transport.streams.websocket import HandshakeRequest, HTTPAnswer, WebSocketConnectable, WebSocketStream, accept_websocket

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def foreign_server(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """Run a server of `websockets` inside the block, and give its URL."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    started, stop = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with serve(handler, "127.0.0.1", 0, **options) as server:
            ports.append(next(iter(server.sockets)).getsockname()[1])
            started.set()
            await stop.wait()

    def main() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=main)
    thread.start()
    try:
        await anyio.to_thread.run_sync(started.wait)
        yield f"ws://127.0.0.1:{ports[0]}/talk"
    finally:
        loop.call_soon_threadsafe(stop.set)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(thread.join)


@asynccontextmanager
async def our_server(handler: Callable[[WebSocketStream], Awaitable[None]], **options: Any) -> AsyncIterator[str]:
    """Run a server of this library inside the block, and give its URL."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:

        async def attend(wire: ByteStream) -> None:
            stream = await accept_websocket(wire, **options)
            if stream is not None:
                async with stream:
                    await handler(stream)

        tasks.start_soon(listener.serve, attend)
        yield f"ws://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/talk"
        tasks.cancel_scope.cancel()


async def echo(connection: ServerConnection) -> None:
    """A usual server: every message holds lines, and an empty one is the end."""
    async for message in connection:
        if not message:
            break
        for line in message.splitlines():
            await connection.send(line)
    await connection.send("")


@pytest.mark.parametrize("compression", [False, True])
async def test_a_client_of_ours_and_a_foreign_server_understand_each_other(compression: bool) -> None:
    lines = [b'{"n":%d,"s":"\xe2\x82\xac"}\n' % n for n in range(500)] + [b"x" * 3_000_000 + b"\n"]
    async with foreign_server(echo, max_size=2**23) as url:
        stream = await WebSocketConnectable(url, compression=compression).connect()
        async with stream, anyio.create_task_group() as tasks:

            async def speak() -> None:
                await stream.send(b"".join(lines[:200]))
                for line in lines[200:]:
                    await stream.send(line)
                await stream.send_eof()

            tasks.start_soon(speak)
            assert await receive_all(stream) == b"".join(lines)


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_a_foreign_client_and_a_server_of_ours_understand_each_other(compression: Any) -> None:
    lines = [f'{{"n":{n},"s":"€"}}' for n in range(500)] + ["x" * 3_000_000]

    async def echo_bytes(stream: WebSocketStream) -> None:
        async for chunk in stream:
            await stream.send(chunk)
        await stream.send_eof()

    async def converse() -> str:
        async with connect(url, compression=compression, max_size=2**23) as connection:
            for line in lines[:250]:
                await connection.send(line)
            await connection.send(iter([lines[250][:5], lines[250][5:]]))
            for line in lines[251:]:
                await connection.send(line.encode() + b"\n")
            await connection.send("")
            said = ""
            while message := await connection.recv(decode=True):
                said += str(message)
            return said

    async with our_server(echo_bytes, compression=compression is not None) as url:
        said = await anyio.to_thread.run_sync(lambda: asyncio.run(converse()))
    assert said == "".join(f"{line}\n" for line in lines)


async def test_a_foreign_server_may_refuse_and_may_leave_with_a_reason() -> None:
    def check(connection: ServerConnection, request: Request) -> Response | None:
        is_right = request.headers.get("Authorization") == "Bearer open-sesame"
        return None if is_right else connection.respond(401, "who are you?\n")

    async def leave(connection: ServerConnection) -> None:
        await connection.send("bye")
        await connection.close(1012, "new version")

    async with foreign_server(leave, process_request=check) as url:
        with pytest.raises(AuthenticationError, match="HTTP 401: who are you"):
            await WebSocketConnectable(url, token="wrong").connect()
        async with await WebSocketConnectable(url, token="open-sesame").connect() as stream:
            assert await stream.receive() == b"bye\n"
            with pytest.raises(ConnectionLost, match="1012, 'new version'") as caught:
                await stream.receive()
            assert caught.value.retryable


async def test_a_foreign_client_is_refused_with_the_status_that_was_chosen() -> None:
    async def nobody(stream: WebSocketStream) -> None:
        raise AssertionError("nobody was admitted")

    def admit(request: HandshakeRequest) -> HTTPAnswer | None:
        return None if request.bearer_token == "right" else HTTPAnswer(status=401, text="no")

    async def ask(**options: Any) -> str:
        try:
            async with connect(url, **options):
                return "connected"
        except InvalidStatus as exc:
            return str(exc)

    async with our_server(nobody, admit=admit) as url:
        headers = {"Authorization": "Bearer right"}
        answers = [
            await anyio.to_thread.run_sync(lambda options=options: asyncio.run(ask(**options)))
            for options in ({}, {"additional_headers": headers, "origin": "https://evil.example"})
        ]
    assert [answer.rpartition(" ")[2] for answer in answers] == ["401", "403"]


async def test_a_foreign_server_that_pings_is_answered() -> None:
    async def ping(connection: ServerConnection) -> None:
        answered = await connection.ping()
        await answered
        await connection.send("answered")

    async with foreign_server(ping) as url, await WebSocketConnectable(url).connect() as stream:
        assert await receive_all(stream) == b"answered\n"
