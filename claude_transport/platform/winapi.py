"""What the standard library does not offer on Windows: private files, locks, and questions about other processes. It is called through
`ctypes`, which is imported by the first call.

Every function may be called on every system: elsewhere it does nothing, or returns None. Job Objects are in `jobs`.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Final

_PRIVATE: Final = "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;OW)"
"""All rights for the system, the administrators and the owner; none for others, and none inherited. What is made below it inherits that."""

_SET_PROTECTED_LIST: Final = 0x8000_0004
_QUERY_LIMITED: Final = 0x1000
_SYNCHRONIZE: Final = 0x0010_0000
_TIMED_OUT: Final = 0x102
_DENIED: Final = 5
_EXCLUSIVE_AT_ONCE: Final = 0x1 | 0x2
_MOST_HANDLES: Final = 2_048
_BEHIND_EVERYTHING: Final = 0x7FFF_FFFF
"""The upper half of the position of the locked byte. Windows keeps others from reading what is locked, so no file has that byte."""


def make_private(path: str | os.PathLike[str]) -> None:
    """Let only the owner, and administrators, use a file or a folder and what is made in it later. On Windows only: elsewhere, modes do.

    Raises `OSError` when Windows refuses it. A file system without access rights, such as FAT, ignores it.
    """
    if os.name != "nt":
        return
    api = _api()
    descriptor = api.pointer()
    if not api.security.ConvertStringSecurityDescriptorToSecurityDescriptorW(_PRIVATE, 1, api.reference(descriptor), None):
        raise api.error()
    try:
        if not api.security.SetFileSecurityW(os.fspath(path), _SET_PROTECTED_LIST, descriptor):
            raise api.error()
    finally:
        api.kernel.LocalFree(descriptor)


def is_running(pid: int) -> bool | None:
    """Return whether a process of Windows runs; None on other systems. There, `os.kill(pid, 0)` is the question; here it sends Ctrl-C."""
    if os.name != "nt":
        return None
    api = _api()
    process = api.kernel.OpenProcess(_SYNCHRONIZE, False, pid)
    if not process:
        return bool(api.last_error() == _DENIED)  # it runs, and belongs to another user
    try:
        return bool(api.kernel.WaitForSingleObject(process, 0) == _TIMED_OUT)
    finally:
        api.kernel.CloseHandle(process)


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process of Windows in bytes. None when it is gone, and on other systems."""
    if os.name != "nt":
        return None
    api = _api()
    process = api.kernel.OpenProcess(_QUERY_LIMITED, False, pid)
    if not process:
        return None
    try:
        counters = api.memory_counters()
        is_known = api.kernel.K32GetProcessMemoryInfo(process, api.reference(counters), counters.size)
        return int(counters.working_set) if is_known else None
    finally:
        api.kernel.CloseHandle(process)


def count_handles() -> int | None:
    """Return how many handles this process has open on Windows; None on other systems, and when Windows does not tell.

    wine 8 always says 0. There, each possible handle below `_MOST_HANDLES` is tried, which takes some hundredths of a second.
    """
    if os.name != "nt":
        return None
    import ctypes

    api = _api()
    count = ctypes.c_uint32()
    if not api.kernel.GetProcessHandleCount(api.kernel.GetCurrentProcess(), api.reference(count)):
        return None
    tried = range(4, 4 * _MOST_HANDLES, 4)  # the lowest number that is free is given first
    return count.value or sum(map(bool, (api.kernel.GetHandleInformation(each, api.reference(count)) for each in tried)))


def lock_file(file: int) -> bool:
    """Lock an open file of Windows for its descriptor alone, without waiting. Returns False on other systems, and does nothing.

    Raises `OSError`; its `winerror` is 33 when another descriptor has the lock.
    """
    if os.name != "nt":
        return False
    import msvcrt

    api = _api()
    handle: int = vars(msvcrt)["get_osfhandle"](file)  # type checkers know it on Windows only
    place = api.overlapped()
    if not api.kernel.LockFileEx(handle, _EXCLUSIVE_AT_ONCE, 0, 1, 0, api.reference(place)):
        raise api.error()
    return True


class _Api:
    """The functions of the system."""

    def __init__(self) -> None:
        import ctypes
        from ctypes import wintypes

        find: Any = vars(ctypes).__getitem__  # type checkers know these names on Windows only
        self.pointer = ctypes.c_void_p
        self.reference = ctypes.byref
        self.last_error: Any = find("get_last_error")
        self._error: Any = find("WinError")
        self.kernel: Any = find("WinDLL")("kernel32", use_last_error=True)
        self.security: Any = find("WinDLL")("advapi32", use_last_error=True)
        handle, pointer, number, flag = wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD, wintypes.BOOL
        for library, name, result, arguments in (
            (self.security, "ConvertStringSecurityDescriptorToSecurityDescriptorW", flag, (wintypes.LPCWSTR, number, pointer, pointer)),
            (self.security, "SetFileSecurityW", flag, (wintypes.LPCWSTR, number, pointer)),
            (self.kernel, "LocalFree", pointer, (pointer,)),
            (self.kernel, "OpenProcess", handle, (number, flag, number)),
            (self.kernel, "WaitForSingleObject", number, (handle, number)),
            (self.kernel, "K32GetProcessMemoryInfo", flag, (handle, pointer, number)),
            (self.kernel, "LockFileEx", flag, (handle, number, number, number, number, pointer)),
            (self.kernel, "GetCurrentProcess", handle, ()),
            (self.kernel, "GetProcessHandleCount", flag, (handle, pointer)),
            (self.kernel, "GetHandleInformation", flag, (handle, pointer)),
            (self.kernel, "CloseHandle", flag, (handle,)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments

    def error(self) -> OSError:
        """Return the last error of the system."""
        found: OSError = self._error(self.last_error())
        return found

    def memory_counters(self) -> Any:
        """Return a `PROCESS_MEMORY_COUNTERS` to be filled."""
        import ctypes

        class MemoryCounters(ctypes.Structure):
            _fields_ = (
                ("size", ctypes.c_uint32),
                ("page_faults", ctypes.c_uint32),
                ("peak_working_set", ctypes.c_size_t),
                ("working_set", ctypes.c_size_t),
                ("others", ctypes.c_size_t * 6),
            )

        return MemoryCounters(ctypes.sizeof(MemoryCounters))

    def overlapped(self) -> Any:
        """Return an `OVERLAPPED` with the position of the byte that locks are on."""
        import ctypes

        class Overlapped(ctypes.Structure):
            _fields_ = (
                ("internal", ctypes.c_size_t * 2),
                ("offset", ctypes.c_uint32),
                ("offset_high", ctypes.c_uint32),
                ("event", ctypes.c_void_p),
            )

        return Overlapped(offset_high=_BEHIND_EVERYTHING)


@functools.cache
def _api() -> _Api:
    return _Api()
