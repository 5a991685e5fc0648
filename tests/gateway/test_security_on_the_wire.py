"""Attacks over real sockets: refused and bounded, without a secret in the log, and without effect on another session."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from polling import a_moment
from rehearsal import ALICE, BOB, TOKENS
from relay import Cut, relay_to
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.uri import parse_uri

import claude_transport as ct
from claude_transport.streams.compression import load_zstd
from claude_transport.testing.conformance.socket_peer import certificates

PATIENCE = 60.0
SECRET = "what-the-bystander-talks-about"
WRONG = "a-token-that-is-nobodys-at-all"
MEGABYTE = 2**20
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nAuthorization: Bearer %b\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
) % ALICE.encode()


class Siege:
    """A gateway under attack, and Bob, who talks to an echo behind it during the attack."""

    def __init__(self, gateway: ct.Gateway, bystander: ct.NetworkTransport) -> None:
        self.gateway = gateway
        self._bystander = bystander
        self._echoes = bystander.read_messages()
        self._said = 0

    def url(self, scheme: str) -> str:
        return next(url for url in self.gateway.urls if url.startswith(f"{scheme}://"))

    async def connect(self, scheme: str) -> anyio.abc.SocketStream:
        return await anyio.connect_tcp("127.0.0.1", int(self.url(scheme).rpartition(":")[2].rstrip("/")))

    async def bystander_is_well(self) -> None:
        self._said += 1
        said = {"n": self._said, "text": SECRET}
        await self._bystander.write(json.dumps(said))
        assert await anext(self._echoes) == said

    async def bystander_is_alone(self) -> None:
        while [session.owner for session in self.gateway.sessions] != ["bob"]:
            await a_moment()
        await self.bystander_is_well()


@asynccontextmanager
async def siege(limits: ct.gateway.GatewayLimits | None = None) -> AsyncIterator[Siege]:
    schemes = ("tcp", "tls", "ws", "wss")
    with anyio.fail_after(PATIENCE):
        async with (
            ct.Gateway(
                command=["cat"],
                listen=[f"{scheme}://127.0.0.1:0" for scheme in schemes],
                tokens=TOKENS,
                ssl_context=certificates().server_context(),
                limits=limits,
                compression=True,
            ) as gateway,
            ct.NetworkTransport(gateway.urls[0], token=BOB) as bystander,
        ):
            besieged = Siege(gateway, bystander)
            await besieged.bystander_is_well()
            yield besieged
            await besieged.bystander_is_alone()


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log of all levels. It must hold no secret."""
    caplog.set_level(logging.DEBUG, "claude_transport")
    yield caplog
    everything = "".join(record.getMessage() + repr(vars(record)) for record in caplog.get_records("call"))
    assert everything
    assert not [secret for secret in (ALICE, BOB, WRONG, SECRET) if secret in everything]


async def rest_of(stream: anyio.abc.SocketStream) -> bytes:
    """Return all bytes until the gateway closes."""
    said = b""
    try:
        while True:
            said += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return said


async def test_whoever_holds_the_door_is_shown_out_of_every_medium() -> None:
    beginnings = (b"", b"H ", b"GET / HTTP/1.1\r\nHost: ", b"\x16\x03\x01\x02\x00\x01\x00")
    async with siege(ct.gateway.GatewayLimits(handshake_timeout=2.0)) as stage, anyio.create_task_group() as tasks:

        async def hold(scheme: str, beginning: bytes) -> None:
            async with await stage.connect(scheme) as stream:
                await stream.send(beginning)
                assert b"101" not in (await rest_of(stream)).partition(b"\r\n")[0]

        for scheme in ("tcp", "tls", "ws", "wss"):
            for beginning in beginnings:
                tasks.start_soon(hold, scheme, beginning)
        await stage.bystander_is_well()


@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss"])
async def test_a_token_that_is_nobodys_is_an_authentication_error_by_every_way_in(scheme: str, resume: bool) -> None:
    context = certificates().client_context() if scheme in {"tls", "wss"} else None
    async with siege() as stage:
        for token in (WRONG, None):
            stranger = ct.NetworkTransport(stage.url(scheme), token=token, ssl_context=context, resume=resume)
            with pytest.raises(ct.AuthenticationError) as caught:
                async with stranger:
                    await stranger.write("{}")
                    async for _ in stranger.read_lines():
                        pass
            assert WRONG not in str(caught.value)
        assert stage.gateway.metrics.refused == {"auth": 2}
        assert stage.gateway.metrics.sessions == {"link": 1}  # Bob's


