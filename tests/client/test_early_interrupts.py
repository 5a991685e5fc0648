"""An interrupt before the query is ready is queued behind the prompts that wait, and stops them. The clocks jump."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from peers import ForeignTransport, Frame, answer_to, in_time, result
from virtual_time import Backend, jumping_backends

from claude_transport import InterruptOutcome, Query
from claude_transport.errors import TransportClosed


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every test of this module on both event loops, with clocks that jump."""
    backend: Backend = request.param
    return backend


class Slow(ForeignTransport):
    """A CLI that answers `initialize` only when it is `let_go`, and everything else at once."""

    def __init__(self) -> None:
        super().__init__(answers=False)
        self.on_write = self._answer
        self.asked = anyio.Event()
        self.silent = False
        """Whether interrupts are left without an answer."""
        self._initialize: Frame = {}

    def _answer(self, frame: Frame) -> None:
        if frame["type"] != "control_request":
            return
        if frame["request"]["subtype"] == "initialize":
            self._initialize = frame
            self.asked.set()
            return
        if self.silent:
            return
        self.say(answer_to(frame))
        if frame["request"]["subtype"] == "interrupt" and self.prompts():
            self.say(result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"))

    def let_go(self) -> None:
        self.say(answer_to(self._initialize))

    def order(self) -> list[str]:
        """What was written: the texts of prompts, the subtypes of requests."""
        return [str(frame["message"]["content"] if frame["type"] == "user" else frame["request"]["subtype"]) for frame in self.written]


class Session:
    """A query that starts in the background, and what became of what was asked of it."""

    def __init__(self) -> None:
        self.transport = Slow()
        self.query = Query(self.transport)
        self.outcomes: list[InterruptOutcome] = []
        self.failures: list[BaseException] = []

    async def start(self) -> None:
        try:
            await self.query.start()
        except TransportClosed as exc:
            self.failures.append(exc)

    async def send(self, text: str) -> None:
        try:
            await self.query.send(text)
        except TransportClosed as exc:
            self.failures.append(exc)

    async def interrupt(self, timeout: float = 10.0) -> None:
        self.outcomes.append(await self.query.interrupt(timeout=timeout))


async def test_an_interrupt_is_sent_behind_the_prompts_that_wait_for_the_start_and_stops_them() -> None:
    session = Session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.start)
        await in_time(session.transport.asked.wait())
        for number in range(5):
            tasks.start_soon(session.send, f"p{number}")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(session.interrupt)
        await anyio.wait_all_tasks_blocked()
        assert session.transport.order() == ["initialize"]
        session.transport.let_go()
    order = session.transport.order()
    assert (order[0], sorted(order[1:-1]), order[-1]) == ("initialize", ["p0", "p1", "p2", "p3", "p4"], "interrupt")
    assert session.outcomes == [InterruptOutcome.ACKNOWLEDGED]
    await in_time(session.query.aclose())


async def test_an_interrupt_before_any_prompt_stops_none_that_comes_later() -> None:
    session = Session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.start)
        await in_time(session.transport.asked.wait())
        await session.interrupt()
        tasks.start_soon(session.send, "later")
        await anyio.wait_all_tasks_blocked()
        session.transport.let_go()
    assert session.transport.order() == ["initialize", "interrupt", "later"]
    assert session.outcomes == [InterruptOutcome.NOT_RUNNING]
    await in_time(session.query.aclose())


async def test_a_prompt_that_is_given_up_before_the_start_does_not_hold_the_interrupt() -> None:
    session = Session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.start)
        await in_time(session.transport.asked.wait())
        async with anyio.create_task_group() as sending:
            sending.start_soon(session.send, "given up")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(session.interrupt)
            await anyio.wait_all_tasks_blocked()
            sending.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert session.outcomes == [InterruptOutcome.NOT_RUNNING]
        session.transport.let_go()
    assert session.transport.order() == ["initialize", "interrupt"]
    await in_time(session.query.aclose())


@pytest.mark.parametrize("timeout", [0.0, 3.0])
async def test_an_interrupt_waits_for_the_start_no_longer_than_it_was_told_to(timeout: float) -> None:
    session = Session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.start)
        await in_time(session.transport.asked.wait())
        tasks.start_soon(session.send, "waits")
        await anyio.wait_all_tasks_blocked()
        begun = anyio.current_time()
        await session.interrupt(timeout)
        assert anyio.current_time() - begun == pytest.approx(timeout)
        session.transport.let_go()
    assert session.outcomes == [InterruptOutcome.TIMED_OUT]
    assert session.transport.order() == ["initialize", "waits"]
    await in_time(session.query.aclose())


async def test_the_wait_for_the_start_is_taken_from_the_time_for_the_answer() -> None:
    session = Session()
    session.transport.silent = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.start)
        await in_time(session.transport.asked.wait())
        tasks.start_soon(session.send, "waits")
        await anyio.wait_all_tasks_blocked()
        begun = anyio.current_time()
        tasks.start_soon(session.interrupt, 10.0)
        await anyio.sleep(7)
        session.transport.let_go()
        with anyio.fail_after(100):
            while not session.outcomes:
                await anyio.sleep(0.5)
        assert anyio.current_time() - begun == pytest.approx(10, abs=0.6)
    assert session.outcomes == [InterruptOutcome.TIMED_OUT]
    await in_time(session.query.aclose())


async def test_a_start_that_fails_leaves_nothing_to_interrupt() -> None:
    session = Session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.start)
        await in_time(session.transport.asked.wait())
        tasks.start_soon(session.send, "never")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(session.interrupt)
        await anyio.wait_all_tasks_blocked()
        await in_time(session.query.aclose(timeout=0))
    outcome: Any = session.outcomes
    assert (outcome, len(session.failures)) == ([InterruptOutcome.DEAD], 2)
