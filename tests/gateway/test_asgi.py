"""The gateway as an ASGI application: driven by hand, event by event, and served by a real server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.asgi import GatewayApplication
from claude_transport.gateway.gateway import Gateway
from claude_transport.streams.address import StreamAttribute
from claude_transport.testing import FakeClaude, Scenario

TOKEN = "alice-has-a-token-0123456789"
BEARER = [(b"authorization", b"Bearer " + TOKEN.encode())]


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[GatewayApplication]:
    """An application around a gateway of simulated Claudes."""
    with FakeClaude(Scenario.simulated(pace=0)) as fake:
        async with Gateway(command=fake.command, tokens={"alice": TOKEN}, **options) as gateway:
            yield GatewayApplication(gateway)


class Events:
    """Events in order, on their way from one end to the other."""

    def __init__(self) -> None:
        self.waiting: list[MutableMapping[str, Any]] = []
        self._news = anyio.Event()

    async def put(self, event: MutableMapping[str, Any]) -> None:
        self.put_now(event)

    def put_now(self, event: MutableMapping[str, Any]) -> None:
        self.waiting.append(event)
        news, self._news = self._news, anyio.Event()
        news.set()

    async def get(self) -> MutableMapping[str, Any]:
        while not self.waiting:
            await self._news.wait()
        return self.waiting.pop(0)


class Server:
    """The ASGI server's side of one connection."""

    def __init__(self, kind: str = "websocket", **scope: Any) -> None:
        self.scope = {"type": kind, "path": "/", "headers": [], **scope}
        self._told = Events()
        self._said = Events()

    def tell(self, kind: str, **event: Any) -> Self:
        self._told.put_now({"type": kind, **event})
        return self

    async def next_told(self) -> MutableMapping[str, Any]:
        return await self._told.get()

    async def hear(self) -> MutableMapping[str, Any]:
        with anyio.fail_after(30):
            return await self._said.get()

    async def run(self, application: GatewayApplication) -> None:
        await application(self.scope, self._told.get, self._said.put)

    async def answers(self, application: GatewayApplication) -> list[MutableMapping[str, Any]]:
        """Return all events of a connection that ends by itself."""
        with anyio.fail_after(30):
            await self.run(application)
        return self._said.waiting


async def test_a_prompt_in_a_message_is_answered_in_messages_and_the_end_follows_the_end() -> None:
    async with served() as application, anyio.create_task_group() as tasks:
        server = Server(headers=BEARER, client=("127.0.0.1", 5)).tell("websocket.connect")
        tasks.start_soon(server.run, application)
        assert await server.hear() == {"type": "websocket.accept"}
        prompt = json.dumps({"type": "user", "message": {"role": "user", "content": "Hello"}})
        server.tell("websocket.receive", text=prompt).tell("websocket.receive", text="")
        said = ""
        while (event := await server.hear()).get("text"):
            said += event["text"]
        assert "result" in [json.loads(line)["type"] for line in said.splitlines()]
        assert event["type"] == "websocket.send"
        assert (await server.hear())["type"] == "websocket.close"


async def test_a_message_that_is_larger_than_what_is_read_at_a_time_arrives_once() -> None:
    async with served() as application, anyio.create_task_group() as tasks:
        server = Server(headers=BEARER).tell("websocket.connect")
        tasks.start_soon(server.run, application)
        await server.hear()
        prompt = json.dumps({"type": "user", "message": {"role": "user", "content": "Hello " * 30_000}})
        server.tell("websocket.receive", text=f"{prompt}\n").tell("websocket.receive", text="")
        while (await server.hear()).get("text"):
            pass
        assert application.gateway.metrics.bytes["in"] == len(prompt) + 1


