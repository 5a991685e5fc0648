"""Cancellation at every point where an operation waits: counted, not sampled. Whatever was hit, nothing is left of it.

Two counts. The *own* count is that of the suspensions of the task under test: the cancellation is ordered during suspension k and
is delivered there. The *world's* count is that of the steps of all tasks of the event loop: the caller is cancelled after step k of
anybody, since most of connecting and closing happens in tasks of its own while the caller waits in one place. Each sweep goes on
until an operation ends before k is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import shutil
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest
import trio

import claude_transport as ct
from claude_transport.testing.conformance.census import ALL, LASTING, OWN, Census
from claude_transport.testing.conformance.checks.reading import Warned

PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite
MANY = 400  # suspensions; no sweep here has so many

CAT = ["cat"]
CLI = [shutil.which("true") or ""]
SINK = ["sh", "-c", "exec cat >/dev/null"]
FAILING = ["sh", "-c", 'echo "{}"; echo boom >&2; exit 3']
STUBBORN = ["sh", "-c", 'trap "" TERM; echo "{}"; while :; do sleep 1000; done']
ANSWER = r'{"type":"control_response","response":{"subtype":"success","request_id":"\1","response":{}}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}'
CLAUDE = ["sed", "-u", "-n", "-e", rf's/.*"request_id": *"\([^"]*\)".*/{ANSWER}/p', "-e", rf's/.*"type": *"user".*/{RESULT}/p']
"""As much of the CLI as a conversation needs: an answer to every request, and a result for every prompt."""


class Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells `noted` of each of its suspensions, while it is being suspended."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], noted: Callable[[], object]) -> None:
        self._coroutine = coroutine
        self._noted = noted

    def send(self, value: Any) -> Any:
        trap = self._coroutine.send(value)
        self._noted()
        return trap

    def throw(self, *exc: Any) -> Any:
        trap = self._coroutine.throw(*exc)
        self._noted()
        return trap

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # `cr_running` and the like, by which anyio tells whether a task has begun

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self.send
        value: Any = None
        while True:
            try:
                trap = step(value)
            except StopIteration as exc:
                return exc.value
            try:
                value = yield trap
                step = self.send
            except GeneratorExit:
                self.close()
                raise
            except BaseException as exc:  # noqa: BLE001 - it is handed on to whom it is meant for
                value, step = exc, self.throw


class Trigger:
    """Pulled by the count: calls `cancel` at number `at`, and never again."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0
        self.cancel: Callable[[], object] | None = None

    @property
    def reached(self) -> bool:
        return self.count >= self.at

    def note(self) -> None:
        if self.cancel is not None:
            self.count += 1
            if self.count == self.at:
                self.cancel()


# ----------------------------------------------------------------------------------------------------------- what is counted

Count = Callable[[Trigger], AbstractContextManager[Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]]]


def own(trigger: Trigger) -> AbstractContextManager[Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]]:
    """The suspensions of the task under test."""
    return nullcontext(lambda coroutine: Counted(coroutine, trigger.note))


class world(trio.abc.Instrument):  # noqa: N801 - it is used as the function above is
    """The steps of all tasks."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]:
        if in_trio():
            trio.lowlevel.add_instrument(self)
            return lambda coroutine: coroutine
        self._loop = asyncio.get_running_loop()
        self._loop.set_task_factory(self._make_task)
        return lambda coroutine: Counted(coroutine, self._trigger.note)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(Counted(coro, self._trigger.note), loop=loop, **more)

    def __exit__(self, *_: object) -> None:
        if self._loop is None:
            trio.lowlevel.remove_instrument(self)
        else:
            self._loop.set_task_factory(None)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._trigger.note()


def in_trio() -> bool:
    return trio.lowlevel.in_trio_run()


# ------------------------------------------------------------------------------------------------- the kinds of cancellation


async def by_scope(operation: Operation, trigger: Trigger, count: Count) -> None:
    with count(trigger) as counted, anyio.CancelScope() as scope:
        trigger.cancel = scope.cancel
        await counted(operation())
    trigger.cancel = None


async def by_task_group(operation: Operation, trigger: Trigger, count: Count) -> None:
    """A sibling fails, or a nursery is cancelled as a whole."""

    async def run() -> None:
        trigger.cancel = tasks.cancel_scope.cancel
        await counted(operation())
        trigger.cancel = None

    with count(trigger) as counted:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
    trigger.cancel = None


async def by_task_cancel(operation: Operation, trigger: Trigger, count: Count) -> None:
    """asyncio's own cancellation comes once, so an operation that swallowed it would go on for ever: it must come out."""
    with count(trigger) as counted:

        async def run() -> None:
            current = asyncio.current_task()
            assert current is not None
            trigger.cancel = current.cancel
            try:
                await counted(operation())
            finally:
                trigger.cancel = None

        task = asyncio.get_running_loop().create_task(run())
        await asyncio.wait([task])
    if task.cancelled():
        assert trigger.reached
    else:
        task.result()
        assert not trigger.reached, "the cancellation was swallowed"


