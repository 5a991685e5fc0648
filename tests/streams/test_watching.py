"""Callbacks of the event loop: a file that can be read, and the end of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.loops.current import LightEvent
from claude_transport.loops.descriptors import DescriptorWatcher, FileWatch, LoopEnd

place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a pipe."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


async def reads(pipe: tuple[int, int]) -> None:
    """Watch the pipe, write to it twice, and see that the callback gets both, and nothing after the end."""
    reading, writing = pipe
    said: list[tuple[str, bytes]] = []
    came = [LightEvent(), LightEvent()]

    def read() -> None:
        said.append((place.get(), os.read(reading, 100)))
        came[len(said) - 1].set()

    watch = FileWatch(reading, read, name="a pipe")
    place.set("where it began")
    watch.begin()
    place.set("elsewhere")
    with anyio.fail_after(30):
        for flag, word in zip(came, (b"one", b"two"), strict=True):
            os.write(writing, word)
            await flag.wait()
    watch.end()
    watch.end()
    os.write(writing, b"three")
    await anyio.wait_all_tasks_blocked()
    assert said == [("where it began", b"one"), ("where it began", b"two")]


async def test_a_file_that_can_be_read_is_reported_until_the_watch_ends(pipe: tuple[int, int]) -> None:
    await reads(pipe)


async def test_a_task_waits_where_the_loop_cannot_call_back(
    pipe: tuple[int, int], anyio_backend_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: Any) -> None:
        raise NotImplementedError

    if anyio_backend_name == "asyncio":
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", cannot)
    monkeypatch.setattr(DescriptorWatcher, "here", lambda: None)
    await reads(pipe)


@pytest.mark.parametrize("has_watcher", [True, False])
@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_end_of_the_loop_is_told_once_unless_it_was_released(
    backend: str, is_released: bool, has_watcher: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    if not has_watcher:
        monkeypatch.setattr(DescriptorWatcher, "here", lambda: None)

    async def main() -> None:
        end = LoopEnd(lambda: told.append("over"), name="the end")
        end.begin()
        await anyio.wait_all_tasks_blocked()
        if is_released:
            end.release()
            end.release()
            await anyio.wait_all_tasks_blocked()
        assert told == []

    anyio.run(main, backend=backend)
    assert told == ([] if is_released else ["over"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_ends_at_once_tells_so_too(backend: str) -> None:
    told: list[str] = []

    async def main() -> None:
        LoopEnd(lambda: told.append("over"), name="the end").begin()

    anyio.run(main, backend=backend)
    assert told == ["over"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_end_of_a_loop_is_told_although_nobody_knows_the_watch_any_more(backend: str) -> None:
    told: list[str] = []

    async def main() -> None:
        LoopEnd(lambda: told.append("over"), name="the end").begin()
        await anyio.wait_all_tasks_blocked()
        gc.collect()  # an event loop does not hold a task that waits for something which only the task knows
        await anyio.wait_all_tasks_blocked()
        assert told == []

    anyio.run(main, backend=backend)
    assert told == ["over"]


async def test_a_flag_wakes_all_that_wait_and_stays_set() -> None:
    flag, woken = LightEvent(), []

    async def wait(name: str) -> None:
        await flag.wait()
        woken.append(name)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "one")
            tasks.start_soon(wait, "two")
            await anyio.wait_all_tasks_blocked()
            assert not flag.is_set()
            assert woken == []
            flag.set()
            flag.set()
        await flag.wait()
    assert flag.is_set()
    assert sorted(woken) == ["one", "two"]
