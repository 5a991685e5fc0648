"""`RefusalLog`: the records of refusals, so many in ten seconds; a flood of strangers must not become a flood of records."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.printable import printable

__all__ = ["RefusalLog"]

_WINDOW: Final = 10.0
"""Seconds."""

_PER_WINDOW: Final = 100
"""Records: enough to see what goes on, and a megabyte in ten minutes."""


class RefusalLog:
    """Writes to `logger`: every refusal while there are few; of many, the first hundred in ten seconds, and how many more there were."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._began = -_WINDOW
        self._written = 0
        self._left_out = 0

    def note(self, level: int, event: str, message: str, *args: object, **fields: str) -> None:
        """Write a record about a stranger: its text, and `fields` for structured logs. What it quotes is made `printable()`."""
        now = anyio.current_time()
        if now - self._began >= _WINDOW:
            left_out, self._left_out = self._left_out, 0
            self._began, self._written = now, 0
            if left_out:
                extra = {"gateway_event": "turned_away_many", "gateway_count": left_out}
                self._logger.warning("%d more were turned away, and not logged one by one", left_out, extra=extra)
        if self._written >= _PER_WINDOW:
            self._left_out += 1
            return
        self._written += 1
        extra = {"gateway_event": event, **{f"gateway_{name}": printable(value) for name, value in fields.items()}}
        self._logger.log(level, message, *map(printable, args), extra=extra)

    def turned_away(self, refused: TurnedAway, *, peer: str) -> None:
        """Write that a client was refused, and why."""
        message = "turned away (%s): %s"
        self.note(logging.WARNING, "turned_away", message, refused.reason, refused, reason=refused.reason, peer=peer)
