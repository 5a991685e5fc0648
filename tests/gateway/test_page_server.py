"""The listener for pages alone: what it answers, what it does not wait for, and that one bad request ends no other."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest
from virtual_time import jumping

from claude_transport.errors import ConfigurationError
from claude_transport.serving.door import Door, GatewayLimits, GatewayTokens
from claude_transport.serving.page_server import PageServer
from claude_transport.serving.pages import Hosts, Pages
from claude_transport.streams.address import Address

SMALL = GatewayLimits(first_line_bytes=1000, handshake_timeout=5.0)


def page_server(*, port: int = 0, state: Callable[[], str] = lambda: "ok") -> PageServer:
    pages = Pages(hosts=Hosts(), state=state, text=lambda: "text\n")
    door = Door(tokens=GatewayTokens(), limits=SMALL)
    return PageServer(Address(scheme="http", host="127.0.0.1", port=port), pages=pages, door=door, limits=SMALL)


def port_of(server: PageServer) -> int:
    (url,) = server.urls
    assert url.startswith("http://127.0.0.1:")
    return int(url.rpartition(":")[2])


async def answer_of(server: PageServer, request: bytes) -> bytes:
    """Send a request, and return what the server says until it hangs up."""
    async with await anyio.connect_tcp("127.0.0.1", port_of(server)) as stream:
        await stream.send(request)
        return await rest(stream)


async def rest(stream: anyio.abc.ByteStream) -> bytes:
    answer = b""
    with anyio.fail_after(30):
        try:
            while True:
                answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return answer


def request(path: str = "/healthz", *, filler: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Filler: {filler}\r\n\r\n".encode()


@asynccontextmanager
async def answering(server: PageServer) -> AsyncIterator[PageServer]:
    with anyio.fail_after(300):
        async with server.serving():
            yield server


async def test_pages_are_answered_until_the_end_and_no_other_path_is() -> None:
    server = page_server()
    assert server.urls == ()
    async with answering(server):
        port = port_of(server)
        assert (await answer_of(server, request())).endswith(b'\r\n\r\n{"status":"ok"}\n')
        assert (await answer_of(server, request("/metrics"))).endswith(b"\r\n\r\ntext\n")
        missing = await answer_of(server, request("/"))
        assert missing.startswith(b"HTTP/1.1 404 ")
        assert missing.endswith(b"\r\n\r\nThere is nothing here.\n")
    assert server.urls == ()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_a_request_that_is_longer_than_a_greeting_may_be_gets_no_page() -> None:
    async with answering(page_server()) as server:
        assert (await answer_of(server, request(filler="x" * 800))).startswith(b"HTTP/1.1 200 ")
        assert (await answer_of(server, request(filler="x" * 1000))).startswith(b"HTTP/1.1 431 ")


@jumping(idle=0.05)
async def test_a_client_that_says_nothing_is_hung_up_on() -> None:
    async with answering(page_server()) as server:
        began = anyio.current_time()
        async with await anyio.connect_tcp("127.0.0.1", port_of(server)) as silent:
            assert await rest(silent) == b""
        assert anyio.current_time() - began == pytest.approx(5.0, abs=1.0)


async def test_a_fault_behind_one_request_is_logged_and_the_next_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    words = ["out of order", "ok"]

    def state() -> str:
        if (word := words.pop(0)) != "ok":
            raise LookupError(word)
        return word

    async with answering(page_server(state=state)) as server:
        assert b'"status"' not in await answer_of(server, request())
        assert (await answer_of(server, request())).startswith(b"HTTP/1.1 200 ")
    (record,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert record.getMessage().startswith("answering a request from 127.0.0.1:")
    assert record.exc_info is not None
    assert record.exc_info[0] is LookupError


@pytest.mark.parametrize("said", [b"", b"GET /healthz", b"nonsense\r\n\r\n"], ids=["nothing", "half", "nonsense"])
async def test_what_is_no_request_is_no_error_of_the_server(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport.serving.page_server")
    async with answering(page_server()) as server:
        async with await anyio.connect_tcp("127.0.0.1", port_of(server)) as stream:
            if said:
                await stream.send(said)
            await stream.send_eof()
            assert not (await rest(stream)).startswith(b"HTTP/1.1 200 ")
        assert (await answer_of(server, request())).startswith(b"HTTP/1.1 200 ")
    messages = [record.getMessage() for record in caplog.records if record.name == "claude_transport.serving.page_server"]
    assert [text for text in messages if " was not answered (" in text] != []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_address_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="cannot listen on http://127"):
        async with page_server(port=taken.getsockname()[1]).serving():
            pass
