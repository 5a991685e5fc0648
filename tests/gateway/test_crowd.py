"""Connections that are not admitted: their number is bounded, and an honest client gets in beside them."""

from __future__ import annotations

import contextlib
import logging
import random
from contextlib import ExitStack

import anyio
import anyio.lowlevel
import pytest
from rehearsal import ALICE, TOKENS, rehearsal
from virtual_time import virtual_time

from claude_transport.gateway.gateway import Gateway
from claude_transport.link.machine import Hello, Refusal, Welcome, encode_frame
from claude_transport.serving.door import Door, GatewayLimits, GatewayTokens, UnadmittedConnections, source_of
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario

MANY = 1500
UNPACED = GatewayLimits(connects_per_second=None, connects_per_second_per_address=None)


class Visitors:
    """Connections in a crowd, each with a cancel scope of its own."""

    def __init__(self, crowd: UnadmittedConnections) -> None:
        self.crowd = crowd
        self.stack = ExitStack()

    def come(self, source: str, *, lingers: bool = False) -> anyio.CancelScope:
        scope = anyio.CancelScope()
        self.stack.enter_context(self.crowd.hold(scope, source=source, lingers=lingers))
        return scope


@pytest.mark.parametrize("seed", range(5))
async def test_whoever_comes_and_however_the_crowd_stays_bounded(seed: int) -> None:
    chance = random.Random(seed)
    crowd = UnadmittedConnections(full=40, per_source=15, draw=chance.random)
    visitors = Visitors(crowd)
    scopes = []
    for _ in range(1000):
        source = f"10.0.0.{chance.randrange(6)}"
        scopes.append((source, visitors.come(source, lingers=chance.random() < 0.3)))
        standing = [owner for owner, scope in scopes if not scope.cancel_called]
        assert len(standing) == len(crowd) <= 40
        assert all(standing.count(owner) <= 15 for owner in set(standing))
    assert crowd.evicted == 1000 - len(crowd)
    visitors.stack.close()
    assert len(crowd) == 0


async def test_below_half_all_stay_and_from_there_on_one_leaves_by_the_chance_that_is_drawn() -> None:
    draws: list[float] = []
    crowd = UnadmittedConnections(full=10, per_source=10, draw=lambda: draws.pop(0))
    visitors = Visitors(crowd)
    scopes = [visitors.come("a") for _ in range(6)]  # no random number is drawn
    draws += [0.2, 0.5]  # 6 connections: probability 1/5. The draw is not below it: all stay
    draws.pop()
    visitors.come("a")
    assert crowd.evicted == 0
    draws += [0.39, 0.0]  # 7 connections: probability 2/5. The draw is below it, and the first one is drawn
    visitors.come("a")
    assert crowd.evicted == 1
    assert [scope.cancel_called for scope in scopes] == [True, False, False, False, False, False]
    assert draws == []
    for _ in range(3):  # 7, 8, 9: each stays, because the draw is the highest one
        draws.append(0.999)
        visitors.come("a")
    draws.append(0.999)  # full: one leaves for any draw; this draw picks the last one
    visitors.come("b")
    assert (len(crowd), crowd.evicted, draws) == (10, 2, [])


async def test_by_default_nobody_can_foresee_whether_one_leaves() -> None:
    found = set()
    for _ in range(100):
        crowd = UnadmittedConnections(full=4, per_source=4)
        visitors = Visitors(crowd)
        for _ in range(4):  # the probability is one half for the last one
            visitors.come("a")
        found.add(crowd.evicted)
        visitors.stack.close()
    assert found == {0, 1}


async def test_those_that_were_refused_leave_first_the_oldest_before_the_others() -> None:
    crowd = UnadmittedConnections(full=4, per_source=4, draw=lambda: 0.999)
    visitors = Visitors(crowd)
    honest = visitors.come("a")
    lingering = [visitors.come("b", lingers=True), visitors.come("c", lingers=True)]
    visitors.come("a")
    for expected in ([True, False], [True, True]):
        visitors.come("d")
        assert [scope.cancel_called for scope in lingering] == expected
    assert not honest.cancel_called


@pytest.mark.parametrize("floods", [1, 2, 3])
async def test_a_flood_from_some_addresses_never_costs_another_its_place(floods: int) -> None:
    crowd = UnadmittedConnections(full=64, per_source=40, draw=random.Random(1).random)
    visitors = Visitors(crowd)
    honest = visitors.come("honest")
    for number in range(3000):
        visitors.come(f"flood {number % floods}")
    assert not honest.cancel_called


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:db8:1:2:3::4]:4711", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff::4]:1", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.1]:4711", "192.0.2.1"),
        ("[fe80::1%eth0]:4711", "fe80::/64"),
        ("unix", "unix"),
        ("", ""),
        ("a name:1", "a name"),
    ],
)
def test_an_address_without_its_port_is_what_counts(peer: str, source: str) -> None:
    assert source_of(peer) == source


