"""The event loop that a command runs on."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable

import anyio

from claude_transport.errors import ConfigurationError


def run_on(backend: str, work: Callable[[], Awaitable[int]]) -> int:
    """What `work()` returns, run on `asyncio` or `trio`; `ConfigurationError` when that is not installed."""
    if importlib.util.find_spec(backend) is None:
        raise ConfigurationError(f"--backend {backend} needs the package {backend}, which is not installed", option="backend")
    return anyio.run(work, backend=backend)
