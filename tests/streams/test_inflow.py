"""`Inflow`: a pipe that is watched once, read ahead, and poured."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.streams.inflow import Inflow

NAME = contextvars.ContextVar("NAME", default="nobody")
PATIENCE = 30.0
CHUNK = 65536


class Pipe:
    """Both ends of a pipe, and the `Inflow` that reads it."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        os.set_blocking(self.out, False)
        os.set_blocking(self.into, False)
        self.inflow = Inflow(self.out)

    def write(self, data: bytes) -> None:
        assert os.write(self.into, data) == len(data)

    async def read(self) -> bytes:
        """Read as a stream does: wait when there is nothing."""
        while (data := self.inflow.take(CHUNK)) is None:
            await self.inflow.arrival()
        return data

    async def arrival(self) -> None:
        """Wait for an arrival. A task group needs a coroutine function."""
        await self.inflow.arrival()

    def close(self) -> None:
        self.inflow.close()
        anyio.notify_closing(self.out)
        os.close(self.out)
        if self.into >= 0:
            os.close(self.into)

    def end(self) -> None:
        os.close(self.into)
        self.into = -1


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    pipe = Pipe()
    try:
        with anyio.fail_after(PATIENCE):
            yield pipe
    finally:
        pipe.close()


async def until_all_wait() -> None:
    """Let other tasks run until all of them wait."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_what_arrives_piece_by_piece_is_read_in_order_to_its_end(pipe: Pipe) -> None:
    heard: list[bytes] = []

    async def read_all() -> None:
        while data := await pipe.read():
            heard.append(data)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_all)
        for number in range(50):
            await until_all_wait()
            pipe.write(b"%d\n" % number)
            while len(heard) <= number:
                await anyio.lowlevel.checkpoint()
        pipe.end()
    assert heard == [b"%d\n" % number for number in range(50)]


async def test_the_event_loop_is_told_of_the_pipe_once_for_any_number_of_messages(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        loop = None  # trio's wait is one-shot: nothing is registered, so nothing is counted
    for name in ("add_reader", "remove_reader") if loop is not None else ():
        before = getattr(loop, name)
        monkeypatch.setattr(loop, name, lambda *args, name=name, before=before: (told.append(name), before(*args))[1])
    assert pipe.inflow.take(CHUNK) is None
    for number in range(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipe.arrival)
            await until_all_wait()
            pipe.write(b"%d" % number)
        assert pipe.inflow.take(CHUNK) == b"%d" % number
        assert pipe.inflow.take(CHUNK) is None
    assert told == (["add_reader"] if loop is not None else [])


async def test_a_reader_that_is_cancelled_takes_nothing_along(pipe: Pipe) -> None:
    for number in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipe.arrival)
            await until_all_wait()
            pipe.write(b"%d" % number)
            for _ in range(number % 5):  # before, while and after the loop notices
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert await pipe.read() == b"%d" % number


async def test_of_more_than_is_asked_for_the_rest_stays(pipe: Pipe) -> None:
    assert pipe.inflow.take(CHUNK) is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe.arrival)
        await until_all_wait()
        pipe.write(b"abcdef")
    taken = [pipe.inflow.take(4), pipe.inflow.take(4), pipe.inflow.take(4)]
    assert taken == [b"abcd", b"ef", None]


async def test_a_pipe_that_nobody_reads_fills_and_its_writer_is_held_up(pipe: Pipe) -> None:
    assert pipe.inflow.take(CHUNK) is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe.arrival)
        await until_all_wait()
        pipe.write(b"x")
    written = 1
    for _ in range(100):
        try:
            written += os.write(pipe.into, b"x" * CHUNK)
        except BlockingIOError:
            await anyio.lowlevel.checkpoint()
    assert written <= 16 * CHUNK + 2 * CHUNK  # the largest pipe where the tests run, and what is read ahead
    pipe.end()
    heard = 0
    while data := await pipe.read():
        heard += len(data)
    assert heard == written


@pytest.mark.parametrize("seen_before", [False, True])
async def test_who_waits_can_be_woken_although_nothing_has_arrived(pipe: Pipe, seen_before: bool) -> None:
    if seen_before:
        pipe.write(b"before")
        assert (await pipe.read(), pipe.inflow.take(CHUNK)) == (b"before", None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe.arrival)
        await until_all_wait()
        pipe.inflow.wake()
    assert pipe.inflow.take(CHUNK) is None


async def test_two_cannot_wait_for_the_same_pipe(pipe: Pipe) -> None:
    assert pipe.inflow.take(CHUNK) is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe.arrival)
        await until_all_wait()
        with pytest.raises(anyio.BusyResourceError):
            await pipe.inflow.arrival()
        tasks.cancel_scope.cancel()


async def test_the_end_of_the_pipe_is_told_as_often_as_one_asks(pipe: Pipe) -> None:
    pipe.write(b"last")
    pipe.end()
    assert [await pipe.read() for _ in range(3)] == [b"last", b"", b""]


async def test_nobody_waits_for_a_pipe_that_was_closed(pipe: Pipe) -> None:
    pipe.inflow.close()
    with pytest.raises(anyio.ClosedResourceError):
        await pipe.inflow.arrival()


# Poured.


class Listener:
    """Collects poured chunks. A chunk with an exclamation mark at its end is enough."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.heard: list[bytes] = []
        self.ended: list[bool] = []

    def hand_on(self, chunk: bytes) -> bool:
        self.heard.append(chunk)
        return chunk.endswith(b"!")

    async def listen(self) -> None:
        self.ended.append(await self.pipe.inflow.pour(self.hand_on))

    async def until(self, *heard: bytes) -> None:
        while self.heard != list(heard):
            await anyio.lowlevel.checkpoint()


