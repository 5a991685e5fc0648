"""Attacks, one test each: refused, logged without a secret, bounded in memory, and without effect on another session."""

from __future__ import annotations

import json
import logging
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rehearsal import ALICE, BOB, TOKENS, Rehearsal, Talker, rehearsal
from shares import share
from virtual_time import virtual_time

from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.link.machine import Data, Hello, Refusal, Welcome, encode_frame
from claude_transport.serving.door import GatewayLimits
from claude_transport.streams.compression import MAGIC, load_zstd
from claude_transport.streams.memory import MemoryStream, memory_stream_pair
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario


class Bystander:
    """A session of Bob. The attacks must not change it."""

    def __init__(self, client: Talker, process: Talker) -> None:
        self._client = client
        self._process = process
        self._heard = 0

    async def is_well(self) -> None:
        self._heard += 1
        await self._process.say({"n": self._heard})
        assert json.loads(await self._client.hear_line()) == {"n": self._heard}
        await self._client.send_line(b"{}")
        assert await self._process.hear() == b"{}"


@asynccontextmanager
async def under_attack(**more: Any) -> AsyncIterator[tuple[Rehearsal, Bystander]]:
    async with rehearsal(**more) as stage:
        client = await stage.link(token=BOB)
        bystander = Bystander(client, await stage.processes.next())
        await bystander.is_well()
        yield stage, bystander
        await bystander.is_well()
        assert [session.owner for session in stage.gateway.sessions] == ["bob"]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "claude_transport")
    return caplog


def refusals_of(stage: Rehearsal) -> dict[str, int]:
    return dict(stage.gateway.metrics.refused)


@pytest.mark.parametrize("token", [None, "", "wrong-token-0123456789", ALICE[:-1], ALICE + "\n", ALICE.upper()])
async def test_without_the_right_token_nobody_gets_in(token: str | None, log: pytest.LogCaptureFixture) -> None:
    async with under_attack() as (stage, _):
        link = await stage.link(token=token)
        assert (await link.hear_frame(Refusal)).code == "auth"
        assert await link.rest() == b""
        plain = await stage.plain(token=token)
        assert json.loads(await plain.hear())["error"]["code"] == "auth"
        assert await plain.rest() == b""
        assert refusals_of(stage) == {"auth": 2}
        assert len(stage.processes.options) == 1  # the attackers started nothing
    assert "refused a client (auth)" in log.text
    assert not token or token.strip() not in log.text


async def test_a_first_message_in_place_of_a_token_starts_nothing() -> None:
    async with under_attack() as (stage, _):
        client = stage.connect()
        await client.say({"type": "user", "message": {"role": "user", "content": "hello"}})
        assert json.loads(await client.hear())["error"]["code"] == "auth"
        assert refusals_of(stage) == {"auth": 1}


async def test_a_wrong_token_in_a_header_is_not_mended_by_a_right_one_in_the_hello() -> None:
    async with under_attack() as (stage, _):
        client = stage.connect(token="wrong-token-0123456789")
        await client.frame(Hello(version=1, token=ALICE))
        assert (await client.rest()).startswith((b'{"type":"system"', b"R "))
        mixed = stage.connect(token=ALICE)
        await mixed.frame(Hello(version=1, token=BOB))
        assert (await mixed.hear_frame(Refusal)).code == "auth"


async def test_what_a_client_calls_its_trace_sets_no_other_variable_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRACEPARENT", "TRACESTATE", "LD_PRELOAD", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    async with rehearsal(launch=None, command=[sys.executable, "-c", show]) as stage:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        trace = {"traceparent": parent, "tracestate": "a zero \0 byte", "ld_preload": "/of/mine.so", "anthropic_base_url": "http://of.mine"}
        client = await stage.link(trace=trace)
        environment = json.loads(await client.hear_line())
    assert environment["TRACEPARENT"] == parent
    assert not {"TRACESTATE", "LD_PRELOAD", "ANTHROPIC_BASE_URL"}.intersection(environment)


async def test_a_session_is_resumed_only_with_its_own_token(log: pytest.LogCaptureFixture) -> None:
    async with under_attack() as (stage, _):
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        thief = await stage.link(token=BOB, session=key)
        assert (await thief.hear_frame(Refusal)).code == "session"
        await process.say(b'{"secret":"plan"}')
        assert await client.hear_line() == b'{"secret":"plan"}'
        assert await thief.rest() == b""
        await stage.end(client, process)
        await stage.until(sessions=1)
    assert key not in log.text
    assert "plan" not in log.text


