"""`Door`: who may come in, and how many may stand in front of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import anyio

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.crowd import Crowd, source_of
from claude_transport.gateway.limits import Allowance, GatewayLimits
from claude_transport.gateway.tokens import GatewayTokens
from claude_transport.gateway.turned_away import TurnedAway

__all__ = ["ANYBODY", "Door"]

ANYBODY = "anybody"
"""The owner of every session of a gateway without tokens."""


class Door:
    """Admits by token and origin, and keeps what each owner has taken of the limits.

    `origins` are the values of a browser's `Origin` header that may open a WebSocket, written `https://example.org`; every other page
    is refused, for a browser lets any page connect to any address. `draw` is the chance in `Crowd`.
    """

    def __init__(
        self,
        *,
        tokens: GatewayTokens,
        origins: Collection[str] = (),
        limits: GatewayLimits,
        draw: Callable[[], float] | None = None,
    ) -> None:
        if isinstance(origins, str) or not all(isinstance(origin, str) and "://" in origin for origin in origins):
            raise ConfigurationError("origins is a collection of origins, each like 'https://example.org'", option="origins")
        self._tokens = tokens
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._limits = limits
        self._crowd = Crowd(full=limits.half_open, per_source=limits.half_open_per_address, draw=draw)
        self._allowances: dict[str, Allowance] = {}

    @property
    def needs_token(self) -> bool:
        """Whether somebody without a token stays outside."""
        return bool(self._tokens)

    @property
    def half_open(self) -> int:
        """Connections that have not said who they are, and those that were refused and linger."""
        return len(self._crowd)

    @property
    def evicted(self) -> int:
        """How many of those had to leave for others."""
        return self._crowd.evicted

    @contextmanager
    def knock(self, peer: str = "") -> Iterator[anyio.CancelScope]:
        """A block for everything before admission, cancelled when it takes too long, or when others need its place (see `Crowd`)."""
        with anyio.move_on_after(self._limits.handshake_timeout) as scope, self._crowd.hold(scope, source=source_of(peer)):
            yield scope

    @contextmanager
    def linger(self, peer: str, *, seconds: float) -> Iterator[anyio.CancelScope]:
        """A block for the last words to a connection that was refused: cancelled after `seconds`, and the first to leave for others."""
        with anyio.move_on_after(seconds) as scope, self._crowd.hold(scope, source=source_of(peer), lingers=True):
            yield scope

    def admit(self, token: str | None, *, certified: str | None = None) -> str:
        """The owner of this token. Without tokens: the name in the client's certificate, if it had to show one, or `ANYBODY`.

        Raises:
            TurnedAway: there is no token, or it is nobody's; which of both is all that is said.
        """
        if not self._tokens:
            return f"cert:{certified}" if certified else ANYBODY
        if token is None:
            raise TurnedAway("auth", "a token is needed")
        owner = self._tokens.owner(token)
        if owner is None:
            raise TurnedAway("auth", "this token is not accepted")
        return owner

    def check_origin(self, origin: str | None) -> None:
        """Raise `TurnedAway` for a page of a browser that was not told to be welcome; programs send no `Origin`."""
        if origin is not None and origin.rstrip("/").lower() not in self._origins:
            raise TurnedAway("origin", "pages of this origin are not let in")

    def allowance(self, owner: str) -> Allowance:
        """What this owner has left."""
        if owner not in self._allowances:
            # only owners with something to remember are kept: with client certificates, anybody's name could become one
            for idle in [name for name, allowance in self._allowances.items() if allowance.is_idle]:
                del self._allowances[idle]
            self._allowances[owner] = Allowance(self._limits)
        return self._allowances[owner]
