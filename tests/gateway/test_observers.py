"""Observers of a gateway: server-sent events for those with a token, and nothing for anybody else."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from rehearsal import ALICE, BOB, TOKENS, Processes, Talker

from claude_transport import NetworkTransport, ReplayGap
from claude_transport.errors import AuthenticationError, CLIConnectionError, ConnectionLost, UsageError
from claude_transport.gateway.gateway import Gateway
from claude_transport.observing import Observation, ObservedLine, observe
from claude_transport.serving.door import GatewayLimits

SECRET = "sk-ant-api03-" + "a" * 80


class Scene:
    """A gateway on loopback, one session of Alice, and its process, which the test plays."""

    def __init__(self, gateway: Gateway, client: NetworkTransport, process: Talker) -> None:
        self.gateway = gateway
        self.client = client
        self.process = process
        self.url = gateway.urls[0]
        self.session = gateway.sessions[0].id

    async def say(self, *lines: bytes) -> None:
        """Say lines, and wait until the owner has them."""
        await self.process.say(*lines)
        await self.heard(len(lines))

    async def heard(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        async for batch in self.client.read_lines():
            found += batch
            if len(found) >= count:
                break
        return found

    def watch(self, token: str | None, *, since: int | None = 0, session: str | None = None) -> Observation:
        return observe(self.url, session=session or self.session, since=since, token=token)


@asynccontextmanager
async def scene(*, resume: bool = True, **settings: Any) -> AsyncIterator[Scene]:
    processes = Processes()
    settings = {"listen": ["ws://127.0.0.1:0"], "tokens": TOKENS, "launch": processes.launch, **settings}
    with anyio.fail_after(60):
        async with Gateway(**settings) as gateway:
            client = NetworkTransport(gateway.urls[0], token=ALICE if settings["tokens"] else None, resume=resume)
            await client.connect()
            await client.write('{"type":"user","n":0}\n')
            process = await processes.next()
            await process.hear()
            yield Scene(gateway, client, process)
            await client.close()


async def some(observation: Observation, count: int) -> list[ObservedLine]:
    with anyio.fail_after(30):
        return [await anext(observation) for _ in range(count)]


async def glance(observation: Observation, count: int) -> list[ObservedLine]:
    async with observation:
        return await some(observation, count)


async def http(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], anyio.abc.SocketStream, bytes]:
    """Send a GET request. Return the status, the headers, the connection, and the beginning of the body."""
    host, _, port = url.removeprefix("ws://").partition("/")[0].rpartition(":")
    stream = await anyio.connect_tcp(host, int(port))
    told = {"host": f"{host}:{port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    await stream.send(f"GET {path} HTTP/1.1\r\n".encode() + b"".join(f"{n}: {v}\r\n".encode() for n, v in told.items()) + b"\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive()
    head, _, body = head.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), {n.lower(): v for n, v in (line.split(": ", 1) for line in rest)}, stream, body


async def status(url: str, path: str, **headers: str) -> int:
    found, _, stream, _ = await http(url, path, **headers)
    await stream.aclose()
    return found


@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
async def test_an_observer_sees_the_lines_from_the_grant_on_and_the_end(resume: bool) -> None:
    async with scene(resume=resume) as stage:
        grant = stage.gateway.grant_observer(stage.session)
        await stage.client.write('{"type":"user","n":1}\n')
        await stage.process.hear()
        await stage.say(b'{"n":2}', b'{"n":3}')
        async with stage.watch(grant.token) as watching:
            seen = await some(watching, 3)
            assert [(line.direction, bytes(line)) for line in seen] == [
                ("in", b'{"type":"user","n":1}'),
                ("out", b'{"n":2}'),
                ("out", b'{"n":3}'),
            ]
            await stage.process.stream.aclose()
            rest = [line async for line in watching]
            assert [bytes(line) for line in rest][-1] == b"closed by host"


async def test_an_observable_gateway_shows_a_session_from_its_beginning_to_its_owner_only() -> None:
    async with scene(observable=True) as stage:
        assert [bytes(line) for line in await glance(stage.watch(ALICE), 1)] == [b'{"type":"user","n":0}']
        for token, error in ((BOB, CLIConnectionError), ("nobody-has-this-token-at-all", AuthenticationError), (None, AuthenticationError)):
            with pytest.raises(error):
                await glance(stage.watch(token), 1)
        with pytest.raises(CLIConnectionError, match="404"):
            await glance(stage.watch(ALICE, session="ffffffff"), 1)


async def test_without_observable_the_token_of_an_owner_watches_nothing() -> None:
    async with scene() as stage:
        stage.gateway.grant_observer(stage.session)
        with pytest.raises(CLIConnectionError, match="404"):
            await glance(stage.watch(ALICE), 1)
        with pytest.raises(UsageError, match="no session"):
            stage.gateway.grant_observer("ffffffff")
        with pytest.raises(UsageError) as caught:
            stage.gateway.grant_observer("x" * 10_000)
        assert len(str(caught.value)) < 200


async def test_a_request_that_is_longer_than_a_first_line_may_be_is_refused() -> None:
    async with scene(limits=GatewayLimits(first_line_bytes=4000)) as stage:
        assert await status(stage.url, "/healthz", x="a" * 3000) == 200
        assert await status(stage.url, "/healthz", x="a" * 5000) == 431


async def test_a_token_of_an_observer_opens_its_session_only_and_nothing_else() -> None:
    async with scene() as stage:
        token = stage.gateway.grant_observer(stage.session).token
        other = NetworkTransport(stage.url, token=ALICE)
        await other.connect()
        second = stage.gateway.sessions[1].id
        stage.gateway.grant_observer(second)
        with pytest.raises(CLIConnectionError, match="404"):
            await glance(stage.watch(token, session=second), 1)
        with pytest.raises(AuthenticationError):
            await NetworkTransport(stage.url, token=token).connect()
        assert await status(stage.url, "/metrics", authorization=f"Bearer {token}") == 401
        assert await status(stage.url, "/observe", authorization=f"Bearer {token}") == 401
        await other.close()


async def test_a_revoked_observer_is_cut_off_at_once_and_stays_out() -> None:
    async with scene() as stage:
        grant, other = (stage.gateway.grant_observer(stage.session) for _ in range(2))
        await stage.say(b'{"n":1}')
        async with stage.watch(grant.token) as watching, stage.watch(other.token) as going_on:
            await some(watching, 1)
            await some(going_on, 1)
            grant.revoke()
            grant.revoke()
            with pytest.raises(ConnectionLost):
                await some(watching, 1)
            with pytest.raises(AuthenticationError):
                await glance(stage.watch(grant.token), 1)
            await stage.say(b'{"n":2}')
            assert [bytes(line) for line in await some(going_on, 1)] == [b'{"n":2}']
        assert grant.token not in repr(grant)


async def test_an_observer_comes_back_with_the_last_event_id_and_misses_nothing() -> None:
    async with scene() as stage:
        token = stage.gateway.grant_observer(stage.session).token
        await stage.say(*(b'{"n":%d}' % number for number in range(1, 11)))
        async with stage.watch(token) as watching:
            await some(watching, 4)
        await stage.say(b'{"n":11}')
        async with stage.watch(token, since=watching.position) as again:
            assert [json.loads(line)["n"] for line in await some(again, 7)] == [5, 6, 7, 8, 9, 10, 11]
        found, headers, stream, body = await http(
            stage.url, f"/observe/{stage.session}/events", authorization=f"Bearer {token}", last_event_id="10"
        )
        assert (found, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        while not body.endswith(b"\n\n"):
            body += await stream.receive()
        assert body.startswith(b"id: 11\ndata: {")
        assert json.loads(body.partition(b"data: ")[2])["line"] == '{"n":11}'
        await stream.aclose()


async def test_lines_that_are_not_kept_any_more_are_a_replay_gap() -> None:
    async with scene(limits=GatewayLimits(observed_bytes=20_000)) as stage:
        token = stage.gateway.grant_observer(stage.session).token
        for number in range(50):
            await stage.say(b'{"n":%d,"text":"%s"}' % (number, b"x" * 1000))
        for since in (0, 3, 10**9):
            with pytest.raises(ReplayGap):
                await glance(stage.watch(token, since=since), 1)
        async with stage.watch(token, since=None) as watching:
            assert json.loads((await some(watching, 1))[0])["n"] > 30


async def test_fifty_observers_one_of_them_stuck_cost_the_owner_no_line_and_bounded_memory() -> None:
    limits = GatewayLimits(observed_bytes=100_000, half_open=512, half_open_per_address=512)
    async with scene(limits=limits) as stage, anyio.create_task_group() as tasks:
        token = stage.gateway.grant_observer(stage.session).token
        stuck = await http(stage.url, f"/observe/{stage.session}/events", authorization=f"Bearer {token}")
        assert stuck[0] == 200  # and it never reads
        last, done, finished = 400, [0] * 49, anyio.Event()

        async def watch(place: int) -> None:
            async with stage.watch(token, since=None) as watching:
                async for line in watching:
                    if line.direction == "out":
                        done[place] = json.loads(line)["n"]
                    if done[place] == last:
                        break
            finished.set() if min(done) == last else None

        async def speak() -> None:
            for number in range(1, last + 1):
                await stage.process.say(b'{"n":%d,"text":"%s"}' % (number, b"y" * 1000))

        for place in range(49):
            tasks.start_soon(watch, place)
        tasks.start_soon(speak)
        owner = await stage.heard(last)
        assert [json.loads(line)["n"] for line in owner] == list(range(1, last + 1))
        await finished.wait()
        await stuck[2].aclose()


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/events", {}, 401),
        ("/events", {"authorization": "Bearer "}, 401),
        ("/events", {"authorization": "Bearer " + "x" * 2000}, 401),
        ("/events", {"authorization": "Basic GOOD"}, 401),
        ("/events?token=GOOD", {}, 401),
        ("/events", {"authorization": "Bearer GOOD", "last_event_id": "-1"}, 400),
        ("/events", {"authorization": "Bearer GOOD", "last_event_id": "1 OR 1"}, 400),
        ("/events", {"authorization": "Bearer GOOD", "last_event_id": "9" * 1000}, 400),
        ("/events", {"authorization": "Bearer GOOD", "last_event_id": "999"}, 409),
        ("/events", {"authorization": "Bearer GOOD", "host": "evil.example"}, 421),
        ("", {"host": "evil.example"}, 421),
        ("/events", {"authorization": "Bearer GOOD", "origin": "https://evil.example"}, 403),
        ("/timeline", {"authorization": "Bearer GOOD", "origin": "null"}, 403),
        ("/timeline", {}, 401),
        ("/other", {"authorization": "Bearer GOOD"}, 404),
        ("/../metrics", {"authorization": "Bearer GOOD"}, 404),
        ("/events/..%2f", {"authorization": "Bearer GOOD"}, 404),
    ],
)
async def test_hostile_requests_are_refused(path: str, headers: dict[str, str], expected: int) -> None:
    async with scene() as stage:
        token = stage.gateway.grant_observer(stage.session).token
        given = {name: value.replace("GOOD", token) for name, value in headers.items()}
        assert await status(stage.url, f"/observe/{stage.session}{path.replace('GOOD', token)}", **given) == expected
        await stage.say(b'{"n":1}')  # the session goes on


async def test_secrets_are_redacted_unless_the_grant_allows_them() -> None:
    async with scene() as stage:
        grants = [stage.gateway.grant_observer(stage.session, scrub=scrub) for scrub in (True, False)]
        await stage.client.write(json.dumps({"type": "user", "message": {"role": "user", "content": f"use {SECRET}"}}) + "\n")
        await stage.process.hear()
        await stage.say(json.dumps({"request": {"subtype": "can_use_tool", "input": {"command": f"echo {SECRET}"}}}).encode())
        for grant in grants:
            async with stage.watch(grant.token) as watching:
                seen = b"".join(await some(watching, 2))
            assert (SECRET.encode() in seen) == (not grant.scrub)


def delta(text: str) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return json.dumps({"type": "stream_event", "event": event}).encode()


def said(lines: list[ObservedLine]) -> str:
    rows = [json.loads(line) for line in lines if line.direction == "out"]
    return "".join(row["event"]["delta"]["text"] for row in rows if "delta" in row["event"])


BEGIN = b'{"type":"stream_event","event":{"type":"content_block_start","index":0}}'
FRAGMENTS = ["The key is ", "sk-ant-", "api03-0123456789", "abcdef0123456789", " now", "adays"]


@pytest.mark.parametrize("scrub", [True, False])
async def test_a_secret_in_several_fragments_is_removed_for_each_observer(scrub: bool) -> None:
    async with scene() as stage:
        token = stage.gateway.grant_observer(stage.session, scrub=scrub).token
        async with stage.watch(token) as early:
            for line in (BEGIN, *map(delta, FRAGMENTS)):
                await stage.say(line)
            seen = await some(early, 5)
            assert said(seen) == ("The key is [secret]" if scrub else "".join(FRAGMENTS[:4]))
            async with stage.watch(token, since=3) as late:
                await stage.process.stream.aclose()
                seen += [line async for line in early]
                assert [bytes(line) async for line in late] == [bytes(line) for line in seen[3:]]
        assert said(seen) == ("The key is [secret] nowadays" if scrub else "".join(FRAGMENTS))


async def test_an_observer_whose_grant_comes_in_the_middle_of_a_secret_sees_no_half_of_it() -> None:
    async with scene() as stage:
        await stage.say(BEGIN, *map(delta, FRAGMENTS[:3]))
        token = stage.gateway.grant_observer(stage.session).token
        await stage.say(*map(delta, FRAGMENTS[3:]), BEGIN, delta("more "))
        async with stage.watch(token) as watching:
            assert said(await some(watching, 5)) == "[secret]more "


async def test_only_so_many_observers_have_a_place() -> None:
    async with scene(limits=GatewayLimits(observers=2)) as stage:
        token = stage.gateway.grant_observer(stage.session).token
        await stage.say(b'{"n":1}')
        async with stage.watch(token) as one, stage.watch(token) as two:
            await some(one, 1)
            await some(two, 1)
            with pytest.raises(CLIConnectionError, match="429") as refused:
                await glance(stage.watch(token), 1)
            assert refused.value.retryable
            await two.aclose()
            await glance(await _admitted(stage, token), 1)


async def _admitted(stage: Scene, token: str) -> Observation:
    """Observe as soon as there is a place."""
    while await status(stage.url, f"/observe/{stage.session}/events", authorization=f"Bearer {token}") != 200:
        await anyio.lowlevel.checkpoint()
    return stage.watch(token)


async def test_a_session_that_is_over_can_still_be_read() -> None:
    async with scene() as stage:
        token = stage.gateway.grant_observer(stage.session).token
        await stage.say(b'{"n":1}')
        await stage.process.stream.aclose()
        await stage.client.close()
        while stage.gateway.sessions:
            await anyio.lowlevel.checkpoint()
        async with stage.watch(token) as watching:
            seen = [line async for line in watching]
        assert bytes(seen[0]) == b'{"n":1}'
        assert seen[-1].direction == "note"


async def test_a_heartbeat_comes_while_nothing_is_said() -> None:
    async with scene(limits=GatewayLimits(heartbeat=0.05)) as stage:
        token = stage.gateway.grant_observer(stage.session).token
        _, _, stream, body = await http(stage.url, f"/observe/{stage.session}/events", authorization=f"Bearer {token}")
        while body.count(b":\n\n") < 3:
            body += await stream.receive()
        await stream.aclose()


async def test_the_list_names_the_sessions_of_the_owner_only() -> None:
    async with scene(observable=True) as stage:
        _, headers, stream, body = await http(stage.url, "/observe", authorization=f"Bearer {ALICE}")
        while len(body) < int(headers["content-length"]):
            body += await stream.receive()
        assert [row["session"] for row in json.loads(body)] == [stage.session]
        await stream.aclose()
        _, headers, stream, body = await http(stage.url, "/observe", authorization=f"Bearer {BOB}")
        while len(body) < int(headers["content-length"]):
            body += await stream.receive()
        assert json.loads(body) == []
        await stream.aclose()


async def test_a_gateway_that_closes_ends_its_observers() -> None:
    async with scene() as stage:
        token = stage.gateway.grant_observer(stage.session).token
        await stage.say(b'{"n":1}')
        async with stage.watch(token) as watching:
            await some(watching, 1)
            await stage.gateway.aclose()
            try:
                async for _ in watching:
                    pass
            except ConnectionLost:
                pass


async def test_an_unused_port_is_a_typed_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(CLIConnectionError):
            await glance(observe(f"ws://127.0.0.1:{taken.getsockname()[1]}", session="a"), 1)


async def test_an_observer_that_takes_nothing_is_disconnected_and_its_place_is_free() -> None:
    async with scene(limits=GatewayLimits(observers=1, heartbeat=0.05, observed_bytes=32 * 2**20)) as stage:
        token = stage.gateway.grant_observer(stage.session).token
        stuck = await http(stage.url, f"/observe/{stage.session}/events", authorization=f"Bearer {token}")
        for _ in range(100):
            await stage.say(b'{"text":"%s"}' % (b"z " * 60_000))
        await (await _admitted(stage, token)).aclose()
        await stuck[2].aclose()
