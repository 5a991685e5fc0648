"""`Watch`: the watchdog at work beside one conversation: it waits, looks, and says when the turn stands still."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import anyio

from claude_transport.background import clock_here
from claude_transport.errors import ConfigurationError, ConnectionLost
from claude_transport.protocol.conversation import Conversation, Deliver, TurnState
from claude_transport.protocol.messages import Message
from claude_transport.query.connection import Connection
from claude_transport.query.storage import Storage
from claude_transport.query.vigil import Vigil
from claude_transport.query.watchdog import StallEvent, Watchdog

__all__ = ["Watch"]

logger: logging.Logger = logging.getLogger(__name__)


class Watch:
    """Keeps the clocks of a `watchdog`, or none. What it is told costs a time stamp for each batch, and no wake-up."""

    def __init__(self, watchdog: Watchdog | None, conversation: Conversation, connection: Connection, storage: Storage) -> None:
        if watchdog is not None and not isinstance(watchdog, Watchdog):
            raise ConfigurationError(f"watchdog is a Watchdog or None, not {watchdog!r}", option="watchdog")
        self._vigil = None if watchdog is None else Vigil(watchdog)
        self._conversation = conversation
        self._connection = connection
        self._storage = storage
        self._clock: Callable[[], float] | None = None  # that of the loop it is used in

    def saw(self, messages: Sequence[Message], kinds: AbstractSet[object]) -> None:
        """A batch was read; `kinds` are the types of its messages."""
        if self._vigil is not None:
            clock = self._clock or self._find_clock()
            self._vigil.saw(messages, kinds, at=clock())

    def _find_clock(self) -> Callable[[], float]:
        self._clock = clock_here()
        return self._clock

    def restart(self) -> None:
        """Something begins that nothing could have come for before."""
        if self._vigil is not None:
            self._vigil.restart(at=anyio.current_time())

    async def next_stall(self) -> StallEvent:
        """Wait for the next stall, for ever if there is no watchdog."""
        vigil, stall = self._vigil, None
        while vigil is None:
            await anyio.sleep_forever()
        while stall is None:
            await anyio.sleep_until(vigil.next_look(at=anyio.current_time()))
            bytes_read = self._connection.info.bytes_read
            stall = vigil.look(at=anyio.current_time(), bytes_read=bytes_read, suspended=self._is_suspended())
        logger.warning("the turn stands still: %s for %.0f s", stall.clock.replace("_", " "), stall.seconds)
        return stall

    def delivery_of(self, stall: StallEvent) -> Deliver:
        """The event for the turn that runs; for the prompt that waits longest, when none does."""
        waiting = self._conversation.open_turns
        running = tuple(uuid for uuid in waiting if self._conversation.state_of(uuid) is TurnState.started)
        return Deliver([stall], running or waiting[:1])

    def error_for(self, stall: StallEvent) -> ConnectionLost:
        """Why a conversation that is ended for a stall has ended."""
        what = "no byte" if stall.clock == "no_bytes" else "no progress"
        return ConnectionLost(f"the watchdog ended it: {what} for {stall.seconds:.0f} s", code="transport.stalled")

    def _is_suspended(self) -> bool:
        return not self._conversation.is_running or bool(self._conversation.open_questions) or self._storage.is_full
