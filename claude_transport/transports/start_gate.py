"""`StartGate`: one start at a time, over all processes of a machine (S7).

Several CLIs that share a login and start at once may all find its token expired, and all ask for a new one; the refresh token is good for
one of them, and the others are logged out. Nothing on this side can mend that, but starts can be kept apart.

The gate is a lock on a file. The system lets go of it when its holder ends, however it ends: nothing is ever left locked.
"""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from os import PathLike
from typing import Final

import anyio

from claude_transport.errors import ConfigurationError, ConnectTimeout

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
_PAUSE: Final = 0.05
"""Seconds between two looks: far less than a start takes, and far more than a look costs."""


class StartGate:
    """A gate that one start passes at a time: `async with gate.turn(): ...`, in whatever process, task or event loop.

    Args:
        path: the file to lock, made when it is not there; everybody who shares a login must give the same one. It stays, empty.
        timeout: seconds that a turn is waited for.
        sleep: does the waiting, in seconds; give your own to wait without time passing.

    What should be inside: everything up to the first message of the first turn, because the CLI renews its login when it first asks the
    API. Raises `ConfigurationError` for a timeout that is none.
    """

    def __init__(
        self, path: str | PathLike[str], *, timeout: float = 60.0, sleep: Callable[[float], Awaitable[object]] = anyio.sleep
    ) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout) or timeout < 0:
            raise ConfigurationError(
                f"timeout is a number of seconds, 0 or more (math.inf for no limit), not {timeout!r}", option="timeout"
            )
        self._path = os.fspath(path)
        self._timeout = timeout
        self._sleep = sleep

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """A block in which nobody else is inside; gives the seconds that were waited for it.

        Raises `ConnectTimeout` when the turn does not come in time, and `ConfigurationError` when the file cannot be made or locked.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            yield await self._wait(file)
        finally:
            os.close(file)  # which lets go of the lock, too

    async def _wait(self, file: int) -> float:
        waited = 0.0
        while not self._is_ours(file):
            if waited >= self._timeout:
                raise ConnectTimeout(f"the start gate {self._path} did not open in {self._timeout:g} s", waited=waited)
            pause = min(_PAUSE, self._timeout - waited)
            await self._sleep(pause)
            waited += pause
        return waited

    def _is_ours(self, file: int) -> bool:
        try:
            _lock(file)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise self._unusable(error) from error
        return True

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"the start gate {self._path} cannot be used: {error.strerror or type(error).__name__}", option="path")
