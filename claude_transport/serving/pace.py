"""`Pace`: bounds how often a client and an address may connect to a gateway. One that connects more often waits for its turn.

`UnadmittedConnections` in `door.py` bounds how many connections wait at the same time.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Final

import anyio

from claude_transport.loops.alarm import Alarm

_MOST_IDLE: Final = 1024
"""Clients or addresses that are remembered before the idle ones are looked for and forgotten."""

_NOTHING: Final = 1e-6
"""Turns that are only an error of rounding."""


class Pace:
    """Gives turns to connections: to each client so many a second, and so many to each address.

    Of the connections of one address, the client that has connected least goes first. So one that connects without pause delays only
    itself: the others do not wait behind its connections.

    Args:
        per_client: turns a second of one client; None for any number. `client_burst` turns may be taken at once after a pause.
        per_source: turns a second of all clients at one address; None for any number. `source_burst` as above.
    """

    def __init__(self, *, per_client: float | None, client_burst: int, per_source: float | None, source_burst: int) -> None:
        self._per_client = per_client
        self._client_burst = client_burst
        self._per_source = per_source
        self._source_burst = source_burst
        self._clients: dict[str, _Bucket] = {}
        self._sources: dict[str, _Queue] = {}

    def __len__(self) -> int:
        """Return how many clients and addresses are remembered."""
        return len(self._clients) + len(self._sources)

    async def turn(self, client: str, source: str) -> None:
        """Wait for a turn. The caller bounds the wait. Returns at once for a `source` that is empty: it is in this process."""
        if not source:
            return
        recent = 0.0
        if self._per_client is not None:
            bucket = self._clients.get(client)
            if bucket is None:
                _forget_idle(self._clients)
                bucket = self._clients[client] = _Bucket(self._per_client, self._client_burst)
            recent = bucket.load
            bucket.take()
            try:
                await anyio.sleep(bucket.wait)
            except BaseException:
                bucket.put_back()  # connections that were given up must not delay the client's later ones
                raise
        if self._per_source is not None:
            queue = self._sources.get(source)
            if queue is None:
                _forget_idle(self._sources)
                queue = self._sources[source] = _Queue(self._per_source, self._source_burst)
            await queue.turn(recent)


class _Bucket:
    """Counts turns: `burst` may be taken at once, and then `rate` a second."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = 0.0  # the time at which all turns so far are within the rate

    def take(self) -> None:
        """Take a turn, now or later: `wait` says when."""
        self._free_at = max(self._free_at, anyio.current_time()) + 1 / self._rate

    def put_back(self) -> None:
        """Give a turn back that was taken and not used."""
        self._free_at -= 1 / self._rate

    @property
    def load(self) -> float:
        """Turns that were taken and that the rate has not made up for."""
        return max(self._free_at - anyio.current_time(), 0.0) * self._rate

    @property
    def wait(self) -> float:
        """Seconds until the last turn that was taken may be used."""
        over = self.load - self._burst
        return over / self._rate if over > _NOTHING else 0.0

    @property
    def is_idle(self) -> bool:
        """True when the bucket is as a new one."""
        return self.load <= _NOTHING


class _Queue:
    """The connections of one address that wait for their turns."""

    def __init__(self, rate: float, burst: int) -> None:
        self._bucket = _Bucket(rate, burst)
        self._waiting: list[tuple[float, int, anyio.Event]] = []
        self._number = itertools.count()
        self._alarm = Alarm(self._serve)
        self._is_due = True  # no turn was given that the rate does not allow yet

    async def turn(self, recent: float) -> None:
        """Wait for a turn. Of those that wait, the one with the fewest `recent` turns is next."""
        if self._is_due:  # then nothing waits
            self._give()
            return
        place = (recent, next(self._number), anyio.Event())
        heapq.heappush(self._waiting, place)
        try:
            await place[2].wait()
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
                heapq.heapify(self._waiting)
            raise

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and the bucket is as a new one."""
        return not self._waiting and self._bucket.is_idle

    def _give(self) -> None:
        """Note that a turn is given, and set the time of the next."""
        self._bucket.take()
        if self._bucket.wait > 0:
            self._is_due = False
            self._alarm.set(anyio.current_time() + self._bucket.wait)

    def _serve(self) -> None:
        self._is_due = True
        while self._waiting and self._is_due:
            _, _, served = heapq.heappop(self._waiting)
            served.set()
            self._give()


def _forget_idle(known: dict[str, _Bucket] | dict[str, _Queue]) -> None:
    if len(known) >= _MOST_IDLE:
        for name in [name for name, each in known.items() if each.is_idle]:
            del known[name]
