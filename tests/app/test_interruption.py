"""Signals, received by this very process: what they do to the work, and who ends what does not end by itself."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from claude_transport.app.event_loop import run_interruptibly


async def nothing() -> None:
    """For work that ends by itself."""


async def test_work_that_is_not_interrupted_has_its_own_exit_code() -> None:
    async def work() -> int:
        return 7

    assert await run_interruptibly(work, give_up=nothing) == 7


async def test_an_error_of_the_work_comes_out_as_it_is() -> None:
    async def work() -> int:
        raise LookupError("the very one")

    with pytest.raises(LookupError, match="the very one"):
        await run_interruptibly(work, give_up=nothing)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_cancels_the_work_and_makes_the_exit_code(number: signal.Signals) -> None:
    cancelled = False

    async def work() -> int:
        nonlocal cancelled
        os.kill(os.getpid(), number)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled = True
            raise
        return 0

    with anyio.fail_after(30):
        assert await run_interruptibly(work, give_up=nothing) == 128 + number
    assert cancelled


async def test_work_that_does_not_end_is_given_up_at_the_second_signal() -> None:
    gave_up = anyio.Event()

    async def give_up() -> None:
        gave_up.set()

    async def work() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        with anyio.CancelScope(shield=True), anyio.fail_after(30):
            await gave_up.wait()
        return 0

    assert await run_interruptibly(work, give_up=give_up) == 130
    assert gave_up.is_set()


async def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:

        async def work() -> int:
            os.kill(os.getpid(), signal.SIGHUP)
            await anyio.wait_all_tasks_blocked()
            return 0

        assert await run_interruptibly(work, give_up=nothing) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
