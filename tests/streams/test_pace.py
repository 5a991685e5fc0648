"""`CooperativeYield`: a loop that never waits lets other tasks run, and stops when it is cancelled."""

from __future__ import annotations

import asyncio
import time

import anyio
import anyio.lowlevel
import pytest

from claude_transport.streams.inflow import CooperativeYield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the steps read. It stands still unless a test moves it."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def turns_of_others(clock: Clock, *, working: float, heeds_load: bool, steps: int = 80) -> int:
    """How often another task, which works for some seconds each time, got its turn during the steps."""
    turns = before = 0
    is_over = False

    async def work() -> None:
        nonlocal turns
        while not is_over:
            await anyio.lowlevel.checkpoint()
            clock.now += working
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.lowlevel.checkpoint()
        pace, before = CooperativeYield(heeds_load=heeds_load), turns
        for _ in range(steps):
            await pace.step()
        is_over = True
    return turns - before


@pytest.mark.parametrize(("working", "heeds_load"), [(0.0001, True), (0.1, False)])
async def test_others_get_their_turn_every_few_steps(clock: Clock, working: float, heeds_load: bool) -> None:
    assert 8 <= await turns_of_others(clock, working=working, heeds_load=heeds_load) <= 20


async def test_others_that_work_for_long_get_their_turn_at_every_step(clock: Clock) -> None:
    """Nearly: trio chooses who goes first, so the first long checkpoint may come a few steps late."""
    assert await turns_of_others(clock, working=0.001, heeds_load=True, steps=200) >= 160


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