async def test_frames_that_are_replayed_do_nothing_twice_and_gaps_end_the_connection() -> None:
    async with under_attack() as (stage, _):
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        for number in (1, 1, 1, 2, 1, 2, 2, 3):
            await client.frame(Data(8 * (number - 1), b'{"n":%d}\n' % number))
        assert [await process.hear() for _ in range(3)] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
        await client.frame(Data(99, b'{"n":99}\n'))
        assert (await client.hear_frame(Refusal)).code == "malformed"
        again = await stage.link(session=key)
        assert (await again.hear_frame(Welcome)).received == 24
        await stage.end(again, process)
        await stage.until(sessions=1)


async def test_a_refusal_is_not_said_in_the_middle_of_a_frame_where_it_would_be_data() -> None:
    async with under_attack(limits=GatewayLimits(lease=0.01)) as (stage, _):
        client = stage.connect(capacity=1000)
        await client.frame(Hello(version=1, token=ALICE))
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        await process.say(b"x" * 5000)
        assert await client.hear() == b"D 0 5001"  # the line does not fit, and the client does not read on
        await client.stream.send(b"no frame\n")
        with anyio.fail_after(30):
            while not refusals_of(stage):
                await anyio.lowlevel.checkpoint()
        assert (await client.rest()).strip(b"x") == b""
        assert refusals_of(stage) == {"malformed": 1}
        await stage.until(sessions=1)


@pytest.mark.parametrize("frame", [b'X {"after":0}', b'R {"code":"auth"}'])
async def test_what_only_a_server_may_say_is_refused_from_a_client(frame: bytes) -> None:
    async with under_attack(limits=GatewayLimits(lease=0.01)) as (stage, _):
        client = await stage.link()
        await stage.processes.next()
        await client.stream.send(frame + b"\n")
        assert (await client.hear_frame(Refusal)).code == "malformed"
        await stage.until(sessions=1)


async def test_a_client_that_claims_what_never_was_is_refused() -> None:
    async with under_attack(limits=GatewayLimits(lease=0.01)) as (stage, _):
        client = await stage.link(received=10**17)
        process = await stage.processes.next()
        assert (await client.hear_frame(Refusal)).code == "malformed"
        assert await process.rest() == b""
        await stage.until(sessions=1)


async def test_a_line_over_the_limit_ends_the_session_and_is_never_held() -> None:
    async with under_attack(limits=GatewayLimits(line_bytes=100_000, lease=0.1)) as (stage, _):
        link, plain = await stage.link(), await stage.plain()
        first, second = await stage.processes.next(), await stage.processes.next()
        tracemalloc.start()
        try:
            for client, beginning in ((link, b"D 0 50000009\n"), (plain, b"")):
                await client.stream.send(beginning + b'{"x":"')
                for _ in range(50):
                    await client.stream.send(b"x" * 1_000_000)
                await client.stream.send(b'"}\n')
            assert tracemalloc.get_traced_memory()[1] < 12_000_000  # the memory stream between the ends holds one million of them
        finally:
            tracemalloc.stop()
        assert await first.rest() == b""
        assert await second.rest() == b""
        assert b"line_too_long" in await plain.rest()
        assert b"line_too_long" in await link.rest()
        link.stream.break_connection()
        plain.stream.break_connection()
        with anyio.fail_after(30):
            while refusals_of(stage) != {"line_too_long": 2}:
                await anyio.lowlevel.checkpoint()
        await stage.until(sessions=1)


async def test_a_session_that_has_carried_its_share_ends() -> None:
    async with under_attack(limits=GatewayLimits(session_bytes=10_000)) as (stage, _):
        plain, link = await stage.plain(), await stage.link()
        process, other = await stage.processes.next(), await stage.processes.next()
        for _ in range(11):
            await process.say(b'{"x":"%s"}' % (b"x" * 991))
        assert b"session_bytes" in await plain.rest()
        await link.hear_frame(Welcome)
        await link.send_line(b'{"x":"%s"}' % (b"x" * 10_000))
        assert b"session_bytes" in await link.rest()
        assert await other.rest() == b""
        link.stream.break_connection()
        await stage.until(sessions=1)


