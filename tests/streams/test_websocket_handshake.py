"""The WebSocket handshake: what each end sends and refuses, and its limits of time and size."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from websocket_peers import PATIENCE, URL, Given, both_ends, client_and_frames
from websockets.frames import Opcode

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ProtocolError,
)
from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.streams.websocket import HandshakeRequest, HTTPAnswer, WebSocketConnectable, WebSocketStream, accept_websocket

REQUEST = (
    b"GET /talk HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)


async def answered(answer: bytes, *, then_hangs_up: bool = True, **options: Any) -> Exception:
    """Return the error of a client that gets `answer` to its request."""
    here, there = memory_stream_pair(capacity=10_000_000)
    await there.send(answer)
    if then_hangs_up:
        await there.send_eof()
    with anyio.fail_after(PATIENCE):
        with pytest.raises(CLIConnectionError) as caught:
            await WebSocketConnectable(URL, opener=Given(here), **options).connect()
        await everything(there)  # after the request, nothing is left open
    return caught.value


async def asked(request: bytes, *, then_hangs_up: bool = True, **options: Any) -> tuple[WebSocketStream | None, bytes]:
    """Return the result of a server that gets `request`, and its answer."""
    here, there = memory_stream_pair()
    await there.send(request)
    if then_hangs_up:
        await there.send_eof()
    with anyio.fail_after(PATIENCE):
        stream = await accept_websocket(here, **options)
        return stream, await there.receive()


async def everything(wire: MemoryStream) -> bytes:
    said = b""
    try:
        with anyio.fail_after(PATIENCE):
            while True:
                said += await wire.receive()
    except anyio.EndOfStream:
        return said


# The client.


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (401, AuthenticationError, "connect.auth_failed", False),
        (403, AuthenticationError, "connect.forbidden", False),
        (404, CLIConnectionError, "connect.http_404", False),
        (301, CLIConnectionError, "connect.http_301", False),
        (200, CLIConnectionError, "connect.http_200", False),
        (429, CLIConnectionError, "connect.http_429", True),
        (502, CLIConnectionError, "connect.http_502", True),
        (503, CLIConnectionError, "connect.http_503", True),
    ],
)
@pytest.mark.parametrize("measured", [True, False])
async def test_a_refusal_is_told_with_its_status_and_its_text(
    status: int, kind: type[Exception], code: str, retryable: bool, measured: bool
) -> None:
    length = b"Content-Length: 13\r\n" if measured else b""
    error = await answered(b"HTTP/1.1 %d Because\r\n%s\r\nnot \x1b[today\r\n" % (status, length), then_hangs_up=not measured)
    assert type(error) is kind
    assert isinstance(error, CLIConnectionError)
    assert (error.code, error.retryable) == (code, retryable)
    assert str(error) == f"ws://claude.example:80/talk: refused with HTTP {status}: not  [today"


@pytest.mark.parametrize("before", [0, 180, 186, 192, 198])  # the last 200 characters are shown
async def test_a_refusal_that_repeats_the_token_shows_no_part_of_it(before: int) -> None:
    token, other = "violet-Harbour-1729", "amber-Jetty-3114"
    said = b"." * before + f" {token} {other} {'.' * 300}".encode()
    answer = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    error = await answered(answer, token=token, headers={"x-proxy-token": other})
    assert isinstance(error, AuthenticationError)
    shown = f"{error} {error.reason} {error.__cause__}"
    assert [part for part in (token[:5], token[-5:], other[:5], other[-5:]) if part in shown] == []
    assert f"refused with HTTP 401: {'.' * before}" in str(error)


@pytest.mark.parametrize("is_token", [True, False])
async def test_no_end_of_a_secret_is_shown_that_begins_like_another_one(is_token: bool) -> None:
    short, long = "violet-Harbour", "violet-Harbour-seventeen"
    token, other = (short, long) if is_token else (long, short)
    said = f"no {long}".encode()
    answer = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    error = await answered(answer, token=token, headers={"x-proxy-token": other})
    assert "seventeen" not in str(error)


@pytest.mark.parametrize("header", [b"Upgrade: %b", b"Upgrade: websocket\r\nSec-WebSocket-Accept: %b"])
async def test_a_server_that_repeats_the_token_in_a_header_has_no_part_of_it_shown(header: bytes) -> None:
    token = "violet-Harbour-1729"
    error = await answered(b"HTTP/1.1 101 Fine\r\nConnection: Upgrade\r\n%b\r\n\r\n" % (header % token.encode()), token=token)
    assert isinstance(error, CLIConnectionError)
    assert error.code == "connect.not_websocket"
    assert token[:6] not in f"{error} {error.reason} {error.__cause__!r}"


async def test_a_refusal_shows_no_key_that_somebody_else_has_given() -> None:
    error = await answered(b"HTTP/1.1 401 No\r\nContent-Length: 36\r\n\r\nbad key sk-ant-api03-abcdefghijklmnop")
    assert str(error).startswith("ws://claude.example:80/talk: refused with HTTP 401: bad key ")
    assert "sk-ant" not in str(error)


@pytest.mark.parametrize("code", [1008, 1009])
async def test_a_farewell_that_repeats_the_token_shows_no_part_of_it(code: int) -> None:
    token = "violet-Harbour-1729"
    async with client_and_frames(token=token) as (client, peer):
        await peer.say(Opcode.CLOSE, code.to_bytes(2, "big") + f"no {token}, nor sk-ant-api03-abcdefghijklmnop".encode())
        with pytest.raises(ClaudeTransportError, match=f"with {code}, 'no ") as caught:
            await client.receive()
    assert [part for part in (token[:6], "sk-ant") if part in str(caught.value)] == []


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.9\r\n\r\n", b"HTTP/1.1 101 Fine\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000]
)
async def test_what_is_no_websocket_server_is_not_tried_again(answer: bytes) -> None:
    error = await answered(answer)
    assert isinstance(error, CLIConnectionError)
    assert not error.retryable


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    error = await answered(b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 2_000_000, then_hangs_up=False)
    assert "more than 65536 bytes" in str(error)


async def test_a_server_that_hangs_up_may_be_asked_again() -> None:
    error = await answered(b"HTTP/1.1 101 Sw")
    assert isinstance(error, CLIConnectionError)
    assert (error.code, error.retryable) == ("connect.hung_up", True)


async def test_a_connection_that_breaks_during_the_handshake_may_be_tried_again() -> None:
    here, there = memory_stream_pair()
    there.break_connection()
    with pytest.raises(CLIConnectionError) as caught:
        await WebSocketConnectable(URL, opener=Given(here)).connect()
    assert caught.value.retryable


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    error = await answered(b"", then_hangs_up=False, handshake_timeout=0.01)
    assert isinstance(error, ConnectTimeout)
    assert error.waited == 0.01


async def test_a_cancelled_attempt_leaves_nothing_open() -> None:
    here, there = memory_stream_pair()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(WebSocketConnectable(URL, opener=Given(here)).connect)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert (await everything(there)).startswith(b"GET /talk HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("url", "options", "option"),
    [
        ("http://host/", {}, "url"),
        ("tcp://host:1", {}, "url"),
        ("ws://", {}, "url"),
        ("ws://user:geheim@host/", {}, "url"),
        ("ws://host/?access_token=geheim", {}, "url"),
        ("ws://host/", {"token": "geheim\r\nX-Admin: 1"}, "token"),
        ("ws://host/", {"token": ""}, "token"),
        ("ws://host/", {"headers": {"X-A": "1\r\nX-B: 2"}}, "headers"),
        ("ws://host/", {"headers": {"X A": "1"}}, "headers"),
        ("ws://host/", {"headers": {"Host": "other"}}, "headers"),
        ("ws://host/", {"token": "geheim", "headers": {"authorization": "Basic x"}}, "headers"),
        ("ws://host/", {"ssl_context": object()}, "ssl_context"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_is_opened(url: str, options: Any, option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WebSocketConnectable(url, **options)
    assert caught.value.option == option
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("end", ["client", "server"])
async def test_without_the_extra_the_error_says_what_to_install(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("websockets.uri", "websockets.server"):
        monkeypatch.setitem(sys.modules, module, None)
    here, there = memory_stream_pair()
    with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[ws\]'"):
        await (WebSocketConnectable(URL, opener=Given(here)).connect() if end == "client" else accept_websocket(here))
    await here.aclose()
    assert await everything(there) == b""


# The server.


async def test_the_server_sees_path_headers_and_token_and_neither_end_logs_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[HandshakeRequest] = []
    here, there = memory_stream_pair()
    connectable = WebSocketConnectable("ws://host/a?b=c", token="geheim", headers={"X-Team": "blue"}, opener=Given(here))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: accept_websocket(there, admit=seen.append))
        client = await connectable.connect()
        await client.send(b"geheim\n")
        await anyio.aclose_forcefully(client)
    await there.aclose()
    (request,) = seen
    assert (request.path, request.bearer_token, request.headers["x-team"], request.origin) == ("/a?b=c", "geheim", "blue", None)
    assert repr(request) == "HandshakeRequest(path='/a')"
    assert "geheim" not in caplog.text + repr(connectable)


@pytest.mark.parametrize("header", ["Basic geheim", "geheim", "Bearer ", "Bearer"])
def test_only_a_bearer_token_is_a_token(header: str) -> None:
    assert HandshakeRequest(path="/", headers={"authorization": header}).bearer_token is None


@pytest.mark.parametrize("status", [200, 401, 404, 503])
async def test_the_owner_may_answer_with_plain_http_instead(status: int) -> None:
    def admit(request: HandshakeRequest) -> HTTPAnswer | None:
        return HTTPAnswer(status=status, text='{"ok":1}', headers={"content-type": "application/json", "x-more": "1"})

    stream, said = await asked(REQUEST + b"\r\n", admit=admit)
    assert stream is None
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert head.lower().count(b"content-type: application/json") == head.lower().count(b"content-type") == 1
    assert b"x-more: 1" in head
    assert body == b'{"ok":1}'


async def test_a_plain_request_for_a_page_is_answered_too() -> None:
    def admit(request: HandshakeRequest) -> HTTPAnswer | None:
        return HTTPAnswer(status=200, text="well") if request.path == "/healthz" else None

    assert b"200 OK" in (await asked(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", admit=admit))[1]
    stream, said = await asked(b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", admit=admit)
    assert stream is None
    assert said.startswith(b"HTTP/1.1 426 ")


@pytest.mark.parametrize("bytes_at_once", [1, 7, 4096])
async def test_a_request_with_another_method_is_shown_to_the_owner_with_its_headers_and_may_have_a_body(bytes_at_once: int) -> None:
    def admit(request: HandshakeRequest) -> HTTPAnswer | None:
        seen.append(request)
        return HTTPAnswer(status=200, text="well") if request.method == "HEAD" else None

    said = b" /page?a=1 HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nX-one:2\r\nContent-Length: 5\r\n\r\n"
    for method, status in ((b"HEAD", 200), (b"POST", 405), (b"get", 405)):
        seen: list[HandshakeRequest] = []
        here, there = memory_stream_pair()
        request = method + said + b"hello"
        for start in range(0, len(request), bytes_at_once):
            await there.send(request[start : start + bytes_at_once])
        await there.send_eof()
        with anyio.fail_after(PATIENCE):
            assert await accept_websocket(here, admit=admit) is None
        head, _, body = (await everything(there)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert (b"allow: GET" in head, body) == ((True, b"A WebSocket is opened with GET.\n") if status == 405 else (False, b""))
        ((told,),) = [seen]
        assert (told.method, told.path, told.headers["x-one"], told.headers["host"]) == (method.decode(), "/page?a=1", "1, 2", "x")


@pytest.mark.parametrize(
    ("origin", "allowed", "status"),
    [
        (b"", (), 101),
        (b"Origin: https://evil.example\r\n", (), 403),
        (b"Origin: null\r\n", (), 403),
        (b"Origin: https://good.example\r\n", ("https://good.example",), 101),
        (b"Origin: https://good.example.evil.example\r\n", ("https://good.example",), 403),
        (b"Origin: https://good.example\r\nOrigin: https://evil.example\r\n", ("https://good.example",), 403),
        (b"Origin: https://evil.example\r\n", None, 101),
    ],
)
async def test_a_web_page_may_connect_only_from_an_origin_that_is_allowed(origin: bytes, allowed: Any, status: int) -> None:
    asked_for: list[HandshakeRequest] = []
    stream, said = await asked(REQUEST + origin + b"\r\n", allowed_origins=allowed, admit=asked_for.append)
    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert bool(asked_for) is (stream is not None) is (status == 101)
    if stream is not None:
        await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("more", [b"X-Pad: %s\r\n" % (b"x" * 3000), b"X: y\r\n" * 600], ids=["long", "many"])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_a_request_over_the_limit_is_answered_so(method: bytes, more: bytes) -> None:
    here, there = memory_stream_pair()
    await there.send(REQUEST.replace(b"GET", method, 1) + more + b"\r\n")
    await there.send_eof()
    with pytest.raises(ProtocolError):
        await accept_websocket(here, max_request_bytes=2000)
    assert (await everything(there)).startswith(b"HTTP/1.1 431 ")


async def test_a_request_has_at_most_16_kibibytes_when_nobody_says_how_many_it_may_have() -> None:
    here, there = memory_stream_pair()
    await there.send(REQUEST + b"".join(b"X-Pad-%d: %b\r\n" % (number, b"x" * 5500) for number in range(3)) + b"\r\n")
    await there.send_eof()
    with pytest.raises(ProtocolError, match="more than 16384 bytes"):
        await accept_websocket(here)
    assert (await everything(there)).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("said", [b"\x16\x03\x01\x02\x00\x01\x00\n\n", b'{"type":"user"}\n\n', b"GET\r\n\r\n"])
async def test_what_is_no_request_is_a_protocol_error_and_not_waited_for(said: bytes) -> None:
    here, there = memory_stream_pair()
    await there.send(said)
    await there.send_eof()
    with pytest.raises(ProtocolError, match="no request"):
        await accept_websocket(here)
    await everything(there)


async def test_a_refused_client_may_still_send_for_a_moment_and_need_not_hang_up() -> None:
    here, there = memory_stream_pair()
    ends: list[object] = []

    async def accept() -> None:
        ends.append(await accept_websocket(here, handshake_timeout=PATIENCE))

    with anyio.fail_after(PATIENCE / 2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            await there.send(REQUEST + b"Origin: https://evil.example\r\n\r\n")
            assert (await everything(there)).startswith(b"HTTP/1.1 403 ")
            await anyio.wait_all_tasks_blocked()
            await there.send(b"what was on its way")
    assert ends == [None]
    with pytest.raises(anyio.BrokenResourceError):
        await there.send(b"more")


@pytest.mark.parametrize("said", [b"", b"GET /ta", REQUEST])
async def test_a_client_that_takes_its_time_is_hung_up_on(said: bytes) -> None:
    here, there = memory_stream_pair()
    if said:
        await there.send(said)
    with pytest.raises(ConnectTimeout):
        await accept_websocket(here, handshake_timeout=0.01)
    assert await everything(there) == b""


@pytest.mark.parametrize("leave", [MemoryStream.break_connection, None])
async def test_a_client_that_leaves_before_it_has_asked_is_lost(leave: Callable[[MemoryStream], None] | None) -> None:
    here, there = memory_stream_pair()
    await there.send(b"GET /ta")
    if leave is not None:
        leave(there)
    else:
        await there.aclose()
    with pytest.raises(ConnectionLost):
        await accept_websocket(here)


async def test_frames_right_behind_the_request_are_not_lost() -> None:
    masked_hello = b"\x81\x85\x00\x00\x00\x00hello"
    stream, _said = await asked(REQUEST + b"\r\n" + masked_hello, then_hangs_up=False)
    assert stream is not None
    with anyio.fail_after(PATIENCE):
        assert await stream.receive() == b"hello\n"
    await anyio.aclose_forcefully(stream)


async def test_an_admitted_client_is_connected() -> None:
    async with both_ends(admit=lambda _request: None) as (client, server):
        await client.send(b"hello\n")
        assert await server.receive() == b"hello\n"
