"""`CooperativeYield`: a loop that never waits lets other tasks run, and stops when it is cancelled."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from claude_transport.streams.inflow import CooperativeYield


async def test_others_get_their_turn_every_few_steps() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        pace, before = CooperativeYield(), turns
        for _ in range(80):
            await pace.step()
        assert 8 <= turns - before <= 20
        tasks.cancel_scope.cancel()


async def test_who_is_cancelled_stops_at_the_next_step() -> None:
    pace = CooperativeYield()
    for steps in range(1, 10):
        for _ in range(steps):
            await pace.step()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await pace.step()
            pytest.fail("it went on")
        assert scope.cancelled_caught


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_so_does_a_task_that_asyncio_itself_cancels() -> None:
    pace = CooperativeYield()
    reached: list[str] = []

    async def work() -> None:
        for _ in range(3):
            await pace.step()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await pace.step()
        reached.append("the end")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(work())
    assert not reached
