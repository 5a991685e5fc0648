"""`Observatory`: the observers of a gateway's sessions: their tokens, their requests over HTTP, and the streams of events that they get.

`Gateway.observe()` asks here what a request may see. `arrival.py` (own listeners) and `asgi.py` (another server) carry the answer. The
lines are in `protocol/observation.py`, the live page in `inspection`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import anyio
import msgspec

from claude_transport.errors import ClaudeTransportError, ReplayGap
from claude_transport.gateway.session import GONE, Session
from claude_transport.inspection.page import LiveTimeline, live_policy, render_live_page
from claude_transport.protocol.observation import SCRUBBED_HEADER, Excerpt, LineLog, ObservedLine
from claude_transport.protocol.server_sent_events import CONTENT_TYPE, HEARTBEAT, encode_event
from claude_transport.serving.door import Door, GatewayLimits
from claude_transport.serving.following import Follower, change_of, events_of, in_thread, lines_of
from claude_transport.serving.pages import Page
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.streams.websocket import HandshakeRequest
from claude_transport.wrappers.redactor import redactor_for

_ROUTE: Final = re.compile(r"/observe(?:/([\w-]{1,64})(/events|/timeline)?)?/?", re.ASCII)
_POSITION: Final = re.compile(r"\d{1,15}", re.ASCII)

_KEPT_AFTER_END: Final = 8
"""Observed sessions that can still be read when they are over, the newest ones. So a page that is reloaded then loses nothing."""

_LIVE_PACE: Final = 0.25
"""Seconds between two updates of a live page."""

_CLOCK_STEP: Final = 0.001
"""Seconds that a sleep may end too early: event loops round."""

_KEPT_CHANGES: Final = 4
"""Encoded changes of a timeline that are kept: those of the last step, and those for pages that were loaded or fell behind."""

_PIECE_BYTES: Final = 64 * 2**10
"""Bytes that an observer has to take within twice the heartbeat. One with a slow network may need minutes for a long line."""

_MAX_SILENCE: Final = 20.0
"""Seconds until a heartbeat, also where the `heartbeat` of links is longer: an observer gives up after 60 seconds of silence."""

_SAFE: Final = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}

_VIEWING_HEADERS: Final = {"content-type": CONTENT_TYPE, "x-accel-buffering": "no", **_SAFE}
"""The headers of a stream of events. The third one keeps a proxy from collecting them."""

Send = Callable[[bytes], Awaitable[None]]


class ObserverGrant:
    """The right to watch one session of a gateway: its id (`session`), a `token` for observers, and whether they see it redacted (`scrub`).

    The token can read and nothing else. It ends with the session, or at once with `revoke()`.
    """

    def __init__(self, *, token: str, session: str, scrub: bool, on_revoke: Callable[[ObserverGrant], None]) -> None:
        self.token: str = token
        self.session: str = session
        self.scrub: bool = scrub
        self._on_revoke = on_revoke

    def revoke(self) -> None:
        """End the right, and the connection of every observer that has used this token. Calling it again does nothing."""
        self._on_revoke(self)

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"ObserverGrant(session={self.session!r}, scrub={self.scrub})"


class _Watched:
    """One session whose lines are kept."""

    def __init__(self, session: Session, *, max_bytes: int) -> None:
        redactor = partial(redactor_for, session.transport)
        self.session = session
        self.log: LineLog = LineLog(clock=anyio.current_time, redactor=redactor, max_bytes=max_bytes)
        self.viewers: dict[anyio.CancelScope, ObserverGrant | None] = {}
        self._timelines: dict[bool, _SharedTimeline] = {}
        session.log_of_lines = self.log

    def timeline(self, *, scrub: bool) -> _SharedTimeline:
        """Return the timeline that all live pages share."""
        if scrub not in self._timelines:
            self._timelines[scrub] = _SharedTimeline(self, scrub=scrub)
        return self._timelines[scrub]


class _SharedTimeline:
    """The timeline of one session. It is read on at most four times a second, and each change is encoded once for all live pages."""

    def __init__(self, watched: _Watched, *, scrub: bool) -> None:
        info = watched.session.transport.info
        self._log = watched.log
        self._follower = Follower(watched.log, since=None, scrub=scrub)
        self._excerpt: Excerpt | None = None
        self._live = LiveTimeline(cli_version=info.cli_version, created_at=watched.session.started_at, scrubbed=scrub)
        self._lock = anyio.Lock()
        self._rests_until = 0.0
        self._working = threading.Lock()  # a thread goes on when asyncio cancels the task that waits for it, and no other may begin then
        self._events: dict[int, tuple[int, bytes]] = {}  # what has changed since a revision, and up to which one

    async def changes(self, since: int) -> tuple[int, bytes]:
        """Return a later revision, and an event with what has changed up to it since revision `since`; nothing when nothing has.

        A page that has seen everything makes the timeline read on.
        """
        async with self._lock:
            if since > self._live.revision:
                since = 0  # a page of another timeline
            if since == self._live.revision and anyio.current_time() > self._rests_until - _CLOCK_STEP:
                await self._read_on()
            if since == self._live.revision:
                return since, b""
            made = self._events.get(since)
            if made is None or made[0] != self._live.revision:
                made = await in_thread(partial(self._encode, since))
                if len(self._events) >= _KEPT_CHANGES:
                    self._events.clear()
                self._events[since] = made
            return made

    async def rest(self) -> bool:
        """Wait until there is something to read, which the session bounds. Returns False at its end."""
        if self._live.ended:
            return False
        if not (self._follower.has_more or self._log.ended):
            await change_of(self._log)
        await anyio.sleep_until(self._rests_until)
        return True

    async def _read_on(self) -> None:
        revision, last = self._live.revision, self._log.last  # what is said meanwhile is for the next time
        while self._excerpt or (self._follower.after < last and self._follower.has_more):
            excerpt = self._excerpt = self._excerpt or await self._follower.take()  # a cancellation must not lose it
            if excerpt is None:
                continue  # nothing of what was redacted can be shown yet
            lines = await lines_of(excerpt)
            await in_thread(partial(self._read, excerpt, lines))
        if self._follower.at_end:
            self._live.end()
        if self._live.revision != revision:
            self._rests_until = anyio.current_time() + _LIVE_PACE

    def _read(self, excerpt: Excerpt, lines: list[ObservedLine]) -> None:
        with self._working:
            if self._excerpt is excerpt:  # it was not read for a task that asyncio has cancelled
                self._live.read(lines)
                self._excerpt = None

    def _encode(self, since: int) -> tuple[int, bytes]:
        with self._working:
            return self._live.revision, encode_event(self._live.changes(since), id=str(self._live.revision))


class Viewing(ABC):
    """What an observer gets: the events of one session, and the `headers` of the answer.

    `grant` is that of its token; None for the owner's own token.
    """

    def __init__(self, watched: _Watched, *, grant: ObserverGrant | None) -> None:
        self.watched = watched
        self.grant = grant
        self.scrub: bool = True if grant is None else grant.scrub
        self.headers: dict[str, str] = {**_VIEWING_HEADERS, SCRUBBED_HEADER: "true" if self.scrub else "false"}

    @abstractmethod
    async def next(self) -> bytes:
        """Wait for events and return them; nothing at the end. A cancellation loses none. The caller bounds the wait."""


class _SessionLines(Viewing):
    """The lines of the session as they are said."""

    def __init__(self, watched: _Watched, *, grant: ObserverGrant | None, since: int | None) -> None:
        super().__init__(watched, grant=grant)
        self._follower = Follower(watched.log, since=since, scrub=self.scrub)
        self._excerpt: Excerpt | None = None

    async def next(self) -> bytes:
        """Wait for lines and return them as events."""
        excerpt = self._excerpt = self._excerpt or await self._follower.next()
        if excerpt is None:
            return b""
        events = await events_of(excerpt)
        self._excerpt = None
        return b"".join(events)


class _Updates(Viewing):
    """The changes of the live page."""

    def __init__(self, watched: _Watched, *, grant: ObserverGrant | None, since: int | None) -> None:
        super().__init__(watched, grant=grant)
        self._timeline = watched.timeline(scrub=self.scrub)
        self._revision = since or 0

    async def next(self) -> bytes:
        """Wait for a change and return it as one event."""
        while True:
            revision, event = await self._timeline.changes(self._revision)
            if event:
                self._revision = revision
                return event
            if not await self._timeline.rest():
                return b""


class Observatory:
    """Knows the observed sessions of a gateway, and who may see them.

    Args:
        door: knows the owners of tokens.
        limits: `observers`, `observed_bytes` and `heartbeat` are used.
        observable: keep the lines of every session from its beginning, and let owners watch their sessions with their own tokens.
    """

    def __init__(self, door: Door, *, limits: GatewayLimits, observable: bool) -> None:
        self._door = door
        self._limits = limits
        self._observable = observable
        self._watched: dict[str, _Watched] = {}
        self._over: list[str] = []  # sessions that have ended, the oldest first
        self._grants: dict[bytes, ObserverGrant] = {}  # by the digest of the token

    def session_begun(self, session: Session) -> None:
        """Keep the lines of a new session, if every session can be observed."""
        if self._observable:
            self.watch(session)

    def session_over(self, session: Session) -> None:
        """Tell the observers of a session that it is over, once. It can be read for a while."""
        watched = self._watched.get(session.id)
        if watched is None:
            return
        info = session.transport.info
        watched.log.end(exit_code=info.exit_code, signal=info.signal)
        self._over.append(session.id)
        while len(self._over) > _KEPT_AFTER_END:
            gone = self._over.pop(0)
            del self._watched[gone]
            self._grants = {digest: grant for digest, grant in self._grants.items() if grant.session != gone}

    def watch(self, session: Session) -> None:
        """Keep the lines of a session from now on. Does nothing when they are kept already."""
        if session.id not in self._watched:
            self._watched[session.id] = _Watched(session, max_bytes=self._limits.observed_bytes)

    def grant(self, session: Session, *, scrub: bool) -> ObserverGrant:
        """Make a token with which `session` can be watched."""
        self.watch(session)
        grant = ObserverGrant(token=secrets.token_urlsafe(32), session=session.id, scrub=scrub, on_revoke=self._revoke)
        self._grants[_digest(grant.token)] = grant
        return grant

    def _revoke(self, grant: ObserverGrant) -> None:
        self._grants.pop(_digest(grant.token), None)
        watched = self._watched.get(grant.session)
        for scope, used in [*(watched.viewers.items() if watched is not None else ())]:
            if used is grant:
                scope.cancel()

    def close(self) -> None:
        """End the connections of all observers."""
        for watched in self._watched.values():
            for scope in [*watched.viewers]:
                scope.cancel()

    # Requests

    def answer(self, request: HandshakeRequest, *, route: re.Match[str], certified: str | None) -> Page | Viewing:
        """Return the answer to the request of an observer. `route` is that of its path: see `route_of()`.

        Raises:
            TurnedAway: the observer is refused.
        """
        self._door.check_origin(request.origin)
        session, what = route.groups()
        if session is None:
            return self._list(request, certified)
        if what is None:
            # the same page for every id: it holds nothing of a session
            headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": live_policy(), **_SAFE}
            return Page(status=200, text=render_live_page(), headers={**headers, "x-frame-options": "DENY"})
        return self._view(request, session, lines=what == "/events", certified=certified)

    def _list(self, request: HandshakeRequest, certified: str | None) -> Page:
        """Return the sessions that an owner may watch, as JSON."""
        owner = self._door.admit(request.bearer_token, certified=certified)
        if not self._observable:
            raise TurnedAway("session", "owners may not watch their sessions here: ask for an observer's token")
        seen = [watched for watched in self._watched.values() if watched.session.owner == owner]
        rows = [
            {
                "session": watched.session.id,
                "mode": watched.session.mode,
                "started_at": watched.session.started_at.isoformat(),
                "busy": watched.session.activity.busy,
                "ended": watched.log.ended,
                "lines": watched.log.last,
            }
            for watched in seen
        ]
        return Page(status=200, text=msgspec.json.encode(rows).decode() + "\n", headers={"content-type": "application/json", **_SAFE})

    def _view(self, request: HandshakeRequest, session: str, *, lines: bool, certified: str | None) -> Viewing:
        watched, grant = self._admit(request.bearer_token, session, certified=certified)
        if len(watched.viewers) >= self._limits.observers:
            raise TurnedAway("limit", "this session has as many observers as it may have: try again later", retryable=True)
        since = _read_position(request.headers.get("last-event-id"))
        try:
            return (_SessionLines if lines else _Updates)(watched, grant=grant, since=since)
        except ReplayGap as exc:
            raise TurnedAway("replay_gap", str(exc)) from exc

    def _admit(self, token: str | None, session: str, *, certified: str | None) -> tuple[_Watched, ObserverGrant | None]:
        """Return the session that this token may watch, and the grant of the token; None when it is the token of the owner."""
        grant = None if token is None else self._grants.get(_digest(token))
        if grant is not None:
            watched = self._watched.get(session) if grant.session == session else None
        else:
            owner = self._door.admit(token, certified=certified)
            watched = self._watched.get(session) if self._observable else None
            watched = watched if watched is not None and watched.session.owner == owner else None
        if watched is None:
            raise TurnedAway("session", "there is no such session to watch, or it has ended")
        return watched, grant

    # Streams of events

    async def show(self, viewing: Viewing, send: Send, gone: Callable[[], Awaitable[object]]) -> bool:
        """Send events to an observer until the session has ended, the observer has left or is stuck, or its token is revoked.

        `gone` returns when the observer has left. Returns True when the observer has got everything up to the end of the session.
        """
        told_all = False
        with self._place(viewing) as scope, scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, gone, tasks.cancel_scope)
                told_all = await self._send_all(viewing, send)
                tasks.cancel_scope.cancel()
        return told_all

    async def _send_all(self, viewing: Viewing, send: Send) -> bool:
        heartbeat = self._limits.heartbeat
        while True:
            events = HEARTBEAT
            with anyio.move_on_after(min(heartbeat, _MAX_SILENCE)):
                events = await viewing.next()
            told = events or encode_event(b"{}", kind="end")
            try:
                for start in range(0, len(told), _PIECE_BYTES):
                    with anyio.fail_after(2 * heartbeat):
                        await send(told[start : start + _PIECE_BYTES])
            except (TimeoutError, ClaudeTransportError, *GONE):
                return False  # it is stuck, or it has left
            if not events:
                return True

    @contextmanager
    def _place(self, viewing: Viewing) -> Iterator[anyio.CancelScope]:
        scope, grant = anyio.CancelScope(), viewing.grant
        viewing.watched.viewers[scope] = grant
        is_revoked = grant is not None and _digest(grant.token) not in self._grants
        if is_revoked or len(viewing.watched.viewers) > self._limits.observers:
            scope.cancel()  # the token was revoked, or others have come, between the request and this moment
        try:
            yield scope
        finally:
            del viewing.watched.viewers[scope]


async def _until_gone(gone: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
    await gone()
    scope.cancel()


def route_of(target: str, *, below: str) -> re.Match[str] | None:
    """Return the session and the page that the path of a request names; None when it is no path for observers."""
    path, root = target.partition("?")[0], below.rstrip("/")
    return _ROUTE.fullmatch(path.removeprefix(root) if root and path.startswith(f"{root}/") else path)


def _read_position(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not _POSITION.fullmatch(text):
        raise TurnedAway("malformed", "Last-Event-ID is not the id of an event: a whole number")
    return int(text)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