async def by_timeout(operation: Operation, trigger: Trigger, count: Count) -> None:
    with count(trigger) as counted:
        try:
            async with asyncio.timeout(None) as timeout:
                trigger.cancel = lambda: timeout.reschedule(0)
                await counted(operation())
                trigger.cancel = None
        except TimeoutError:
            assert trigger.reached
        else:
            assert not timeout.expired(), "the cancellation was swallowed"
        finally:
            trigger.cancel = None


async def by_wait_for(operation: Operation, trigger: Trigger, count: Count) -> None:
    """`wait_for()` is itself cancelled: up to Python 3.11 it has a task of its own for what it waits for, which it cancels and awaits."""
    with count(trigger) as counted:

        async def run() -> None:
            current = asyncio.current_task()
            assert current is not None
            trigger.cancel = current.cancel
            try:
                await asyncio.wait_for(counted(operation()), 10 * PATIENCE)
            finally:
                trigger.cancel = None

        task = asyncio.get_running_loop().create_task(run())
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


Operation = Callable[[], Coroutine[Any, Any, Any]]
Way = Callable[[Operation, Trigger, Count], Awaitable[None]]
WAYS: list[tuple[str, Way]] = [(backend, way) for backend in ("asyncio", "trio") for way in (by_scope, by_task_group)]
WAYS += [("asyncio", by_task_cancel), ("asyncio", by_timeout), ("asyncio", by_wait_for)]
EACH_WAY = pytest.mark.parametrize(("backend", "way"), WAYS, ids=[f"{backend}-{way.__name__}" for backend, way in WAYS])


# -------------------------------------------------------------------------------------------------------------- what is done


class Case(NamedTuple):
    """A child, what has happened before, what is cancelled, how many suspensions it has at least, and what closes it."""

    command: list[str]
    before: Callable[[Any], Awaitable[object]]
    operation: Callable[[Any], Coroutine[Any, Any, Any]]
    at_least: int
    query: bool = False

    def make(self) -> Any:
        if self.command == CLI:
            return ct.SubprocessTransport(ct.ClaudeOptions(cli_path=self.command[0], system_prompt="in a file of its own"))
        transport = ct.SubprocessTransport(command=self.command, close_timeout=0.05 if self.command is STUBBORN else 2)
        return ct.Query(transport) if self.query else transport


async def nothing(_: object) -> None: ...


async def connected(transport: ct.SubprocessTransport) -> None:
    await transport.connect()


async def connected_and_spoken_to(transport: ct.SubprocessTransport) -> None:
    await transport.connect()
    await transport.write("{}")


async def connected_and_heard(transport: ct.SubprocessTransport) -> None:
    await transport.connect()
    await read_a_line(transport)


async def read_a_line(transport: ct.SubprocessTransport) -> None:
    assert list(await anext(transport.read_lines())) == [b"{}"]


async def read_to_the_end(transport: ct.SubprocessTransport) -> None:
    with pytest.raises(ct.ProcessError, match="exit code 3"):
        async for _ in transport.read_lines():
            pass


async def reconnect(transport: ct.SubprocessTransport) -> None:
    def make() -> ct.SubprocessTransport:
        return ct.SubprocessTransport(command=CAT)

    async with await ct.RetryingTransport(transport, make_transport=make).reconnect():
        pass


async def enter(transport: ct.SubprocessTransport) -> None:
    async with transport:
        await anyio.lowlevel.checkpoint()
    assert not transport.is_ready()


async def started(query: ct.Query) -> None:
    await query.start()


async def asked(query: ct.Query) -> None:
    await query.start()
    await query.send("Hello")


async def talk(query: ct.Query) -> None:
    async with query:
        turn = await query.send("Hello")
        await turn.result()


CASES = {
    "connect": Case(CAT, nothing, lambda transport: transport.connect(), 1),
    "connect as options say": Case(CLI, nothing, lambda transport: transport.connect(), 1),
    "write": Case(CAT, connected, lambda transport: transport.write("{}"), 1),
    "write more than a pipe holds": Case(SINK, connected, lambda transport: transport.write("x" * 400_000), 2),
    "read": Case(CAT, connected_and_spoken_to, read_a_line, 1),
    "read to a bad end": Case(FAILING, connected, read_to_the_end, 2),
    "end_input": Case(CAT, connected, lambda transport: transport.end_input(), 1),
    "close": Case(CAT, connected, lambda transport: transport.close(), 1),
    "close of what does not end": Case(STUBBORN, connected_and_heard, lambda transport: transport.close(), 1),
    "close of what was never connected": Case(CAT, nothing, lambda transport: transport.close(), 1),
    "reconnect": Case(CAT, connected, reconnect, 3),
    "async with": Case(CAT, nothing, enter, 3),
    "async with what is connected": Case(CAT, connected, enter, 2),
    "Query.start": Case(CLAUDE, nothing, lambda query: query.start(), 1, query=True),
    "Query.send": Case(CLAUDE, started, lambda query: query.send("Hello"), 1, query=True),
    "Query.aclose": Case(CLAUDE, asked, lambda query: query.aclose(), 1, query=True),
    "a whole conversation": Case(CLAUDE, nothing, talk, 3, query=True),
}
WIDE = ["connect", "connect as options say", "close", "close of what does not end", "reconnect", "Query.start", "Query.aclose"]
"""The ones that have work done for them in other tasks."""


