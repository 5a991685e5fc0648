"""What tests ask the system about processes: whether one runs."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_SYNCHRONIZE = 0x0010_0000
_TIMED_OUT = 0x102


def is_wine() -> bool:
    """Return whether this Windows is wine."""
    return os.name == "nt" and hasattr(getattr(ctypes, "WinDLL")("ntdll"), "wine_get_version")  # noqa: B009 - as below


def kernel() -> Any:
    """Return kernel32. Type checkers know `WinDLL` on Windows only."""
    library: Any = getattr(ctypes, "WinDLL")("kernel32", use_last_error=True)  # noqa: B009 - see the docstring
    library.OpenProcess.restype = ctypes.c_void_p
    library.OpenProcess.argtypes = (ctypes.c_uint32, ctypes.c_int, ctypes.c_uint32)
    library.WaitForSingleObject.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    library.WaitForSingleObject.restype = ctypes.c_uint32
    library.CloseHandle.argtypes = (ctypes.c_void_p,)
    return library


class Watched:
    """A process that is watched by a handle, so that its id cannot be given to another one."""

    def __init__(self, pid: int) -> None:
        self._kernel = kernel()
        self._handle = self._kernel.OpenProcess(_SYNCHRONIZE, False, pid)

    def ends_within(self, seconds: float) -> bool:
        """Return whether the process has ended, or ends within that time."""
        if not self._handle:
            return True
        return int(self._kernel.WaitForSingleObject(self._handle, int(seconds * 1000))) != _TIMED_OUT

    def close(self) -> None:
        """Close the handle."""
        if self._handle:
            self._kernel.CloseHandle(self._handle)
