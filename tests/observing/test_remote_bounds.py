"""What a gateway may say to its observers, and what is refused."""

from __future__ import annotations

import contextlib
import socket
import struct
from urllib.parse import quote

import anyio
import pytest
from virtual_time import jumping

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConnectionLost,
    ConnectTimeout,
    ProtocolError,
    ReplayGap,
)
from claude_transport.observing import observe
from claude_transport.protocol.observation import ObservedLine
from claude_transport.protocol.server_sent_events import HEARTBEAT, encode_event
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
ROW = b'{"t":0,"dir":"out","line":"{}"}'


async def first_line_of(body: bytes, *, head: bytes = HEAD, token: str | None = None) -> object:
    """Observe a server that says this."""

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(head + body)

    found: object = None
    with anyio.fail_after(30):
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with observe(f"ws://127.0.0.1:{port}", session="a", token=token) as watching:
                try:
                    found = await anext(watching)
                except ClaudeTransportError as exc:
                    found = exc
            tasks.cancel_scope.cancel()
    if isinstance(found, ClaudeTransportError):
        raise found
    return found


@pytest.mark.parametrize("before", [0, 480, 486, 492, 498])  # the first 500 characters are shown
async def test_a_refusal_that_repeats_the_token_shows_no_part_of_it(before: int) -> None:
    token = "violet-Harbour-1729"
    body = f"{'.' * before} {token} {'.' * 300}".encode()
    with pytest.raises(AuthenticationError) as caught:
        await first_line_of(body, head=b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n" % len(body), token=token)
    assert [part for part in (token[:5], token[-5:]) if part in str(caught.value)] == []
    assert f"refused with HTTP 401: {'.' * before}" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (401, AuthenticationError, "connect.auth_failed", False),
        (403, AuthenticationError, "connect.forbidden", False),
        (404, CLIConnectionError, "connect.http_404", False),
        (409, ReplayGap, "protocol.replay_gap", False),
        (429, CLIConnectionError, "connect.http_429", True),
        (503, CLIConnectionError, "connect.http_503", True),
    ],
)
async def test_a_refusal_says_what_it_is_and_whether_to_try_again(
    status: int, kind: type[ClaudeTransportError], code: str, *, retryable: bool
) -> None:
    with pytest.raises(kind) as caught:
        await first_line_of(b"no", head=b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\n" % status)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)


@jumping(idle=0.05)
async def test_a_gateway_that_takes_the_connection_and_does_not_answer_is_given_up() -> None:
    begun = anyio.current_time()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with observe(f"ws://127.0.0.1:{port}", session="a") as watching:
            with anyio.fail_after(3600), pytest.raises(ConnectTimeout):
                await anext(watching)
    assert anyio.current_time() - begun < 2 * DEFAULT_CONNECT_TIMEOUT


async def test_a_refusal_full_of_control_characters_fills_no_log() -> None:
    """Each of them takes four characters to show."""
    with pytest.raises(AuthenticationError) as caught:
        await first_line_of(b"\x1b" * 400, head=b"HTTP/1.1 401 No\r\ncontent-length: 400\r\n\r\n")
    assert str(caught.value).partition("HTTP 401: ")[2] == "\\x1b" * 125


async def test_of_a_refusal_without_an_end_no_more_is_read_than_is_shown() -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await stream.send(b"HTTP/1.1 401 No\r\n\r\n" + b"x" * 100_000)
                await stream.receive()

    with anyio.fail_after(30):
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with observe(f"ws://127.0.0.1:{port}", session="a") as watching:
                with pytest.raises(AuthenticationError, match=r"refused with HTTP 401: x{499}"):
                    await anext(watching)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("position", ["-5", "x", "", "1" * 40, "1_0", "\u0661", "9007199254740993"])
async def test_a_position_that_is_none_is_refused(position: str) -> None:
    with pytest.raises(ProtocolError):
        await first_line_of(encode_event(ROW, id=position))


async def test_a_good_line_after_heartbeats_is_handed_out() -> None:
    line = await first_line_of(HEARTBEAT * 3 + encode_event(ROW, id="7"))
    assert isinstance(line, ObservedLine)
    assert (line, line.position, line.direction) == (b"{}", 7, "out")


@pytest.mark.parametrize("row", [b"[]", b"{", b'{"line":1}', b'{"base64":"?"}', b'{"t":"x"}', b"\xff"])
async def test_a_record_that_is_none_is_refused(row: bytes) -> None:
    with pytest.raises(ProtocolError):
        await first_line_of(encode_event(row, id="1"))


async def test_an_end_without_a_word_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost):
        await first_line_of(HEARTBEAT)


async def test_a_connection_that_breaks_is_a_lost_connection() -> None:
    async def reset(stream: anyio.abc.SocketStream) -> None:
        await stream.receive()
        await stream.send(HEAD)
        await asked.wait()
        stream.extra(anyio.abc.SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()

    asked = anyio.Event()
    with anyio.fail_after(30):
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, reset)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with observe(f"ws://127.0.0.1:{port}", session="a") as watching:
                tasks.start_soon(set_when_blocked, asked)
                with pytest.raises(ConnectionLost, match="the connection broke") as caught:
                    await anext(watching)
                assert (caught.value.code, caught.value.retryable) == ("connection.lost", False)
            tasks.cancel_scope.cancel()


async def set_when_blocked(event: anyio.Event) -> None:
    await anyio.wait_all_tasks_blocked()
    event.set()


async def test_an_observation_that_has_failed_is_over_and_its_connection_closed() -> None:
    connections, hung_up = [], anyio.Event()

    async def answer(stream: anyio.abc.SocketStream) -> None:
        connections.append(stream)
        async with stream:
            await stream.receive()
            await stream.send(HEAD + encode_event(b"[]", id="1"))
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
            hung_up.set()

    with anyio.fail_after(30):
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            watching = observe(f"ws://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}", session="a")
            with pytest.raises(ProtocolError):
                await anext(watching)
            await hung_up.wait()
            with pytest.raises(StopAsyncIteration):
                await anext(watching)
            tasks.cancel_scope.cancel()
    assert len(connections) == 1


@jumping(idle=0.05)
async def test_a_gateway_that_falls_silent_is_given_up() -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(HEAD)
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with observe(f"ws://127.0.0.1:{port}", session="a") as watching:
            with anyio.fail_after(3600), pytest.raises(ConnectionLost, match=r": the gateway has been silent for \d+ s") as caught:
                await anext(watching)
            assert (caught.value.code, caught.value.retryable) == ("connection.lost", False)
        tasks.cancel_scope.cancel()


async def test_a_gateway_that_hangs_up_before_it_answers_is_a_failed_connection() -> None:
    with pytest.raises(CLIConnectionError, match=": the gateway hung up before it answered") as caught:
        await first_line_of(b"", head=b"")
    assert type(caught.value) is CLIConnectionError


async def test_a_path_and_a_host_that_are_not_ascii_are_sent_as_every_client_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []
    port = 0

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            heard.append(await stream.receive())
            await stream.send(HEAD + encode_event(b"", kind="end"))

    async def found(_host: str, port: int, **_options: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with anyio.fail_after(30):
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            monkeypatch.setattr(anyio, "getaddrinfo", found)
            async with observe(f"ws://łódź.example:{port}/łódź/?a=b", session="a") as watching:
                assert [line async for line in watching] == []
            tasks.cancel_scope.cancel()
    asked, host = heard[0].split(b"\r\n")[:2]
    assert asked == f"GET /{quote('łódź')}/observe/a/events HTTP/1.1".encode()
    assert host == b"host: xn--d-uga0v4h.example:%d" % port
