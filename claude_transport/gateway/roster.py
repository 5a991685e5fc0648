"""`Roster`: every session of a gateway, and who may have another one."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from contextlib import contextmanager

from claude_transport.gateway.limits import Allowance, GatewayLimits
from claude_transport.gateway.link_session import LinkSession, digest_of
from claude_transport.gateway.metrics import GatewayMetrics
from claude_transport.gateway.session import Session
from claude_transport.gateway.turned_away import TurnedAway

__all__ = ["Roster"]


class Roster:
    """Who is there. Nothing here waits."""

    def __init__(self, *, limits: GatewayLimits, metrics: GatewayMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._sessions: dict[str, Session] = {}  # by id
        self._links: dict[bytes, LinkSession] = {}  # by the digest of the key
        self._starting = 0
        self.draining = False

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All of them, the oldest first."""
        return tuple(self._sessions.values())

    @contextmanager
    def place_for_one(self, allowance: Allowance) -> Iterator[None]:
        """A block in which a session is started, and at whose good end it has been added; raises `TurnedAway` when there is no place."""
        self.refuse_if_draining()
        if len(self._sessions) + self._starting >= self._limits.total_sessions:
            raise TurnedAway("limit", "this gateway has as many sessions as it may", retryable=True)
        allowance.begin_session()
        self._starting += 1
        try:
            yield
        except BaseException:
            allowance.end_session()
            raise
        finally:
            self._starting -= 1

    def refuse_if_draining(self) -> None:
        """Raise `TurnedAway` when the gateway is about to end."""
        if self.draining:
            raise TurnedAway("draining", "this gateway takes no new sessions", retryable=True)

    def add(self, session: Session) -> None:
        """It has begun."""
        self._sessions[session.id] = session
        if isinstance(session, LinkSession):
            self._links[digest_of(session.key)] = session
        self._metrics.sessions[session.mode] += 1

    def remove(self, session: Session) -> None:
        """It is over; removing it twice does nothing."""
        if self._sessions.pop(session.id, None) is None:
            return
        if isinstance(session, LinkSession):
            self._links.pop(digest_of(session.key), None)
        session.surroundings.allowance.end_session()
        self._metrics.ended[session.ended or "ended"] += 1

    def find(self, key: str, *, owner: str) -> LinkSession:
        """The session with this key, if it is this owner's; `TurnedAway`, in the same words, if there is none or it is somebody else's."""
        session = self._links.get(digest_of(key))
        if session is None or not hmac.compare_digest(session.owner.encode(), owner.encode()):
            raise TurnedAway("session", "there is no such session (any more)")
        return session

    def count(self) -> None:
        """Bring the gauges up to date."""
        self._metrics.active_sessions = len(self._sessions)
        self._metrics.detached_sessions = sum(not session.attached for session in self._sessions.values())
