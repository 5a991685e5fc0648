"""A Claude somewhere else is spoken to as one of our own, and what cannot be reached is told by type, with the address and no secret."""

from __future__ import annotations

import json
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
from anyio.abc import ByteStream
from children import read_all
from virtual_time import jumping

from claude_transport import NetworkTransport, Query, SubprocessTransport, open_transport
from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    ClaudeTransportWarning,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    NotConnected,
    TransportClosed,
)
from claude_transport.launch.options import ClaudeOptions
from claude_transport.streams.compression import CompressedStream, accept_compression
from claude_transport.streams.sockets import SocketStream
from claude_transport.streams.tls import TLSStream
from claude_transport.streams.websocket import HandshakeRequest, accept_websocket
from claude_transport.testing.conformance.socket_peer import Certificates, LinkPeer, certificates
from claude_transport.transport import Client, Transport
from claude_transport.wrappers.retrying import RetryingTransport

TOKEN = "hunter2-hunter2"


class Claude:
    """Answers the handshake, and repeats what it is told; what it was told is in `heard`."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.compressed = False

    async def attend(self, stream: ByteStream) -> None:
        stream = await accept_compression(stream)
        self.compressed = isinstance(stream, CompressedStream)
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.heard.append(json.loads(line))
                for answer in self.answers(self.heard[-1]):
                    await stream.send(json.dumps(answer).encode() + b"\n")
        await stream.send(b'{"type":"bye"}\n')
        await stream.aclose()

    def answers(self, message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if message["type"] == "control_request":
            yield {"type": "control_response", "response": {"subtype": "success", "request_id": message["request_id"], "response": {}}}
        elif message["type"] == "user":
            yield {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "num_turns": 1,
                "result": "You said: " + message["message"]["content"],
            }


class Server:
    """Listens at `url` for one connection after the other, each attended by `attend`."""

    def __init__(self, *, scheme: str = "tcp", folder: Path | None = None, mutual: bool = False) -> None:
        self._scheme = scheme
        self._mutual = mutual
        self.tokens: list[str | None] = []
        if scheme == "unix" and folder is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(folder / "claude"))
            self.url = f"unix://{folder}/claude"
        else:
            self._listener = socket.socket()
            self._listener.bind(("127.0.0.1", 0))
            self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._listener.listen()
        self._listener.setblocking(False)

    @asynccontextmanager
    async def serving(self, attend: Callable[[ByteStream], Awaitable[None]]) -> AsyncIterator[str]:
        async with anyio.create_task_group() as tasks:

            async def serve_one(bare: SocketStream) -> None:
                async with bare:
                    try:
                        await attend(await self._prepared(bare))
                    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionLost, ssl.SSLError):
                        return

            async def listen() -> None:
                while True:
                    await anyio.wait_readable(self._listener)
                    tasks.start_soon(serve_one, SocketStream(self._listener.accept()[0]))

            tasks.start_soon(listen)
            with anyio.fail_after(30):
                yield self.url
            tasks.cancel_scope.cancel()

    async def _prepared(self, stream: ByteStream) -> ByteStream:
        if self._scheme in {"tls", "wss"}:
            context = certificates().server_context(asks_for_certificate=self._mutual)
            stream = await TLSStream.wrap(stream, ssl_context=context, server_side=True)
        if self._scheme in {"ws", "wss"}:
            accepted = await accept_websocket(stream, admit=self._admit, compression=True)
            assert accepted is not None
            stream = accepted
        return stream

    def _admit(self, request: HandshakeRequest) -> None:
        self.tokens.append(request.bearer_token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@pytest.fixture(params=["tcp", "tls", "unix", "ws", "wss"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(scheme=request.param, folder=tmp_path) as server:
        yield server


@pytest.fixture
def tcp_server() -> Iterator[Server]:
    with Server() as server:
        yield server


def context_for(url: str) -> ssl.SSLContext | None:
    return certificates().client_context() if url.startswith(("tls", "wss")) else None


async def test_a_query_runs_over_every_plain_medium_and_half_close_brings_the_last_words(server: Server) -> None:
    claude = Claude()
    async with server.serving(claude.attend) as url:
        transport = NetworkTransport(url, ssl_context=context_for(url), resume=False)
        async with Query(transport) as query:
            turn = await query.send("Hello")
            assert (await turn.result()).result == "You said: Hello"
            await query.end_input()
            assert [message.type async for message in query.messages()][-1] == "bye"
    assert [message["type"] for message in claude.heard] == ["control_request", "user"]


async def test_what_is_known_of_a_connection_has_its_kind_and_address(server: Server) -> None:
    async with server.serving(Claude().attend) as url:
        transport = NetworkTransport(url, ssl_context=context_for(url), resume=False)
        assert (transport.info.kind, transport.info.address, transport.info.started_at) == ("NetworkTransport", url.rstrip("/"), None)
        async with transport:
            await transport.write('{"type":"x"}')
            assert transport.info.started_at is not None
            assert transport.info.bytes_written == 13


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix"])
async def test_zstd_is_seen_by_the_server_and_answered_in_kind(scheme: str, tmp_path: Path) -> None:
    claude = Claude()
    with Server(scheme=scheme, folder=tmp_path) as server:
        async with server.serving(claude.attend) as url:
            transport = NetworkTransport(url, ssl_context=context_for(url), resume=False, compression="zstd")
            async with Query(transport) as query:
                assert (await (await query.send("Hello")).result()).result == "You said: Hello"
    assert claude.compressed


async def test_mutual_tls_needs_a_certificate_of_ours() -> None:
    with Server(scheme="tls", mutual=True) as server:
        async with server.serving(Claude().attend) as url:
            shown = certificates().client_context(shows_certificate=True)
            async with Query(NetworkTransport(url, ssl_context=shown, resume=False)) as query:
                assert (await (await query.send("Hello")).result()).result == "You said: Hello"
            transport = NetworkTransport(url, ssl_context=certificates().client_context(), resume=False)
            async with transport:
                with pytest.raises(AuthenticationError):
                    await anext(aiter(transport.read_messages()))


# ------------------------------------------------------------------------------------------------------------ who we are


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix"])
async def test_a_token_is_the_first_line_where_there_are_no_headers(scheme: str, tmp_path: Path) -> None:
    claude = Claude()
    with Server(scheme=scheme, folder=tmp_path) as server:
        async with server.serving(claude.attend) as url:
            transport = NetworkTransport(url, token=TOKEN, ssl_context=context_for(url), resume=False)
            async with Query(transport) as query:
                await (await query.send("Hello")).result()
    assert claude.heard[0] == {"type": "authenticate", "token": TOKEN}


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_token_is_a_header_of_a_websocket_and_no_line(scheme: str) -> None:
    claude = Claude()
    with Server(scheme=scheme) as server:
        async with server.serving(claude.attend) as url:
            transport = NetworkTransport(url, token=TOKEN, ssl_context=context_for(url), resume=False)
            async with Query(transport) as query:
                await (await query.send("Hello")).result()
    assert server.tokens == [TOKEN]
    assert claude.heard[0]["type"] == "control_request"


async def test_options_go_with_the_first_line_and_say_what_is_answered_here(server: Server) -> None:
    claude = Claude()
    async with server.serving(claude.attend) as url:
        transport = NetworkTransport(url, ssl_context=context_for(url), resume=False, options={"model": "haiku"})
        terms = transport.attach(Client(answers=frozenset({"hooks", "can_use_tool"})))
        assert terms.structured_output is False
        async with transport:
            await transport.end_input()
            await read_all(transport)
    assert claude.heard == [{"type": "authenticate", "options": {"model": "haiku"}, "answers": ["can_use_tool", "hooks"]}]


async def test_a_bare_claude_is_not_told_what_it_would_not_understand(tcp_server: Server) -> None:
    claude = Claude()
    async with tcp_server.serving(claude.attend) as url:
        transport = NetworkTransport(url, resume=False)
        transport.attach(Client(answers=frozenset({"hooks"}), trace={"traceparent": "00-1-2-01"}))
        async with transport:
            await transport.end_input()
            await read_all(transport)
    assert claude.heard == []


async def test_a_refusal_whose_newline_is_missing_is_no_batch_of_lines(tcp_server: Server) -> None:
    async def refuse(stream: ByteStream) -> None:
        await stream.receive()
        await stream.send(b'{"type":"system","subtype":"refused","error":{"code":"auth"}}')
        await stream.send_eof()
        await stream.receive()

    async with tcp_server.serving(refuse) as url, NetworkTransport(url, token=TOKEN, resume=False) as transport:
        with pytest.raises(AuthenticationError, match=f"{url}: auth"):
            await anext(transport.read_lines())


@pytest.mark.parametrize(
    ("code", "retryable", "kind"),
    [("auth", False, AuthenticationError), ("options", False, ConfigurationError), ("busy", True, CLIConnectionError)],
)
async def test_a_plain_server_that_refuses_is_a_typed_error_with_the_address(
    tcp_server: Server, code: str, retryable: bool, kind: type[ClaudeTransportError]
) -> None:
    async def refuse(stream: ByteStream) -> None:
        await stream.receive()
        error = {"code": code, "message": "not like this", "retryable": retryable}
        await stream.send(json.dumps({"type": "system", "subtype": "refused", "error": error}).encode() + b"\n")
        await stream.send_eof()
        await stream.receive()

    async with tcp_server.serving(refuse) as url, NetworkTransport(url, token=TOKEN, resume=False) as transport:
        for _ in range(2):
            with pytest.raises(kind, match=f"{url}: not like this") as caught:
                await read_all(transport)
            assert type(caught.value) is kind
            assert caught.value.retryable is retryable
        assert not transport.is_ready()
        with pytest.raises(TransportClosed):
            await transport.write("{}")


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_plain_server_that_breaks_off_with_a_refusal_is_a_lost_connection_after_what_it_said(
    tcp_server: Server, at_once: bool
) -> None:
    lines = [b'{"type":"result"}\n', b'{"type":"system","subtype":"refused","error":{"code":"session_bytes","message":"not so much"}}\n']

    async def break_off(stream: ByteStream) -> None:
        for data in [b"".join(lines)] if at_once else lines:
            await stream.send(data)
            await stream.receive()

    async with tcp_server.serving(break_off) as url, NetworkTransport(url, resume=False) as transport:
        messages = transport.read_messages()
        assert await anext(messages) == {"type": "result"}
        if not at_once:
            await transport.write("{}")
        with pytest.raises(ConnectionLost, match=f"{url}: not so much") as caught:
            await anext(messages)
        assert not caught.value.retryable
        assert not transport.is_ready()


@pytest.mark.parametrize(
    "said",
    [
        {"type": "system", "subtype": "refused", "error": "a word"},
        {"type": "system", "subtype": "other", "error": {"code": "refused"}},
        {"type": "refused", "subtype": "refused", "error": {}},
    ],
)
async def test_a_message_that_looks_like_a_refusal_is_a_message(tcp_server: Server, said: dict[str, Any]) -> None:
    async def say(stream: ByteStream) -> None:
        await stream.send(json.dumps(said).encode() + b"\n")
        await stream.send_eof()
        await stream.receive()

    async with tcp_server.serving(say) as url, NetworkTransport(url, resume=False) as transport:
        assert await read_all(transport) == [said]


async def test_a_token_in_the_clear_on_a_network_is_warned_of_once_and_never_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    transport = NetworkTransport("tcp://claude.invalid:1", token=TOKEN, resume=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            with pytest.raises(CLIConnectionError):
                await transport.connect()
    (warning,) = told
    assert (warning.category, warning.filename) == (ClaudeTransportWarning, __file__)
    assert "unencrypted" in str(warning.message)
    assert TOKEN not in str(warning.message)
    assert caplog.text == ""


def test_options_that_no_line_can_hold_are_named_and_no_others() -> None:
    with pytest.raises(ConfigurationError, match=r"options must be names and JSON values.*bad") as caught:
        NetworkTransport("tcp://127.0.0.1:1", options={"good": 1, "bad": object(), "also_bad": {1j}})
    assert "also_bad, bad" in str(caught.value)
    assert "good" not in str(caught.value)


@pytest.mark.parametrize("url", ["tls://claude.invalid:1", "wss://claude.invalid:1", "tcp://127.0.0.1:1", "unix:///nowhere/at/all"])
async def test_a_token_that_nobody_can_read_on_the_way_is_not_warned_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CLIConnectionError):
            await NetworkTransport(url, token=TOKEN, resume=False).connect()


# ---------------------------------------------------------------------------------------------------------- no connection


async def error_of(transport: Transport) -> ClaudeTransportError:
    with pytest.raises(ClaudeTransportError) as caught:
        await transport.connect()
    assert not transport.is_ready()
    assert (transport.info.address or "no address") in str(caught.value)
    assert TOKEN not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix", "ws", "wss"])
async def test_nobody_there_is_a_refusal_with_the_address(scheme: str, resume: bool, tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"unix://{tmp_path}/nobody" if scheme == "unix" else f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
        error = await error_of(NetworkTransport(url, token=TOKEN, ssl_context=context_for(url), resume=resume))
    assert isinstance(error, CLIConnectionError)
    assert (error.code, error.retryable) == ("connect.refused", True)


async def test_an_attempt_may_be_made_again_and_succeed_and_reconnecting_makes_another(tmp_path: Path) -> None:
    def make() -> NetworkTransport:
        return NetworkTransport(f"unix://{tmp_path}/claude", resume=False, options={"model": "haiku"})

    transport = RetryingTransport(make(), make_transport=make, attempts=1)
    await error_of(transport)
    with Server(scheme="unix", folder=tmp_path) as server:
        async with server.serving(Claude().attend):
            await transport.connect()
            another = await transport.reconnect()
            assert (transport.is_ready(), another.is_ready()) == (False, True)
            await another.close()


@pytest.mark.parametrize("scheme", ["tls", "wss"])
async def test_a_server_that_cannot_be_trusted_is_told_by_its_code(scheme: str) -> None:
    with Server(scheme=scheme) as server:
        async with server.serving(Claude().attend) as url:
            error = await error_of(NetworkTransport(url, ssl_context=Certificates().client_context(), resume=False))
    assert (error.code, error.retryable) == ("connect.tls_untrusted", False)


async def test_tls_to_a_server_that_speaks_none_is_told_so(tcp_server: Server) -> None:
    async def babble(stream: ByteStream) -> None:
        await stream.receive()
        await stream.send(b'{"type":"system"}\n')

    async with tcp_server.serving(babble) as url:
        error = await error_of(NetworkTransport(url.replace("tcp", "tls"), ssl_context=certificates().client_context(), resume=False))
    assert (error.code, error.retryable) == ("connect.tls_failed", False)


async def test_a_silent_server_is_a_timeout(tcp_server: Server) -> None:
    async def say_nothing(stream: ByteStream) -> None:
        await stream.receive()
        await anyio.sleep_forever()

    async with tcp_server.serving(say_nothing) as url:
        tls = url.replace("tcp", "tls")
        context = certificates().client_context()
        error = await error_of(NetworkTransport(tls, ssl_context=context, resume=False, connect_timeout=0.05))
    assert isinstance(error, ConnectTimeout)
    assert error.waited == 0.05


async def test_a_host_that_is_looked_up_for_too_long_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_args: object, **_kwargs: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(anyio, "getaddrinfo", never)
    with anyio.fail_after(30):
        error = await error_of(NetworkTransport("tcp://slow.example:1", resume=False, connect_timeout=0.05))
    assert isinstance(error, ConnectTimeout)
    assert error.waited == 0.05


LARGE: dict[str, Any] = {"append_system_prompt": "x" * 2**23}  # more than the buffers of a connection take


async def test_a_server_that_hangs_up_while_it_is_told_the_options_is_a_connection_error(tcp_server: Server) -> None:
    async def hang_up(stream: ByteStream) -> None:
        await stream.receive()
        await stream.aclose()  # unread bytes make it a reset

    async with tcp_server.serving(hang_up) as url:
        error = await error_of(NetworkTransport(url, token=TOKEN, resume=False, options=LARGE))
    assert type(error) is CLIConnectionError
    assert error.args == (f"{url}: the server hung up before it received the token",)
    assert (error.code, error.retryable) == ("connect.failed", True)
    assert error.reason in ("Broken pipe", "Connection reset by peer")  # the system decides


async def test_a_connect_that_is_given_up_while_it_tells_the_options_leaves_no_connection(tcp_server: Server) -> None:
    told, given_up, over = anyio.Event(), anyio.Event(), anyio.Event()

    async def read_late(stream: ByteStream) -> None:
        await stream.receive()
        told.set()
        await given_up.wait()
        try:
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            over.set()

    async with tcp_server.serving(read_late) as url:
        transport = NetworkTransport(url, token=TOKEN, resume=False, options=LARGE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.connect)
            await told.wait()
            tasks.cancel_scope.cancel()
        assert not transport.is_ready()
        given_up.set()
        await over.wait()


async def test_nothing_can_be_said_before_connecting() -> None:
    with pytest.raises(NotConnected):
        await NetworkTransport("tcp://127.0.0.1:1", resume=False).write("{}")


@pytest.mark.parametrize(
    ("url", "arguments", "option"),
    [
        ("http://claude.example", {}, "url"),
        ("tcp://127.0.0.1:0", {}, "url"),
        ("tcp://claude.example:1", {"ssl_context": ssl.create_default_context()}, "ssl_context"),
        ("ws://claude.example", {"ssl_context": ssl.create_default_context()}, "ssl_context"),
        ("ws://claude.example", {"compression": "zstd"}, "compression"),
        ("tls://claude.example:1", {"compression": "deflate"}, "compression"),
        ("tcp://claude.example:1", {"token": " "}, "token"),
        ("wss://claude.example", {"token": "två ord"}, "token"),
        ("tcp://claude.example:1", {"resume": False, "heartbeat": 5.0}, "heartbeat"),
        ("tcp://claude.example:1", {"heartbeat": 0.0}, "heartbeat"),
        ("tcp://claude.example:1", {"resume": False, "reconnect_timeout": 5.0}, "reconnect_timeout"),
        ("tcp://claude.example:1", {"reconnect_timeout": -1.0}, "reconnect_timeout"),
        ("tcp://claude.example:1", {"reconnect_timeout": "5"}, "reconnect_timeout"),
        ("tcp://claude.example:1", {"options": {"model": object()}}, "options"),
        ("tcp://claude.example:1", {"options": {"session_store": object()}}, "session_store"),
    ],
)
def test_what_does_not_go_together_is_a_configuration_error_that_names_it(url: str, arguments: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        NetworkTransport(url, **arguments)
    assert caught.value.option == option


# ---------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("make", [NetworkTransport, open_transport])
async def test_a_line_over_the_limit_of_the_caller_is_left_out_and_counted(tcp_server: Server, make: Any) -> None:
    async def say(stream: ByteStream) -> None:
        await stream.send(b'{"type":"%s"}\n{"type":"short"}\n' % (b"x" * 100))
        await stream.send_eof()
        await stream.receive()

    async with tcp_server.serving(say) as url, make(url, resume=False, max_line_bytes=50) as transport:
        assert await read_all(transport) == [{"type": "short"}]
        assert (transport.info.lines_read, transport.info.oversized_lines) == (2, 1)


@jumping(idle=0.05)
async def test_a_remote_process_that_does_not_end_is_closed_after_the_time_of_the_caller(tcp_server: Server) -> None:
    peer = LinkPeer()
    await peer.persist()
    async with tcp_server.serving(peer.serve) as url:
        transport = NetworkTransport(url, close_timeout=3.0)
        await transport.connect()
        begun = anyio.current_time()
        await transport.close()
        assert anyio.current_time() - begun == pytest.approx(3.0)


@jumping(idle=0.05)
async def test_a_websocket_that_does_not_say_goodbye_is_closed_after_the_time_of_the_caller() -> None:
    async def stay(_stream: ByteStream) -> None:
        await anyio.sleep_forever()

    with Server(scheme="ws") as server:
        async with server.serving(stay) as url:
            transport = NetworkTransport(url, resume=False, close_timeout=0.25)
            await transport.connect()
            begun = anyio.current_time()
            await transport.close()
            assert anyio.current_time() - begun == pytest.approx(0.25)


# ------------------------------------------------------------------------------------------------------------- resumable


async def test_a_resumable_transport_tells_the_gateway_who_we_are_what_we_want_and_what_is_answered_here(server: Server) -> None:
    peer = LinkPeer()
    async with server.serving(peer.serve) as url:
        transport = NetworkTransport(url, token=TOKEN, ssl_context=context_for(url), options={"output_format": {"type": "json_schema"}})
        terms = transport.attach(Client(answers=frozenset({"hooks"}), trace={"traceparent": "00-1-2-01"}))
        assert terms.structured_output is True
        async with transport:
            await transport.write('{"type":"question"}')
            assert await peer.receive_line() == b'{"type":"question"}'
            await peer.send(b'{"type":"answer"}\n')
            assert await anext(aiter(transport.read_messages())) == {"type": "answer"}
            await transport.end_input()
            await peer.finish()
            assert await read_all(transport) == []
            assert transport.info.exit_code == 0
    (hello,) = peer.hellos
    assert (hello.token, hello.trace) == (TOKEN, {"traceparent": "00-1-2-01"})
    assert hello.options == {"output_format": {"type": "json_schema"}, "answers": ["hooks"]}


async def test_a_claude_behind_a_gateway_cannot_refuse_in_its_name(tcp_server: Server) -> None:
    """A gateway has frames of its own for that. What looks like a refusal in its lines is a message of the program."""
    peer, said = LinkPeer(), {"type": "system", "subtype": "refused", "error": {"code": "auth", "message": "no"}}
    async with tcp_server.serving(peer.serve) as url, NetworkTransport(url) as transport:
        await transport.write('{"type":"question"}')
        await peer.receive_line()
        await peer.send(json.dumps(said).encode() + b"\n")
        assert await anext(aiter(transport.read_messages())) == said
        await transport.end_input()
        await peer.finish()
        assert await read_all(transport) == []


async def test_reconnecting_tells_the_gateway_the_same_again(tcp_server: Server) -> None:
    peers = [LinkPeer(), LinkPeer()]
    left = iter(peers)

    async def attend(stream: ByteStream) -> None:
        await next(left).serve(stream)

    async with tcp_server.serving(attend) as url:
        transport = RetryingTransport(NetworkTransport(url, close_timeout=0.2), make_transport=lambda: NetworkTransport(url))
        transport.attach(Client(answers=frozenset({"hooks"}), trace={"traceparent": "00-1-2-01"}))
        await transport.connect()
        another = await transport.reconnect()
        await another.close()
    assert [(peer.hellos[0].options, peer.hellos[0].trace) for peer in peers] == [
        ({"answers": ["hooks"]}, {"traceparent": "00-1-2-01"})
    ] * 2


@pytest.mark.parametrize("make", [NetworkTransport, open_transport])
async def test_a_gateway_that_does_not_come_back_is_waited_for_as_long_as_the_caller_says(tcp_server: Server, make: Any) -> None:
    peer = LinkPeer(lease=3600)
    with anyio.fail_after(30):
        async with tcp_server.serving(peer.serve) as url:
            transport = make(url, reconnect_timeout=0.05)
            await transport.connect()
        with pytest.raises(ConnectionLost, match=r"could not be made again within 0\.05 s"):
            await read_all(transport)
        await transport.close()


# --------------------------------------------------------------------------------------------------------- by what is given


def test_a_url_opens_a_network_transport_and_options_a_process() -> None:
    remote = open_transport("tls://claude.example:7777", token=TOKEN, resume=False)
    assert isinstance(remote, NetworkTransport)
    assert remote.info.address == "tls://claude.example:7777"
    options = ClaudeOptions(model="haiku")
    local = open_transport(options)
    assert isinstance(local, SubprocessTransport)
    assert local.options is options
    assert isinstance(open_transport(), SubprocessTransport)


@pytest.mark.parametrize("arguments", [{"token": TOKEN}, {"ssl_context": ssl.create_default_context()}, {"reconnect_timeout": 5.0}])
def test_who_we_are_is_not_for_a_process_of_our_own(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_transport(ClaudeOptions(), **arguments)
    assert caught.value.option == next(iter(arguments))


def test_a_fleet_has_times_of_its_own() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_transport("redis://claude.example", reconnect_timeout=5.0)
    assert caught.value.option == "reconnect_timeout"


def test_what_is_no_url_is_said_to_be_none() -> None:
    with pytest.raises(ConfigurationError, match="begins with a scheme"):
        open_transport("claude.example")
