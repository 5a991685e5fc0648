"""`Inflow`: the reading end of a pipe, watched once and read where the event loop notices it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.streams.inflow import Inflow

PATIENCE = 30.0
CHUNK = 65536


class Pipe:
    """Both ends, and what reads the one."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        os.set_blocking(self.out, False)
        os.set_blocking(self.into, False)
        self.inflow = Inflow(self.out)

    def write(self, data: bytes) -> None:
        assert os.write(self.into, data) == len(data)

    async def read(self) -> bytes:
        """As a stream reads: wait unless there is something."""
        while (data := self.inflow.take(CHUNK)) is None:
            await self.inflow.arrival()
        return data

    async def arrival(self) -> None:
        """A task can only be a coroutine."""
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
    """Let every task get to where it waits."""
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
        loop = None  # trio's way of waiting is one-shot: there is nothing to be registered, and so nothing to be counted
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
    assert written <= 16 * CHUNK + 2 * CHUNK  # what a pipe holds at most where the tests run, and what is read ahead
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
