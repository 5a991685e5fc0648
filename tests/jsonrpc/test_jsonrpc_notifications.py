"""The notifications of a `JSONRPCPeer`: in order, to one reader, none lost once there is one, and bounded however the peer floods."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from rpc_peers import Other, connected, in_time, settled, soon

from claude_transport import Busy, TransportClosed, UsageError
from claude_transport.jsonrpc import JSONRPCPeer, Notification, Request

MANY = 500


async def numbers(peer: JSONRPCPeer, count: int) -> list[int]:
    """The params of the next notifications."""
    reading = peer.notifications()
    return [(await in_time(anext(reading))).params[0] for _ in range(count)]


async def flood(other: Other, count: int, *, first: int = 0, padding: str = "") -> None:
    for number in range(first, first + count):
        await other.say({"method": "delta", "params": [number, padding]})


async def test_leaving_the_loop_or_cancelling_the_reader_loses_nothing() -> None:
    async with connected() as (peer, other):
        await flood(other, 3)
        async for notification in peer.notifications():
            assert notification.params[0] == 0
            break
        assert await numbers(peer, 2) == [1, 2]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(numbers, peer, 1)
            await settled()
            tasks.cancel_scope.cancel()
        await flood(other, 1, first=3)
        assert await numbers(peer, 1) == [3]


async def test_a_second_reader_at_the_same_time_is_refused() -> None:
    async with connected() as (peer, _), anyio.create_task_group() as tasks:
        tasks.start_soon(numbers, peer, 1)
        await settled()
        with pytest.raises(Busy):
            await anext(peer.notifications())
        tasks.cancel_scope.cancel()


async def test_the_iteration_ends_with_the_conversation_and_gives_what_came_before() -> None:
    async with connected() as (peer, other):
        await flood(other, 2)
        await settled()
    assert await numbers(peer, 2) == [0, 1]
    assert [notification async for notification in peer.notifications()] == []
    with pytest.raises(TransportClosed):
        await peer.request("later")


async def test_a_waiting_reader_ends_when_this_end_is_closed() -> None:
    async with anyio.create_task_group() as tasks, connected() as (peer, _):
        ended = anyio.Event()

        async def read() -> None:
            assert [notification async for notification in peer.notifications()] == []
            ended.set()

        tasks.start_soon(read)
        await settled()
        await peer.aclose()
        await in_time(ended.wait())


async def test_a_reader_that_is_behind_stops_the_peer_and_loses_nothing() -> None:
    async with connected(max_notifications=10, capacity=500) as (peer, other), anyio.create_task_group() as tasks:
        peer.notifications()  # from here on nothing is dropped
        said = 0

        async def flood_on() -> None:
            nonlocal said
            for number in range(MANY):
                await flood(other, 1, first=number)
                said = number

        tasks.start_soon(flood_on)
        await settled()
        assert said < 60, "ten are kept here, and some are on the way"
        assert await numbers(peer, MANY) == list(range(MANY))
    assert peer.dropped_notifications == 0


async def test_an_answer_is_read_although_the_reader_is_behind() -> None:
    async with connected(max_notifications=10, capacity=500) as (peer, other), anyio.create_task_group() as tasks:
        peer.notifications()

        async def flood_and_answer() -> None:
            await flood(other, MANY)
            await other.answer("read")

        tasks.start_soon(flood_and_answer)
        await settled()
        assert await in_time(peer.request("ask")) == "read"
        assert await numbers(peer, MANY) == list(range(MANY))


async def test_a_reader_may_ask_in_the_middle_of_a_flood() -> None:
    async with connected(max_notifications=5, capacity=500) as (peer, other), anyio.create_task_group() as tasks:

        async def flood_and_answer() -> None:
            await flood(other, 50)
            await other.answer("read")
            await flood(other, 50, first=50)

        tasks.start_soon(flood_and_answer)
        async for notification in peer.notifications():
            if notification.params[0] == 3:
                assert await in_time(peer.request("ask")) == "read"
            if notification.params[0] == 99:
                break


async def test_without_a_reader_the_newest_are_kept_and_the_others_counted() -> None:
    async with connected(max_notifications=10, capacity=500) as (peer, other), anyio.create_task_group() as tasks:
        await flood(other, MANY)
        tasks.start_soon(other.answer, "read")
        assert await in_time(peer.request("ask")) == "read"
        assert peer.dropped_notifications == MANY - 10
        assert await numbers(peer, 10) == list(range(MANY - 10, MANY))


async def test_without_a_reader_long_ones_are_bounded_by_their_bytes() -> None:
    async with connected(capacity=2**23, max_line_bytes=2**25) as (peer, other), anyio.create_task_group() as tasks:
        await flood(other, 5, padding="x" * 2**24)
        tasks.start_soon(other.answer, "read")
        assert await in_time(peer.request("ask")) == "read"
        assert peer.dropped_notifications == 2
        assert await numbers(peer, 3) == [2, 3, 4]


# on_notification


async def test_a_plain_function_is_called_before_what_the_peer_said_next_is_looked_at() -> None:
    seen: list[str] = []

    async def on_request(request: Request) -> Any:
        seen.append(request.method)

    def on_notification(notification: Notification) -> None:
        seen.append(notification.method)

    async with connected(on_notification=on_notification, on_request=on_request) as (_, other):
        await other.say({"method": "item/started"}, {"id": 0, "method": "approve?"}, {"method": "item/completed"})
        await other.hear()
    assert seen[0] == "item/started"
    assert set(seen) == {"item/started", "approve?", "item/completed"}


async def test_async_callbacks_are_called_one_after_the_other_and_may_ask() -> None:
    seen: list[object] = []

    async def on_notification(notification: Notification) -> None:
        seen.append(notification.params[0])
        seen.append(await peer.request("ask"))

    async with connected(on_notification=on_notification) as (peer, other):
        await flood(other, 3)
        for number in range(3):
            await other.answer(f"answer {number}")
        await soon(lambda: len(seen) == 6)
    assert seen == [0, "answer 0", 1, "answer 1", 2, "answer 2"]


async def test_an_async_callback_that_is_behind_stops_the_peer() -> None:
    seen: list[int] = []
    go = anyio.Event()

    async def on_notification(notification: Notification) -> None:
        await go.wait()
        seen.append(notification.params[0])

    async with connected(on_notification=on_notification, max_notifications=10, capacity=500) as (_, other):
        said = 0
        async with anyio.create_task_group() as tasks:

            async def flood_on() -> None:
                nonlocal said
                for number in range(MANY):
                    await flood(other, 1, first=number)
                    said = number

            tasks.start_soon(flood_on)
            await settled()
            assert said < 60
            go.set()
        await soon(lambda: len(seen) == MANY)
    assert seen == list(range(MANY))


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_callback_that_fails_costs_that_notification_only(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def plain(notification: Notification) -> None:
        if notification.params[0] == 1:
            raise ValueError("in the callback")
        seen.append(notification.params[0])

    async def later(notification: Notification) -> None:
        await anyio.lowlevel.checkpoint()
        plain(notification)

    async with connected(on_notification=later if is_async else plain) as (peer, other):
        await flood(other, 3)
        await soon(lambda: seen == [0, 2])
        assert peer.failed_callbacks == 1
    assert "on_notification, given 'delta', failed (ValueError)" in caplog.text


async def test_callbacks_that_were_never_awaited_are_closed_with_the_conversation() -> None:
    async def on_notification(notification: Notification) -> None:
        await anyio.sleep_forever()

    async with connected(on_notification=on_notification) as (_, other):
        await flood(other, 5)
        await settled()  # what is never awaited would be a warning, which is an error here


async def test_callbacks_get_what_came_before_the_end_of_the_peer() -> None:
    seen: list[int] = []

    async def on_notification(notification: Notification) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(notification.params[0])

    async with connected(on_notification=on_notification) as (_, other):
        await flood(other, 5)
        await other.hang_up()
        await soon(lambda: len(seen) == 5)


async def test_what_a_callback_gets_cannot_be_read_too() -> None:
    async with connected(on_notification=print) as (peer, _):
        with pytest.raises(UsageError, match="handed to on_notification"):
            peer.notifications()