@pytest.mark.parametrize("mode", ["link", "plain"])
async def test_a_bomb_of_somebody_who_was_admitted_costs_one_session_and_no_memory(mode: str) -> None:
    hello = {"version": 1} if mode == "link" else {"type": "authenticate"}
    first = (b"H " if mode == "link" else b"") + json.dumps({**hello, "token": ALICE}).encode() + b"\n"
    compressor = load_zstd().ZstdCompressor(level=3)
    opening = compressor.compress(first, mode=compressor.FLUSH_BLOCK)
    bomb = b"".join(compressor.compress(b"D" * MEGABYTE) for _ in range(100)) + compressor.flush()
    assert len(bomb) < MEGABYTE
    async with siege(ct.gateway.GatewayLimits(line_bytes=MEGABYTE, lease=0.5)) as stage:
        async with await stage.connect("tcp") as stream:
            await stream.send(opening)
            while stage.gateway.metrics.sessions.total() < 2:
                await a_moment()
            tracemalloc.start()
            try:
                await stream.send(bomb)
                await rest_of(stream)
                assert tracemalloc.get_traced_memory()[1] < 12 * MEGABYTE
            finally:
                tracemalloc.stop()
        await stage.bystander_is_alone()


def claimed() -> bytes:
    """The head of a frame that announces a terabyte."""
    return bytes([0x82, 0x80 | 127]) + (2**40).to_bytes(8, "big") + bytes(4)


