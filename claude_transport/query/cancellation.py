"""Cancellations that nobody here ordered: foreign code may end in one, and it must not take the conversation along.

On asyncio any code may raise `CancelledError`, for instance by waiting for a task of its own that was cancelled. Inside a task
group that would end the task without a trace, so it is turned into an error like any other.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import TypeVar

import anyio

__all__ = ["StrayCancellation", "guarded", "meant_for_the_program", "refuse_stray", "without_cancellation"]

T = TypeVar("T")


class StrayCancellation(Exception):
    """Foreign code ended as if it had been cancelled, and no scope around it was."""


async def guarded(awaitable: Awaitable[T]) -> T:
    """What `awaitable` returns or raises; a cancellation only when a scope around the caller is cancelled."""
    try:
        return await awaitable
    except anyio.get_cancelled_exc_class() as exc:
        refuse_stray(exc)
        raise


def refuse_stray(cancelled: BaseException) -> None:
    """Raise `StrayCancellation` unless a scope around the caller is cancelled."""
    if anyio.current_effective_deadline() != -math.inf:
        raise StrayCancellation("it was cancelled by something of its own") from cancelled


def without_cancellation(error: BaseException) -> BaseException | None:
    """Return what is left of `error` when the cancellations are taken out of it; None when it was nothing else."""
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error if error.subgroup(cancelled) is None else error.split(cancelled)[1]
    return None if isinstance(error, cancelled) else error


def meant_for_the_program(error: BaseException | None) -> KeyboardInterrupt | SystemExit | None:
    """Return the Ctrl-C or `sys.exit()` that `error` is, or that is in the group; None when there is none."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            if (found := meant_for_the_program(member)) is not None:
                return found
        return None
    return error if isinstance(error, KeyboardInterrupt | SystemExit) else None
