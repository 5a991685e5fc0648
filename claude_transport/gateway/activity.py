"""`Activity`: whether a session is in the middle of a turn, seen from its bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import anyio

__all__ = ["Activity"]

_PROMPT = re.compile(rb'"type"\s*:\s*"user"')
_RESULT = re.compile(rb'"type"\s*:\s*"result"')
_STATE = b'"session_state_changed"'
_IDLE = re.compile(rb'"state"\s*:\s*"idle"')


class Activity:
    """Busy from a prompt until the CLI says that it is idle, or, when it never speaks of its state, until a result.

    Nothing is decoded: inside a JSON string a quote is escaped, so what these patterns find is no text of anybody. What a nested object
    may make them find costs nothing but a closing that comes sooner or later than it could; the drain is bounded either way.
    """

    def __init__(self) -> None:
        self.busy: bool = False
        self._speaks_of_state = False
        self._idle = anyio.Event()
        self._idle.set()

    def said(self, lines: Sequence[bytes]) -> None:
        """The client has said this."""
        if not self.busy and any(_PROMPT.search(line) for line in lines):
            self.busy = True
            self._idle = anyio.Event()

    def heard(self, lines: Sequence[bytes]) -> None:
        """The process has said this."""
        said = b"\n".join(lines)
        # every line of every session comes by here, hundreds in a batch: one look at all of them costs a third of a look at each
        if _STATE not in said and (self._speaks_of_state or not self.busy or b'"result"' not in said):
            return
        for line in lines:
            if _STATE in line:
                self._speaks_of_state = True
                if _IDLE.search(line):
                    self.rest()
            elif self.busy and not self._speaks_of_state and _RESULT.search(line):
                self.rest()

    def rest(self) -> None:
        """It is over, or will not go on."""
        self.busy = False
        self._idle.set()

    async def idle(self) -> None:
        """Return when no turn runs; bounded by whoever drains."""
        while self.busy:
            await self._idle.wait()