@pytest.mark.parametrize("beginning", [b"", b"H ", b'H {"version":1,', b'{"type":', b"\n\n\n", b" "])
@virtual_time
async def test_who_never_finishes_its_first_line_is_shown_out(beginning: bytes) -> None:
    async with under_attack(limits=GatewayLimits(handshake_timeout=10.0)) as (stage, _):
        began = anyio.current_time()
        client = stage.connect()
        await client.stream.send(beginning)
        await client.rest()
        assert anyio.current_time() - began <= 12.0
        assert refusals_of(stage) in ({"handshake": 1}, {"malformed": 1})


@virtual_time
async def test_a_first_line_that_comes_drop_by_drop_has_no_more_time_than_another() -> None:
    async with under_attack(limits=GatewayLimits(handshake_timeout=10.0)) as (stage, _):
        client = stage.connect()
        sent = 0
        with pytest.raises(anyio.BrokenResourceError):
            for byte in encode_frame(Hello(version=1, token=ALICE)):
                await client.stream.send(bytes([byte]))
                sent += 1
                await anyio.sleep(1)
        assert sent <= 12
        assert refusals_of(stage) == {"handshake": 1}


async def test_a_first_line_without_end_is_cut_off_at_its_limit() -> None:
    async with under_attack(limits=GatewayLimits(first_line_bytes=10_000)) as (stage, _):
        client = stage.connect(capacity=4096)
        sent = 0
        with pytest.raises(anyio.BrokenResourceError), anyio.fail_after(30):
            await client.stream.send(b"H {")
            while True:
                await client.stream.send(b"x" * 1000)
                sent += 1000
        assert sent < 10_000 + 2 * 4096 + 1000 or refusals_of(stage) == {"malformed": 1}
        assert refusals_of(stage) == {"malformed": 1}


@pytest.mark.parametrize("many", share([2_000, 10_000], ci=[2_000]))
async def test_thousands_of_half_open_connections_are_bounded_and_honest_clients_get_in(many: int) -> None:
    async with under_attack(limits=GatewayLimits(half_open=200, handshake_timeout=600.0)) as (stage, bystander):
        for number in range(many):
            holder = stage.connect(capacity=64)
            await holder.stream.send(b"H ")
            if (number + 1) % (many // 4) == 0:
                await anyio.wait_all_tasks_blocked()
                text = stage.gateway.prometheus_text()
                half_open = int(text.rpartition("claude_transport_gateway_half_open ")[2])
                assert half_open <= 200
                await bystander.is_well()
                client = await stage.link()
                process = await stage.processes.next()
                await client.hear_frame(Welcome)
                await stage.end(client, process)
                await stage.until(sessions=1)
        assert refusals_of(stage)["handshake"] >= many - 1_000


async def test_many_silent_sockets_are_bounded_too() -> None:
    with FakeClaude(Scenario()) as fake:
        limits = GatewayLimits(half_open=20, handshake_timeout=600.0)
        async with Gateway(command=fake.command, listen=["tcp://127.0.0.1:0"], tokens=TOKENS, limits=limits) as gateway:
            port = int(gateway.urls[0].rpartition(":")[2])
            silent = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(300)]
            with anyio.fail_after(30):
                while gateway.metrics.refused["handshake"] < 280:
                    await anyio.lowlevel.checkpoint()
            async with await anyio.connect_tcp("127.0.0.1", port) as honest:
                await honest.send(encode_frame(Hello(version=1, token=ALICE)))
                with anyio.fail_after(30):
                    assert (await honest.receive()).startswith(b"W ")
            for stream in silent:
                await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@pytest.mark.parametrize("path", ["/", "/healthz"])
@pytest.mark.parametrize("behind", [b"", b'{"type":"user"}\n'], ids=["alone", "with-a-body"])
async def test_a_page_in_a_browser_starts_nothing(scheme: str, path: str, behind: bytes) -> None:
    with FakeClaude(Scenario()) as fake:
        async with Gateway(command=fake.command, listen=[f"{scheme}://127.0.0.1:0"]) as gateway:
            port = int(gateway.urls[0].rpartition(":")[2].rstrip("/"))
            async with await anyio.connect_tcp("127.0.0.1", port) as browser:
                await browser.send(
                    b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                    b"Origin: https://evil.example\r\n\r\n%s" % (path.encode(), behind)
                )
                answer = b""
                with anyio.fail_after(30):
                    try:
                        while True:
                            answer += await browser.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        pass
            if scheme == "ws" and not behind:
                assert answer.startswith(b"HTTP/1.1 403" if path == "/" else b"HTTP/1.1 200")
            assert b"101" not in answer.partition(b"\r\n")[0]
            assert not gateway.metrics.sessions
            await (await anyio.connect_tcp("127.0.0.1", port)).aclose()  # the gateway still accepts others
        assert fake.calls() == []


