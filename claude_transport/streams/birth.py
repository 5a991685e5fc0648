"""`SafePopen`: a `Popen` that leaves no process behind when it fails half-way.

`subprocess.Popen` starts the process, and then waits for what the new process says about its start. When that wait fails, or a Ctrl-C
comes in the middle of it, the caller gets an exception and no `Popen`, and the process runs on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = ["SafePopen"]

_PATIENCE = 1.0
"""Seconds to wait for a process that was killed. SIGKILL takes microseconds, or for ever."""


class SafePopen(subprocess.Popen[bytes]):
    """Start a process, with the options of `Popen`. When the constructor raises, the process and the group it leads are killed first."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        try:
            super().__init__(command, **options)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        """Kill the process if there is one: it has an id from its start on, and a return code once it is collected."""
        if getattr(self, "pid", None) is None or self.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()  # it may not lead its group yet
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_PATIENCE)