async def cancel_once(case: Case, way: Way, count: Count, at: int) -> bool:
    """One run; whether number `at` was reached. In the end nothing is left."""
    before = await Census.rested()
    subject = case.make()
    trigger = Trigger(at)
    with anyio.fail_after(PATIENCE):
        await case.before(subject)
        await way(functools.partial(case.operation, subject), trigger, count)
        if not case.query and case.before is nothing and subject.info.pid is None:
            assert await before.growth(patience=30, of=OWN) == {}, "a cancelled connect() leaves nothing, also before close()"
        if case.operation is enter:
            assert await before.growth(patience=30, of=OWN) == {}, "a block that was entered has closed what was opened"
        await (subject.aclose() if case.query else subject.close())
    pid = subject.info.pid
    del subject
    assert await before.growth(patience=30, of=LASTING) == {}, f"left over after a cancellation at {at}, process {pid}"
    return trigger.reached


def sweep(case: Case, way: Way, count: Count, *, backend: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """Cancel at 1, 2, 3, … until that is not reached any more; how many there were. Nothing was warned of, logged or unraisable."""
    unraisable: list[object] = []
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sys, "unraisablehook", lambda details: unraisable.append((details.err_msg, details.exc_value)))

    async def main() -> int:
        await cancel_once(case, by_scope, own, MANY)  # the loop's own threads and files are there after the first time
        before = await Census.rested()
        for at in range(1, MANY):
            if not await cancel_once(case, way, count, at):
                break
        else:
            pytest.fail("there is no end of it")
        assert await before.growth(patience=30, of=ALL - {"threads"}) == {}
        return at - 1

    with Warned() as warned, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        number = anyio.run(main, backend=backend)
    assert [record.getMessage() for record in warned.records] == []
    assert [str(warning.message) for warning in caught] == []
    assert unraisable == []
    assert [*folder.iterdir()] == []
    return number


def most_of_three(at_least: int, count: Callable[[], int]) -> bool:
    """Whether one of three sweeps had that many suspensions: a peer that is quick leaves less to wait for, on any one run."""
    return any(count() >= at_least for _ in range(3))


@EACH_WAY
@pytest.mark.parametrize("name", CASES)
def test_a_cancellation_in_any_suspension_leaves_nothing(
    name: str, backend: str, way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = CASES[name]
    assert most_of_three(case.at_least, lambda: sweep(case, way, own, backend=backend, monkeypatch=monkeypatch, folder=tmp_path))


@EACH_WAY
@pytest.mark.parametrize("name", WIDE)
def test_a_cancellation_after_any_step_of_any_task_leaves_nothing(
    name: str, backend: str, way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = CASES[name]
    assert most_of_three(case.at_least, lambda: sweep(case, way, world, backend=backend, monkeypatch=monkeypatch, folder=tmp_path))


# ------------------------------------------------------------------------------------------------------ the end of the event loop


def end_the_loop_at(case: Case, at: int) -> bool:
    """Run an operation on plain asyncio and let the loop end after step `at` of any task; whether there were so many."""
    trigger = Trigger(at)

    async def main() -> None:
        subject = case.make()
        await case.before(subject)
        reached = asyncio.Event()
        trigger.cancel = reached.set

        async def operate() -> None:
            with contextlib.suppress(ct.ClaudeTransportError), world(trigger) as entered:
                await entered(case.operation(subject))
            reached.set()

        operation = asyncio.get_running_loop().create_task(operate())
        await reached.wait()
        trigger.cancel = None
        operation.add_done_callback(lambda _: None)  # kept to the end: asyncio would forget it

    # neither anyio.run() nor its marks: whatever asks which library runs has to find out by itself
    asyncio.run(main())
    gc.collect()
    return trigger.reached


@pytest.mark.parametrize(
    "name",
    [
        "read",
        "write more than a pipe holds",
        "close",
        "close of what does not end",
        "Query.start",
        "Query.send",
        "Query.aclose",
        "a whole conversation",
    ],
)
def test_the_end_of_the_event_loop_after_any_step_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    of = frozenset({"children", "file_descriptors"})
    before = anyio.run(Census.rested)
    with Warned() as warned, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a transport that nobody closed says so, rightly
        for at in range(1, MANY):
            if not end_the_loop_at(CASES[name], at):
                break
    assert anyio.run(functools.partial(before.growth, patience=5, of=of)) == {}
    assert [record.getMessage() for record in warned.records] == []
    assert [*tmp_path.iterdir()] == []
