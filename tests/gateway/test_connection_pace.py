"""How often a client and an address may connect: one that connects without pause delays itself, and not the others."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from rehearsal import rehearsal
from virtual_time import Backend, jumping_backends

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.gateway import Gateway
from claude_transport.link.machine import Refusal, Welcome
from claude_transport.serving.door import Door, GatewayLimits, GatewayTokens
from claude_transport.serving.pace import Pace

MINUTE = 60.0
PEERS = 50


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def make_pace(**changes: float | None) -> Pace:
    settings: dict[str, float | None] = {"per_client": 20, "per_source": 50}
    return Pace(client_burst=64, source_burst=128, **{**settings, **changes})


@pytest.mark.parametrize("one_token", [True, False], ids=["one token", "fifty tokens"])
@pytest.mark.parametrize("one_address", [True, False], ids=["one address", "two addresses"])
async def test_beside_fifty_clients_that_connect_without_pause_another_waits_half_a_second_at_most(
    one_token: bool, one_address: bool
) -> None:
    pace = make_pace()
    turns = 0

    async def connect_without_pause(number: int) -> None:
        nonlocal turns
        while True:
            await pace.turn("rude" if one_token else f"rude {number}", "192.0.2.1")
            turns += 1

    waits = []
    async with anyio.create_task_group() as tasks:
        for number in range(PEERS):
            tasks.start_soon(connect_without_pause, number)
        for _ in range(30):
            await anyio.sleep(2)
            began = anyio.current_time()
            await pace.turn("honest", "192.0.2.1" if one_address else "192.0.2.2")
            waits.append(anyio.current_time() - began)
        tasks.cancel_scope.cancel()
    assert max(waits) <= 0.5
    rate = 20 if one_token else 50
    assert turns <= rate * (anyio.current_time() + 1) + 128


async def test_a_burst_goes_on_at_once_and_then_each_turn_waits_for_the_rate() -> None:
    pace = make_pace(per_source=None)
    began = anyio.current_time()
    for _ in range(64):
        await pace.turn("a", "192.0.2.1")
    assert anyio.current_time() == began
    for _ in range(20):
        await pace.turn("a", "192.0.2.1")
    assert anyio.current_time() == pytest.approx(began + 1.0)
    await anyio.sleep(MINUTE)
    began = anyio.current_time()
    for _ in range(64):
        await pace.turn("a", "192.0.2.1")
    assert anyio.current_time() == began


async def test_turns_that_were_given_up_delay_no_later_one() -> None:
    pace = make_pace()
    for _ in range(64):
        await pace.turn("a", "192.0.2.1")
    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(pace.turn, "a", "192.0.2.1")
        await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    began = anyio.current_time()
    await pace.turn("a", "192.0.2.1")
    assert anyio.current_time() - began <= 1 / 20


async def test_a_connection_that_was_given_up_in_the_queue_of_its_address_takes_no_turn() -> None:
    pace = make_pace(per_client=None)
    for _ in range(129):
        await pace.turn("a", "192.0.2.1")
    async with anyio.create_task_group() as tasks:
        for _ in range(500):
            tasks.start_soon(pace.turn, "a", "192.0.2.1")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    began = anyio.current_time()
    await pace.turn("b", "192.0.2.1")
    assert anyio.current_time() - began <= 2 / 50


async def test_of_those_that_wait_at_one_address_the_one_that_has_connected_least_is_next_also_when_another_gives_up() -> None:
    pace = make_pace(per_client=0.001, per_source=0.5)
    for client in range(7):
        for number in range(client):
            await pace.turn(f"client {client}", f"elsewhere {number}")
    for number in range(129):
        await pace.turn(f"once {number}", "192.0.2.1")
    order: list[int] = []
    scopes = [anyio.CancelScope() for _ in range(7)]

    async def connect(client: int) -> None:
        with scopes[client]:
            await pace.turn(f"client {client}", "192.0.2.1")
            order.append(client)

    async with anyio.create_task_group() as tasks:
        for client in (0, 3, 1, 5, 6, 2, 4):
            tasks.start_soon(connect, client)
            await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
    assert order == [1, 2, 3, 4, 5, 6]


async def test_of_ever_new_clients_and_addresses_only_those_are_remembered_that_may_have_to_wait() -> None:
    pace = make_pace()
    for number in range(1500):
        await pace.turn(f"refused {number}", f"192.0.{number}")
        await anyio.sleep(0.01)
    assert len(pace) <= 2 * 1024
    for _ in range(64):
        await pace.turn("busy", "198.51.100.1")
    for number in range(1100):
        await pace.turn(f"idle {number}", f"198.51.{number}")
    began = anyio.current_time()
    await pace.turn("busy", "198.51.100.1")
    assert anyio.current_time() > began


async def test_without_limits_and_within_the_process_nothing_waits() -> None:
    unlimited, limited = make_pace(per_client=None, per_source=None), make_pace()
    began = anyio.current_time()
    for _ in range(1000):
        await unlimited.turn("a", "192.0.2.1")
        await limited.turn("a", "")
    assert anyio.current_time() == began


async def test_a_gateway_without_tokens_counts_each_address_and_refused_clients_count_for_themselves() -> None:
    door = Door(tokens=GatewayTokens(), limits=GatewayLimits(connections=1, half_open_per_address=1))
    began = anyio.current_time()
    for _ in range(10):
        await door.take_turn("192.0.2.1:1", owner="anybody")
    delayed = anyio.current_time()
    assert delayed - began == pytest.approx(9 / 20)
    await door.take_turn("192.0.2.2:1", owner="anybody")
    await door.take_turn("192.0.2.1:1", owner=None)
    assert anyio.current_time() - delayed <= 1 / 50


@pytest.mark.parametrize("name", ["connects_per_second", "connects_per_second_per_address"])
async def test_a_rate_is_a_positive_number_or_none(name: str) -> None:
    def gateway(rate: Any) -> Gateway:
        return Gateway(limits=GatewayLimits(**{name: rate}))

    gateway(None)
    gateway(0.5)
    with pytest.raises(ConfigurationError) as caught:
        gateway(0)
    assert (caught.value.option, str(caught.value)) == (name, f"the limit {name} is 0: use a positive number or None")


async def test_a_gateway_lets_a_client_wait_that_connects_too_often() -> None:
    limits = GatewayLimits(connections=1, half_open_per_address=1, connects_per_second=2)
    async with rehearsal(limits=limits) as stage:
        began = anyio.current_time()
        moments = []
        for _ in range(3):
            client = await stage.link()
            await client.hear_frame(Welcome)
            moments.append(round(anyio.current_time() - began, 3))
            client.stream.break_connection()
            await anyio.wait_all_tasks_blocked()
        assert moments == [0.0, 0.5, 1.0]


async def test_a_refused_client_whose_turn_is_far_away_is_not_kept_until_then() -> None:
    async with rehearsal(limits=GatewayLimits(connections=1, half_open_per_address=1, connects_per_second=0.01)) as stage:
        first = await stage.link(token="wrong-token-0123456789")
        await first.hear_frame(Refusal)
        first.stream.break_connection()
        began = anyio.current_time()
        second = await stage.link(token="wrong-token-0123456789")
        assert await second.rest(patience=1000) == b""
        assert anyio.current_time() - began == pytest.approx(3.0)


async def test_a_gateway_answers_a_refused_client_later_that_comes_back_too_often() -> None:
    limits = GatewayLimits(connections=1, half_open_per_address=1, connects_per_second=2)
    async with rehearsal(limits=limits) as stage:
        began = anyio.current_time()
        moments = []
        for _ in range(3):
            client = await stage.link(token="wrong-token-0123456789")
            assert (await client.hear_frame(Refusal)).code == "auth"
            client.stream.break_connection()
            moments.append(round(anyio.current_time() - began, 3))
        assert moments == [0.0, 0.5, 1.0]
