"""`TurnedAway`: that a client is not let in, or not any further, and what it is told."""

from __future__ import annotations

import logging
from typing import Any, Final

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.printable import printable

REASONS: Final = {
    "auth": (401, "no token, or one that is nobody's"),
    "origin": (403, "a page in a browser that was not told to be welcome"),
    "host": (421, "plain HTTP under a host name that is not the gateway's"),
    "malformed": (400, "what it said is in neither of the two languages"),
    "options": (400, "it chose an option that is not for it to choose, or a value the option cannot have"),
    "limit": (429, "its token has too much of something already; retryable"),
    "session": (404, "there is no such session, any more or for this token"),
    "replay_gap": (409, "what it missed, or what was missed of it, cannot be said again"),
    "line_too_long": (413, "a line over the limit"),
    "session_bytes": (413, "the session has carried as much as it may"),
    "draining": (503, "the gateway is about to end; retryable, elsewhere"),
    "start": (503, "claude could not be started; the gateway's log says why"),
    "handshake": (408, "it took too long, or too many others stood at the door"),
    "mode": (400, "this gateway does not speak the language of the first line"),
}
"""Each reason, with its status in HTTP and what it means. The first three words of the link protocol's refusals are among them."""


_MAX_CHARS: Final = 500
"""Characters of a message: it may quote what the client sent."""


class TurnedAway(ClaudeTransportError):
    """A client that is refused: `reason` (one of `REASONS`) and the message are what it is told: no secret, and nobody else's name.

    The message may quote the client: it is made `printable()`, with at most 500 characters.

    `retryable` says whether the same client may be let in later, `audible` whether it can be told at all: in the middle of a frame it
    would take the reason for data.
    """

    code = "gateway.refused"

    def __init__(self, reason: str, message: str = "", *, audible: bool = True, **common: Any) -> None:
        super().__init__(printable(message, at_most=_MAX_CHARS), code=f"gateway.{reason}", **common)
        self.reason = reason
        self.audible = audible

    @property
    def status(self) -> int:
        """The same in HTTP."""
        return REASONS[self.reason][0]


# --- `RefusalLog`: the records of refusals, so many in ten seconds; a flood of strangers must not become a flood of records.


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
