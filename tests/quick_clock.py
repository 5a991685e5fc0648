"""`QuickClock`: a clock for code that polls, in which a pause takes no time."""

from __future__ import annotations

import time


class QuickClock:
    """The `time` module of a store, in which a pause takes no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds

    def monotonic(self) -> float:
        """The seconds so far."""
        return self.now

    time = staticmethod(time.time)
