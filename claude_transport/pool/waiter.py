"""`Waiter`: somebody who waits for a session, and what becomes of it."""

from __future__ import annotations

import anyio

from claude_transport.errors import ClaudeTransportError
from claude_transport.pool.session import PooledSession

__all__ = ["Waiter"]


class Waiter:
    """One call of `acquire()`. It is settled once: with a session, or with the reason why there is none."""

    __slots__ = ("at_once", "error", "session", "settled")

    def __init__(self) -> None:
        self.settled: anyio.Event = anyio.Event()
        self.session: PooledSession | None = None
        self.error: ClaudeTransportError | None = None
        self.at_once: bool = False
        """True when a session was there already."""

    def give(self, session: PooledSession) -> None:
        """This one is yours."""
        self.session = session
        self.settled.set()

    def fail(self, error: ClaudeTransportError) -> None:
        """There will be none."""
        self.error = error
        self.settled.set()
