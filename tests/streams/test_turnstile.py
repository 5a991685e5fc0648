"""The lock of a transport: one task at a time, in the order of their coming, whatever is cancelled meanwhile."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from claude_transport.loops.current import FairLock


async def test_a_free_one_lets_through_without_a_checkpoint() -> None:
    turnstile = FairLock()
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with turnstile:
            assert turnstile.locked()
        assert not turnstile.locked()
    assert not scope.cancelled_caught


async def test_tasks_pass_in_the_order_of_their_coming_and_never_two_at_once() -> None:
    turnstile, order, inside = FairLock(), list[int](), 0

    async def pass_through(number: int) -> None:
        nonlocal inside
        async with turnstile:
            inside += 1
            assert inside == 1
            order.append(number)
            await anyio.lowlevel.checkpoint()
            if number < 5:  # one that comes while a turn is handed over waits behind those that came before
                tasks.start_soon(pass_through, number + 10)
                await anyio.lowlevel.checkpoint()
            inside -= 1

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(pass_through, number)
                await anyio.wait_all_tasks_blocked() if number == 0 else await anyio.lowlevel.checkpoint()
    assert not turnstile.locked()
    assert sorted(order) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert [number for number in order if number < 10] == [0, 1, 2, 3, 4]
    assert [number for number in order if number >= 10] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_a_cancelled_task_lets_the_next_one_through(is_handed_over: bool) -> None:
    turnstile, passed = FairLock(), list[str]()

    async def wait(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            async with turnstile:
                passed.append(name)

    first, second = anyio.CancelScope(), anyio.CancelScope()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with turnstile:
                tasks.start_soon(wait, "first", first)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(wait, "second", second)
                await anyio.wait_all_tasks_blocked()
                if not is_handed_over:
                    first.cancel()
                    await anyio.wait_all_tasks_blocked()
            first.cancel()  # in the same step as the turn that it was given
    assert passed[-1] == "second"
    assert not turnstile.locked()


async def test_an_error_inside_frees_it() -> None:
    turnstile = FairLock()
    with pytest.raises(ValueError, match="inside"):
        async with turnstile:
            raise ValueError("inside")
    assert not turnstile.locked()
