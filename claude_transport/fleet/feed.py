"""`StreamFeed`: how one end of a session gets the entries of the stream that it reads.

The broker tells a small entry itself, on a channel that has the name of the stream. Of a larger one it tells that it is there. What was
not told, or could not be taken, is read. Nothing that a message says is trusted further than the stream: in doubt, the stream is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio.lowlevel

from claude_transport.fleet.answers import pushed_entries
from claude_transport.fleet.broker import READ_ENTRIES, Broker, BrokerCut
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.messages import Entry, Kind
from claude_transport.loops.current import Wakeup


class StreamFeed:
    """Takes the entries of the stream `key`, in order.

    Args:
        broker: the connection.
        key: the stream.
        carrier: carries out the calls of the end that reads.
        take: called with entries behind the cursor of its reader.
        has_room: called to ask whether more can be taken.
        patience: seconds for which a lost broker is waited for, when the carrier does not end the session before.
    """

    def __init__(
        self,
        broker: Broker,
        key: str,
        carrier: Carrier,
        *,
        take: Callable[[Sequence[Entry]], object],
        has_room: Callable[[], bool],
        patience: float,
    ) -> None:
        self._broker = broker
        self._key = key
        self._carrier = carrier
        self._take = take
        self._has_room = has_room
        self._patience = patience
        self._has_more = True  # the stream may have entries that were not taken
        self._failure: Exception | None = None
        self._changed = Wakeup()

    def wake(self) -> None:
        """Tell that there may be room."""
        if self._has_more:
            self._changed.fire()

    def read_on(self) -> None:
        """Look at the stream: it may have more."""
        self._has_more = True
        self._changed.fire()

    def _heard(self, message: bytes) -> None:
        """Take the entries of a message, when they follow what was taken and need no look at the stream."""
        reader = self._carrier.end.reader
        if not self._has_more and self._carrier.is_current and self._has_room():
            entries = [each for each in pushed_entries(message) if each.number > reader.cursor]
            if (
                entries
                and entries[0].number == reader.cursor + 1
                and all(each.kind == Kind.DATA and each.token == reader.token for each in entries)
            ):
                try:
                    self._take(entries)
                except Exception as exc:  # noqa: BLE001 - `run()` raises it: a fault of one session must not end the others
                    self._failure = exc
                    self._changed.fire()
                return
        self.read_on()

    async def run(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Take entries until `until` returns True, by default for ever. Raises as `Carrier.carry_out()` and `take` do.

        Raises:
            ProtocolError: the broker refused it (`fleet.refused`), or the key holds what no end writes (`fleet.malformed`).
        """
        try:
            await self._follow()
            while not until():
                if self._failure is not None:
                    raise self._failure
                await self._carrier.compare()
                if not self._has_more or not self._has_room():
                    await self._changed.wait()
                    continue
                await self._read_once()
        finally:
            self._broker.unfollow(self._key, self._heard)

    async def _follow(self) -> None:
        try:
            await self._broker.follow(self._key, self._heard)
        except BrokerCut:
            await anyio.lowlevel.checkpoint()  # it is followed again with the next connection

    async def _read_once(self) -> None:
        self._has_more = False
        entries: list[Any] | None = None
        try:
            entries = await self._broker.read(self._key, self._carrier.end.reader.cursor)
        except BrokerCut:
            await self._carrier.reached(patience=self._patience)
            await anyio.lowlevel.checkpoint()
        finally:
            # what was read before the streams were compared does not belong to the cursor
            if entries is None or not self._carrier.is_current or len(entries) >= READ_ENTRIES:
                self._has_more = True
        if entries and self._carrier.is_current:
            self._take(entries)