@virtual_time
async def test_a_door_shows_out_who_takes_too_long_and_who_lingers_too_long() -> None:
    door = Door(tokens=GatewayTokens(), limits=GatewayLimits(handshake_timeout=10.0), draw=lambda: 0.0)
    began = anyio.current_time()
    with door.knock("192.0.2.1:1") as scope:
        assert door.half_open == 1
        await anyio.sleep_forever()
    assert (scope.cancelled_caught, round(anyio.current_time() - began, 6)) == (True, 10.0)
    with door.linger("192.0.2.1:1", seconds=3.0):
        assert door.half_open == 1
        await anyio.sleep_forever()
    assert (door.half_open, round(anyio.current_time() - began, 6)) == (0, 13.0)


@virtual_time
@pytest.mark.parametrize("how", ["wrong token", "malformed", "silent", "wrong token in a header"])
async def test_beside_refused_ones_that_do_not_hang_up_an_honest_client_gets_in_within_a_second(how: str) -> None:
    limits = GatewayLimits(half_open=64, half_open_per_address=64)
    async with rehearsal(limits=limits) as stage:
        strangers = []
        for _ in range(MANY):
            stranger = stage.connect(token="wrong-token-0123456789" if how == "wrong token in a header" else None, capacity=4096)
            strangers.append(stranger)
            if how == "wrong token":
                await stranger.frame(Hello(version=1, token="wrong-token-0123456789"))
            elif how == "malformed":
                await stranger.stream.send(b"GET / HTTP/1.1\r\n")
            await anyio.lowlevel.checkpoint()
        began = anyio.current_time()
        client = await stage.link()
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        assert anyio.current_time() - began <= 1.0
        assert stage.gateway.prometheus_text().rpartition("half_open ")[2].strip() in {str(number) for number in range(65)}
        still = 0
        for stranger in strangers:
            with contextlib.suppress(anyio.BrokenResourceError):
                await stranger.stream.send(b"x")
                still += 1
        assert still <= 64
        await process.say({"n": 1})
        await client.hear_line()


@virtual_time
async def test_a_flood_of_strangers_is_no_flood_of_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport")
    async with rehearsal(limits=UNPACED) as stage:
        for _ in range(MANY):
            stranger = stage.connect(capacity=4096)
            await stranger.frame(Hello(version=1, token="wrong-token-0123456789"))
            await stranger.hear_frame(Refusal)
            stranger.stream.break_connection()
        assert stage.gateway.metrics.refused["auth"] == MANY
    assert sum("refused" in record.getMessage() for record in caplog.records) <= 100


@virtual_time
async def test_how_many_were_not_logged_is_said_with_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport")
    async with rehearsal(limits=UNPACED) as stage:
        for wait in (*[0.0] * 149, 11.0):
            await anyio.sleep(wait)
            stranger = stage.connect(capacity=4096)
            await stranger.frame(Hello(version=1, token="wrong-token-0123456789"))
            await stranger.hear_frame(Refusal)
            stranger.stream.break_connection()
    said = [record for record in caplog.records if "refused" in record.getMessage()]
    assert [record.getMessage() for record in said if "more" in record.getMessage()] == [
        "49 more clients were refused, without a record for each"
    ]
    assert len(said) == 100 + 1 + 1


async def test_beside_1500_refused_sockets_an_honest_client_gets_in() -> None:
    with FakeClaude(Scenario()) as fake:
        async with Gateway(command=fake.command, listen=["tcp://127.0.0.1:0"], tokens=TOKENS) as gateway:
            port = int(gateway.urls[0].rpartition(":")[2])
            refused = []
            wrong = encode_frame(Hello(version=1, token="wrong-token-0123456789"))
            with anyio.fail_after(120):
                for _ in range(MANY):
                    stream = await anyio.connect_tcp("127.0.0.1", port)
                    await stream.send(wrong)  # and it never closes
                    refused.append(stream)
            async with await anyio.connect_tcp("127.0.0.1", port) as honest:
                await honest.send(encode_frame(Hello(version=1, token=ALICE)))
                with anyio.fail_after(10):  # takes some hundredths of a second; one second is promised
                    assert (await honest.receive()).startswith(b"W ")
                assert int(gateway.prometheus_text().rpartition("half_open ")[2]) <= GatewayLimits().half_open_per_address
            for stream in refused:
                await anyio.aclose_forcefully(stream)
