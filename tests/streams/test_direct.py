"""`DirectFuture`: its waiter goes on at the end of the callback that settles it; otherwise it is a future like any other. asyncio only."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType

import pytest

from claude_transport.streams.inflow import DirectFuture, direct_future_class, resuming

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

NAME = contextvars.ContextVar("NAME", default="nobody")


async def waiting(future: Awaitable[None], seen: list[str]) -> None:
    NAME.set("the waiter")
    try:
        await future
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    task = asyncio.current_task()
    assert task is not None
    seen.append(f"{NAME.get()} in {task.get_name()}")


async def begun(future: Awaitable[None], seen: list[str]) -> asyncio.Task[None]:
    """A task that waits for it."""
    task = asyncio.ensure_future(waiting(future, seen))
    task.set_name("its own task")
    await asyncio.sleep(0)
    return task


async def called_by_the_loop(func: Callable[[], object]) -> None:
    """Have it called as the loop calls back; what it raises is raised here."""
    done = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            resuming(func)
        except BaseException as error:  # noqa: BLE001 - it is for the caller
            done.set_exception(error)
        else:
            done.set_result(None)

    asyncio.get_running_loop().call_soon(call)
    await done


async def test_the_waiter_goes_on_when_the_callback_has_done_its_work_in_its_own_task_and_context() -> None:
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)

    def settle() -> None:
        future.settle()
        seen.append("the end of the callback")

    def call() -> None:
        resuming(settle)
        seen.append("after it")

    asyncio.get_running_loop().call_soon(call)
    await task
    assert seen == ["the end of the callback", "the waiter in its own task", "after it"]


async def test_several_go_on_one_after_the_other_and_what_they_settle_goes_on_soon() -> None:
    first, second, third = (direct_future_class()(loop=asyncio.get_running_loop()) for _ in range(3))
    seen = list[str]()

    async def settling(future: DirectFuture, other: DirectFuture) -> None:
        await future
        seen.append("the first")
        other.settle()

    tasks = [asyncio.ensure_future(settling(first, third)), await begun(second, seen), await begun(third, seen)]

    def settle() -> None:
        first.settle()
        second.settle()

    await called_by_the_loop(settle)
    assert seen[:2] == ["the first", "the waiter in its own task"]
    await asyncio.gather(*tasks)
    assert len(seen) == 3


async def test_where_tasks_may_run_the_loop_again_the_waiter_goes_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nest_asyncio", ModuleType("nest_asyncio"))
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)

    def call() -> None:
        resuming(future.settle)
        seen.append("after it")

    asyncio.get_running_loop().call_soon(call)
    await task
    assert seen == ["after it", "the waiter in its own task"]


async def test_who_exits_in_the_midst_holds_up_nobody_else() -> None:
    first, second = (direct_future_class()(loop=asyncio.get_running_loop()) for _ in range(2))
    seen = list[str]()

    def exit_at_once(_: object) -> None:
        raise SystemExit(3)

    first.add_done_callback(exit_at_once)
    task = await begun(second, seen)

    def settle() -> None:
        first.settle()
        second.settle()

    with pytest.raises(SystemExit):
        resuming(settle)
    await task
    assert seen == ["the waiter in its own task"]


async def test_what_was_settled_before_the_callback_failed_goes_on() -> None:
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)

    def settle() -> None:
        future.settle()
        raise LookupError

    with pytest.raises(LookupError):
        await called_by_the_loop(settle)
    await task
    assert seen == ["the waiter in its own task"]


async def test_settled_from_a_task_the_waiter_goes_on_soon() -> None:
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)
    future.settle()
    assert not seen
    await task
    assert seen == ["the waiter in its own task"]


async def test_a_waiter_that_is_cancelled_ends_and_the_future_is_done() -> None:
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
    assert future.cancelled()


async def test_a_cancellation_in_the_moment_of_settling_is_not_lost() -> None:
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)
    future.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_others_may_listen_too() -> None:
    future, seen = direct_future_class()(loop=asyncio.get_running_loop()), list[str]()
    task = await begun(future, seen)
    future.add_done_callback(lambda _: seen.append("a listener"))
    await called_by_the_loop(future.settle)
    await task
    await asyncio.sleep(0)
    assert seen == ["the waiter in its own task", "a listener"]


async def test_who_does_not_listen_any_more_is_not_called() -> None:
    future, calls = direct_future_class()(loop=asyncio.get_running_loop()), list[DirectFuture]()
    future.add_done_callback(calls.append)
    assert future.remove_done_callback(calls.append) == 1
    assert future.remove_done_callback(calls.append) == 0
    await called_by_the_loop(future.settle)
    await asyncio.sleep(0)
    assert not calls


async def test_nobody_has_to_wait() -> None:
    future = direct_future_class()(loop=asyncio.get_running_loop())
    await called_by_the_loop(future.settle)
    await future
