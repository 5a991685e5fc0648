"""`TurnedAway`, the error for a client that the gateway refuses, the reasons it can have, and the log of refusals.

Every module of the gateway raises it. `gateway.py` catches it, counts it, and tells the client.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.protocol.envelope import encode_line
from claude_transport.text.printable import printable

REASONS: Final = {
    "auth": (401, "the token is missing or not accepted"),
    "origin": (403, "a web page whose origin is not in `origins`"),
    "method": (405, "a plain HTTP request for a page with a method that does not read: GET, HEAD and OPTIONS are answered"),
    "host": (421, "a plain HTTP request with a host name that is not in `hosts`"),
    "malformed": (400, "the first line is neither a hello nor JSON, or breaks the protocol"),
    "options": (400, "the client chose an option that it may not choose, or a value that is not valid"),
    "limit": (429, "the token has reached one of its limits; retryable"),
    "session": (404, "the session does not exist, does not exist any more, or belongs to another token"),
    "replay_gap": (409, "the session cannot be resumed: bytes that one side missed are not kept any more"),
    "line_too_long": (413, "a line is longer than the limit"),
    "session_bytes": (413, "the session has carried as many bytes as it may"),
    "stalled": (408, "the client took nothing of the output that waited for it, for the time of `stall`"),
    "draining": (503, "the gateway is about to end; retryable on another gateway"),
    "start": (503, "claude could not be started; the log of the gateway says why"),
    "handshake": (408, "the handshake took too long, or too many other connections were waiting"),
    "mode": (400, "this gateway does not speak the mode of the first line"),
}
"""Each reason, with its HTTP status and its meaning. `auth`, `session` and `replay_gap` are also codes of the link protocol."""

ALLOW: Final = {"allow": "GET, HEAD, OPTIONS"}
"""The header that names the methods with which the pages of a gateway are answered."""

_HEADERS: Final = {401: {"www-authenticate": "Bearer"}, 405: ALLOW}
_MAX_CHARS: Final = 500
"""Characters of a message: it may quote what the client sent."""


class TurnedAway(ClaudeTransportError):
    """The gateway refuses a client. The client is told `reason` and the message, so neither may hold a secret or another client's name.

    Args:
        reason: a key of `REASONS`.
        message: text for the client. It is made `printable()` and cut to 500 characters, because it may quote the client.
        audible: False when the client cannot be told, because it would read the reason as part of a frame.
        common: as for every error of this library; `retryable` says that the same client may try again later.
    """

    code = "gateway.refused"

    def __init__(self, reason: str, message: str = "", *, audible: bool = True, **common: Any) -> None:
        super().__init__(printable(message, at_most=_MAX_CHARS), code=f"gateway.{reason}", **common)
        self.reason = reason
        self.audible = audible

    def __str__(self) -> str:
        """Return the message alone: the client reads it, and a cause belongs into the log of the gateway."""
        return str(self.args[0])

    @property
    def status(self) -> int:
        """The HTTP status of the reason."""
        return REASONS[self.reason][0]

    @property
    def headers(self) -> dict[str, str]:
        """The headers that an answer with this status must have."""
        return _HEADERS.get(self.status, {})

    def encode(self) -> bytes:
        """Return the line that tells a client in plain mode why it is refused."""
        error = {"code": self.reason, "message": str(self), "retryable": self.retryable}
        return encode_line({"type": "system", "subtype": "refused", "error": error})


def stalled_for(seconds: float) -> TurnedAway:
    """Return the error for a client that has taken nothing for so long. Half a line may have been sent, so that it cannot be told."""
    return TurnedAway("stalled", f"the client took nothing of the output that waited for it, for {seconds:g} s", audible=False)


_WINDOW: Final = 10.0
"""Seconds in which records are counted."""

_PER_WINDOW: Final = 100
"""Records in that time: enough to see what happens, and at most a megabyte in ten minutes."""


class RefusalLog:
    """Writes a record for each refused client to `logger`, at most 100 in ten seconds.

    When more were refused, the next record after these ten seconds says how many. Strangers cannot fill the log.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._began = -_WINDOW
        self._written = 0
        self._left_out = 0

    def note(self, level: int, event: str, message: str, *args: object, **fields: str) -> None:
        """Write one record, unless too many were written. `args` and `fields` are made `printable()`.

        Args:
            level: of `logging`.
            event: value of the field `gateway_event`.
            message: text with `%s` for each of `args`.
            fields: added to the record as `gateway_<name>`.
        """
        now = anyio.current_time()
        if now - self._began >= _WINDOW:
            left_out, self._left_out = self._left_out, 0
            self._began, self._written = now, 0
            if left_out:
                extra = {"gateway_event": "turned_away_many", "gateway_count": left_out}
                self._logger.warning("%d more clients were refused, without a record for each", left_out, extra=extra)
        if self._written >= _PER_WINDOW:
            self._left_out += 1
            return
        self._written += 1
        extra = {"gateway_event": event, **{f"gateway_{name}": printable(value) for name, value in fields.items()}}
        self._logger.log(level, message, *map(printable, args), extra=extra)

    def turned_away(self, refused: TurnedAway, *, peer: str) -> None:
        """Write that the client at `peer` was refused, and why."""
        message = "refused a client (%s): %s"
        self.note(logging.WARNING, "turned_away", message, refused.reason, refused, reason=refused.reason, peer=peer)
