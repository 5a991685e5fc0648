"""A connected client that takes nothing of what waits for it has its session for a bounded time."""

from __future__ import annotations

import contextlib
import logging

import anyio
import pytest
from rehearsal import ALICE, Rehearsal, Talker, rehearsal
from virtual_time import jumping_backends

from claude_transport.gateway.arrival import Arrival
from claude_transport.link.machine import Ack, Bye, Ping, Welcome
from claude_transport.serving.door import GatewayLimits
from claude_transport.streams.memory import memory_stream_pair

LINE = b"x" * 4999

LIMITS = GatewayLimits(stall=600.0, replay_bytes=1000, heartbeat=15.0)


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


async def plain_client(stage: Rehearsal) -> tuple[Talker, Talker]:
    """Return a client whose connection holds a thousand bytes, and its process."""
    client = stage.connect(token=ALICE, capacity=1000)
    await client.say(b"{}")
    return client, await stage.processes.next()


async def until_over(stage: Rehearsal) -> None:
    with anyio.fail_after(100_000):
        while stage.gateway.sessions:
            await anyio.sleep(1)


# Plain mode.


async def test_a_plain_client_that_takes_nothing_loses_its_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claude_transport")
    async with rehearsal(limits=LIMITS) as stage:
        client, process = await plain_client(stage)
        began = anyio.current_time()
        await process.say(LINE)
        await until_over(stage)
        assert 600 <= anyio.current_time() - began <= 605
        assert await process.rest() == b"{}\n"
        assert await client.rest() == LINE[:1000]  # no reason in the middle of a line
        await anyio.sleep(10)
        assert (stage.gateway.metrics.ended, stage.gateway.metrics.refused) == ({"stalled": 1}, {"stalled": 1})
    assert "the client took nothing of the output that waited for it, for 600 s" in caplog.text


async def test_a_plain_client_that_has_taken_all_may_be_silent_for_any_time() -> None:
    async with rehearsal(limits=LIMITS) as stage:
        client, process = await plain_client(stage)
        await process.say(b"{}")
        assert await client.hear() == b"{}"
        await anyio.sleep(10_000)
        await process.say(b"[]")
        assert await client.hear() == b"[]"


async def test_a_plain_client_that_takes_its_output_late_has_its_time_again_for_the_next() -> None:
    async with rehearsal(limits=LIMITS) as stage:
        client, process = await plain_client(stage)
        for _ in range(3):
            await process.say(LINE)
            await anyio.sleep(599)
            assert await client.hear() == LINE


async def test_a_plain_client_that_does_not_take_the_torn_end_of_its_process_loses_its_session_too() -> None:
    async with rehearsal(limits=LIMITS) as stage:
        _client, process = await plain_client(stage)
        began = anyio.current_time()
        await process.stream.send(LINE)
        await process.stream.aclose()
        await until_over(stage)
        assert 600 <= anyio.current_time() - began <= 605
        assert stage.gateway.metrics.ended == {"stalled": 1}


async def test_a_plain_client_that_is_told_why_it_is_refused_is_told_so_at_the_end_of_a_line() -> None:
    async with rehearsal(limits=GatewayLimits(session_bytes=1000)) as stage, anyio.create_task_group() as tasks:
        ours, theirs = memory_stream_pair()
        tasks.start_soon(stage.gateway.attend, Arrival(theirs, medium="memory", peer="the test", token=ALICE))
        await ours.send(b"{}\n")
        process = await stage.processes.next()
        await process.say(LINE)
        said = (await Talker(ours).rest()).splitlines()
        assert said[0] == LINE
        assert b"session_bytes" in said[1]


# Link mode.


async def ping(client: Talker, seconds: int) -> None:
    """Say no more than pings."""
    for number in range(seconds // 10):
        await client.frame(Ping(number))
        await anyio.sleep(10)


async def link_client(stage: Rehearsal) -> tuple[Talker, Talker, str]:
    client = await stage.link()
    process = await stage.processes.next()
    return client, process, (await client.hear_frame(Welcome)).session


@pytest.mark.parametrize("ends", [True, False], ids=["of-an-ended-process", "of-a-running-process"])
async def test_a_link_client_that_only_pings_loses_its_session(ends: bool) -> None:
    limits = GatewayLimits(stall=600.0, replay_bytes=100_000 if ends else 1000, heartbeat=15.0)
    async with rehearsal(limits=limits) as stage, anyio.create_task_group() as tasks:
        client, process, _key = await link_client(stage)
        began = anyio.current_time()
        tasks.start_soon(ping, client, 10_000)
        await process.say(LINE)
        if ends:
            await process.stream.aclose()
        goodbye: Bye = await client.hear_frame(Bye)
        assert (goodbye.code, goodbye.reason) == ("stalled", "the client took nothing of the output that waited for it, for 600 s")
        await until_over(stage)
        assert 600 <= anyio.current_time() - began <= 605
        assert (stage.gateway.metrics.ended, stage.gateway.metrics.refused) == ({"stalled": 1}, {"stalled": 1})
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("ends", [True, False], ids=["of-an-ended-process", "of-a-running-process"])
async def test_a_link_client_that_takes_a_little_now_and_then_keeps_its_session(ends: bool) -> None:
    limits = GatewayLimits(stall=600.0, replay_bytes=100_000 if ends else 1000, heartbeat=15.0)
    async with rehearsal(limits=limits) as stage:
        client, process, _key = await link_client(stage)
        await process.say(LINE)
        if ends:
            await process.stream.aclose()
        for position in range(1, 5):
            await ping(client, 590)
            await client.frame(Ack(position))
        assert len(stage.gateway.sessions) == 1


async def test_a_link_client_that_has_taken_all_may_be_silent_for_any_time() -> None:
    async with rehearsal(limits=LIMITS) as stage:
        client, process, _key = await link_client(stage)
        await process.say(b"{}")
        await client.hear_line()
        await client.frame(Ack(3))
        await ping(client, 10_000)
        assert len(stage.gateway.sessions) == 1


async def test_coming_back_again_and_again_gives_no_more_time() -> None:
    async with rehearsal(limits=LIMITS) as stage:
        client, process, key = await link_client(stage)
        await process.say(LINE)
        connected = 0.0
        while stage.gateway.sessions:
            began = anyio.current_time()
            with anyio.move_on_after(100), contextlib.suppress(anyio.EndOfStream):
                await client.hear_frame(Bye)
            connected += anyio.current_time() - began
            client.stream.break_connection()
            await anyio.sleep(1)
            if stage.gateway.sessions:
                client = await stage.link(session=key)
        assert connected <= 610
        assert stage.gateway.metrics.ended == {"stalled": 1}


async def test_the_time_without_a_connection_is_that_of_the_lease() -> None:
    async with rehearsal(limits=GatewayLimits(stall=600.0, replay_bytes=1000, lease=2000.0)) as stage:
        client, process, key = await link_client(stage)
        await process.say(LINE)
        client.stream.break_connection()
        await anyio.sleep(1990)
        client = await stage.link(session=key)
        await client.hear_frame(Welcome)
        await ping(client, 590)
        assert await client.hear_data(5000) == LINE + b"\n"
        assert len(stage.gateway.sessions) == 1