async def test_a_message_that_is_read_in_pieces_is_not_copied_for_each_piece() -> None:
    message, received, most = b"x" * 2**23, 0, 0

    class Reader(Gateway):
        async def attend(self, arrival: Arrival) -> None:
            nonlocal received, most
            received = len(await arrival.stream.receive(2**19))
            tracemalloc.start()
            try:
                while received < len(message):
                    received += len(await arrival.stream.receive(2**19))
                    most = max(most, tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
            assert await arrival.stream.receive() == b"more\n"

    server = Server(headers=BEARER).tell("websocket.connect").tell("websocket.receive", bytes=message)
    await server.tell("websocket.receive", text="more").run(GatewayApplication(Reader(tokens={"alice": TOKEN})))
    assert received == len(message)
    assert most < 2**21


@pytest.mark.parametrize("how", ["bytes", "leaves"])
async def test_a_client_that_leaves_ends_its_session(how: str) -> None:
    async with served() as application, anyio.create_task_group() as tasks:
        server = Server(headers=BEARER).tell("websocket.connect")
        tasks.start_soon(server.run, application)
        await server.hear()
        server.tell("websocket.receive", bytes=b'{"type":"keep_alive"}\n')
        server.tell("websocket.disconnect", code=1006 if how == "leaves" else 1000)
    assert application.gateway.sessions == ()


async def test_a_connection_whose_client_has_left_is_broken_and_says_so() -> None:
    seen: list[Any] = []

    class Reception(Gateway):
        async def attend(self, arrival: Arrival) -> None:
            seen.append(arrival.stream.extra(StreamAttribute.ended))
            for _ in range(2):
                with pytest.raises(anyio.BrokenResourceError, match="the client is gone") as broken:
                    await arrival.stream.send(b"word\n")
                seen.append(type(broken.value.__cause__))
            seen.append(arrival.stream.extra(StreamAttribute.ended))

    async def send(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "websocket.send":
            raise OSError("closed")

    server = Server(headers=BEARER).tell("websocket.connect")
    await GatewayApplication(Reception(tokens={"alice": TOKEN}))(server.scope, server.next_told, send)
    assert seen == [False, OSError, type(None), True]


@pytest.mark.parametrize(("code", "end"), [(1000, anyio.EndOfStream), (1006, anyio.BrokenResourceError)])
async def test_a_connection_whose_client_says_that_it_leaves_has_ended(code: int, end: type[Exception]) -> None:
    seen: list[Any] = []

    class Reception(Gateway):
        async def attend(self, arrival: Arrival) -> None:
            for _ in range(2):
                with pytest.raises(end):
                    await arrival.stream.receive()
                seen.append(arrival.stream.extra(StreamAttribute.ended))
            with pytest.raises(anyio.BrokenResourceError, match="the client is gone"):
                await arrival.stream.send(b"word\n")

    server = Server(headers=BEARER).tell("websocket.connect").tell("websocket.disconnect", code=code)
    await server.run(GatewayApplication(Reception(tokens={"alice": TOKEN})))
    assert seen == [True, True]


async def test_what_cannot_be_sent_to_a_client_that_has_left_is_no_fault_of_the_gateway(caplog: pytest.LogCaptureFixture) -> None:
    class Leaving(Server):
        async def send(self, event: MutableMapping[str, Any]) -> None:
            if event["type"] == "websocket.send":
                raise OSError("the client is gone")
            await self._said.put(event)

        async def run(self, application: GatewayApplication) -> None:
            await application(self.scope, self._told.get, self.send)

    async with served() as application:
        server = (
            Leaving(headers=BEARER)
            .tell("websocket.connect")
            .tell("websocket.receive", bytes=json.dumps({"type": "user", "message": {"role": "user", "content": "Hello"}}).encode() + b"\n")
        )
        with anyio.fail_after(30):
            await server.run(application)
        assert application.gateway.metrics.ended == {"client": 1}
        assert application.gateway.metrics.refused == {}
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
async def test_a_page_of_another_origin_is_refused_before_the_connection_is_open(extensions: Any) -> None:
    async with served() as application:
        server = Server(headers=[*BEARER, (b"origin", b"https://evil.example")], extensions=extensions).tell("websocket.connect")
        first, *_ = await server.answers(application)
        assert first.get("status", first.get("code")) == (403 if extensions else 1008)


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
async def test_a_wrong_token_is_refused_before_the_connection_is_open(extensions: Any) -> None:
    async with served() as application:
        headers = [(b"authorization", b"Bearer wrong-wrong-wrong-wrong")]
        first, *_ = await Server(headers=headers, extensions=extensions).tell("websocket.connect").answers(application)
        assert first.get("status", first.get("code")) == (401 if extensions else 1008)
        assert application.gateway.metrics.refused == {"auth": 1}


@pytest.mark.parametrize("headers", [[(b"authorization", b"Bearer wrong-wrong-wrong-wrong")]])
async def test_a_stranger_gets_no_process(headers: Any) -> None:
    async with served() as application:
        events = await Server(headers=headers).tell("websocket.connect").answers(application)
        assert events[-1]["type"] == "websocket.close"
        assert application.gateway.metrics.refused == {"auth": 1}


async def test_a_gateway_without_tokens_is_not_handed_to_a_server_by_accident() -> None:
    async with Gateway(command=["true"]) as gateway:
        with pytest.raises(ct.ConfigurationError, match="tokens"):
            GatewayApplication(gateway)
        assert GatewayApplication(gateway, allow_anyone=True).gateway is gateway
        assert not gateway.needs_token


async def test_a_gateway_with_tokens_needs_no_permission_to_be_handed_to_a_server() -> None:
    async with Gateway(command=["true"], tokens={"alice": "alice-has-a-token-0123456789"}) as gateway:
        assert GatewayApplication(gateway).gateway is gateway
        assert gateway.needs_token


@pytest.mark.parametrize(
    ("path", "root", "status"), [("/healthz", "", 200), ("/api/healthz", "/api", 200), ("/metrics", "", 401), ("/x", "", 404)]
)
async def test_plain_http_gets_the_health_page_and_nothing_else(path: str, root: str, status: int) -> None:
    async with served() as application:
        start, body = await Server("http", path=path, root_path=root).answers(application)
        assert start["status"] == status
        assert body["body"]


async def test_the_end_of_the_server_is_the_end_of_the_gateway() -> None:
    async with served() as application:
        server = Server("lifespan").tell("lifespan.startup").tell("lifespan.shutdown")
        assert [event["type"] for event in await server.answers(application)] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        with anyio.fail_after(30):
            await application.gateway.wait_closed()


async def test_what_asgi_does_not_know_is_refused() -> None:
    async with served() as application:
        with pytest.raises(ct.errors.UsageError):
            await application({"type": "smtp"}, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("resume", [True, False])
async def test_a_real_server_carries_a_conversation(resume: bool) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"ws://127.0.0.1:{listening.getsockname()[1]}/claude"
    servers: list[Any] = []
    ready = threading.Event()

    async def main() -> None:
        async with served() as application:
            config = uvicorn.Config(application, ws="websockets-sansio", log_level="error", lifespan="off")
            servers.append(uvicorn.Server(config))
            ready.set()
            await servers[0].serve(sockets=[listening])

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        await anyio.to_thread.run_sync(ready.wait)
        with anyio.fail_after(30):
            async with ct.Query(ct.NetworkTransport(url, token=TOKEN, resume=resume)) as query:
                turn = await query.send("Hello")
                assert "Hello" in ((await turn.result()).result or "")
    finally:
        with anyio.CancelScope(shield=True):
            servers[0].should_exit = True
            await anyio.to_thread.run_sync(thread.join)
        listening.close()
