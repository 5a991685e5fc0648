"""What opening and closing a session takes, in counts that do not depend on the machine: processes, threads, tasks, rounds of the loop."""

from __future__ import annotations

import _thread
import asyncio
import os
import selectors
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio

import claude_transport as ct
from claude_transport.streams import process, reaping
from claude_transport.streams.guard import Guard
from claude_transport.streams.sweeping import Sweeper
from tests.small_peer import small_peer

SESSIONS = 5
MOST_ROUNDS = 16
"""Seven to thirteen are usual: what the child does at once may be noticed in one round, or in several."""


class CountingSelector(selectors.DefaultSelector):
    """Counts the rounds of an asyncio loop."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.counts["rounds"] += 1
        return super().select(timeout)


class CountingInstrument(trio.abc.Instrument):
    """Counts the rounds and the tasks of a trio run."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts

    def before_io_wait(self, timeout: float) -> None:
        self.counts["rounds"] += 1

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.counts["tasks"] += 1


def run(backend: str, func: Callable[[], Coroutine[Any, Any, None]], counts: Counter[str]) -> None:
    """Run `func` in an event loop that counts."""

    def loop() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(CountingSelector(counts))

        def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
            counts["tasks"] += 1
            return asyncio.Task(coro, loop=loop, **kwargs)

        loop.set_task_factory(factory)
        return loop

    options = {"loop_factory": loop} if backend == "asyncio" else {"instruments": [CountingInstrument(counts)]}
    anyio.run(func, backend=backend, backend_options=options)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Counter[str]]:
    """Counts processes and threads that are started. The machine has no other processes, which a sweep might have to read in a thread."""
    counted: Counter[str] = Counter()

    def count(what: str, owner: Any, name: str) -> None:
        func = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[what] += 1
            return func(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    count("processes", subprocess.Popen, "__init__")
    count("threads", _thread, "start_new_thread")
    count("threads", anyio.to_thread, "run_sync")
    (tmp_path / "proc").mkdir()
    sweeper, guard = Sweeper(proc=str(tmp_path / "proc")), Guard(linger=1000)
    for module in (process, reaping):
        monkeypatch.setattr(module, "sweeper", sweeper)
        monkeypatch.setattr(module, "guard", guard)
    yield counted
    pid = guard.pid
    assert pid is not None
    guard.forget()  # it ends with its input
    os.waitpid(pid, 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_session_takes_one_process_no_thread_two_tasks_and_sixteen_rounds_at_most(
    backend: str, tmp_path: Path, counts: Counter[str]
) -> None:
    peer = small_peer(tmp_path)
    taken: list[dict[str, int]] = []

    async def session() -> None:
        with anyio.fail_after(60):
            async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=str(peer)))):
                pass

    async def sessions() -> None:
        for _ in range(3):  # what is done once in a process is done now
            await session()
        for _ in range(SESSIONS):
            counts.clear()
            await session()
            taken.append(dict(counts))

    run(backend, sessions, counts)
    for each in taken:
        assert each.pop("rounds") <= MOST_ROUNDS, taken
        # the conversation; on asyncio one that notices the end of the event loop, on trio now and then one that ends an idle watcher
        assert each.pop("tasks") <= 2, taken
    assert taken == [{"processes": 1}] * SESSIONS
