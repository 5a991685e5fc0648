"""How a process ended."""

from __future__ import annotations

import msgspec

__all__ = ["ExitStatus"]


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: one of the two is set, or neither when it is not known."""

    exit_code: int | None = None
    signal: int | None = None

    @classmethod
    def of_returncode(cls, returncode: int) -> ExitStatus:
        """The status behind `Popen.returncode`, which is negative for signals."""
        return cls(signal=-returncode) if returncode < 0 else cls(exit_code=returncode)

    @property
    def failed(self) -> bool:
        """True for a non-zero exit code and for a death by signal."""
        return bool(self.exit_code) or self.signal is not None