async def test_a_bomb_inside_zstd_stays_small() -> None:
    bomb = load_zstd().compress(b'{"type":"authenticate","x":"' + b"x" * 200_000_000, 19)
    async with under_attack(compression=True) as (stage, _):
        stage.medium = "tcp"
        client = stage.connect()
        tracemalloc.start()
        try:
            with anyio.fail_after(30):
                await client.stream.send(bomb)
                await client.rest()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 30_000_000
        assert refusals_of(stage) == {"malformed": 1}


async def test_a_deflated_bomb_on_a_websocket_ends_its_connection_alone() -> None:
    with FakeClaude(Scenario()) as fake:
        limits = GatewayLimits(line_bytes=1_000_000)
        async with Gateway(command=fake.command, listen=["ws://127.0.0.1:0"], compression=True, limits=limits) as gateway:
            port = int(gateway.urls[0].rpartition(":")[2].rstrip("/"))
            async with await anyio.connect_tcp("127.0.0.1", port) as client:
                await client.send(
                    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
                )
                with anyio.fail_after(30):
                    assert b"101" in await client.receive()
                    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
                    bomb = deflate.compress(b'{"x":"' + b"x" * 100_000_000) + deflate.flush(zlib.Z_SYNC_FLUSH)
                    payload = bomb[:-4]
                    frame = bytes([0xC1, 0x80 | 127]) + len(payload).to_bytes(8, "big") + bytes(4) + payload
                    tracemalloc.start()
                    try:
                        await client.send(frame)
                        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                            while True:
                                await client.receive()
                        assert tracemalloc.get_traced_memory()[1] < 30_000_000
                    finally:
                        tracemalloc.stop()
            with anyio.fail_after(30):
                while gateway.sessions:
                    await anyio.lowlevel.checkpoint()


