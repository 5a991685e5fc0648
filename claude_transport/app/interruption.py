"""Ctrl-C: the work is cancelled, what it started is ended, and the exit code says that it was interrupted."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Final

import anyio

_PATIENCE: Final = 2.0
"""Seconds that a cancelled run gets to end in peace; then, or with a second Ctrl-C, its transport is closed under it."""


async def run_interruptibly(work: Callable[[], Awaitable[int]], *, give_up: Callable[[], Awaitable[object]]) -> int:
    """What `work()` returns, or 128 plus the number of the signal that ended it: 130 for Ctrl-C.

    `give_up()` is called, from another task, when the cancelled work does not end by itself; it must be bounded.
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
                except Exception as error:  # noqa: BLE001 - raised again below, out of the task group that would wrap it
                    failure.append(error)
            tasks.cancel_scope.cancel()
    if watch.number is not None:
        return 128 + watch.number
    if failure:
        raise failure[0]
    return outcome[0]


class _Watch:
    """Waits for signals beside the work; `number` is the first that came."""

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
    """The signals that ask for an end and are not ignored (`nohup`); None where they cannot be received (Windows, other threads)."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        return stack.enter_context(anyio.open_signal_receiver(*wanted))
    except (NotImplementedError, RuntimeError, ValueError):
        return None  # KeyboardInterrupt then ends the event loop, and with it the child
