"""`Progress`: how far something has come, on one line of a terminal that is gone when it is done; nothing at all anywhere else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self, TextIO

from claude_transport.app.terminal import Look, is_terminal, one_line

__all__ = ["Progress", "open_progress"]

_PATIENCE: Final = 0.4
"""Seconds before anything is shown: what is done sooner needs no progress."""
_PACE: Final = 0.1
"""Seconds between two pictures."""
_BAR: Final = 20
"""Columns of the bar."""
_CLEAR: Final = "\r\x1b[K"


def open_progress(
    label: str,
    *,
    stream: TextIO,
    look: Look,
    env: Mapping[str, str] = os.environ,
    plain: bool = False,
    unit: str = "MB",
    scale: float = 1e6,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """A progress that is shown when `stream` is a terminal that can clear a line, and not `plain`; one that does nothing otherwise.

    Counts are divided by `scale` and named by `unit`; with a scale of 1 they are whole numbers.
    """
    is_shown = not plain and env.get("TERM", "dumb") != "dumb" and is_terminal(stream)
    return Progress(label, stream=stream, look=look, is_shown=is_shown, unit=unit, scale=scale, clock=clock)


class Progress:
    """Told by `update(done, total)` how far it is; leave the `with` block, or `close()`, and the line is gone.

    It never raises: a terminal that is gone ends the showing, not the work. `clock` gives seconds.
    """

    def __init__(
        self,
        label: str,
        *,
        stream: TextIO,
        look: Look,
        is_shown: bool,
        unit: str = "",
        scale: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._stream = stream
        self._look = look
        self._is_shown = is_shown
        self._unit = unit
        self._scale = scale
        self._clock = clock
        self._next = clock() + _PATIENCE
        self._is_there = False

    def update(self, done: float, total: float | None = None) -> None:
        """So much is done, of so much in all when that is known. Costs next to nothing between two pictures."""
        if not self._is_shown:
            return
        now = self._clock()
        if now >= self._next:
            self._next = now + _PACE
            self._write(_CLEAR + self._picture(done, total))
            self._is_there = True

    def close(self) -> None:
        """Take the line away."""
        if self._is_there:
            self._is_there = False
            self._write(_CLEAR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def _picture(self, done: float, total: float | None) -> str:
        amount = self._amount(done) if not total else f"{self._amount(done)} of {self._amount(total)}"
        amount = f"{amount} {self._unit}".rstrip()
        bar, percent = "", ""
        if total:
            share = min(max(done / total, 0.0), 1.0)
            full = round(share * _BAR)
            marks = "█░" if self._look.unicode else "#."
            bar = marks[0] * full + marks[1] * (_BAR - full) + " "
            percent = f"{share * 100:3.0f} %  "
        room = max(8, self._look.width - len(bar) - len(percent) - len(amount) - 3)
        label = one_line(self._label, width=room)
        return f"{label} {self._look.paint(bar, 'green', stderr=True)}{percent}{self._look.paint(amount, 'dim', stderr=True)}"

    def _amount(self, number: float) -> str:
        scaled = number / self._scale
        return f"{scaled:,.1f}" if self._scale != 1 else f"{scaled:,.0f}"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_shown = False
