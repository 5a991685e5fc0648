"""`Wakeup`: every waiting task is woken once, and a cancelled one disturbs no other."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from claude_transport.loops.current import Wakeup

PATIENCE = 30.0


async def until_all_wait() -> None:
    """Let other tasks run until all of them wait."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_everybody_who_waits_is_woken_each_time() -> None:
    wakeup = Wakeup()
    woken: list[int] = []

    async def wait_twice(number: int) -> None:
        for _ in range(2):
            await wakeup.wait()
            woken.append(number)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(wait_twice, number)
            for times in (1, 2):
                await until_all_wait()
                wakeup.fire()
                await until_all_wait()
                assert sorted(woken) == sorted([0, 1, 2] * times)


async def test_what_happened_before_somebody_waited_does_not_wake_them() -> None:
    wakeup = Wakeup()
    wakeup.fire()
    with anyio.move_on_after(0) as limit:
        await wakeup.wait()
    assert limit.cancelled_caught


async def test_who_is_cancelled_takes_nobody_along_and_is_not_waited_for() -> None:
    wakeup = Wakeup()
    woken: list[str] = []

    async def wait(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await wakeup.wait()
            woken.append(name)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            first, second = anyio.CancelScope(), anyio.CancelScope()
            tasks.start_soon(wait, "first", first)
            tasks.start_soon(wait, "second", second)
            await until_all_wait()
            first.cancel()
            await until_all_wait()
            wakeup.fire()
    assert woken == ["second"]


async def test_a_wake_up_and_a_cancellation_in_the_same_moment_are_both_survived() -> None:
    wakeup = Wakeup()
    scope = anyio.CancelScope()

    async def wait() -> None:
        with scope:
            await wakeup.wait()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until_all_wait()
            scope.cancel()
            wakeup.fire()
            wakeup.fire()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wakeup.wait)
            await until_all_wait()
            wakeup.fire()


def test_it_belongs_to_a_loop_that_runs() -> None:
    waiting = Wakeup().wait()
    with pytest.raises(RuntimeError):
        waiting.send(None)