@pytest.fixture
def listener(pipe: Pipe) -> Listener:
    assert pipe.inflow.take(CHUNK) is None
    return Listener(pipe)


async def test_what_is_poured_is_handed_on_in_order_until_it_is_enough(pipe: Pipe, listener: Listener) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.listen)
        for expected in ([b"one"], [b"one", b"two"], [b"one", b"two", b"three!"]):
            assert not listener.ended
            await until_all_wait()
            pipe.write(expected[-1])
            await listener.until(*expected)
    assert listener.ended == [True]
    pipe.write(b"four")
    assert await pipe.read() == b"four"


async def test_who_has_it_poured_sleeps_through_all_of_it(pipe: Pipe, listener: Listener) -> None:
    resumed: list[int] = []

    class Counting:
        """Awaits the listener, and counts how often it is resumed."""

        def __await__(self) -> Generator[Any, Any, None]:
            coroutine, answer = listener.listen(), None
            while True:
                try:
                    request = coroutine.send(answer)
                except StopIteration:
                    return
                answer = yield request
                resumed.append(len(listener.heard))

    async def listen() -> None:
        await Counting()

    words = [b"%d" % number for number in range(30)] + [b"enough!"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        for number, word in enumerate(words):
            await until_all_wait()
            pipe.write(word)
            await listener.until(*words[: number + 1])
    assert resumed == [len(words)]


async def test_what_comes_after_enough_waits_for_whoever_is_next(pipe: Pipe, listener: Listener) -> None:
    for number in range(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.listen)
            await until_all_wait()
            pipe.write(b"enough!")
            for _ in range(number % 5):
                await anyio.lowlevel.checkpoint()
            pipe.write(b"more!")
        said = b"".join(listener.heard)
        if said == b"enough!":
            assert await pipe.read() == b"more!"
        else:
            assert said == b"enough!more!"
        assert pipe.inflow.take(CHUNK) is None
        listener.heard.clear()


async def test_one_who_is_cancelled_is_not_called_any_more_and_nothing_is_lost(pipe: Pipe, listener: Listener) -> None:
    for number in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.listen)
            await until_all_wait()
            pipe.write(b"%d" % number)
            for _ in range(number % 5):  # before, while and after the loop notices
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        heard = b"".join(listener.heard) or await pipe.read()
        assert heard == b"%d" % number
        listener.heard.clear()
        pipe.write(b"later")
        assert (await pipe.read(), listener.heard) == (b"later", [])
        assert pipe.inflow.take(CHUNK) is None


async def test_who_is_called_and_has_enough_is_told_so_although_a_cancellation_comes(pipe: Pipe, listener: Listener) -> None:
    for number in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.listen)
            await until_all_wait()
            pipe.write(b"enough!")
            for _ in range(number % 5):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        if not listener.heard:
            assert await pipe.read() == b"enough!"
        assert listener.ended == [True] * len(listener.heard)
        listener.heard.clear()
        listener.ended.clear()
        pipe.inflow.take(CHUNK)


async def test_nobody_is_poured_for_beside_one_who_waits(pipe: Pipe, listener: Listener) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe.arrival)
        await until_all_wait()
        with pytest.raises(anyio.BusyResourceError):
            await listener.listen()
        tasks.cancel_scope.cancel()


