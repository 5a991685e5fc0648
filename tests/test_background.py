"""Background tasks: they outlive their callers, never the event loop, and their end is always noticed."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import importlib.util
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator
from types import ModuleType

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop, trio_here

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
context_value: contextvars.ContextVar[str] = contextvars.ContextVar("context_value", default="none")


async def test_a_task_runs_in_a_copy_of_the_callers_context() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(context_value.get())
        context_value.set("changed")

    context_value.set("caller")
    with anyio.fail_after(30):
        await LoopTask.spawn(look, name="look").wait()
    assert seen == ["caller"]
    assert context_value.get() == "caller"


async def test_an_exception_is_logged_and_the_task_is_finished(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("on purpose")

    task = LoopTask.spawn(fail, name="failing")
    with caplog.at_level(logging.ERROR), anyio.fail_after(30):
        await task.join()
    assert task.finished
    assert "failing" in caplog.text
    assert "on purpose" in caplog.text


async def test_a_cancelled_task_finishes_and_says_so_once() -> None:
    ends: list[str] = []
    task = LoopTask.spawn(anyio.sleep_forever, name="sleeper", at_end=lambda: ends.append("end"))
    task.cancel()
    with anyio.fail_after(30):
        await task.join()
    task.cancel()
    await anyio.lowlevel.checkpoint()
    assert ends == ["end"]


async def test_a_failing_end_is_logged_and_nobody_waits_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("the end went wrong")

    task = LoopTask.spawn(anyio.lowlevel.checkpoint, name="short", at_end=fail)
    with anyio.fail_after(30):
        await task.join()
    assert "the end went wrong" in caplog.text


@BACKENDS
def test_a_task_that_was_spawned_just_before_the_event_loop_ended_still_has_its_end(backend: str) -> None:
    ends: list[str] = []

    async def main() -> None:
        LoopTask.spawn(anyio.sleep_forever, name="too late", at_end=lambda: ends.append("end"))

    anyio.run(main, backend=backend)
    assert ends == ["end"]


@BACKENDS
def test_a_running_task_ends_with_the_event_loop(backend: str) -> None:
    ends: list[str] = []

    async def main() -> None:
        LoopTask.spawn(anyio.sleep_forever, name="running", at_end=lambda: ends.append("end"))
        for _ in range(3):
            await anyio.lowlevel.checkpoint()

    anyio.run(main, backend=backend)
    assert ends == ["end"]


@BACKENDS
def test_an_interrupt_that_hits_a_background_task_is_the_programs_interrupt(backend: str) -> None:
    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, lambda: None)
            tasks.start_soon(press_ctrl_c)

    async def press_ctrl_c() -> None:
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        LoopTask.spawn(work, name="at work")
        await anyio.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        anyio.run(main, backend=backend)


async def test_cancelling_a_waiter_does_not_touch_the_task() -> None:
    go = anyio.Event()
    task = LoopTask.spawn(go.wait, name="waits")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await task.wait()
    assert not task.finished
    go.set()
    with anyio.fail_after(30):
        await task.wait()


async def test_join_returns_only_when_the_task_is_done_and_delivers_the_cancellation_then() -> None:
    go = anyio.Event()
    task = LoopTask.spawn(go.wait, name="waits")
    finished_before_cancellation: list[bool] = []

    async def join() -> None:
        await task.join()
        finished_before_cancellation.append(task.finished)
        await anyio.lowlevel.checkpoint()
        raise AssertionError("the cancellation was lost")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                assert finished_before_cancellation == []
                go.set()
    assert finished_before_cancellation == [True]


def test_join_keeps_the_cancellation_of_a_task_that_asyncio_cancels_repeatedly() -> None:
    async def main() -> None:
        go = asyncio.Event()
        task = LoopTask.spawn(go.wait, name="waits")
        joiner = asyncio.create_task(task.join())
        for _ in range(3):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            joiner.cancel()
        await asyncio.sleep(0)
        assert not joiner.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await joiner
        assert task.finished

    asyncio.run(main())


def test_no_task_can_be_spawned_when_trio_is_finalising_its_generators() -> None:
    outcome: list[str] = []

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            try:
                LoopTask.spawn(anyio.sleep_forever, name="refused")
            except RuntimeError:
                outcome.append("refused")

    keep = generator()

    async def main() -> None:
        await anext(keep)

    anyio.run(main, backend="trio")
    assert outcome == ["refused"]


@BACKENDS
def test_a_loop_is_known_from_inside_and_over_when_it_has_ended(backend: str) -> None:
    loops: list[HostLoop] = []
    calls: list[bool] = []

    async def main() -> None:
        loop = HostLoop()
        loops.append(loop)
        assert loop.is_current
        assert not loop.is_paused
        called = anyio.Event()

        def from_elsewhere() -> None:
            assert not loop.is_current
            loop.call_soon(lambda: (calls.append(loop.is_current), called.set()))

        thread = threading.Thread(target=from_elsewhere)
        thread.start()
        with anyio.fail_after(30):
            await called.wait()
        await anyio.to_thread.run_sync(thread.join)

    anyio.run(main, backend=backend)
    assert calls == [True]
    assert not loops[0].is_current
    assert not loops[0].is_paused
    assert not loops[0].call_soon(lambda: calls.append(False))

    async def another() -> None:
        assert not loops[0].is_current

    for other in ("asyncio", "trio"):
        anyio.run(another, backend=other)
    gc.collect()


def test_an_asyncio_loop_between_two_runs_is_paused() -> None:
    async def look() -> HostLoop:
        return HostLoop()

    loop = asyncio.new_event_loop()
    try:
        host = loop.run_until_complete(look())
        assert host.is_paused
        assert not host.is_current
    finally:
        loop.close()
    assert not host.is_paused


def test_there_is_no_loop_outside_of_one() -> None:
    with pytest.raises(RuntimeError):
        HostLoop()


PARTS: dict[str, dict[str, ModuleType | None]] = {
    "none is imported": {},
    "trio is empty": {"trio": ModuleType("trio")},
    "trio and its lowlevel are empty": {"trio": ModuleType("trio"), "trio.lowlevel": ModuleType("trio.lowlevel")},
    "asyncio is empty": {"asyncio": ModuleType("asyncio")},
    "the interpreter exits": {"trio": None, "trio.lowlevel": None, "asyncio": None},
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
async def test_a_module_that_is_imported_in_part_is_not_the_event_loop_that_runs(parts: dict[str, ModuleType | None]) -> None:
    """Look from a thread, as a finaliser does while another thread imports an event loop. The module is new: it has not met trio yet."""
    loop = HostLoop()
    spec = importlib.util.find_spec("claude_transport.loops.current")
    assert spec is not None
    assert spec.loader is not None
    new = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(new)

    def look() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("trio", "trio.lowlevel", "asyncio"):
                patch.delitem(sys.modules, name, raising=False)
            for name, module in parts.items():
                patch.setitem(sys.modules, name, module)
            assert not loop.is_current
            assert trio_here() is None
            assert new.trio_here() is None
            for kind in (HostLoop, new.HostLoop):
                with pytest.raises(RuntimeError, match="asyncio is not imported"):
                    kind()

    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(look)
    assert loop.is_current
