"""`MessageRouter`: what is kept for readers that are slow, late or gone, and what is given up first."""

from __future__ import annotations

import gc
import json
from typing import Any

import anyio
import pytest

from claude_transport.codex.messages import CodexNotification, decode_message
from claude_transport.codex.post import CodexMailbox, MessageRouter
from claude_transport.errors import ConnectionLost
from claude_transport.loops.current import LightEvent


def said(method: str, name: str, *, turn: str = "U", size: int = 1000) -> CodexNotification:
    params: dict[str, Any] = {"threadId": "T", "turnId": turn, "itemId": name, "delta": "x" * size}
    message = decode_message(json.dumps({"method": method, "params": params}).encode())
    assert isinstance(message, CodexNotification)
    return message


def piece(name: str, **fields: Any) -> CodexNotification:
    return said("item/agentMessage/delta", name, **fields)


def other(name: str, **fields: Any) -> CodexNotification:
    return said("brand/new", name, **fields)


def cost(message: CodexNotification) -> int:
    return 600 + 4 * len(message.raw)


def taken(box: CodexMailbox) -> list[CodexNotification]:
    found = []
    while (message := box.take()) is not None:
        found.append(message)
    return found


async def test_pieces_are_given_up_before_anything_else_and_then_the_oldest(caplog: pytest.LogCaptureFixture) -> None:
    messages = [
        other("1"),
        piece("2"),
        other("3"),
        piece("4"),
        other("5"),
        said("item/commandExecution/outputDelta", "6"),
        other("7"),
        other("8"),
    ]
    post = MessageRouter(4 * cost(other("1")))
    box = post.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(post.needing, LightEvent())
        await anyio.wait_all_tasks_blocked()
        for message in messages:
            room = post.put(message, [box])
            if room is not None:
                await room
        tasks.cancel_scope.cancel()
    assert [message.to_dict()["params"]["itemId"] for message in taken(box)] == ["5", "7", "8"]
    assert post.dropped == 5
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once, and not for each message"


async def test_without_a_wait_nothing_is_given_up_and_room_comes_with_the_next_message_that_is_taken() -> None:
    messages = [piece(str(number)) for number in range(4)]
    post = MessageRouter(3 * cost(messages[0]))
    box = post.open()
    rooms = [post.put(message, [box]) for message in messages]
    assert [room is None for room in rooms] == [True, True, True, False]
    assert post.waiting_bytes == 4 * cost(messages[0])
    has_room: list[bool] = []

    async def wait() -> None:
        assert rooms[3] is not None
        await rooms[3]
        has_room.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert has_room == []
        assert await post.next(box) is messages[0]
        await anyio.wait_all_tasks_blocked()
        assert has_room == [True]
    assert (post.dropped, taken(box)) == (0, messages[1:])


async def test_messages_for_readers_of_all_count_once_for_each_of_them() -> None:
    message = piece("1")
    post = MessageRouter(3 * cost(message))
    readers = [post.listen(), post.listen()]
    rooms = [post.put(message, []), post.put(message, [])]
    assert [room is None for room in rooms] == [True, False]
    assert post.waiting_bytes == 4 * cost(message)
    assert [taken(reader) for reader in readers] == [[message, message]] * 2
    assert rooms[1] is not None
    await rooms[1]


async def test_the_end_lets_reading_go_on_although_too_much_waits() -> None:
    post = MessageRouter(1)
    box = post.open()
    room = post.put(piece("1"), [box])
    assert room is not None
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert room is not None
            await room

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        post.end(None)


async def test_the_first_reader_of_all_messages_gets_the_last_of_those_before_and_the_second_none() -> None:
    messages = [other(str(number), size=30_000) for number in range(20)]
    fit = 2**20 // cost(messages[0])
    assert 1 < fit < 20
    post = MessageRouter(2**30)
    for message in messages:
        assert post.put(message, []) is None
    assert post.waiting_bytes == 0, "they wait for a reader that may never come"
    first, second = post.listen(), post.listen()
    assert (taken(first), taken(second)) == (messages[-fit:], [])
    post.put(messages[0], [])
    assert (taken(first), taken(second)) == ([messages[0]], [messages[0]])


async def test_a_reader_that_comes_after_the_end_is_told_why_it_ended() -> None:
    post, error = MessageRouter(2**20), ConnectionLost("it is gone")
    post.put(other("1"), [])
    early = post.listen()
    post.end(error)
    late = post.listen()
    for box, count in ((early, 1), (late, 0)):
        assert len(taken(box)) == count
        assert await post.next(box) is None
        assert box.error is error


async def test_a_mailbox_keeps_the_messages_of_its_turn_alone() -> None:
    box = CodexMailbox()
    mine, foreign = piece("1", turn="mine"), piece("2", turn="foreign")
    for message in (mine, foreign, mine):
        box.append(message)
    box.keep_turn("mine")
    assert box.count() == 2 * cost(mine)
    assert (taken(box), box.count()) == ([mine, mine], 0)


async def test_a_mailbox_ends_once() -> None:
    box, error = CodexMailbox(), ConnectionLost("it is gone")
    box.end(error)
    box.end(None)
    assert (box.has_ended, box.error) == (True, error)


async def test_what_waits_for_a_reader_that_is_gone_does_not_count() -> None:
    post = MessageRouter(2**20)
    box, listener = post.open(), post.listen()
    post.put(piece("1"), [box])
    assert post.waiting_bytes == 2 * cost(piece("1"))
    del box, listener
    gc.collect()
    assert post.waiting_bytes == 0
    assert post.put(piece("2"), []) is None
    assert post.waiting_bytes == 0


async def test_a_reader_that_waits_gets_what_comes_and_then_the_end() -> None:
    post, message = MessageRouter(2**20), piece("1")
    box = post.open()
    found: list[CodexNotification | None] = []

    async def read() -> None:
        found.append(await post.next(box))
        found.append(await post.next(box))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            post.put(message, [box])
            await anyio.wait_all_tasks_blocked()
            assert found == [message]
            box.end(None)
    assert found == [message, None]


async def test_a_wait_that_begins_lets_reading_go_on_and_its_end_lets_reading_pause() -> None:
    post = MessageRouter(cost(piece("1")))
    box = post.open()
    first, second = post.put(piece("1"), [box]), post.put(piece("2"), [box])
    assert (first, post.dropped) == (None, 0)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def read_on() -> None:
                assert second is not None
                await second
                tasks.cancel_scope.cancel()

            tasks.start_soon(read_on)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(post.needing, LightEvent())
    assert post.dropped == 2
    third, fourth = post.put(piece("3"), [box]), post.put(piece("4"), [box])
    assert (third, post.dropped) == (None, 2)
    assert fourth is not None
    with anyio.move_on_after(0.05) as pause:
        await fourth
    assert (pause.cancelled_caught, post.dropped, post.waiting_bytes) == (True, 2, 2 * cost(piece("3")))


async def test_a_reader_that_waits_for_its_own_messages_does_not_wait_for_another_that_reads_nothing() -> None:
    post = MessageRouter(2 * cost(piece("1")))
    unread, awaited = post.open(), post.open()
    found: list[CodexNotification | None] = []

    async def read() -> None:
        found.append(await post.next(awaited))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            for number in range(10):
                room = post.put(piece(str(number)), [unread])
                if room is not None:
                    await room
            post.put(other("mine"), [awaited])
    assert [message.to_dict()["params"]["itemId"] for message in found if message] == ["mine"]
    assert post.dropped > 0
