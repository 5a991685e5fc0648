"""Run a test on both event loops with a clock that jumps: hours of waiting take no time.

The clock stands still while anything can run. When every task waits, it jumps to the next deadline at once.

    @virtual_time
    async def test_a_lease_ends_after_an_hour() -> None: ...

A module in which every async test needs it replaces the fixture instead:

    @pytest.fixture(params=jumping_backends())
    def anyio_backend(request: pytest.FixtureRequest) -> Backend:
        return request.param

Threads, sockets and processes work in real time. A test that waits for them under a deadline gives them `idle` real seconds without
any event before the clock jumps: `@jumping(idle=0.05)`.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from typing import Any, TypeAlias

import pytest
import trio.testing

Backend: TypeAlias = tuple[str, dict[str, Any]]
"""The name of an event loop, and the options that anyio passes to it."""


class JumpingSelector(selectors.DefaultSelector):
    """Let the time pass only when there is nothing else to do, and then at once."""

    def __init__(self, idle: float = 0.0) -> None:
        super().__init__()
        self.idle = idle
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the files that are ready. When there are none, the clock jumps by `timeout`, and the list is empty."""
        if timeout is None:
            return super().select(None)
        ready = super().select(min(timeout, self.idle))
        if not ready:
            self.now += max(timeout, 0.0)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose clock is that of its `JumpingSelector`. It starts at 0."""

    def __init__(self, idle: float = 0.0) -> None:
        self.jumping = JumpingSelector(idle)
        super().__init__(self.jumping)

    def time(self) -> float:
        """Return the seconds that the clock has jumped."""
        return self.jumping.now


def jumping_backends(*, idle: float = 0.0) -> list[Any]:
    """Return the parameters of an `anyio_backend` fixture: asyncio and trio, each with a clock that jumps after `idle` real seconds."""
    backends: list[Backend] = [
        ("asyncio", {"loop_factory": functools.partial(JumpingLoop, idle)}),
        ("trio", {"clock": trio.testing.MockClock(autojump_threshold=idle)}),
    ]
    return [pytest.param(backend, id=backend[0]) for backend in backends]


def jumping(*, idle: float = 0.0) -> pytest.MarkDecorator:
    """Return the mark that runs one test on both event loops with clocks that jump after `idle` real seconds without an event."""
    return pytest.mark.parametrize("anyio_backend", jumping_backends(idle=idle))


virtual_time = jumping()
