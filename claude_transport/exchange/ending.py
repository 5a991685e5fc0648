"""`TransportEnd`: closes the transport of a conversation in bounded time, which can become shorter while it closes.

docs/explanation/closing-a-process.md says what haste is, and when there is haste.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import anyio

from claude_transport.exchange.arguments import check_number
from claude_transport.exchange.failures import guarded
from claude_transport.loggers import logger_for
from claude_transport.loops.current import clock_here
from claude_transport.transport import HURRIED_CLOSE, SessionTerms, TransportLike

logger: logging.Logger = logger_for(__name__)

_PEER_SHARE = 0.6
"""The part of the time for closing in which the peer may end by itself, after the end of its input. The rest is for its transport."""


class TransportEnd:
    """The end of one transport, and the time for it.

    Args:
        transport: the transport to close.
        transport_close_timeout: seconds for its `close()`. After that, closing goes on without it.
        close_timeout: seconds for closing in all. None for one second in haste, and else for as long as each step may take.

    Raises:
        ConfigurationError: one of them is not a number of seconds.
    """

    __slots__ = ("_due", "_in_all", "_limit", "_terms", "_timeout", "_transport")

    def __init__(self, transport: TransportLike, *, transport_close_timeout: float, close_timeout: float | None) -> None:
        check_number("transport_close_timeout", transport_close_timeout, positive=False)
        check_close_timeout(close_timeout)
        self._transport = transport
        self._timeout = transport_close_timeout
        self._in_all = close_timeout
        self._due = math.inf
        self._limit: anyio.CancelScope | None = None
        self._terms = SessionTerms()

    def accept(self, terms: SessionTerms) -> SessionTerms:
        """Keep what the `attach()` of the transport returned, and return it."""
        self._terms = terms
        return terms

    def begin(self, *, timeout: float, hurry: bool) -> float:
        """Begin to count the time for closing. Returns the seconds that the peer gets to end by itself: `timeout`, or less.

        It may be called again, and then the shortest time counts, also for what is under way.
        """
        in_all = HURRIED_CLOSE if hurry and self._in_all is None else self._in_all
        if in_all is None:
            return timeout
        patience = min(timeout, in_all * _PEER_SHARE)
        if self._terms.hurry is not None:  # else it takes its own time
            self._due = min(self._due, clock_here()() + in_all)
            if self._limit is not None:
                shorten(self._limit, self._due)
                self._tell()
        return patience

    def _tell(self) -> None:
        if self._terms.hurry is not None and self._due < math.inf:
            self._terms.hurry(self.left)

    @property
    def left(self) -> float:
        """Seconds that are left; infinite when there is no haste."""
        return max(self._due - clock_here()(), 0.0) if self._due < math.inf else math.inf

    def patience(self, otherwise: float) -> float:
        """Return the seconds that the peer gets to end by itself when the caller names none: a part of `close_timeout`, or `otherwise`."""
        return otherwise if self._in_all is None else self._in_all * _PEER_SHARE

    async def close(self, *, at_once: Callable[[], bool] = bool) -> None:
        """Close the transport. Raises what that raises. `at_once` closes it if nothing has to be waited for, and returns whether it has."""
        self._tell()
        if at_once():
            return
        with anyio.move_on_after(min(self._timeout, self.left), shield=True) as self._limit:
            await guarded(self._transport.close())
        if not self._limit.cancelled_caught:
            return
        if self._due < math.inf:
            logger.info("the transport was closed in haste")
        else:
            logger.warning("the transport did not close in %g s and was given up", self._timeout)


def check_close_timeout(value: float | None) -> None:
    """Raise `ConfigurationError` unless `value` is None or a number of seconds."""
    if value is not None:
        check_number("close_timeout", value, positive=False)


def shorten(limit: anyio.CancelScope, deadline: float) -> None:
    """Give `limit` this deadline, unless it has an earlier one."""
    limit.deadline = min(limit.deadline, deadline)
