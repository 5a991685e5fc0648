"""`GatewayLimits`: how much of everything, and `Allowance`: what one owner of a token has left of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.turned_away import TurnedAway

__all__ = ["Allowance", "GatewayLimits"]

_MINUTE = 60.0


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway lets happen: numbers, sizes in bytes, times in seconds.

    Of the whole gateway:

    * `half_open`: connections that have not said who they are, and those that were refused and linger. From half of it on, one more may
      end one of them, at the limit it does: see `Crowd`.
    * `half_open_per_address`: those of one IP address (of one network of 64 bits, with IPv6). Behind a proxy all have its address.
    * `handshake_timeout`: seconds for all that comes before admission: TLS, the WebSocket's upgrade, the first line.
    * `first_line_bytes`: the size of that line.
    * `total_sessions`: processes.

    Of each token:

    * `connections` and `sessions` at once; `starts_per_minute`: new processes (None: any).
    * `bytes_per_second` from its clients (None: any). Whoever is faster waits; nothing is dropped.
    * `line_bytes`: one line from a client; a longer one ends the session.
    * `session_bytes`: all of one session, both directions (None: any); more ends it.

    Of each session on a link:

    * `replay_bytes`: what is kept for a client that is away. A process that says more than that is not read from until the client has it.
      With less than a quarter of the client's window (1 MiB unless it says otherwise), it is also held up for some milliseconds a fill.
    * `lease`: seconds that it lives without a client.
    * `heartbeat`: seconds of silence after which a client is asked whether it is there; after twice as many its connection is over.
    """

    half_open: int = 256
    half_open_per_address: int = 128
    handshake_timeout: float = 10.0
    first_line_bytes: int = 64 * 2**10
    total_sessions: int = 64
    connections: int = 64
    sessions: int = 16
    starts_per_minute: int | None = 120
    bytes_per_second: int | None = None
    line_bytes: int = 32 * 2**20
    session_bytes: int | None = None
    replay_bytes: int = 8 * 2**20
    lease: float = 60.0
    heartbeat: float = 20.0

    def check(self) -> None:
        """Raise `ConfigurationError` for a limit that is no positive number; the option named is the limit."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            optional = name in {"starts_per_minute", "bytes_per_second", "session_bytes"}
            if value is None and optional:
                continue
            kinds = (int, float) if name in {"handshake_timeout", "heartbeat", "lease"} else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                wanted = "a positive number or None" if optional else "a positive number"
                raise ConfigurationError(f"the limit {name} is {wanted}, not {value!r}", option=name)


class Allowance:
    """What one owner has taken of the limits. Nothing here waits, except `spend`, for its share of the rate."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self.connections: int = 0
        self.sessions: int = 0
        self._starts: list[float] = []
        self._free_at = 0.0  # when everything that was sent is paid for

    @property
    def is_idle(self) -> bool:
        """True when it remembers nothing that would be missed."""
        return not (self.connections or self.sessions or self._recent_starts() or self._free_at > anyio.current_time())

    @contextmanager
    def connection(self) -> Iterator[None]:
        """A block in which there is one connection more; raises `TurnedAway` when that is one too many."""
        if self.connections >= self._limits.connections:
            raise TurnedAway("limit", f"this token has {self.connections} connections already", retryable=True)
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    def begin_session(self) -> None:
        """Count one session more, until `end_session()`; raises `TurnedAway` when that is one too many, at once or in a minute."""
        if self.sessions >= self._limits.sessions:
            raise TurnedAway("limit", f"this token has {self.sessions} sessions already", retryable=True)
        recent = self._recent_starts()
        if self._limits.starts_per_minute is not None:
            if len(recent) >= self._limits.starts_per_minute:
                raise TurnedAway("limit", f"this token has started {len(recent)} sessions in a minute", retryable=True)
            self._starts = [*recent, anyio.current_time()]
        self.sessions += 1

    def end_session(self) -> None:
        """One session less."""
        self.sessions -= 1

    async def spend(self, size: int) -> None:
        """Return when `size` bytes more are within the rate: at once, unless this token's clients have been faster."""
        rate = self._limits.bytes_per_second
        if rate is None:
            return
        now = anyio.current_time()
        # a second's worth may be taken at once; whoever took more waits for what was taken before
        self._free_at = max(self._free_at, now - 1.0) + size / rate
        if self._free_at > now:
            await anyio.sleep(self._free_at - now)

    def _recent_starts(self) -> list[float]:
        since = anyio.current_time() - _MINUTE
        return [start for start in self._starts if start > since]
