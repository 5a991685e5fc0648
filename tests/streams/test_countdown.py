"""The steps of closing a child, by a clock that jumps: each ends in its time, and they move forward and never back."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest
from virtual_time import virtual_time

from claude_transport.loops.current import LightEvent
from claude_transport.streams.schedule import Countdown, set_or_seen


async def ends(countdown: Countdown, *, since: float) -> list[float]:
    """Return after how many seconds each of the two waits ends, and how many seconds are left then."""
    found: list[float] = []
    for step in (0, 1):
        assert not await countdown.reached(step, LightEvent(), look=lambda: False)
        found.append(round(anyio.current_time() - since, 3))
    return [*found, round(countdown.left, 3), round(countdown.last_step, 3)]


@virtual_time
@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([("begin", 10.0)], [6.0, 9.0, 1.0, 1.0]),
        ([("begin", 10.0), ("begin", 100.0)], [6.0, 9.0, 1.0, 1.0]),
        ([("begin", 10.0), ("hurry", 100.0)], [6.0, 9.0, 1.0, 1.0]),
        ([("begin", 10.0), ("begin", 1.0)], [0.6, 0.9, 0.1, 0.1]),
        ([("begin", 100.0), ("hurry", 10.0)], [6.0, 9.0, 1.0, 1.0]),
        ([("begin", 0.0)], [0.0, 0.0, 0.0, 0.0]),
    ],
)
async def test_the_steps_take_their_share_of_the_least_time(times: list[tuple[str, float]], expected: list[float]) -> None:
    countdown = Countdown(anyio.current_time)
    for name, seconds in times:
        (countdown.begin if name == "begin" else countdown.hurry)(seconds)
    assert await ends(countdown, since=anyio.current_time()) == expected


@virtual_time
async def test_what_a_child_had_since_the_end_of_its_input_counts_in_haste() -> None:
    countdown = Countdown(anyio.current_time)
    countdown.note_end_of_input()
    countdown.begin(100.0)
    await anyio.sleep(4.0)
    since = anyio.current_time()
    countdown.hurry(10.0)  # two seconds are left of six
    assert await ends(countdown, since=since) == [2.0, 8.0, 2.0, 2.0]


@virtual_time
async def test_a_wait_under_way_ends_earlier_in_haste() -> None:
    countdown = Countdown(anyio.current_time)
    countdown.begin(1000.0)
    since, found = anyio.current_time(), list[float]()

    async def wait() -> None:
        assert not await countdown.reached(0, LightEvent(), look=lambda: False)
        found.append(anyio.current_time() - since)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(1.0)
        countdown.hurry(10.0)
    assert 6.9 < found[0] < 7.1


@virtual_time
@pytest.mark.parametrize("way", ["event", "look", "none"])
async def test_an_end_is_noticed_by_the_event_or_by_looking(way: str) -> None:
    event, since, looks = LightEvent(), anyio.current_time(), list[float]()

    def look() -> bool:
        looks.append(anyio.current_time() - since)
        return way == "look" and looks[-1] >= 3.0

    async def later() -> None:
        await anyio.sleep(3.0)
        if way == "event":
            event.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later)
        assert await set_or_seen(event, seconds=9.9, look=look) is (way != "none")
    took = anyio.current_time() - since
    assert took == pytest.approx({"event": 3.0, "look": took, "none": 9.9}[way], abs=0.01)
    assert 3.0 <= took < 10.0
    pauses = [after - before for before, after in pairwise(looks)]
    assert pauses[:4] == pytest.approx([0.02, 0.04, 0.08, 0.16], abs=0.001)
    assert max(pauses) == pytest.approx(0.5, abs=0.001)