class _Defective(MemoryStream):
    """A stream whose receive() raises an unknown error."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        raise RuntimeError("a mistake")


async def test_a_mistake_in_the_library_costs_one_connection(log: pytest.LogCaptureFixture) -> None:
    async with under_attack() as (stage, _):
        ours, _theirs = memory_stream_pair()
        ours.__class__ = _Defective
        await stage.gateway.attend(Arrival(ours, medium="memory"))
        assert refusals_of(stage) == {"internal": 1}
    assert "RuntimeError: a mistake" in log.text


async def test_a_connection_of_another_server_is_closed_also_when_its_task_is_cancelled() -> None:
    async with under_attack() as (stage, _):
        ours, theirs = memory_stream_pair()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.gateway.attend, Arrival(ours, medium="memory"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30), pytest.raises(anyio.EndOfStream):
            await theirs.receive()


ENVELOPES = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=200).map(lambda text: b"H " + text.encode("utf-8", "surrogatepass")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
        max_leaves=20,
    ).map(lambda value: b"H " + json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "version": st.integers() | st.none() | st.text(),
            "session": st.text(max_size=50) | st.integers(),
            "received": st.integers(),
            "replay_from": st.integers(),
            "window": st.integers(),
            "options": st.dictionaries(st.text(max_size=5), st.integers()) | st.lists(st.integers()),
            "type": st.just("authenticate"),
            "answers": st.lists(st.text()) | st.text(),
            "token": st.text(max_size=40) | st.integers() | st.lists(st.text()),
        },
    ).flatmap(lambda fields: st.sampled_from([b"H " + json.dumps(fields).encode(), json.dumps(fields).encode()])),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(envelopes=st.lists(ENVELOPES, min_size=1, max_size=10))
def test_no_envelope_gets_in_by_being_malformed(envelopes: list[bytes]) -> None:
    async def attack() -> None:
        async with under_attack() as (stage, _):
            for envelope in envelopes:
                client = stage.connect()
                await client.stream.send(envelope + b"\n")
                await client.stream.send_eof()
                said = await client.rest()
                assert said == b"" or said.startswith((b"R ", b'{"type":"system","subtype":"refused"'))
            assert len(stage.processes.options) == 1

    anyio.run(attack, backend="trio")


SENSIBLE = [b"D 0 3\n{}", b"D 0 9", b"D 3 1\nx", b"A 1", b"E 0", b"E 3", b"P 1", b"B {}"]
FRAMES = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")) | st.sampled_from(SENSIBLE)


@settings(max_examples=30, deadline=None)
@given(frames=st.lists(FRAMES, max_size=12))
def test_no_frame_of_an_admitted_client_harms_anybody_else(frames: list[bytes]) -> None:
    async def attack() -> None:
        async with under_attack(limits=GatewayLimits(lease=0.01)) as (stage, _):
            client = await stage.link()
            process = await stage.processes.next()
            await client.hear_frame(Welcome)
            with anyio.move_on_after(5):
                for frame in frames:
                    try:
                        await client.stream.send(frame + b"\n")
                    except anyio.BrokenResourceError:
                        break
            client.stream.break_connection()
            await process.rest()
            await stage.until(sessions=1)

    anyio.run(attack, backend="trio")


def test_the_log_is_structured_and_holds_no_secret(log: pytest.LogCaptureFixture) -> None:
    async def live() -> None:
        async with rehearsal() as stage:
            client = await stage.link()
            process = await stage.processes.next()
            key = (await client.hear_frame(Welcome)).session
            keys.append(key)
            await client.send_line(b'{"prompt":"my secret prompt"}')
            await process.hear()
            await process.say(b'{"n":1}')
            await client.hear_line()
            await stage.end(client, process)
            await stage.until(sessions=0)

    keys: list[str] = []
    anyio.run(live)
    events = [getattr(record, "gateway_event", None) for record in log.records]
    assert {"session_begun", "session_ended"} <= set(events)
    begun = next(record for record in log.records if getattr(record, "gateway_event", "") == "session_begun")
    assert (vars(begun)["gateway_owner"], vars(begun)["gateway_mode"], vars(begun)["gateway_peer"]) == ("alice", "link", "the test")
    ended = next(record for record in log.records if getattr(record, "gateway_event", "") == "session_ended")
    fields = ("gateway_reason", "gateway_bytes_in", "gateway_bytes_out")
    assert [vars(ended)[name] for name in fields] == ["ended", len(b'{"prompt":"my secret prompt"}\n'), len(b'{"n":1}\n')]
    everything = log.text + "".join(repr(vars(record)) for record in log.records)
    assert not [secret for secret in (ALICE, BOB, keys[0], "my secret prompt") if secret in everything]


@virtual_time
async def test_a_wrong_token_of_a_header_is_refused_before_the_first_line_and_a_right_one_may_take_its_time() -> None:
    async with rehearsal(limits=GatewayLimits(handshake_timeout=10.0)) as stage:
        honest, stranger = stage.connect(token=ALICE), stage.connect(token="wrong-token-0123456789")
        began = anyio.current_time()
        error = {"code": "auth", "message": "this token is not accepted", "retryable": False}
        assert json.loads(await stranger.hear()) == {"type": "system", "subtype": "refused", "error": error}
        assert anyio.current_time() == began
        await anyio.sleep(3600)
        await honest.say(b'{"type":"user"}')
        process = await stage.processes.next()
        assert await process.hear() == b'{"type":"user"}'


async def test_a_client_that_compresses_is_told_when_the_gateway_cannot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    async with rehearsal(compression=True) as stage:
        stage.medium = "tcp"
        client = stage.connect()
        await client.stream.send(MAGIC + b"x\n")
        await client.rest()
        assert stage.gateway.metrics.refused == {"malformed": 1}
    assert "this gateway does not know zstd" in caplog.text


@pytest.mark.parametrize("spoken", ["link", "plain"])
async def test_a_client_that_speaks_the_other_mode_is_told_so(spoken: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with rehearsal(modes=[spoken]) as stage:
        client = await (stage.plain() if spoken == "link" else stage.link())
        await client.rest()
        assert stage.gateway.metrics.refused == {"mode": 1}
    assert f"this gateway does not speak {'plain' if spoken == 'link' else 'link'} mode" in caplog.text