def deflated() -> bytes:
    """A compressed frame of a hundred kilobytes, which inflates to a hundred megabytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    payload = (deflate.compress(b"{" + b"x" * 100 * MEGABYTE) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
    return bytes([0xC1, 0x80 | 127]) + len(payload).to_bytes(8, "big") + bytes(4) + payload


def in_pieces() -> bytes:
    """A message of forty small frames without a last one."""
    head = bytes([0x80 | 127]) + (MEGABYTE // 4).to_bytes(8, "big") + bytes(4)
    return b"\x02" + head + b"{".ljust(MEGABYTE // 4, b"x") + (b"\x00" + head + b"x" * (MEGABYTE // 4)) * 39


@pytest.mark.parametrize("frames", [claimed, deflated, in_pieces])
async def test_a_message_without_measure_ends_its_websocket_and_is_never_held(frames: Callable[[], bytes]) -> None:
    attack = frames()
    async with siege(ct.gateway.GatewayLimits(line_bytes=MEGABYTE, lease=0.5)) as stage:
        async with await stage.connect("ws") as stream:
            await stream.send(UPGRADE)
            assert b" 101 " in (await stream.receive()).partition(b"\r\n")[0]
            tracemalloc.start()
            try:
                try:
                    for start in range(0, len(attack), 2**16):  # in pieces: asyncio would keep all unsent bytes of one large write
                        await stream.send(attack[start : start + 2**16])
                except anyio.BrokenResourceError:
                    pass  # the gateway has closed already
                await rest_of(stream)
                assert tracemalloc.get_traced_memory()[1] < 12 * MEGABYTE
            finally:
                tracemalloc.stop()
        await stage.bystander_is_alone()


def large() -> bytes:
    """A frame that an admitted client may send."""
    return bytes([0x82, 0x80 | 127]) + (16 * MEGABYTE).to_bytes(8, "big") + bytes(4) + b"{".ljust(16 * MEGABYTE, b"x")


def pings() -> bytes:
    """Pings, which are nothing of a first line."""
    return (bytes([0x89, 0x80 | 125]) + bytes(4) + b"x" * 125) * 40_000


@pytest.mark.parametrize("frames", [claimed, deflated, in_pieces, large, pings])
async def test_a_stranger_makes_the_gateway_hold_no_more_than_a_first_line_over_websocket(frames: Callable[[], bytes]) -> None:
    attack, upgrade = frames(), UPGRADE.replace(b"Authorization: Bearer %b\r\n" % ALICE.encode(), b"")
    async with siege(ct.gateway.GatewayLimits(handshake_timeout=30.0)) as stage:
        async with await stage.connect("ws") as stream:
            await stream.send(upgrade)
            assert b" 101 " in (await stream.receive()).partition(b"\r\n")[0]
            tracemalloc.start()
            try:
                with contextlib.suppress(anyio.BrokenResourceError):  # the gateway has closed already
                    for start in range(0, len(attack), 2**14):
                        await stream.send(attack[start : start + 2**14])
                await rest_of(stream)
                assert tracemalloc.get_traced_memory()[1] < MEGABYTE
            finally:
                tracemalloc.stop()
        assert stage.gateway.metrics.refused == {"handshake": 1}


AUTHENTICATE = json.dumps({"type": "authenticate", "token": ALICE}).encode() + b"\n"


class Page:
    """A WebSocket client without a header for its token, as a page in a browser is one."""

    def __init__(self, wire: anyio.abc.SocketStream) -> None:
        self.protocol = ClientProtocol(parse_uri("ws://127.0.0.1/"), max_size=None)
        self._wire = wire
        self._said = b""

    async def open(self) -> None:
        self.protocol.send_request(self.protocol.connect())
        await self.flush()
        while not self.protocol.events_received():
            self.protocol.receive_data(await self._wire.receive())

    async def flush(self) -> None:
        await self._wire.send(b"".join(self.protocol.data_to_send()))

    async def lines(self, number: int) -> list[bytes]:
        while self._said.count(b"\n") < number and self.protocol.state.name == "OPEN":
            self.protocol.receive_data(await self._wire.receive())
            self._said += b"".join(bytes(event.data) for event in self.protocol.events_received() if isinstance(event, Frame))
        return self._said.splitlines()


@pytest.mark.parametrize("is_one", [True, False], ids=["in-one-write", "one-by-one"])
async def test_a_message_of_any_size_may_follow_the_one_with_the_token(is_one: bool) -> None:
    long = b'{"x":"' + b"x" * 4 * MEGABYTE + b'"}'
    async with siege() as stage, await stage.connect("ws") as stream, anyio.create_task_group() as tasks:
        page = Page(stream)
        await page.open()

        async def speak() -> None:
            for text in (AUTHENTICATE + b'{"n":1}', long, b'{"n":2}'):
                page.protocol.send_text(text)
                if not is_one:
                    await page.flush()
            await page.flush()

        tasks.start_soon(speak)
        assert await page.lines(3) == [b'{"n":1}', long, b'{"n":2}']


@pytest.mark.parametrize("size", [65_536, 65_536 + 4096], ids=["fits", "does-not"])
async def test_what_follows_the_token_in_its_message_has_the_bound_of_a_first_line(size: int) -> None:
    rest = b'{"x":"' + b"x" * (size - len(AUTHENTICATE) - 9) + b'"}\n'
    async with siege() as stage, await stage.connect("ws") as stream:
        page = Page(stream)
        await page.open()
        page.protocol.send_text(AUTHENTICATE + rest)
        await page.flush()
        if size == 65_536:
            assert await page.lines(1) == [rest.rstrip()]
            return
        await page.lines(1)
        closed = page.protocol.close_rcvd
        assert closed is not None
        assert (closed.code, closed.reason) == (
            1009,
            "the peer has sent more than the 69632 bytes that it may send before it is admitted",
        )
        assert stage.gateway.metrics.refused == {"handshake": 1}


async def test_without_tokens_and_with_the_token_in_the_request_a_first_message_may_have_any_size() -> None:
    long = b'{"x":"' + b"x" * 4 * MEGABYTE + b'"}'
    for tokens in (TOKENS, None):
        async with ct.Gateway(command=["cat"], listen=["ws://127.0.0.1:0"], tokens=tokens) as gateway:
            transport = ct.NetworkTransport(gateway.urls[0], token=ALICE if tokens else None, resume=False)
            with anyio.fail_after(PATIENCE):
                async with transport:
                    await transport.write(long)
                    await transport.end_input()
                    assert [line async for batch in transport.read_lines() for line in batch] == [long]


async def test_a_line_over_the_limit_is_an_error_of_its_own_client() -> None:
    async with siege(ct.gateway.GatewayLimits(line_bytes=MEGABYTE)) as stage:
        transport = ct.NetworkTransport(stage.url("tcp"), token=ALICE)
        with pytest.raises(ct.ConnectionLost) as caught:
            async with transport:
                await transport.write(b'{"x":"' + b"x" * 2 * MEGABYTE + b'"}')
                async for _ in transport.read_lines():
                    pass
        assert caught.value.code == "connection.line_too_long"
        await stage.bystander_is_alone()


async def test_a_connection_that_is_played_again_byte_by_byte_does_nothing_twice(tmp_path: Path) -> None:
    """The attacker has recorded, without TLS, all bytes of a client that came back, with its key and its token."""
    heard = tmp_path / "heard"
    lines = [b'{"n":%d,"pad":"%b"}' % (number, b"x" * 60) for number in range(60)]
    cuts = iter([Cut(up=800, down=None, hard=True)])
    listener = ["sh", "-c", 'cat >"$0"', str(heard)]  # a process without output: so the recorded bytes fit at any time
    async with (
        ct.Gateway(command=listener, listen=["tcp://127.0.0.1:0"], tokens=TOKENS) as gateway,
        relay_to(gateway.urls[0], cut_next=lambda _: next(cuts, None)) as relay,
    ):
        with anyio.fail_after(PATIENCE):
            async with ct.NetworkTransport(relay.url, token=ALICE) as transport:
                for line in lines[:20]:
                    await transport.write(line)
                await relay.until(lambda: len(relay.passages) == 2)  # the client was cut off and came back
                for line in lines[20:40]:
                    await transport.write(line)
                await relay.until(lambda: lines[39] in relay.passages[1].carried["up"])
                async with await anyio.connect_tcp("127.0.0.1", int(gateway.urls[0].rpartition(":")[2])) as attacker:
                    await attacker.send(bytes(relay.passages[1].carried["up"]))
                    assert (await rest_of(attacker)).startswith(b"W ")  # until the client, which was replaced, is back
                for line in lines[40:]:
                    await transport.write(line)
                await transport.end_input()
                assert [batch async for batch in transport.read_lines()] == []
            assert transport.info.exit_code == 0
    assert len(relay.passages) >= 3
    assert heard.read_bytes().splitlines() == lines
    assert gateway.metrics.sessions == {"link": 1}


async def test_a_crowd_at_the_door_costs_a_bounded_number_of_tasks_and_bytes() -> None:
    crowd: list[anyio.abc.SocketStream] = []
    async with siege(ct.gateway.GatewayLimits(half_open=20, handshake_timeout=600.0)) as stage:
        tasks_before = len(anyio.get_running_tasks())
        tracemalloc.start()
        try:
            for _ in range(120):
                crowd.append(await stage.connect("tcp"))
                await crowd[-1].send(b"H " + b"x" * 60_000)
            while stage.gateway.metrics.refused["handshake"] < 100 or len(anyio.get_running_tasks()) > tasks_before + 20:
                await a_moment()
            gc.collect()  # objects of closed connections are in reference cycles
            assert tracemalloc.get_traced_memory()[0] < 20 * 100_000 + 120 * 20_000
        finally:
            tracemalloc.stop()
        await stage.bystander_is_well()
        for stream in crowd:
            await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("scheme", ["ws", "tls"])
async def test_who_speaks_another_protocol_is_counted_as_a_failed_handshake(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claude_transport")
    more: dict[str, Any] = {"ssl_context": certificates().server_context()} if scheme == "tls" else {}
    async with ct.Gateway(command=["true"], listen=[f"{scheme}://127.0.0.1:0"], **more) as gateway:
        port = int(gateway.urls[0].rpartition(":")[2].rstrip("/"))
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"\x00nonsense\r\n\r\n")
            with anyio.fail_after(30), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await stream.receive()
            while not gateway.metrics.refused:
                await a_moment()
        assert gateway.metrics.refused == {"handshake": 1}
    (told,) = [record.getMessage() for record in caplog.records if vars(record).get("gateway_event") == "handshake_failed"]
    assert told.startswith("the handshake with 127.0.0.1:")
