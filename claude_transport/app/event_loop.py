"""How a command runs on an event loop: which one, how signals interrupt it, and how it reports the time that its work takes."""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Final

import anyio

from claude_transport.errors import ConfigurationError

_PATIENCE: Final = 2.0
"""Seconds that cancelled work gets to end by itself. After that, or at a second Ctrl-C, `give_up()` is called."""
_TICK: Final = 0.25
"""Seconds between two ticks. A display that counts whole seconds misses none."""


def run_on(backend: str, work: Callable[[], Awaitable[int]]) -> int:
    """Run `work()` on `asyncio` or `trio`, and return its exit code. Raises `ConfigurationError` if the backend is not installed."""
    if importlib.util.find_spec(backend) is None:
        raise ConfigurationError(f"--backend {backend} needs the package {backend}, which is not installed", option="backend")
    return anyio.run(work, backend=backend)


async def run_interruptibly(work: Callable[[], Awaitable[int]], *, give_up: Callable[[], Awaitable[object]]) -> int:
    """Run `work()`, and cancel it when SIGINT, SIGTERM or SIGHUP arrives.

    Args:
        work: Returns the exit code.
        give_up: Called from another task when the cancelled work does not end within 2 s, or at the second signal. It must be bounded.

    Returns:
        What `work()` returns, or 128 plus the number of the signal: 130 for Ctrl-C.
    """
    watch = _Watch(give_up)
    outcome: list[int] = []
    failure: list[Exception] = []
    with ExitStack() as stack:
        signals = _receive_signals(stack)
        if signals is None:
            return await work()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.watch, signals)
            with watch.scope:
                try:
                    outcome.append(await work())
                except Exception as error:  # noqa: BLE001 - raised again below, outside the task group, which would wrap it
                    failure.append(error)
            tasks.cancel_scope.cancel()
    if watch.number is not None:
        return 128 + watch.number
    if failure:
        raise failure[0]
    return outcome[0]


class _Watch:
    """Waits for signals while the work runs. `number` is the first signal."""

    def __init__(self, give_up: Callable[[], Awaitable[object]]) -> None:
        self.number: int | None = None
        self.scope = anyio.CancelScope()
        self._give_up = give_up

    async def watch(self, signals: AsyncIterator[signal.Signals]) -> None:
        self.number = int(await anext(signals))
        self.scope.cancel()
        with anyio.move_on_after(_PATIENCE):
            await anext(signals)
        await self._give_up()


def _receive_signals(stack: ExitStack) -> AsyncIterator[signal.Signals] | None:
    """Return the signals that ask for an end and are not ignored (`nohup`). None on Windows and in other threads."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        return stack.enter_context(anyio.open_signal_receiver(*wanted))
    except (NotImplementedError, RuntimeError, ValueError):
        return None  # KeyboardInterrupt then ends the event loop, and with it the child


async def while_ticking(work: Callable[[], Awaitable[object]], tick: Callable[[float], object] | None) -> None:
    """Run `work()`, and call `tick(seconds)` four times a second with the time it has taken so far.

    Raises what the work raises, unwrapped. `tick` must neither raise nor block. With None, only the work runs.
    """
    if tick is None:
        await work()
        return
    failure: list[BaseException] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tick, tick)
        try:
            await work()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised again below, outside the task group, which would wrap it
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]


async def _tick(tick: Callable[[float], object]) -> None:
    started = time.monotonic()
    while True:
        await anyio.sleep(_TICK)
        tick(time.monotonic() - started)
