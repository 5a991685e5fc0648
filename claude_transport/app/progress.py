"""`Progress`: how far something has come, on one line of a terminal that is gone when it is done; nothing at all anywhere else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self, TextIO

from claude_transport.app.terminal import Look, is_terminal, one_line, takes_more, width_of

_PATIENCE: Final = 0.4
"""Seconds before anything is shown: what is done sooner needs no progress."""
_PACE: Final = 0.1
"""Seconds between two pictures."""
_BAR: Final = 20
"""Columns of the bar; without room for it, a percentage has to do."""
_SHORTEST_LABEL: Final = 8
"""Columns; a shorter one says nothing."""
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
    is_shown = not plain and env.get("TERM", "") not in {"", "dumb"} and is_terminal(stream)
    return Progress(label, stream=stream, look=look, is_shown=is_shown, unit=unit, scale=scale, clock=clock)


class Progress:
    """Told by `update(done, total)` how far it is; leave the `with` block, or `close()`, and the line is gone.

    It never raises and never blocks: a terminal that is gone ends the showing, not the work, and one that was stopped, or is another
    job's, is left alone. `clock` gives seconds. `label` may be changed at any time.
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
        self.label = label
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
            if self._write(_CLEAR + self._picture(done, total)):
                self._is_there = True

    def close(self) -> None:
        """Take the line away; `update` brings it back."""
        if self._is_there and self._write(_CLEAR):
            self._is_there = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def _picture(self, done: float, total: float | None) -> str:
        """As much of bar, percentage, label and amount as there is room for, less one column: a line that wraps cannot be cleared."""
        amount = self._amount(done) if not total else f"{self._amount(done)} of {self._amount(total)}"
        amount = f"{amount} {self._unit}".rstrip()
        room = min(self._look.width, width_of(self._stream) or self._look.width) - 1
        bar, percent = "", ""
        if total:
            share = min(max(done / total, 0.0), 1.0)
            percent = f"{share * 100:3.0f} %  "
            if room >= _BAR + 1 + len(percent) + len(amount) + _SHORTEST_LABEL + 1:
                full = round(share * _BAR)
                marks = "█░" if self._look.unicode else "#."
                bar = marks[0] * full + marks[1] * (_BAR - full) + " "
            elif room < len(percent) + len(amount):
                percent = ""
        left = room - len(bar) - len(percent) - len(amount) - 1
        label = "" if left < _SHORTEST_LABEL else one_line(self.label, width=left) + " "
        if not self._look.unicode:
            label = label.replace("…", "~").encode("ascii", "replace").decode()  # what stderr would make of it takes more columns
        return f"{label}{self._look.paint(bar, 'green', stderr=True)}{percent}{self._look.paint(amount[:room], 'dim', stderr=True)}"

    def _amount(self, number: float) -> str:
        scaled = number / self._scale
        return f"{scaled:,.1f}" if self._scale != 1 else f"{scaled:,.0f}"

    def _write(self, text: str) -> bool:
        """Whether it was written."""
        try:
            if not takes_more(self._stream):
                return False
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_shown = False
        return True
