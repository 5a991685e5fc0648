"""Waiting for what another process or thread does, where nothing tells when it has done it."""

from __future__ import annotations

import anyio


async def a_moment() -> None:
    """Let a few milliseconds pass, in a loop with a limit of its own. A loop without a pause takes a whole core from what it waits for."""
    await anyio.sleep(0.005)
