"""`StartGate`: lets one CLI start at a time, across all processes of a machine.

Several CLIs that share a login and start at once may all find its token expired and request a new one. The refresh token works only once,
so the other CLIs are logged out. This library cannot repair that, but it can separate the starts.

The gate is a lock on a file. The operating system releases it when its holder ends, however it ends.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from os import PathLike
from typing import Final

import anyio

from claude_transport.errors import ConfigurationError, ConnectTimeout
from claude_transport.platform.locks import try_lock

_PAUSE: Final = 0.05
"""Seconds between two attempts to lock: far less than a start takes, and far more than an attempt costs."""


class StartGate:
    """Lets one CLI start at a time on this machine: `async with gate.turn(): ...`, in any process, task or event loop.

    CLIs that share a login and start at once may all renew it, and then all but one are logged out. Put everything up to the first message
    of the first turn inside the block, because the CLI renews its login at its first API request.

    Args:
        path: the file to lock, created when missing. All programs that share a login must use the same one. It stays, empty.
        timeout: seconds that `turn()` waits; `math.inf` for no limit.
        sleep: waits the given seconds; pass your own function to wait without time passing.

    Raises:
        ConfigurationError: `timeout` is not a number of seconds.
    """

    def __init__(
        self, path: str | PathLike[str], *, timeout: float = 60.0, sleep: Callable[[float], Awaitable[object]] = anyio.sleep
    ) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout) or timeout < 0:
            raise ConfigurationError(
                f"timeout must be a number of seconds, 0 or more (math.inf for no limit), not {timeout!r}", option="timeout"
            )
        self._path = os.fspath(path)
        self._timeout = timeout
        self._sleep = sleep

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait until no other program, task or event loop holds the lock on the file, and hold it inside the `async with` block. Yields the
        seconds of waiting.

        Raises:
            ConnectTimeout: the lock was not free in the `timeout` of this gate.
            ConfigurationError: the file cannot be created or locked.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            yield await self._wait(file)
        finally:
            os.close(file)  # releases the lock, too

    async def _wait(self, file: int) -> float:
        waited = 0.0
        while not self._is_locked(file):
            if waited >= self._timeout:
                raise ConnectTimeout(f"the start gate {self._path} did not open in {self._timeout:g} s", waited=waited)
            pause = min(_PAUSE, self._timeout - waited)
            await self._sleep(pause)
            waited += pause
        return waited

    def _is_locked(self, file: int) -> bool:
        try:
            return try_lock(file)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"the start gate {self._path} cannot be used: {error.strerror or type(error).__name__}", option="path")
