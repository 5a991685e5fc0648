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


async def turns_of_others(clock: Clock, *phases: float, heeds_load: bool = True, steps: int = 80) -> list[int]:
    """How often another task got its turn in each phase of so many steps. A phase is the seconds that it works each time."""
    turns, working = 0, 0.0
    is_over = False

    async def work() -> None:
        nonlocal turns
        while not is_over:
            await anyio.lowlevel.checkpoint()
            clock.now += working
            turns += 1

    found: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.lowlevel.checkpoint()
        pace = CooperativeYield(heeds_load=heeds_load)
        for phase in phases:
            working, before = phase, turns
            for _ in range(steps):
                await pace.step()
            found.append(turns - before)
        is_over = True
    return found


@pytest.mark.parametrize(("working", "heeds_load"), [(0.0001, True), (0.1, False)])
async def test_others_get_their_turn_every_few_steps(clock: Clock, working: float, heeds_load: bool) -> None:
    (turns,) = await turns_of_others(clock, working, heeds_load=heeds_load)
    assert 8 <= turns <= 20


async def test_others_that_work_for_long_get_their_turn_at_every_step_until_they_do_not(clock: Clock) -> None:
    """Nearly: trio chooses who goes first, so a long checkpoint may be noticed a few steps late."""
    loaded, alone = await turns_of_others(clock, 0.001, 0.0, steps=200)
    assert loaded >= 160
    assert 20 <= alone <= 50


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
