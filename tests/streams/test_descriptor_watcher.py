"""`DescriptorWatcher`: on trio, one task for any number of pipes. trio only."""

from __future__ import annotations

import errno
import logging
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio

from claude_transport.loops.descriptors import DescriptorWatcher
from claude_transport.streams.inflow import Inflow
from tests.virtual_time import jumping_backends

pytestmark = pytest.mark.parametrize("anyio_backend", [backend for backend in jumping_backends() if backend.id == "trio"])

PATIENCE = 30.0

LINGER = 0.25
"""Seconds, of a clock that jumps, for which a watcher stays without anything to watch."""


class Pipe:
    """A pipe, with the calls of its callbacks."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        os.set_blocking(self.out, False)
        self.heard: list[bytes] = []
        self.lost = 0

    def read(self) -> None:
        self.heard.append(os.read(self.out, 65536))

    def note_lost(self) -> None:
        self.lost += 1


@pytest.fixture
def pipes() -> Iterator[list[Pipe]]:
    pipes = [Pipe() for _ in range(3)]
    yield pipes
    for pipe in pipes:
        os.close(pipe.out)
        os.close(pipe.into)


def here() -> DescriptorWatcher:
    watcher = DescriptorWatcher.here()
    assert watcher is not None
    return watcher


def add(pipe: Pipe) -> None:
    here().add_reader(pipe.out, pipe.read, pipe.note_lost)


async def until_heard(pipe: Pipe, *heard: bytes) -> None:
    with anyio.fail_after(PATIENCE):
        while pipe.heard != list(heard):
            await trio.sleep(0.001)


def tasks_looking_out() -> int:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return sum(task.name == "look out for pipes" for nursery in root.child_nurseries for task in nursery.child_tasks)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a number is enough


async def test_one_task_looks_out_for_all_and_ends_a_moment_after_the_last(pipes: list[Pipe]) -> None:
    before = open_files()
    for pipe in pipes:
        add(pipe)
    for word in (b"one", b"two"):
        for pipe in pipes:
            os.write(pipe.into, word)
    for pipe in pipes:
        with anyio.fail_after(PATIENCE):
            while b"".join(pipe.heard) != b"onetwo":
                await anyio.lowlevel.checkpoint()
    assert tasks_looking_out() == 1
    for pipe in pipes:
        here().remove_reader(pipe.out)
        here().remove_reader(pipe.out)
    await trio.sleep(0.9 * LINGER)
    assert tasks_looking_out() == 1
    await trio.sleep(0.2 * LINGER)
    assert tasks_looking_out() == 0
    assert open_files() == before


async def test_watches_that_follow_each_other_share_a_watcher(pipes: list[Pipe]) -> None:
    started: list[str] = []

    class Instrument(trio.abc.Instrument):
        def task_spawned(self, task: trio.lowlevel.Task) -> None:
            started.append(task.name)

    before = open_files()
    trio.lowlevel.add_instrument(instrument := Instrument())
    for number in range(10):  # two and a half times as long as it lingers
        add(pipes[0])
        os.write(pipes[0].into, b"word")
        await until_heard(pipes[0], *[b"word"] * (number + 1))
        here().remove_reader(pipes[0].out)
        await trio.sleep(0.5 * LINGER)
    await trio.sleep(LINGER)
    trio.lowlevel.remove_instrument(instrument)
    assert started.count("look out for pipes") == 1
    assert open_files() == before


async def test_a_watcher_in_use_when_its_time_is_over_goes_on(pipes: list[Pipe]) -> None:
    add(pipes[0])
    here().remove_reader(pipes[0].out)
    await trio.sleep(0.5 * LINGER)
    add(pipes[1])
    await trio.sleep(LINGER)
    os.write(pipes[1].into, b"word")
    await until_heard(pipes[1], b"word")
    here().remove_reader(pipes[1].out)
    await trio.sleep(1.1 * LINGER)
    assert tasks_looking_out() == 0


async def test_it_can_begin_again(pipes: list[Pipe]) -> None:
    for word in (b"one", b"two"):
        add(pipes[0])
        os.write(pipes[0].into, word)
        await until_heard(pipes[0], word)
        here().remove_reader(pipes[0].out)
        pipes[0].heard.clear()


async def test_who_was_removed_by_another_in_the_same_moment_is_not_called(pipes: list[Pipe]) -> None:
    watcher, called = here(), list[int]()

    def remove_all() -> None:
        called.append(1)
        for pipe in pipes:
            watcher.remove_reader(pipe.out)

    for pipe in pipes:
        os.write(pipe.into, b"word")
        watcher.add_reader(pipe.out, remove_all, pipe.note_lost)
    await trio.testing.wait_all_tasks_blocked()
    assert len(called) == 1


async def test_what_cannot_be_looked_out_for_is_refused_and_leaves_nothing(tmp_path: Path, pipes: list[Pipe]) -> None:
    before = open_files()
    with (tmp_path / "file").open("wb") as file:  # epoll takes no ordinary files
        assert not here().add_reader(file.fileno(), pipes[0].read, pipes[0].note_lost)
    await trio.sleep(1.1 * LINGER)
    assert open_files() == before
    assert tasks_looking_out() == 0
    add(pipes[0])
    os.write(pipes[0].into, b"word")
    await until_heard(pipes[0], b"word")
    here().remove_reader(pipes[0].out)


async def test_without_a_free_descriptor_it_is_refused(pipes: list[Pipe]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        assert not here().add_reader(pipes[0].out, pipes[0].read, pipes[0].note_lost)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    add(pipes[0])
    here().remove_reader(pipes[0].out)


async def test_a_callback_that_fails_is_logged_and_lost_and_the_others_are_called(
    pipes: list[Pipe], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise LookupError("of a test")

    add(pipes[1])
    here().add_reader(pipes[0].out, fail, pipes[0].note_lost)
    with caplog.at_level(logging.ERROR):
        os.write(pipes[0].into, b"word")
        os.write(pipes[1].into, b"word")
        await until_heard(pipes[1], b"word")
        await trio.testing.wait_all_tasks_blocked()
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [LookupError]
    assert [pipe.lost for pipe in pipes] == [1, 0, 0]
    here().remove_reader(pipes[1].out)


def test_at_the_end_of_the_run_everybody_is_told(pipes: list[Pipe], anyio_backend: str) -> None:
    late: list[DescriptorWatcher | None] = []

    class Last(Pipe):
        def note_lost(self) -> None:
            super().note_lost()
            late.append(DescriptorWatcher.here())

    last = Last()

    async def main() -> None:
        for pipe in (*pipes, last):
            add(pipe)
        await anyio.lowlevel.checkpoint()

    before = open_files()
    trio.run(main)
    assert [pipe.lost for pipe in (*pipes, last)] == [1, 1, 1, 1]
    assert late == [None]
    assert open_files() == before
    os.close(last.out)
    os.close(last.into)


def test_who_still_reads_when_the_run_ends_reads_on(pipes: list[Pipe], anyio_backend: str) -> None:
    """Such a reader closes a process after the main task has ended."""
    heard: list[bytes] = []
    pipe = pipes[0]
    inflow = Inflow(pipe.out)

    def hand_on(chunk: bytes) -> bool:
        heard.append(chunk)
        return False

    async def reading() -> None:
        with trio.CancelScope(shield=True):
            while len(heard) < 2:
                assert not await inflow.pour(hand_on)
                while data := inflow.take(65536):
                    heard.append(data)
            inflow.close()

    async def writing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            for _ in range(10):  # until the watcher is gone
                await trio.lowlevel.cancel_shielded_checkpoint()
            os.write(pipe.into, b"two")

    async def main() -> None:
        assert inflow.take(65536) is None
        trio.lowlevel.spawn_system_task(reading)
        trio.lowlevel.spawn_system_task(writing)
        await trio.testing.wait_all_tasks_blocked()
        os.write(pipe.into, b"one")
        with anyio.fail_after(PATIENCE):
            while not heard:
                await anyio.lowlevel.checkpoint()

    trio.run(main)
    assert heard == [b"one", b"two"]


async def no_room(_: object) -> None:
    """Do what the system does when it has no room for one more watch."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_pipes_are_read_while_the_system_does_not_let_trio_wait_for_them(pipes: list[Pipe], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = pipes
    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "wait_readable", no_room)
        add(first)
        os.write(first.into, b"one")
        await until_heard(first, b"one")
        add(second)
        os.write(second.into, b"two")
        await until_heard(second, b"two")
    os.write(first.into, b"three")
    await until_heard(first, b"one", b"three")
    assert first.lost == second.lost == 0
    for pipe in (first, second):
        here().remove_reader(pipe.out)
    await trio.sleep(1.1 * LINGER)
    assert tasks_looking_out() == 0


async def test_the_end_of_the_run_is_told_also_when_there_is_no_room_for_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.lowlevel, "wait_readable", no_room)
    told: list[str] = []

    async def main() -> None:
        assert here().add_end(lambda: told.append("the end"))
        await anyio.wait_all_tasks_blocked()

    await anyio.to_thread.run_sync(trio.run, main)
    assert told == ["the end"]
