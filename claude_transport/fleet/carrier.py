"""`Carrier`: carries out the calls of one end of a session, and compares the streams after each loss of its server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from claude_transport.backoff import Backoff
from claude_transport.errors import ConnectionLost
from claude_transport.fleet.broker import Broker, BrokerCut
from claude_transport.fleet.ends import FleetEnd
from claude_transport.fleet.messages import Call, Sync
from claude_transport.fleet.shard import RECONNECTING
from claude_transport.loops.current import Wakeup, clock_here

_POLL: Final = Backoff(first=0.005, factor=2.0, maximum=0.25, jitter=0)
"""Delays between questions whether the reader of a full stream has taken something."""


class Carrier:
    """Carries out the calls of one end of a session, and makes them again after a lost connection.

    Args:
        broker: the connection.
        session: the id of the session.
        end: the end.
        patience: seconds for which a broker is waited for that is lost, or takes no writes.
        on_change: called after each answer: there may be room, or input.
    """

    def __init__(self, broker: Broker, session: str, end: FleetEnd, *, patience: float, on_change: Callable[[], object]) -> None:
        self._broker = broker
        self._session = session
        self.end: FleetEnd = end
        self._patience = patience
        self.on_change: Callable[[], object] = on_change
        self._clock = clock_here()
        self._generation = broker.generation_of(session)
        self._refused_since: float | None = None  # a comparison of the streams succeeds without a write, and ends no refusal
        self._refusals = 0
        self._syncing = anyio.Lock()
        self._output = Wakeup()

    def wake(self) -> None:
        """Tell that the end has something to say."""
        self._output.fire()

    @property
    def is_current(self) -> bool:
        """True while both streams were compared since the last loss of the connection: what is read now belongs to the cursor."""
        return self._generation == self._broker.generation_of(self._session)

    async def reached(self, *, patience: float) -> None:
        """Wait until the session can be called again. Raises as `Broker.reached()` does."""
        await self._broker.reached(self._session, patience=patience)

    async def compare(self) -> None:
        """Compare both streams, if the connection was lost since the last time. Raises as `carry_out()` does."""
        if not self.is_current:
            await self._resync()

    async def carry_out(self, call: Call) -> bool:
        """Carry out one call. Returns False when it was cut; both streams were compared then, and the next call may differ.

        Raises:
            ConnectionLost: this end is over, or the broker was not reached again, or took no writes, in time (`fleet.broker_lost`).
            ReplayGap, ProtocolError: see `FleetEnd.answered()`.
        """
        if not self.is_current:
            self.end.unanswered(call)
            await self._resync()
            return False
        asked_at = self._clock()
        try:
            reply = await self._broker.call(self._session, call)
        except BaseException as exc:
            self.end.unanswered(call)
            if not isinstance(exc, BrokerCut):
                raise
            self._note_refusal(exc)
            await self._resync(cut=True)
            return False
        if not isinstance(call, Sync):
            self._refused_since, self._refusals = None, 0
        self.end.answered(call, reply, asked_at=asked_at, now=self._clock())
        self.on_change()
        return True

    def _note_refusal(self, cut: BrokerCut) -> None:
        if cut.refused:
            self._refused_since = self._clock() if self._refused_since is None else self._refused_since
            self._refusals += 1

    async def _resync(self, *, cut: bool = False) -> None:
        """Compare both streams once the broker is reached again."""
        give_up = self._clock() + self._patience
        async with self._syncing:
            retry = max(self._refusals - 1, 0)
            while cut or not self.is_current:
                if cut:
                    await anyio.sleep(RECONNECTING.delay(retry))
                    retry += 1
                refused_until = give_up if self._refused_since is None else self._refused_since + self._patience
                left = min(give_up, refused_until) - self._clock()
                await self._broker.reached(self._session, patience=max(left, 0))
                if left <= 0:
                    raise ConnectionLost(f"{self._broker.address} took no call for {self._patience:g} s", code="fleet.broker_lost")
                generation, call, asked_at = self._broker.generation_of(self._session), self.end.sync_call(), self._clock()
                try:
                    reply = await self._broker.call(self._session, call)
                except BrokerCut as exc:
                    self._note_refusal(exc)
                    cut = True
                    continue
                self.end.answered(call, reply, asked_at=asked_at, now=self._clock())
                self._generation, cut = generation, False
        self.on_change()
        self._output.fire()

    async def append_all(self) -> None:
        """Append what the end says, for ever. Raises as `carry_out()` does."""
        retry = 0
        while True:
            await self.compare()
            call = self.end.append_call()
            if call is not None:
                await self.carry_out(call)
                retry = 0
            elif self.end.writer.waits_for_reader:
                await anyio.sleep(_POLL.delay(min(retry, 10)))
                retry += 1
                await self.carry_out(self.end.sync_call(polls=True))
            else:
                await self._output.wait()

    async def drain(self) -> None:
        """Append what is left to say when `append_all()` does not run. The caller bounds it. Raises as `carry_out()` does."""
        while (call := self.end.append_call()) is not None:
            await self.carry_out(call)
