"""Waits for a pipe and for the end of a process, which also work where the event loop cannot watch one more descriptor.

A system limits the descriptors of a process, and how many of them one user may watch. A session that is connected must not end for that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import anyio
import anyio.to_thread

__all__ = ["process_end", "readable"]

_LOOK_AGAIN = 0.02
"""Seconds between two looks into a pipe that cannot be watched."""


async def readable(fd: int) -> None:
    """Wait until there may be something to read from `fd`. Where it cannot be watched, that is after a moment."""
    try:
        await anyio.wait_readable(fd)
    except OSError:
        await anyio.sleep(_LOOK_AGAIN)


async def process_end(pid: int, block: Callable[[], object]) -> None:
    """Wait for the end of a child without collecting it. `block` does the same in a thread, where nothing else works."""
    with contextlib.suppress(AttributeError, OSError):
        pidfd = os.pidfd_open(pid)
        try:
            await anyio.wait_readable(pidfd)
            return
        finally:
            os.close(pidfd)
    # This system has no pidfd, or cannot watch one more: a thread blocks instead. It ends with the child, which closing guarantees. It has
    # a limiter of its own, because it would wait for one of the shared threads as long as other children live.
    await anyio.to_thread.run_sync(block, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
