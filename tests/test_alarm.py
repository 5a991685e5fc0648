"""`Alarm`: a function is called at a time, without a task for each, on both event loops."""

from __future__ import annotations

import contextvars
import logging
import math

import anyio
import pytest
import trio
import trio.testing

from claude_transport.loops.alarm import LINGER, Alarm
from claude_transport.loops.current import clock_here
from tests.virtual_time import Backend, jumping_backends


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


class Bells:
    """Alarms by name, and when each of them rang, in seconds since the beginning."""

    def __init__(self) -> None:
        self.clock = clock_here()
        self.began = self.clock()
        self.rang: list[tuple[str, float]] = []

    def alarm(self, name: str) -> Alarm:
        return Alarm(lambda: self.rang.append((name, round(self.clock() - self.began, 3))))

    def at(self, seconds: float) -> float:
        return self.began + seconds


def ringing_tasks() -> int:
    """How many tasks ring alarms: none on asyncio."""
    if not trio.lowlevel.in_trio_run():
        return 0
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return sum(task.name == "ring alarms" for nursery in root.child_nurseries for task in nursery.child_tasks)


async def test_alarms_ring_at_their_times_whatever_the_order_in_which_they_are_set() -> None:
    bells = Bells()
    for name, seconds in (("hour", 3600.0), ("second", 1.0), ("minute", 60.0), ("a minute and a second", 61.0), ("never", math.inf)):
        bells.alarm(name).set(bells.at(seconds))
    await anyio.sleep(2 * 3600)
    assert bells.rang == [("second", 1), ("minute", 60), ("a minute and a second", 61), ("hour", 3600)]


async def test_one_that_is_set_while_a_later_one_is_waited_for_is_in_time() -> None:
    bells = Bells()
    bells.alarm("hour").set(bells.at(3600))
    await anyio.sleep(10)
    bells.alarm("soon").set(bells.at(11))
    bells.alarm("at once").set(bells.at(5))
    await anyio.sleep(1.5)
    assert bells.rang == [("at once", 10), ("soon", 11)]


async def test_one_that_is_set_again_rings_once_at_the_new_time() -> None:
    bells = Bells()
    alarm = bells.alarm("moved")
    for seconds in (5.0, 1.0, 20.0):
        alarm.set(bells.at(seconds))
    assert alarm.is_set
    await anyio.sleep(100)
    assert not alarm.is_set
    assert bells.rang == [("moved", 20)]


async def test_one_that_is_cancelled_does_not_ring_and_can_be_set_again() -> None:
    bells = Bells()
    alarm = bells.alarm("cancelled")
    alarm.cancel()
    alarm.set(bells.at(1))
    alarm.cancel()
    assert not alarm.is_set
    await anyio.sleep(10)
    alarm.set(bells.at(12))
    await anyio.sleep(10)
    assert bells.rang == [("cancelled", 12)]


async def test_one_that_rings_may_cancel_another_of_the_same_moment_and_set_itself_again() -> None:
    bells = Bells()
    second = bells.alarm("second")

    def ring() -> None:
        second.cancel()
        bells.rang.append(("first", round(bells.clock() - bells.began, 3)))
        if len(bells.rang) < 3:
            first.set(bells.clock() + 10)

    first = Alarm(ring)
    first.set(bells.at(1))
    second.set(bells.at(1))
    await anyio.sleep(100)
    assert bells.rang == [("first", 1), ("first", 11), ("first", 21)]


async def test_a_failure_is_logged_and_later_alarms_ring(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("of a test")

    bells = Bells()
    Alarm(fail).set(bells.at(1))
    bells.alarm("later").set(bells.at(2))
    with caplog.at_level(logging.ERROR):
        await anyio.sleep(3)
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [LookupError]
    assert bells.rang == [("later", 2)]


async def test_it_rings_in_the_context_in_which_it_was_set() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")
    heard: list[str] = []
    alarms = [Alarm(lambda: heard.append(word.get())) for _ in range(2)]
    for each, alarm in zip(("one", "two"), alarms, strict=True):
        word.set(each)
        alarm.set(anyio.current_time() + 1)
    word.set("three")
    await anyio.sleep(2)
    assert heard == ["one", "two"]


async def test_no_task_stays_when_nothing_is_left_to_ring() -> None:
    bells = Bells()
    alarms = [bells.alarm("hour") for _ in range(100)]
    for alarm in alarms:
        alarm.set(bells.at(3600))
    await anyio.sleep(1)
    assert ringing_tasks() <= 1
    for alarm in alarms:
        alarm.cancel()
    await anyio.sleep(1.1 * LINGER)
    assert ringing_tasks() == 0
    bells.alarm("again").set(bells.at(10))
    await anyio.sleep(20)
    assert bells.rang == [("again", 10)]
    assert ringing_tasks() == 0


def test_there_is_none_outside_of_an_event_loop() -> None:
    with pytest.raises(RuntimeError):
        Alarm(print).set(0.0)


def test_one_that_is_still_set_when_a_run_of_trio_ends_does_not_ring_and_can_be_cancelled() -> None:
    rang: list[str] = []
    alarm = Alarm(lambda: rang.append("alarm"))

    async def main() -> None:
        alarm.set(trio.current_time() + 3600)
        await trio.sleep(1)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    alarm.cancel()
    assert not alarm.is_set
    assert rang == []


def test_nothing_rings_in_a_run_of_trio_that_is_ending() -> None:
    rang: list[str] = []
    alarms = [Alarm(lambda: rang.append("before")), Alarm(lambda: rang.append("meanwhile"))]

    async def last() -> None:
        try:
            await trio.sleep_forever()
        finally:
            alarms[1].set(trio.current_time())
            with trio.CancelScope(shield=True):
                await trio.sleep(7200)

    async def main() -> None:
        alarms[0].set(trio.current_time() + 3600)
        trio.lowlevel.spawn_system_task(last)
        await trio.testing.wait_all_tasks_blocked()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert rang == []
