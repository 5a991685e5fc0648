"""`try_lock`: a lock on a file, between the processes of a machine.

The system ends the lock when its file is closed, also with a process that was killed.
"""

from __future__ import annotations

import errno
from typing import Final

from claude_transport.platform.winapi import lock_file

_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
_TAKEN_ON_WINDOWS: Final = frozenset({33, 997})  # ERROR_LOCK_VIOLATION; ERROR_IO_PENDING, for a lock that would have to wait


def try_lock(file: int) -> bool:
    """Lock the file with the descriptor `file`, which is open for writing. Return False when it is locked through another descriptor.

    The lock lasts until the descriptor is closed. It keeps nothing from reading or writing the file. Raises `OSError` when the file
    system has no locks.
    """
    try:
        if not lock_file(file):
            import fcntl  # not on Windows

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if is_taken(error.errno, getattr(error, "winerror", None)):
            return False
        raise
    return True


def is_taken(code: int | None, windows_code: int | None = None) -> bool:
    """Return whether the codes of an `OSError` mean that another descriptor has the lock. `windows_code` is its `winerror`, if any.

    On Windows, EACCES stands for many errors, so the code of the system decides.
    """
    return code in _TAKEN if windows_code is None else windows_code in _TAKEN_ON_WINDOWS