async def test_a_pipe_that_is_closed_while_it_speaks_is_closed(pipe: Pipe) -> None:
    for hops in range(40):
        another = Pipe()
        assert another.inflow.take(CHUNK) is None
        listener = Listener(another)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.listen)
            await until_all_wait()
            another.write(b"word")
            for _ in range(hops % 4):
                await anyio.lowlevel.checkpoint()
            another.close()
        assert listener.ended == [False]


async def test_what_the_listener_raises_is_raised_where_it_was_asked_for(pipe: Pipe, listener: Listener) -> None:
    def refuse(chunk: bytes) -> bool:
        raise LookupError(chunk)

    async def listen() -> None:
        with pytest.raises(LookupError, match="word"):
            await pipe.inflow.pour(refuse)
        listener.ended.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await until_all_wait()
        pipe.write(b"word")
    assert listener.ended == [True]


async def test_the_listener_is_called_in_the_context_of_who_asked(pipe: Pipe) -> None:
    seen: list[str] = []

    def note(chunk: bytes) -> bool:
        seen.append(NAME.get())
        return True

    async def listen(name: str) -> None:
        NAME.set(name)
        await pipe.inflow.pour(note)

    assert pipe.inflow.take(CHUNK) is None
    for name in ("first", "second"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, name)
            await until_all_wait()
            pipe.write(b"x")
    assert seen == ["first", "second"]


async def woken(pipe: Pipe) -> None:
    pipe.inflow.wake()


async def ended(pipe: Pipe) -> None:
    pipe.end()


async def closed(pipe: Pipe) -> None:
    pipe.inflow.close()


@pytest.mark.parametrize("what", [woken, ended, closed])
async def test_who_takes_is_asked_again_when_something_else_has_happened(
    pipe: Pipe, listener: Listener, what: Callable[[Pipe], Awaitable[None]]
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.listen)
        await until_all_wait()
        pipe.write(b"word")
        await listener.until(b"word")
        await what(pipe)
    assert (listener.ended, listener.heard) == ([False], [b"word"])


async def test_what_was_read_ahead_is_for_who_takes_it(pipe: Pipe, listener: Listener) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pipe.arrival)
        await until_all_wait()
        pipe.write(b"ahead")
    if pipe.inflow.take(0) == b"":  # it was read ahead; on trio it is still in the pipe
        await listener.listen()
        assert (listener.ended, listener.heard) == ([False], [])
    assert await pipe.read() == b"ahead"


async def test_nobody_else_can_wait_beside_a_listener(pipe: Pipe, listener: Listener) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.listen)
        await until_all_wait()
        with pytest.raises(anyio.BusyResourceError):
            await pipe.inflow.arrival()
        with pytest.raises(anyio.BusyResourceError):
            await listener.listen()
        tasks.cancel_scope.cancel()


async def test_a_closed_pipe_is_not_poured(pipe: Pipe, listener: Listener) -> None:
    pipe.inflow.close()
    with pytest.raises(anyio.ClosedResourceError):
        await listener.listen()


async def test_a_pipe_whose_listener_has_gone_fills_and_its_writer_is_held_up(pipe: Pipe, listener: Listener) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.listen)
        await until_all_wait()
        tasks.cancel_scope.cancel()
    written = 0
    for _ in range(100):
        try:
            written += os.write(pipe.into, b"x" * CHUNK)
        except BlockingIOError:
            await anyio.lowlevel.checkpoint()
    assert written <= 16 * CHUNK + 2 * CHUNK
    assert not listener.heard
    pipe.end()
    heard = 0
    while data := await pipe.read():
        heard += len(data)
    assert heard == written


async def test_hundreds_of_pipes_are_poured_beside_each_other() -> None:
    pipes = [Pipe() for _ in range(200)]
    listeners = [Listener(pipe) for pipe in pipes]
    try:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for listener in listeners:
                    assert listener.pipe.inflow.take(CHUNK) is None
                    tasks.start_soon(listener.listen)
                await until_all_wait()
                for word in (b"one", b"two", b"three!"):
                    for pipe in pipes:
                        pipe.write(word)
                    for listener in listeners:
                        while listener.heard[-1:] != [word]:
                            await anyio.lowlevel.checkpoint()
    finally:
        for pipe in pipes:
            pipe.close()
    assert all(listener.heard == [b"one", b"two", b"three!"] and listener.ended == [True] for listener in listeners)
