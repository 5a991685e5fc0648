"""`Crowd`: the connections that are not admitted, or not any more: how many there may be, and which of them has to leave.

The rules of sshd's `MaxStartups`, with one difference: what is dropped is not the newcomer but one that stands there. An honest client is
through in milliseconds, so a newcomer is more likely to be one than anything that has been standing for longer.
"""

from __future__ import annotations

import ipaddress
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

__all__ = ["Crowd", "source_of"]

_NETWORK_BITS: Final = 64
"""Of an IPv6 address: the network of one customer, which could use another address of it for each connection."""


class Crowd:
    """At most `full` connections, and at most `per_source` of one source, whatever comes. Nothing here waits.

    From half of `full` on, a random one has to leave for a newcomer, with a probability that grows from 0 to 1 when it is full. First
    those go that have been refused and only linger, the oldest first; then a random one of the source with the most. `draw` gives numbers
    from 0 to below 1.
    """

    def __init__(self, *, full: int, per_source: int, draw: Callable[[], float] | None = None) -> None:
        self._full = full
        self._early = full // 2
        self._per_source = per_source
        self._draw = draw or random.SystemRandom().random
        self._places: dict[anyio.CancelScope, str] = {}  # in the order they came
        self._lingering: dict[anyio.CancelScope, None] = {}  # those of them that were refused
        self._of_source: Counter[str] = Counter()
        self.evicted: int = 0

    def __len__(self) -> int:
        return len(self._places)

    @contextmanager
    def hold(self, scope: anyio.CancelScope, *, source: str, lingers: bool = False) -> Iterator[None]:
        """A block in which a connection of `source` stands here, and may have to leave: `scope` is cancelled then."""
        self._make_room(source)
        self._places[scope] = source
        self._of_source[source] += 1
        if lingers:
            self._lingering[scope] = None
        try:
            yield
        finally:
            self._leave(scope)

    def _make_room(self, source: str) -> None:
        if self._of_source[source] >= self._per_source:
            self._evict(source)
        size = len(self._places)
        if size >= self._full or (size > self._early and self._draw() < (size - self._early) / (self._full - self._early)):
            lingering = next(iter(self._lingering), None)
            if lingering is not None:
                self._show_out(lingering)
            else:
                self._evict(self._of_source.most_common(1)[0][0])

    def _evict(self, source: str) -> None:
        """One of this source: the oldest that lingers, else a random one."""
        members = [scope for scope, owner in self._places.items() if owner == source]
        lingering = next((scope for scope in members if scope in self._lingering), None)
        self._show_out(members[int(self._draw() * len(members))] if lingering is None else lingering)

    def _show_out(self, scope: anyio.CancelScope) -> None:
        self._leave(scope)
        self.evicted += 1
        scope.cancel()

    def _leave(self, scope: anyio.CancelScope) -> None:
        source = self._places.pop(scope, None)
        self._lingering.pop(scope, None)
        if source is not None:
            self._of_source[source] -= 1
            if not self._of_source[source]:
                del self._of_source[source]


def source_of(peer: str) -> str:
    """Return the source that a peer such as `192.0.2.1:4711` counts for: its address without the port; of IPv6, the network of 64 bits."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0] or peer
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)
