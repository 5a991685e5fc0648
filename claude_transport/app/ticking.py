"""`while_ticking()`: something is told again and again how long the work beside it takes; nothing of the work changes by that."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

_PACE: Final = 0.25
"""Seconds between two ticks: a count of seconds that is shown at every tick misses none."""


async def while_ticking(work: Callable[[], Awaitable[object]], tick: Callable[[float], object] | None) -> None:
    """Do the work, and call `tick(seconds)` with how long it has taken until it is done. Raises what the work raises, as it is.

    None for `tick`, where there is nobody to tell, does the work and nothing else. `tick` must neither raise nor block.
    """
    if tick is None:
        await work()
        return
    failure: list[BaseException] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tick, tick)
        try:
            await work()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised again below, out of the task group that would wrap it
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]


async def _tick(tick: Callable[[float], object]) -> None:
    started = time.monotonic()
    while True:
        await anyio.sleep(_PACE)
        tick(time.monotonic() - started)
