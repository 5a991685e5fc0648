"""`PoolSnapshot`: what can be seen of a pool at one moment."""

from __future__ import annotations

import msgspec

__all__ = ["PoolSnapshot"]


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions of a pool do what, and what has been since it began.

    `live` is the sum of `idle`, `starting`, `in_use` and `ending`: no more than `cap`, at every moment. `waiting` are calls of `acquire()`.
    `handed_out` counts what they got, `handed_out_warm` those that did not have to wait. `retired` counts the sessions that were ended, by
    `Retirement`.
    """

    idle: int
    starting: int
    in_use: int
    ending: int
    waiting: int
    started: int
    failed_starts: int
    handed_out: int
    handed_out_warm: int
    retired: dict[str, int]

    @property
    def live(self) -> int:
        """Sessions that have, or may have, a process."""
        return self.idle + self.starting + self.in_use + self.ending

    def __str__(self) -> str:
        return f"{self.idle} idle, {self.starting} starting, {self.in_use} in use, {self.ending} ending, {self.waiting} waiting"
