"""`Job`: a Job Object of Windows. Every process in it ends when the job is terminated, or when the host that holds its handle is gone.

The system closes the handles of a process that ends, also of one that was killed. So the tree of a child needs no guard process there.
A process belongs to the job of its parent from its start on, and cannot leave this one. The functions of the system are called through
`ctypes`, which is imported when the first job is made.
"""

from __future__ import annotations

import functools
from typing import Any, Final

_KILL_ON_JOB_CLOSE: Final = 0x2000
_BASIC_ACCOUNTING: Final = 1
_EXTENDED_LIMITS: Final = 9
_SET_QUOTA_TERMINATE_AND_RESUME: Final = 0x0100 | 0x0001 | 0x0800
"""Rights on a process: to put it into a job (quota and terminate), and to resume it."""

KILLED: Final = 1
"""The exit code of processes that a job ended."""


class Job:
    """A Job Object that ends its processes when its handle is closed. Any thread may use it.

    Raises `OSError` when the system refuses it.
    """

    __slots__ = ("_handle",)

    def __init__(self) -> None:
        self._handle: int = 0
        api = _api()
        self._handle = _checked(api.kernel.CreateJobObjectW(None, None))
        limits = api.ExtendedLimits()
        limits.basic.limit_flags = _KILL_ON_JOB_CLOSE
        try:
            _checked(api.kernel.SetInformationJobObject(self._handle, _EXTENDED_LIMITS, api.reference(limits), api.size(limits)))
        except BaseException:
            self.close()
            raise

    def adopt(self, pid: int) -> None:
        """Put a process that was started suspended into the job, and let it run. Raises `OSError` when the system refuses it."""
        api = _api()
        process = _checked(api.kernel.OpenProcess(_SET_QUOTA_TERMINATE_AND_RESUME, False, pid))
        try:
            _checked(api.kernel.AssignProcessToJobObject(self._handle, process))
            status = api.native.NtResumeProcess(process)
            if status:
                raise OSError(f"process {pid} cannot be resumed: NTSTATUS {status & 0xFFFF_FFFF:#010x}")
        finally:
            api.kernel.CloseHandle(process)

    @property
    def active(self) -> int:
        """The number of processes in the job that run. 0 when the job is closed."""
        if not self._handle:
            return 0
        api = _api()
        counts = api.Accounting()
        query = api.kernel.QueryInformationJobObject
        return counts.active if query(self._handle, _BASIC_ACCOUNTING, api.reference(counts), api.size(counts), None) else 0

    def terminate(self) -> None:
        """End every process in the job at once, with the exit code `KILLED`. Does nothing when the job is closed."""
        if self._handle:
            _api().kernel.TerminateJobObject(self._handle, KILLED)

    def close(self) -> None:
        """Close the handle, which ends every process in the job. A second call does nothing."""
        handle, self._handle = self._handle, 0
        if handle:
            _api().kernel.CloseHandle(handle)

    def __del__(self) -> None:
        self.close()


def _checked(result: int) -> int:
    """Return what a function of the system returned. Raises `OSError` with its last error when that is 0."""
    if result:
        return result
    import ctypes

    raise _of_windows(ctypes, "WinError")(_of_windows(ctypes, "get_last_error")())


def _of_windows(module: Any, name: str) -> Any:
    """Return an attribute that the module has on Windows only. Type checkers read this file on every platform."""
    return getattr(module, name)


class _JobApi:
    """The functions and structures of the system that a job needs."""

    def __init__(self) -> None:
        import ctypes
        from ctypes import wintypes

        library = _of_windows(ctypes, "WinDLL")
        self.reference = ctypes.byref
        self.size = ctypes.sizeof
        self.kernel: Any = library("kernel32", use_last_error=True)
        self.native: Any = library("ntdll")
        self.ExtendedLimits: Any = _extended_limits()
        self.Accounting: Any = _accounting()
        handle, pointer, number, flag = wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD, wintypes.BOOL
        for library, name, result, arguments in (
            (self.kernel, "CreateJobObjectW", handle, (pointer, wintypes.LPCWSTR)),
            (self.kernel, "SetInformationJobObject", flag, (handle, ctypes.c_int, pointer, number)),
            (self.kernel, "QueryInformationJobObject", flag, (handle, ctypes.c_int, pointer, number, pointer)),
            (self.kernel, "AssignProcessToJobObject", flag, (handle, handle)),
            (self.kernel, "TerminateJobObject", flag, (handle, wintypes.UINT)),
            (self.kernel, "OpenProcess", handle, (number, flag, number)),
            (self.kernel, "CloseHandle", flag, (handle,)),
            (self.native, "NtResumeProcess", ctypes.c_long, (handle,)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments


@functools.cache
def _api() -> _JobApi:
    return _JobApi()


def _extended_limits() -> Any:
    """Return the class of `JOBOBJECT_EXTENDED_LIMIT_INFORMATION`."""
    import ctypes
    from ctypes import c_int64, c_size_t, c_uint32, c_uint64

    class BasicLimits(ctypes.Structure):
        _fields_ = (
            ("process_time", c_int64),
            ("job_time", c_int64),
            ("limit_flags", c_uint32),
            ("minimum_working_set", c_size_t),
            ("maximum_working_set", c_size_t),
            ("active_limit", c_uint32),
            ("affinity", c_size_t),
            ("priority_class", c_uint32),
            ("scheduling_class", c_uint32),
        )

    class ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("basic", BasicLimits),
            ("io_counters", c_uint64 * 6),
            ("process_memory", c_size_t),
            ("job_memory", c_size_t),
            ("peak_process_memory", c_size_t),
            ("peak_job_memory", c_size_t),
        )

    return ExtendedLimits


def _accounting() -> Any:
    """Return the class of `JOBOBJECT_BASIC_ACCOUNTING_INFORMATION`."""
    import ctypes
    from ctypes import c_int64, c_uint32

    class Accounting(ctypes.Structure):
        _fields_ = (("times", c_int64 * 4), ("page_faults", c_uint32), ("total", c_uint32), ("active", c_uint32), ("terminated", c_uint32))

    return Accounting
